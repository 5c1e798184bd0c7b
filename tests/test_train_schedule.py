"""The learning rate as a function of progress."""

import math

import pytest
import torch
import training

from datapipe.train.config import Schedule
from datapipe.train.schedule import factor


def course(steps: int, whole: float | None = None, size: float = 1, **keys) -> list[float]:
    schedule = Schedule.model_validate(keys)
    return [factor(schedule, at * size, size, steps * size if whole is None else whole) for at in range(steps)]


def test_constant():
    assert course(4, kind="constant") == [1.0] * 4


@pytest.mark.parametrize("kind", [{"kind": "constant"}, {"kind": "cosine"}, {"kind": "wsd", "decay": 2}])
def test_warmup_begins_above_nothing_and_ends_at_one(kind):
    assert course(10, warmup=4, **kind)[:4] == [0.25, 0.5, 0.75, 1.0]


def test_cosine():
    found = course(101, 100, kind="cosine", floor=0.1)
    assert found[0] == 1.0
    assert found[50] == pytest.approx(0.55)
    assert found[100] == pytest.approx(0.1)
    assert found == sorted(found, reverse=True)
    warmed = course(110, kind="cosine", warmup=10)
    assert warmed[10:] == pytest.approx([0.5 * (1 + math.cos(math.pi * at / 100)) for at in range(100)])


def test_wsd():
    found = course(100, kind="wsd", warmup=10, decay=20, floor=0.2)
    assert found[9:81] == [1.0] * 72
    assert found[90] == pytest.approx(0.6)
    assert factor(Schedule(kind="wsd", decay=20, floor=0.2), 100, 1, 100) == pytest.approx(0.2)


def test_beyond_the_end_is_the_end():
    for keys in ({"kind": "cosine", "floor": 0.1}, {"kind": "wsd", "decay": 5, "floor": 0.1}):
        assert factor(Schedule.model_validate(keys), 500, 1, 100) == pytest.approx(0.1)


def test_the_unit_of_targets():
    """Steps of 100 targets follow the same course as steps; the first of a warm-up is as long as it is."""
    for keys in ({"kind": "cosine", "warmup": 4}, {"kind": "wsd", "warmup": 4, "decay": 3}):
        scaled = {key: value * 100 if isinstance(value, int) else value for key, value in keys.items()}
        assert course(20, size=100, unit="targets", **scaled) == pytest.approx(course(20, **keys))


def test_a_step_takes_the_rate_of_what_was_applied():
    torch.set_num_threads(1)
    targets = training.step("schedule={kind: cosine, unit: targets}")
    targets.whole = 208.0
    rates = [targets.run(window).lr for window in ([training.uneven()], [training.batch([[], []], 13)],
                                                   [training.uneven()], [training.uneven()])]  # fmt: skip
    assert [rate / 6e-3 for rate in rates] == pytest.approx([1.0, 0.5, 0.5, 0.0])
    steps = training.step("schedule={kind: wsd, decay: 3, warmup: 2}", "steps=6")
    rates = [steps.run([training.uneven()]).lr / 6e-3 for _ in range(6)]
    assert rates == pytest.approx([0.5, 1, 1, 1, 2 / 3, 1 / 3])
