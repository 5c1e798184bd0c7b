"""Batches made ahead of their taker, by a thread of this process that ends with whoever started it."""

import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, Self

from datapipe.feed.batch import Batch
from datapipe.feed.course import Course
from datapipe.feed.state import Progress


class Ahead:
    """
    The batches of a course from a position on, `number` of them or without end; at most `depth` wait to be taken.

    Each comes with what `form` makes of it, in the thread too; that must not hold whoever holds this object.
    An error is raised where its batch would have come.  The thread knows the queue and not this object: it ends when
    this is closed, collected, or the process ends.
    """

    def __init__(
        self, course: Course, at: Progress, number: int | None, depth: int, form: Callable[[Batch], Any]
    ) -> None:
        self._course, self._at, self._left, self._form = course, at, number, form
        self._closed, self._pid = False, os.getpid()
        self._queue: queue.Queue | None = None
        if not depth:
            return
        self._queue, stop = queue.Queue(depth), threading.Event()
        thread = threading.Thread(
            target=_fill, args=(self._queue, stop, course, at, number, form), name="datapipe-feed", daemon=True
        )
        self._end = weakref.finalize(self, _end, self._pid, self._queue, stop, thread)  # also before the process ends
        thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Progress, Any]:
        """Where the loader stands after a batch, and the batch as it was formed."""
        if self._closed or self._left == 0:
            self.close()
            raise StopIteration
        if self._queue is None:
            batch = self._course.batch(self._at)
            self._at = batch.after
            made = self._at, self._form(batch)
        else:
            if self._pid != os.getpid():
                raise RuntimeError("an iteration does not go on in a forked process: begin one there, on loader.copy()")
            made = self._queue.get()
            if isinstance(made, BaseException):
                self.close()
                raise made
        if self._left is not None:
            self._left -= 1
        return made

    def close(self) -> None:
        self._closed = True
        if self._queue is not None:
            self._end()


def _fill(
    waiting: queue.Queue, stop: threading.Event, course: Course, at: Progress, number: int | None,
    form: Callable[[Batch], Any],
) -> None:  # fmt: skip
    while number is None or number > 0:
        try:
            batch = course.batch(at)
            at = batch.after
            made: Any = at, form(batch)
        except BaseException as error:  # noqa: BLE001  raised in the taker's thread
            made, number = error, 0
        if stop.is_set():
            return
        waiting.put(made)
        if stop.is_set():
            return
        number = None if number is None else number - 1


def _end(pid: int, waiting: queue.Queue, stop: threading.Event, thread: threading.Thread) -> None:
    if pid != os.getpid():  # a forked process has the queue, perhaps locked, and not the thread
        return
    stop.set()
    while thread.is_alive():
        with contextlib.suppress(queue.Empty):
            waiting.get(timeout=0.01)  # room for the one it may be putting
        thread.join(0.01)
