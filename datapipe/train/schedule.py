"""
The learning rate as a pure function of progress, in the unit that the manifest declares: optimizer steps or targets.

Progress is what was *applied*: a step that is skipped moves neither the schedule nor the optimizer's own count.
"""

import math

from datapipe.train.config import Schedule


def factor(schedule: Schedule, progress: float, size: float, whole: float) -> float:
    """
    What the base rate is multiplied by for the step that begins at `progress` and is `size` long, of a run of `whole`.

    All in the schedule's unit; the size of a step is 1 step, or its targets.  Warm-up is linear in where a step ends,
    so the first one is not 0 and the last one is 1.  cosine falls from there to `floor` at `whole`; wsd stays at 1
    until `decay` units before the end, then falls linearly to `floor`.
    """
    if progress < schedule.warmup:
        return min(1.0, (progress + size) / schedule.warmup)
    match schedule.kind:
        case "constant":
            return 1.0
        case "cosine":
            span = max(whole - schedule.warmup, 1e-9)
            share = min((progress - schedule.warmup) / span, 1.0)
            return schedule.floor + (1 - schedule.floor) * 0.5 * (1 + math.cos(math.pi * share))
        case "wsd":
            start = whole - schedule.decay
            if schedule.decay == 0 or progress < start:
                return 1.0
            return 1 + (schedule.floor - 1) * min((progress - start) / schedule.decay, 1.0)
