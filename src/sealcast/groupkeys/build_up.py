"""The build-up cache (paper 000, section 4.2): a group that is not cached is put together from cached sub-groups.

Sub-groups are taken largest first (of equals, the one in the lower place of the cache) as long as they are disjoint
from those taken before; whoever is left over is served alone. A sub-group used counts as used, single-member entries
are not worth using, and the group itself is stored afterwards, in the place of what was not used for longest.

The paper carries the new group's key under the keys of the cover, so that storing it costs nothing more. Our handouts
go under pair keys, one a member: a group's key is therefore handed out when the group comes back, not when it is
stored, and the event that stores it goes out under the keys of the cover itself.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.clusters import fit
from sealcast.groupkeys.handed import DELIVERED, Handed
from sealcast.groupkeys.interface import GroupKey, KeyPlan, events_of
from sealcast.groupkeys.plans import OWN, assign


class BuildUp:
    """Least recently used. Members that came later than the planner are served under their pair keys."""

    name = "build-up"
    clusters = None

    def __init__(self, subscribers: int, cache: int) -> None:
        if cache < 0:
            raise Misuse(f"a cache has 0 or more entries, not {cache}")
        self._subscribers = subscribers
        self._capacity = cache
        #: From a group's bytes to its place, the least recently used first.
        self._place: OrderedDict[bytes, int] = OrderedDict()
        #: By place: the group (a row a word, so that a search touches few of them) and its size.
        self._words = np.zeros((bits.words_for(subscribers), cache), np.uint64)
        self._size = np.zeros(cache, np.int64)
        self._names: list[bytes] = []
        self._handed = Handed()

    def count(self, groups: Words, group_of: Indices | None = None) -> Indices:
        within = fit(groups, self._subscribers)
        size = bits.count(within)
        names = bits.row_bytes(within)
        total = bits.count(groups) - size
        cost = np.empty(events_of(groups, group_of).size, np.int64)
        for event, group in enumerate(events_of(groups, group_of).tolist()):
            cover = self._use(names[group], within[group], int(size[group]))
            cost[event] = total[group] + int(size[group]) - sum(int(self._size[p]) - 1 for p in cover)
            self._store(names[group], within[group], int(size[group]))
        return cost

    def plan(self, groups: Words, group_of: Indices | None = None, tag: int = DELIVERED) -> KeyPlan:
        within = fit(groups, self._subscribers)
        size, names = bits.count(within).tolist(), bits.row_bytes(within)
        cover: list[list[bytes]] = [[] for _ in names]
        saved = [0] * len(names)
        for group in events_of(groups, group_of).tolist():
            places = self._use(names[group], within[group], size[group])
            # The best cover of a group in this batch serves all of its events.
            if (saves := sum(int(self._size[place]) - 1 for place in places)) > saved[group]:
                saved[group] = saves
                cover[group] = [self._names[place] for place in places]
            self._store(names[group], within[group], size[group])
        return self._planned(groups, cover, tag)

    def settle(self, tag: int, delivered: bool) -> None:
        self._handed.settle(tag, delivered)

    def _use(self, name: bytes, group: Words, size: int) -> list[int]:
        """The places of the entries that serve a group: its own, or those of disjoint sub-groups."""
        if name in self._place:
            self._place.move_to_end(name)
            return [self._place[name]] if size else []
        cover, left = [], group.copy()
        for place in self._candidates(group, size):
            entry = self._words[:, place]
            if not np.any(entry & ~left):
                left &= ~entry
                cover.append(place)
                self._place.move_to_end(self._names[place])
        return cover

    def _candidates(self, group: Words, size: int) -> list[int]:
        """Places of proper sub-groups with at least two members, in the order in which they are tried."""
        held = len(self._names)
        found: NDArray[np.int64] = np.flatnonzero((self._size[:held] > 1) & (self._size[:held] < size))
        for row, word in zip(self._words, group, strict=True):
            found = found[(row[found] & ~word) == 0]
        order: list[int] = found[np.lexsort((found, -self._size[found]))].tolist()
        return order

    def _store(self, name: bytes, group: Words, size: int) -> None:
        if name in self._place or not size or not self._capacity:
            return
        if len(self._names) < self._capacity:
            place = len(self._names)
            self._names.append(name)
        else:
            gone, place = self._place.popitem(last=False)
            self._handed.forget((gone,))
            self._names[place] = name
        self._place[name] = place
        self._words[:, place] = group
        self._size[place] = size

    def _planned(self, groups: Words, cover: list[list[bytes]], tag: int) -> KeyPlan:
        group, slot = bits.pairs(groups)
        start = np.searchsorted(group, np.arange(groups.shape[0] + 1))
        key = np.full(slot.size, OWN, np.int64)
        refs: dict[bytes, tuple[int, Indices]] = {}
        for g, names in enumerate(cover):
            members_of_group = slot[start[g] : start[g + 1]]
            for name in names:
                if name not in refs:
                    refs[name] = len(refs), bits.pairs(np.frombuffer(name, np.uint64)[None, :])[1]
                at, members = refs[name]
                key[start[g] + np.searchsorted(members_of_group, members)] = at
        new = np.array([not self._handed.holds(name, tag) for name in refs], np.bool_)
        self._handed.add((name for name in refs if name in self._place), tag)
        keys = [GroupKey(tuple(members.tolist())) for _, members in refs.values()]
        return assign(groups.shape[0], group, slot, key, keys, new)
