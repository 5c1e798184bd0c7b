"""What was last used stays in memory, up to a size; made once, however many threads ask for it."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """Values by key; the one that was not asked for longest goes first."""

    def __init__(self, room: int, size: Callable[[Value], int]):
        """`room`: what the sizes of all may come to, in units of `size`; one that is larger is kept alone."""
        self._room, self._size = room, size
        self._used = 0
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._sizes: dict[Key, int] = {}
        self._making: dict[Key, Future[Value]] = {}
        self._lock = threading.Lock()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key; the first thread that asks makes it, the others wait."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            others = self._making.get(key)
            mine = self._making[key] = others or Future[Value]()
        if others is not None:
            return others.result()
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._making[key]
            self._add(key, value)
        mine.set_result(value)
        return value

    def _add(self, key: Key, value: Value) -> None:
        self._values[key] = value
        self._sizes[key] = self._size(value)
        self._used += self._sizes[key]
        while self._used > self._room and len(self._values) > 1:
            oldest, _ = self._values.popitem(last=False)
            self._used -= self._sizes.pop(oldest)
