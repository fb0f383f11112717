"""What travels: filters upwards, notifications downwards. Elements have their wire form: whoever gets one checks it.

    FilterMessage     [slots of tokens; path; add or remove]                              the paper's [SF; destination]
    Notification      [entries; body], an entry being [EN1 of each label; EN2; final]     the paper's [EN1; EN2; EN3]

Tokens of a slot, slots of a conjunction and tokens of an entry are sorted: their order would say which attribute or
which length of prefix they are about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sealcast.errors import Rejected
from sealcast.protections.layered.tree import Path
from sealcast.wire.limits import MAX_ENTRIES, MAX_TOKENS
from sealcast.wire.notifications import LayeredEntry

#: Of one conjunction.
MAX_SLOTS: Final = 128

Slots = tuple[tuple[bytes, ...], ...]


@dataclass(frozen=True, slots=True)
class FilterMessage:
    """One conjunction on its way up, and the last hops it came."""

    slots: Slots
    path: Path
    remove: bool = False

    def __post_init__(self) -> None:
        if not self.path or not self.slots or len(self.slots) > MAX_SLOTS or not all(self.slots):
            raise Rejected(f"a filter has a path and 1 to {MAX_SLOTS} slots, none of them empty")
        if sum(map(len, self.slots)) > MAX_TOKENS:
            raise Rejected(f"a filter has at most {MAX_TOKENS} tokens")


@dataclass(frozen=True, slots=True)
class Notification:
    """One event on one link. The body is the same on all of them."""

    event: bytes
    entries: tuple[LayeredEntry, ...]
    body: bytes

    def __post_init__(self) -> None:
        if not 0 < len(self.entries) <= MAX_ENTRIES:
            raise Rejected(f"a notification has 1 to {MAX_ENTRIES} entries")


def arranged(slots: Iterable[Iterable[bytes]]) -> Slots:
    """Sorted, so that equal conjunctions are equal and order says nothing."""
    return tuple(sorted(tuple(sorted(set(slot))) for slot in slots))
