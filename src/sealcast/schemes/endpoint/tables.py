"""Derived key tables (docs/group-keys.md) with real keys: the broker's side, and what a subscriber holds of one.

    topic secret --> root label of a tile's table --> a label a node --> a leaf a pattern: the key of that pattern

A table is named by the slots of its tile in their order: two workers that lay their tiles differently have different
tables, and never give one key to two sets of members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from sealcast.errors import CannotOpen
from sealcast.filters.bits import Indices
from sealcast.groupkeys.mosaic.tables import labels_of, path_of, paths
from sealcast.primitives import kdf, labels
from sealcast.primitives.labels import LABEL_BYTES
from sealcast.primitives.secrets import Secret, Unpicklable

#: The last steps to a leaf are taken each time. The labels above them are kept: a megabyte a tile of sixteen whose
#: table is in use, what the expanded ciphers of some 400 cached keys take.
COLD_STEPS: Final = 2
MAX_WARM_TABLES: Final = 256
WRAP: Final = b"wrap"
LINK: Final = b"link"
_NAME_BYTES: Final = 12
#: Below, vectors cost more than they save.
_FEW: Final = 64


def table_name(topic_secret: Secret, slots: Sequence[int]) -> bytes:
    """The first 12 bytes of the ids of a table's keys; the pattern (u32, big-endian) follows."""
    return kdf.derive(topic_secret, b"table id", _encode(slots), length=16).reveal()[:_NAME_BYTES]


def key_id(name: bytes, pattern: int) -> bytes:
    return name + pattern.to_bytes(4, "big")


class TableKeys(Unpicklable):
    """The broker's side: any key of any table, and any subscriber's part of one."""

    def __init__(self, topic_secret: Secret) -> None:
        self._topic_secret = topic_secret
        self._warm = lru_cache(MAX_WARM_TABLES)(self._expand)

    def key(self, slots: tuple[int, ...], pattern: int) -> bytes:
        """The key of one pattern (by place in `slots`)."""
        return self._at(slots, [path_of(pattern, len(slots))[0]])[0]

    def keys(self, slots: tuple[int, ...], patterns: Indices) -> list[bytes]:
        """The keys of many."""
        places = len(slots)
        if patterns.size < _FEW:
            return self._at(slots, [path_of(pattern, places)[0] for pattern in patterns.tolist()])
        return self._at(slots, paths(patterns, places)[0].tolist())

    def _at(self, slots: tuple[int, ...], path: list[int]) -> list[bytes]:
        cold = min(COLD_STEPS, len(slots))
        above = self._warm(slots)
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
        return kdf.derive(self._topic_secret, b"table", _encode(slots)).reveal()

    def _expand(self, slots: tuple[int, ...]) -> list[bytes]:
        level = labels.expand(self._root(slots), max(0, len(slots) - COLD_STEPS))
        return [level[i : i + LABEL_BYTES] for i in range(0, len(level), LABEL_BYTES)]


class TablePart(Unpicklable):
    """A subscriber's side: the keys of the patterns that it belongs to, and of no other."""

    def __init__(self, place: int, places: int, part: bytes) -> None:
        wanted = labels_of(place, places)
        if len(part) != LABEL_BYTES * len(wanted):
            raise CannotOpen(f"a part of this table has {LABEL_BYTES * len(wanted)} bytes, not {len(part)}")
        self._place, self._places = place, places
        self._labels: Mapping[tuple[int, int], bytes] = {
            node: part[LABEL_BYTES * i : LABEL_BYTES * i + LABEL_BYTES] for i, node in enumerate(wanted)
        }

    def key(self, pattern: int) -> bytes:
        """The key of a pattern with this subscriber's place, or CannotOpen."""
        if not 0 < pattern < 1 << self._places or not pattern >> self._place & 1:
            raise CannotOpen("this was sealed for others of this subscriber's tile")
        path, asked = path_of(pattern, self._places)
        depth = 1 + asked.index(self._place)
        left = self._places - depth
        return labels.descend(self._labels[depth, path >> left], path & (1 << left) - 1, left)


def _encode(slots: Sequence[int]) -> bytes:
    return b"".join(slot.to_bytes(4, "big") for slot in slots)
