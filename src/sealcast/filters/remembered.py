"""What was compiled, remembered up to so many bytes: a bound on how many there are bounds nothing when one is large."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

#: What a condition may take for each character of its text: a name or a number of one is a node of the tree.
CONDITION_BYTES: Final = 512

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """`make`, called once for what is asked again. What was asked least recently is made again, nothing worse."""

    def __init__(self, make: Callable[[K], V], weigh: Callable[[K, V], int], most_bytes: int) -> None:
        """`weigh`: bytes that one of them may come to take."""
        self._make, self._weigh, self._most = make, weigh, most_bytes
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._guard = threading.Lock()
        self.bytes = 0

    def __call__(self, key: K) -> V:
        with self._guard:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found[0]
        made = self._make(key)
        weight = self._weigh(key, made)
        with self._guard:
            if key not in self._kept:
                self._kept[key] = made, weight
                self.bytes += weight
            while self.bytes > self._most:
                self.bytes -= self._kept.popitem(last=False)[1][1]
        return made

    def __len__(self) -> int:
        return len(self._kept)
