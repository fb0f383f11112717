"""Who gets what of a piece: events by group, groups by member. A delivery is not written down, it follows.

    group_of        an event's group
    members         a group's members, either as bits (`member_bits`, a row of bytes a group: bit s % 8 of byte s / 8 is
                    slot s) or one by one (`members`), ascending; `member_start` counts them
    via             through which of the event's uses each member opens, where that is not plain to see: through the one
                    that there is, or the first member through the first use, the second through the second, and so on

Events of one group have as many uses each. A thousand subscribers, half of whom get an event, take 129 bytes of it
here, where a list of deliveries took four thousand.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sealcast.model.dataclass import dataclass

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Raw = bytes | memoryview

FIELDS: Final = ("group_of", "member_start", "member_bits", "members", "via_start", "via")
#: From one delivery in so many slots and events on, deliveries are found among flags for all of them, if not too many.
_DENSE: Final = 16
_MOST_FLAGS: Final = 1 << 28


@dataclass(frozen=True, eq=False)
class Mailboxes:
    """The arrays, and what they say. `use_start` is where the uses of each event begin."""

    group_of: Array
    member_start: Array
    member_bits: Raw
    members: Array
    via_start: Array
    via: Array
    use_start: Array

    def rows_for(self, slot: int) -> tuple[Ints, Ints]:
        """A subscriber's mailbox: which events, each through which use, in order."""
        groups, rank = self._groups_with(slot)
        through = np.full(self.groups, -1, np.int64)
        through[groups] = self._via_of(groups, rank)
        here = through[self.group_of]
        events = np.flatnonzero(here >= 0)
        return events, self._starts[events] + here[events]

    def has(self, slot: Ints, event: Ints) -> Flags:
        """Whether each slot gets the event of the same number."""
        group = np.asarray(self.group_of, np.int64)[event]
        if self._bits is not None:
            inside = slot >> 3 < self._bits.shape[1]
            byte = self._bits[group, np.where(inside, slot >> 3, 0)]
            member: Flags = inside & ((byte >> (slot & 7).astype(np.uint8) & 1) != 0)
            return member
        # Groups one after the other are ascending with their members.
        width = int(max(self.members.max(initial=0), slot.max(initial=0))) + 1
        codes = np.repeat(np.arange(self.groups), self.sizes) * width + np.asarray(self.members, np.int64)
        wanted = group * width + slot
        return np.isin(wanted, codes)

    def readers(self, use: int) -> list[int]:
        """The slots that open through a use, ascending."""
        event = int(np.searchsorted(self._starts, use, side="right")) - 1
        group = np.full(1, int(self.group_of[event]), np.int64)
        slots = self._slots_of(int(group[0]))
        via = self._via_of(np.repeat(group, slots.size), np.arange(slots.size))
        found: list[int] = slots[via == use - int(self._starts[event])].tolist()
        return found

    @property
    def groups(self) -> int:
        return len(self.member_start) - 1

    @cached_property
    def sizes(self) -> Ints:
        return np.diff(self._member_start)

    @cached_property
    def deliveries(self) -> int:
        return int(self.sizes[self.group_of].sum())

    @cached_property
    def slots(self) -> Ints:
        """Everybody who gets something."""
        if self._bits is None:
            return np.unique(np.asarray(self.members, np.int64))
        return np.flatnonzero(np.unpackbits(np.bitwise_or.reduce(self._bits, axis=0), bitorder="little"))

    @cached_property
    def listed(self) -> tuple[Ints, Ints, Ints]:
        """All deliveries, one by one: where each slot's begin (and the last one's end), event and use of each."""
        slot, event, via = self._flagged() if self._is_dense else self._sorted()
        start = np.searchsorted(slot, np.append(self.slots, np.iinfo(np.int64).max))
        return start, event, self._starts[event] + via

    def words(self) -> npt.NDArray[np.uint64]:
        """The groups as rows of packed slots: bit s % 64 of word s / 64 is slot s."""
        bits = self._bits
        if bits is None:
            width = int(np.asarray(self.members, np.int64).max(initial=-1)) // 8 + 1
            bits = np.zeros((self.groups, width), np.uint8)
            group, slot = np.repeat(np.arange(self.groups), self.sizes), np.asarray(self.members, np.int64)
            np.bitwise_or.at(bits, (group, slot >> 3), np.left_shift(1, slot & 7).astype(np.uint8))
        padded = np.zeros((self.groups, -(-max(1, bits.shape[1]) // 8) * 8), np.uint8)
        padded[:, : bits.shape[1]] = bits
        return padded.view("<u8").astype(np.uint64, copy=False)

    # --- inside -------------------------------------------------------------------------------------

    @cached_property
    def _bits(self) -> npt.NDArray[np.uint8] | None:
        raw = np.frombuffer(self.member_bits, np.uint8)
        return raw.reshape(self.groups, -1) if raw.size else None

    @cached_property
    def _starts(self) -> Ints:
        return np.asarray(self.use_start, np.int64)

    @cached_property
    def _member_start(self) -> Ints:
        return np.asarray(self.member_start, np.int64)

    @cached_property
    def _uses(self) -> Ints:
        """How many uses the events of a group have."""
        found = np.zeros(self.groups, np.int64)
        found[self.group_of] = np.diff(self._starts)
        return found

    @cached_property
    def _by_slot(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.members, kind="stable")
        return np.asarray(self.members, np.int64)[order], order

    def _groups_with(self, slot: int) -> tuple[Ints, Ints]:
        """The groups that have a slot, and its rank among the members of each."""
        none = np.empty(0, np.int64)
        if self._bits is None:
            slots, order = self._by_slot
            first, end = np.searchsorted(slots, [slot, slot + 1])
            rows = order[first:end]
            groups = np.searchsorted(self._member_start, rows, side="right") - 1
            return groups, rows - self._member_start[groups]
        byte, bit = slot >> 3, slot & 7
        if byte >= self._bits.shape[1]:
            return none, none
        groups = np.flatnonzero(self._bits[:, byte] >> bit & 1)
        if not (self._uses[groups] > 1).any():
            return groups, np.zeros(groups.size, np.int64)
        before = np.bitwise_count(self._bits[groups, :byte]).sum(axis=1, dtype=np.int64)
        return groups, before + np.bitwise_count(self._bits[groups, byte] & np.uint8((1 << bit) - 1))

    def _slots_of(self, group: int) -> Ints:
        if self._bits is not None:
            return np.flatnonzero(np.unpackbits(self._bits[group], bitorder="little"))
        start, end = self._member_start[group : group + 2].tolist()
        return np.asarray(self.members[start:end], np.int64)

    def _via_of(self, groups: Ints, rank: Ints) -> Ints:
        """Through which of the uses the members of those ranks in those groups open."""
        start = np.asarray(self.via_start, np.int64)
        said = start[groups + 1] > start[groups]
        found = np.where(self._uses[groups] > 1, rank, 0)
        found[said] = np.asarray(self.via, np.int64)[start[groups[said]] + rank[said]]
        return found

    @cached_property
    def _via_by_member(self) -> Ints:
        group = np.repeat(np.arange(self.groups), self.sizes)
        return self._via_of(group, np.arange(group.size) - self._member_start[group])

    @property
    def _is_dense(self) -> bool:
        flags = len(self.group_of) * 8 * (self._bits.shape[1] if self._bits is not None else 0)
        return 0 < flags <= min(_MOST_FLAGS, self.deliveries * _DENSE)

    def _flagged(self) -> tuple[Ints, Ints, Ints]:
        """A flag for each slot and event, slot by slot, is in the right order as it is."""
        bits = self._bits
        assert bits is not None
        flags = np.ascontiguousarray(np.unpackbits(bits, axis=1, bitorder="little").T[:, self.group_of])
        per_slot = np.count_nonzero(flags, axis=1)
        slot = np.repeat(np.arange(flags.shape[0]), per_slot)
        event = np.flatnonzero(flags) - slot * flags.shape[1]
        if not (self._uses > 1).any():
            return slot, event, np.zeros(slot.size, np.int64)
        width = flags.shape[0]
        through = np.zeros(self.groups * width, np.int64)
        through[np.flatnonzero(np.unpackbits(bits, bitorder="little"))] = self._via_by_member
        return slot, event, through[np.asarray(self.group_of, np.int64)[event] * width + slot]

    def _sorted(self) -> tuple[Ints, Ints, Ints]:
        lengths = self.sizes[self.group_of]
        event = np.repeat(np.arange(lengths.size), lengths)
        before = np.cumsum(lengths) - lengths
        row = np.repeat(self._member_start[:-1][self.group_of] - before, lengths) + np.arange(event.size)
        slot = self._all_members[row]
        # Small numbers are sorted by their digits, which is five times as fast.
        small = slot.astype(np.uint16) if slot.size and int(slot.max()) < 1 << 16 else slot
        order = np.argsort(small, kind="stable")
        return slot[order], event[order], self._via_by_member[row[order]]

    @cached_property
    def _all_members(self) -> Ints:
        if self._bits is None:
            return np.asarray(self.members, np.int64)
        width = 8 * self._bits.shape[1]
        flat = np.flatnonzero(np.unpackbits(self._bits, bitorder="little"))
        members: Ints = flat - np.repeat(np.arange(self.groups) * width, self.sizes)
        return members


def of_groups(
    words: npt.NDArray[np.uint64], group_of: Ints, member_start: Ints, members: Ints, via: Ints, uses: Ints
) -> dict[str, Any]:
    """The arrays, from groups as rows of packed slots and their members; `uses` is how many the events of each have."""
    sizes = np.diff(member_start)
    # Where uses are other than members in number, they are said also if they happen to be plain so far.
    said = (uses > 1) & (uses != sizes)
    if ((uses > 1) & ~said).any():
        rank = np.arange(members.size) - np.repeat(member_start[:-1], sizes)
        group = np.repeat(np.arange(sizes.size), sizes)
        said[group[(via != rank) & (uses > 1)[group]]] = True
    width = (int(members.max(initial=-1)) >> 3) + 1
    as_bits = sizes.size * width <= 4 * members.size
    raw = np.ascontiguousarray(words).astype("<u8", copy=False).view(np.uint8)[:, :width]
    return {
        "group_of": group_of,
        "member_start": member_start,
        "member_bits": raw.tobytes() if as_bits else b"",
        "members": np.empty(0, np.int64) if as_bits else members,
        "via_start": np.concatenate(([0], np.cumsum(np.where(said, sizes, 0)))),
        "via": via[np.repeat(said, sizes)],
    }
