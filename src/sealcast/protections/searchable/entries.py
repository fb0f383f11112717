"""The sealed labels that a broker searches, as columns: a million of them take a hundred megabytes, not a gigabyte.

    entry -> slot -> conjunction -> subscription

An entry is one label, re-encrypted: the key of its bucket, C and c3, and the token that turned out to be of its label.
Whose it is, which c3 is hashed with, is a column of conjunctions.
Numbers are given once and in order, so that what came after a moment is what has a higher number, and the entries of a
conjunction follow one another. A conjunction that was removed has no subscription any more.

The first slot of a conjunction is its anchor: an event that has no label of it need not be looked at. Slots of a sealed
filter are ordered by how many labels they have, so the anchor has the fewest, an equality rather than a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Indices
from sealcast.primitives.groups import Element
from sealcast.primitives.points import ELEMENT_BYTES
from sealcast.protections.searchable.scheme import BOUND_BYTES, CHECK_BYTES

#: In a conjunction's place for a subscription, when it was removed.
REMOVED: Final = -1
#: In an entry's place for a token, as long as none has claimed it.
UNCLAIMED: Final = 0


class GrowingColumn:
    """An array that grows at its end."""

    def __init__(self, dtype: Any) -> None:
        self._room: NDArray[Any] = np.empty(1024, dtype)
        self.size = 0

    @property
    def values(self) -> NDArray[Any]:
        return self._room[: self.size]

    def extend(self, more: Sequence[Any] | NDArray[Any]) -> None:
        size = self.size + len(more)
        if size > len(self._room):
            larger = np.empty(max(size, 2 * len(self._room)), self._room.dtype)
            larger[: self.size] = self.values
            self._room = larger
        self._room[self.size : size] = more
        self.size = size


class Entries:
    def __init__(self) -> None:
        self.keys = GrowingColumn(np.uint64)
        self._elements = GrowingColumn(f"V{ELEMENT_BYTES}")
        self._checks = GrowingColumn(f"V{CHECK_BYTES}")
        self.slots = GrowingColumn(np.int64)
        self.tokens = GrowingColumn(np.int64)
        #: Of each entry, and of each slot.
        self._conjunctions_of_entries = GrowingColumn(np.int64)
        self.conjunctions = GrowingColumn(np.int64)
        self._anchors = GrowingColumn(np.bool_)
        self.needed = GrowingColumn(np.int64)
        self.subscriptions = GrowingColumn(np.int64)
        self._bounds = GrowingColumn(f"V{BOUND_BYTES}")

    def __len__(self) -> int:
        return self.keys.size

    def add_conjunction(self, subscription: int, slots: int, bound: bytes) -> range:
        """The numbers of its slots. `bound` says whose it is (`scheme.Holder.bound`)."""
        first = self.conjunctions.size
        self.conjunctions.extend([self.needed.size] * slots)
        self._anchors.extend([True] + [False] * (slots - 1))
        self.needed.extend([slots])
        self.subscriptions.extend([subscription])
        self._bounds.extend(np.frombuffer(bound, self._bounds.values.dtype))
        return range(first, first + slots)

    def add(
        self, keys: Sequence[int] | NDArray[np.uint64], elements: bytes, checks: bytes, slots: Sequence[int] | Indices
    ) -> range:
        """The numbers of the new entries; their elements and checks come in one piece each."""
        first = len(self)
        self.keys.extend(np.asarray(keys, np.uint64))
        self._elements.extend(np.frombuffer(elements, f"V{ELEMENT_BYTES}"))
        self._checks.extend(np.frombuffer(checks, f"V{CHECK_BYTES}"))
        self.slots.extend(slots)
        self.tokens.extend(np.full(len(keys), UNCLAIMED))
        self._conjunctions_of_entries.extend(self.conjunctions.values[np.asarray(slots, np.int64)])
        return range(first, len(self))

    def claim(self, entries: Sequence[int], token: int) -> Indices:
        """Notes whose label these are; the anchors among their slots."""
        self.tokens.values[entries] = token
        slots = self.slots.values[entries]
        anchors: Indices = slots[self._anchors.values[slots]]
        return anchors

    def of_conjunctions(self, conjunctions: Indices) -> tuple[Indices, Indices]:
        """Where the entries of each conjunction begin, and how many they are."""
        owners = self._conjunctions_of_entries.values
        first = np.searchsorted(owners, conjunctions)
        return first, np.searchsorted(owners, conjunctions, side="right") - first

    def sealed(self, entries: Sequence[int]) -> tuple[list[Element], list[bytes], list[bytes]]:
        """C and c3 of these, and whose they are."""
        bounds = self._bounds.values[self._conjunctions_of_entries.values[entries]]
        return self._elements.values[entries].tolist(), self._checks.values[entries].tolist(), bounds.tolist()

    def subscription_of(self, entries: Sequence[int]) -> Indices:
        """`REMOVED` for those that were removed."""
        found: Indices = self.subscriptions.values[self._conjunctions_of_entries.values[entries]]
        return found

    def remove(self, subscriptions: Sequence[int]) -> NDArray[np.uint64]:
        """Leaves these subscriptions without conjunctions; the keys of the entries that they had, each as often."""
        gone = np.isin(self.subscriptions.values, subscriptions)
        self.subscriptions.values[gone] = REMOVED
        keys: NDArray[np.uint64] = self.keys.values[gone[self._conjunctions_of_entries.values]]
        return keys

    def compacted(self) -> Entries:
        """Only those that were not removed, numbered anew."""
        conjunctions = self.subscriptions.values != REMOVED
        slots = conjunctions[self.conjunctions.values]
        entries = slots[self.slots.values]
        found = Entries()
        found.needed.extend(self.needed.values[conjunctions])
        found.subscriptions.extend(self.subscriptions.values[conjunctions])
        found._bounds.extend(self._bounds.values[conjunctions])
        found.conjunctions.extend((np.cumsum(conjunctions) - 1)[self.conjunctions.values[slots]])
        found._anchors.extend(self._anchors.values[slots])
        found.add(
            self.keys.values[entries],
            self._elements.values[entries].tobytes(),
            self._checks.values[entries].tobytes(),
            (np.cumsum(slots) - 1)[self.slots.values[entries]],
        )
        return found
