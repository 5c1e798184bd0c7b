"""How far the work is: bars on a terminal, else a line every ten seconds, on stderr."""

import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

EVERY = 10.0  # seconds between two lines


class Progress:
    """
    Called with (what is done, how much of it, of how much or None), from any thread.

    Use it in a `with`: at its end the bars are taken away, and no line is written any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._state: tuple[str, int, int | None] | None = None
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._teller = threading.Thread(target=self._tell, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bars = _bars()
            self._bars.start()
        else:
            self._teller.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        if self._bars is not None:
            self._bars.stop()
        else:
            self._teller.join()

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        with self._lock:
            self._state = what, done, total
            if self._bars is not None:
                if what not in self._tasks:
                    self._tasks[what] = self._bars.add_task(what, total=total)
                self._bars.update(self._tasks[what], completed=done, total=total)

    def _tell(self) -> None:
        """A line now and then, also while one long step says nothing."""
        while not self._ended.wait(EVERY):
            with self._lock:
                state = self._state
            if state is not None:
                seconds = time.monotonic() - self._started
                print(f"{state_line(*state)} ({seconds:.0f} s)", file=sys.stderr, flush=True)


def state_line(what: str, done: int, total: int | None) -> str:
    """reading: 3 of 10; or what is done alone, where it has not been counted."""
    if total is not None:
        return f"{what}: {done:,} of {total:,}"
    return f"{what}: {done:,}" if done else what


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    # names of stages come from a manifest: they are no markup
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
