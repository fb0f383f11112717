"""Derived key tables (docs/group-keys.md) with real keys: the broker's side, and what a subscriber holds of one.

    topic secret --> root label of a tile's table --> a label a node --> a leaf a pattern: the key of that pattern

A table is named by the slots of its tile in their order: two workers that lay their tiles differently have different
tables, and never give one key to two sets of members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from sealcast.errors import CannotOpen
from sealcast.filters.bits import Indices
from sealcast.groupkeys.mosaic.tables import all_paths, labels_of, path_of
from sealcast.primitives import kdf, labels
from sealcast.primitives.labels import LABEL_BYTES
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.endpoint.keys import encode_slots
from sealcast.wire.limits import TABLE_NAME_BYTES

#: Of a table in use, labels are kept to this depth: all of those of a dozen, in a quarter of a megabyte. Below it, the
#: steps to a leaf are taken each time.
MAX_WARM_STEPS: Final = 14
MAX_WARM_TABLES: Final = 256
WRAP: Final = b"wrap"
LINK: Final = b"link"


def table_name(topic_secret: Secret, slots: Sequence[int]) -> bytes:
    """The first 12 bytes of the ids of a table's keys; the pattern (u32, big-endian) follows."""
    return kdf.derive(topic_secret, b"table id", encode_slots(slots), length=16).reveal()[:TABLE_NAME_BYTES]


def key_id(name: bytes, pattern: int) -> bytes:
    return name + pattern.to_bytes(4, "big")


class TableKeys(Unpicklable):
    """The broker's side: any key of any table, and any subscriber's part of one."""

    def __init__(self, topic_secret: Secret) -> None:
        self._topic_secret = topic_secret
        self._warm = lru_cache(MAX_WARM_TABLES)(self._expand)

    def key(self, slots: tuple[int, ...], pattern: int) -> bytes:
        """The key of one pattern (by place in `slots`)."""
        return self.keys(slots, np.array([pattern], np.int64))[0]

    def keys(self, slots: tuple[int, ...], patterns: Indices) -> list[bytes]:
        """The keys of many."""
        path: list[int] = all_paths(len(slots))[patterns].tolist()
        cold = max(0, len(slots) - MAX_WARM_STEPS)
        above = self._warm(slots)
        if not cold:
            return [above[p] for p in path]
        return labels.descend_many([above[p >> cold] for p in path], path, cold)

    def parts(self, slots: tuple[int, ...], wanted: Sequence[int]) -> list[bytes]:
        """What the subscribers in some of the slots are given: their labels in the order of `labels_of`, in one piece.

        The whole table is expanded for it: asking for all members of a tile together costs as much as for one.
        """
        places = len(slots)
        levels = [self._root(slots)]
        for _ in range(places):
            levels.append(labels.expand(levels[-1], 1))
        found = []
        for slot in wanted:
            at = [(levels[depth], LABEL_BYTES * path) for depth, path in labels_of(slots.index(slot), places)]
            found.append(b"".join([level[i : i + LABEL_BYTES] for level, i in at]))
        return found

    def _root(self, slots: tuple[int, ...]) -> bytes:
        return kdf.derive(self._topic_secret, b"table", encode_slots(slots)).reveal()

    def _expand(self, slots: tuple[int, ...]) -> list[bytes]:
        level = labels.expand(self._root(slots), min(len(slots), MAX_WARM_STEPS))
        return [level[i : i + LABEL_BYTES] for i in range(0, len(level), LABEL_BYTES)]


def part_bytes(place: int, places: int) -> int:
    """How much the subscriber at a place is given."""
    return LABEL_BYTES * len(labels_of(place, places))


class TablePart(Unpicklable):
    """A subscriber's side: the keys of the patterns that it belongs to, and of no other."""

    def __init__(self, place: int, places: int, part: bytes) -> None:
        wanted = labels_of(place, places)
        if len(part) != LABEL_BYTES * len(wanted):
            raise CannotOpen(f"a part of this table has {LABEL_BYTES * len(wanted)} bytes, not {len(part)}")
        self._place, self._places = place, places
        self.nbytes = len(part)
        self._part = part

    def covers(self, pattern: int) -> bool:
        """Does this subscriber belong to the pattern?"""
        return 0 < pattern < 1 << self._places and bool(pattern >> self._place & 1)

    def key(self, pattern: int) -> bytes:
        """The key of a pattern with this subscriber's place, or CannotOpen."""
        if not self.covers(pattern):
            raise CannotOpen("this was sealed for others of this subscriber's tile")
        path, asked = path_of(pattern, self._places)
        depth = 1 + asked.index(self._place)
        left = self._places - depth
        at = LABEL_BYTES * _label_index(self._place, self._places)[depth, path >> left]
        return labels.descend(self._part[at : at + LABEL_BYTES], path & (1 << left) - 1, left)


@lru_cache(64)
def _label_index(place: int, places: int) -> Mapping[tuple[int, int], int]:
    """Where in a part each label stands: the same for all tables of one size."""
    return {node: i for i, node in enumerate(labels_of(place, places))}
