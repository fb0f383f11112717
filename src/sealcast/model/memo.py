"""What was made lately, remembered, and what is new made together: `functools.lru_cache` for batches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """At most so many values, those that were asked for last. One thread at a time, or each makes what another does."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: OrderedDict[K, V] = OrderedDict()
        #: How many values were made, for whoever counts.
        self.made = 0

    def many(self, keys: Sequence[K], make: Callable[[Sequence[K]], Sequence[V]]) -> list[V]:
        """The value of each key, in order. `make` gets each new key once."""
        known = self._known
        if all(map(known.__contains__, keys)):  # as it is most of the time
            for key in keys:
                known.move_to_end(key)
            return [known[key] for key in keys]
        asked = dict.fromkeys(keys)
        found = {key: known[key] for key in asked if key in known}
        new = [key for key in asked if key not in found]
        if new:
            found.update(zip(new, make(new), strict=True))
            self.made += len(new)
        for key in asked:
            known[key] = found[key]
            known.move_to_end(key)
        while len(known) > self._size:
            known.popitem(last=False)
        return [found[key] for key in keys]

    def clear(self) -> None:
        self._known.clear()
