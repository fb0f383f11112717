"""Which sub-groups keep a key when there is room for only so many: the policies of a cache, on whole runs of look-ups.

A policy never sees a key or a group, only names of groups (anything hashable that is equal for equal groups). Its
decisions depend on one another, so that this is the one place of the room that goes through look-ups one at a time:
no object is made for any of them, and everything around is vectorised.

    lru         least recently used: a hit moves to the front, a newcomer takes the place of the oldest
    frequency   exact counts over the whole history; a newcomer replaces the least frequent entry if its own count is at
                least as high, and among equals the entry that entered first goes
    tinylfu     the same idea in bounded memory: a small recent window, and entry to the main part only for names that
                a sketch with fading memory takes for more frequent than what they would push out
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from heapq import heappush, heapreplace
from typing import Final, Protocol

from sealcast.errors import Misuse

#: What a look-up comes to. DECLINED and ADMITTED are misses; after ADMITTED the name is held.
NOBODY, DECLINED, ADMITTED, HIT = 0, 1, 2, 3


class Policy(Protocol):
    """A bounded set of names that learns from being asked."""

    #: Names that left during the last run of look-ups, in order; a name may have come back since.
    evicted: list[Hashable]

    def look_up(self, names: Sequence[Hashable]) -> bytearray:
        """Asks for each name in turn and says what it came to. A name that is not held may be taken in."""
        ...

    def __contains__(self, name: Hashable) -> bool: ...

    def __len__(self) -> int: ...


class Lru:
    """Least recently used."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evicted: list[Hashable] = []
        self._held: OrderedDict[Hashable, None] = OrderedDict()

    def __contains__(self, name: Hashable) -> bool:
        return name in self._held

    def __len__(self) -> int:
        return len(self._held)

    def look_up(self, names: Sequence[Hashable]) -> bytearray:
        held, move, evicted = self._held, self._held.move_to_end, []
        room = self.capacity - len(held)
        found = bytearray(len(names)) if self.capacity else bytearray([DECLINED]) * len(names)
        for i, name in enumerate(names if self.capacity else ()):
            if name in held:
                move(name)
                found[i] = HIT
                continue
            if room:
                room -= 1
            else:
                evicted.append(held.popitem(last=False)[0])
            held[name] = None
            found[i] = ADMITTED
        self.evicted = evicted
        return found


class Frequency:
    """Exact counts of everything ever asked for: the paper's "smart" cache, made real. Its memory grows without bound.

    The least frequent entry is found by a heap whose entries may be out of date: a count only grows, so that what
    stands in the heap is never too high, and an entry is brought up to date when it comes to the top.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evicted: list[Hashable] = []
        self._asked: dict[Hashable, int] = {}
        self._held: set[Hashable] = set()
        #: (count when last seen, order of entry, name): the top, once up to date, is the one to go.
        self._heap: list[tuple[int, int, Hashable]] = []
        self._entries = 0

    def __contains__(self, name: Hashable) -> bool:
        return name in self._held

    def __len__(self) -> int:
        return len(self._held)

    def look_up(self, names: Sequence[Hashable]) -> bytearray:
        asked, held, heap = self._asked, self._held, self._heap
        found, evicted = bytearray(len(names)), []
        for i, name in enumerate(names):
            asked[name] = count = asked.get(name, 0) + 1
            if name in held:
                found[i] = HIT
                continue
            if len(held) >= self.capacity:
                least = self._least()
                if least is None or count < least:
                    found[i] = DECLINED
                    continue
                gone = heapreplace(heap, (count, self._entries, name))[2]
                held.remove(gone)
                evicted.append(gone)
            else:
                heappush(heap, (count, self._entries, name))
            self._entries += 1
            held.add(name)
            found[i] = ADMITTED
        self.evicted = evicted
        return found

    def _least(self) -> int | None:
        heap, asked = self._heap, self._asked
        while heap:
            count, entry, name = heap[0]
            now = asked[name]
            if now == count:
                return count
            heapreplace(heap, (now, entry, name))
        return None


class TinyLfu:
    """Frequency in bounded memory (Einziger, Friedman and Manes: TinyLFU), with a window for what is new.

    New names enter a window of recent ones. What falls out of it competes for the main part with the least recently
    used name there, and the sketch decides. The main part keeps names that were hit again apart from those on trial.
    """

    #: Of the room, for the window and, of the rest, for names that were hit again.
    WINDOW: Final = 0.01
    PROTECTED: Final = 0.8

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evicted: list[Hashable] = []
        self._window_room = max(1, round(capacity * self.WINDOW)) if capacity else 0
        self._main_room = capacity - self._window_room
        self._protected_room = int(self._main_room * self.PROTECTED)
        self._window: OrderedDict[Hashable, None] = OrderedDict()
        self._trial: OrderedDict[Hashable, None] = OrderedDict()
        self._protected: OrderedDict[Hashable, None] = OrderedDict()
        self._sketch = Sketch(capacity)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._window or name in self._trial or name in self._protected

    def __len__(self) -> int:
        return len(self._window) + len(self._trial) + len(self._protected)

    def look_up(self, names: Sequence[Hashable]) -> bytearray:
        self.evicted = []
        found = bytearray(len(names))
        for i, name in enumerate(names):
            self._sketch.add(name)
            if name in self._window:
                self._window.move_to_end(name)
                found[i] = HIT
            elif name in self._protected:
                self._protected.move_to_end(name)
                found[i] = HIT
            elif name in self._trial:
                self._protect(name)
                found[i] = HIT
            elif self.capacity:
                self._window[name] = None
                if len(self._window) > self._window_room:
                    self._compete(self._window.popitem(last=False)[0])
                found[i] = ADMITTED
            else:
                found[i] = DECLINED
        return found

    def _protect(self, name: Hashable) -> None:
        if not self._protected_room:
            self._trial.move_to_end(name)
            return
        del self._trial[name]
        self._protected[name] = None
        if len(self._protected) > self._protected_room:
            self._trial[self._protected.popitem(last=False)[0]] = None

    def _compete(self, name: Hashable) -> None:
        """A name fell out of the window: is it worth more than the oldest on trial?"""
        if len(self._trial) + len(self._protected) < self._main_room:
            self._trial[name] = None
            return
        on_trial = self._trial or self._protected
        if not on_trial:
            self.evicted.append(name)
            return
        oldest = next(iter(on_trial))
        if self._sketch.estimate(name) > self._sketch.estimate(oldest):
            del on_trial[oldest]
            self._trial[name] = None
            self.evicted.append(oldest)
        else:
            self.evicted.append(name)


class Sketch:
    """About how often a name was asked for lately: four rows of small counters, all halved once in a while.

    A name's count is the least of its four counters, so that it is never too low (count-min). Places come from a
    cryptographic hash, hence nobody can choose groups whose counters meet.
    """

    ROWS: Final = 4
    #: Counters stop here: beyond, popular is popular enough.
    MOST: Final = 15
    #: After so many look-ups an entry of the cache, all counters are halved.
    FADE: Final = 10

    def __init__(self, capacity: int) -> None:
        self._mask = (1 << max(4, (2 * capacity - 1).bit_length())) - 1
        self._counters = [bytearray(self._mask + 1) for _ in range(self.ROWS)]
        self._until_fade = self._period = self.FADE * max(1, capacity)

    def add(self, name: Hashable) -> None:
        for row, at in zip(self._counters, self._places(name), strict=True):
            if row[at] < self.MOST:
                row[at] += 1
        self._until_fade -= 1
        if not self._until_fade:
            self._until_fade = self._period
            self._counters = [row.translate(_HALVED) for row in self._counters]

    def estimate(self, name: Hashable) -> int:
        return min(row[at] for row, at in zip(self._counters, self._places(name), strict=True))

    def _places(self, name: Hashable) -> list[int]:
        digest = blake2b(name if isinstance(name, bytes) else repr(name).encode(), digest_size=16).digest()
        return [int.from_bytes(digest[4 * i : 4 * i + 4], "little") & self._mask for i in range(self.ROWS)]


_HALVED: Final = bytes(i // 2 for i in range(256))

POLICIES: Final[dict[str, Callable[[int], Policy]]] = {"lru": Lru, "frequency": Frequency, "tinylfu": TinyLfu}


def policy(name: str, capacity: int) -> Policy:
    """A new cache of that many entries."""
    if name not in POLICIES:
        raise Misuse(f"there is no cache policy {name!r}", hint=f"the policies are {', '.join(POLICIES)}")
    if capacity < 0:
        raise Misuse(f"a cache has 0 or more entries, not {capacity}")
    return POLICIES[name](capacity)
