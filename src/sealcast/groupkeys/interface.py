"""One interface for every group key algorithm: given the groups of a micro-batch, which keys seal each of them.

    plan(groups, group_of) -> keys to use, keys to hand out

A plan speaks of keys by description, never by value (decision 4): a pair key belongs to one subscriber and is there
from the start; a group key is derived from the set of its members, and a member who does not hold it yet is handed
it wrapped under the member's pair key, in the same delivery. What an algorithm remembers between batches is only who
has been handed what; what a plan hands out, other plans rely on once its delivery is committed (`handed`).

A plan is made for distinct groups, and the order of the events (`group_of`) only informs what is remembered: within a
batch, a group that gets a key of its own uses it for all of its events, the first included, because the key travels
in the same delivery. The paper's bookkeeping is event by event (a miss costs the size of the group, a hit costs one);
`count` does that, to the last integer, on the same memory.

Members are slots: the small stable numbers that a topic gives its subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.handed import DELIVERED
from sealcast.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PairKey:
    """The key that one subscriber shares with the broker."""

    slot: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A key that exactly these slots may hold (ascending, at least two)."""

    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableKey:
    """A key of a derived table: the places of `slots` (in the table's own order) whose bit of `pattern` is set.

    Every member derives it from what it was given of the table once, whatever the pattern; see `mosaic.tables`.
    """

    slots: tuple[int, ...]
    pattern: int

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted(slot for place, slot in enumerate(self.slots) if self.pattern >> place & 1))


#: Shape and members (packed) of stems, the nearest first; and the key of a tile, or a pair, that the last grew out of.
Lineage = tuple[Sequence[tuple[bytes, bytes]], "PairKey | TableKey"]


@dataclass(frozen=True, slots=True)
class GrownKey:
    """A key that grows out of another: PRF(the stem's key, its own name). Members of the stem are members of it.

    Whoever holds the stem's key derives this one; the other members are handed it.
    """

    #: Which tiles lie below, and how: with the members it determines the stem, and the stem's stem.
    shape: bytes
    #: Who: bit i (byte i // 8, bit i % 8) is slot i. Bytes, because such keys are looked up by what they are.
    packed: bytes
    #: Finds the stems, and the key at the end of them that grew out of none. Most keys were derived before: then nobody
    #: asks.
    find_lineage: Callable[[], Lineage] = field(compare=False, repr=False)

    @property
    def stem(self) -> KeyRef:
        stems, root = self.find_lineage()
        return GrownKey(*stems[0], lambda: (stems[1:], root)) if stems else root

    @property
    def members(self) -> tuple[int, ...]:
        flags = np.unpackbits(np.frombuffer(self.packed, np.uint8), bitorder="little")
        return tuple(np.flatnonzero(flags).tolist())


KeyRef = PairKey | GroupKey | TableKey | GrownKey


def _none() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Outline:
    """How derived tables lie under the keys that grow over them, as a few numbers that travel beside what was sealed:
    with it, and the members of a key, the broker names and derives the key again (`mosaic.layout`)."""

    #: Of each table, from left to right: how many slots.
    sizes: NDArray[np.int64] = field(default_factory=_none)
    #: Their slots, as pairs: first slot, how many in a row.
    runs: NDArray[np.int64] = field(default_factory=_none)
    #: Of each node of the tree over them: the first table of its right side. A node comes before its two sides.
    joins: NDArray[np.int64] = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """How to seal each distinct group of a batch. Arrays in compressed rows: group g owns [start[g], start[g+1]).

    Every member of a group opens through exactly one of the group's uses, and every key used by a group belongs to
    members of that group only. That is the whole security of a plan: `tests/groupkeys/security.py` states it, and the
    tests hold every algorithm to it.
    """

    keys: Sequence[KeyRef]
    #: Keys used per group: positions in `keys`.
    use_start: NDArray[np.int64]
    uses: NDArray[np.int64]
    #: Members per group, ascending, and through which of the group's uses (0, 1, ...) each opens.
    member_start: NDArray[np.int64]
    members: NDArray[np.int64]
    via: NDArray[np.int64]
    #: Keys to hand out: to which slot, which key (position in `keys`), with which group's first event.
    handout_slot: NDArray[np.int64]
    handout_key: NDArray[np.int64]
    handout_group: NDArray[np.int64]
    #: Keys that reach their members under other keys: key `link_key` under key `link_under`, with which group's first
    #: event. Under its own stem a grown key needs no ciphertext (`link_grows`): there the link says that it is in use.
    link_key: NDArray[np.int64] = field(default_factory=_none)
    link_under: NDArray[np.int64] = field(default_factory=_none)
    link_group: NDArray[np.int64] = field(default_factory=_none)
    link_grows: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    #: Derived tables: to which slot its part of a table is given, which table, with which group's first event.
    tables: tuple[tuple[int, ...], ...] = ()
    table_slot: NDArray[np.int64] = field(default_factory=_none)
    table_of: NDArray[np.int64] = field(default_factory=_none)
    table_group: NDArray[np.int64] = field(default_factory=_none)
    outline: Outline = field(default_factory=Outline)

    @property
    def encryptions(self) -> NDArray[np.int64]:
        """Encryptions per event of each group: one a key used."""
        return np.diff(self.use_start)

    def holders(self, key: int) -> frozenset[int]:
        """Who holds a key of this plan."""
        return holders_of(self.keys[key])


def holders_of(ref: KeyRef) -> frozenset[int]:
    """Who may hold a key."""
    return frozenset((ref.slot,)) if isinstance(ref, PairKey) else frozenset(ref.members)


class Planner(Protocol):
    """What sealing needs of an algorithm. It may remember between calls who holds what; losing that memory loses
    nothing else."""

    @property
    def name(self) -> str: ...

    def plan(self, groups: Words, group_of: Indices | None = None, tag: int = DELIVERED) -> KeyPlan:
        """Plan distinct groups (rows of packed slots), given the group of each event in the order of events.

        Without `group_of`, every group has one event, in the order of the rows. An empty group uses no key. What a
        plan with a tag hands out is relied on by no other until `settle`.
        """
        ...

    def settle(self, tag: int, delivered: bool) -> None:
        """What became of the plan of that tag."""
        ...


class Algorithm(Planner, Protocol):
    """What the lab needs besides: the same decisions, counted instead of planned."""

    @property
    def clusters(self) -> int | None:
        """Into how many clusters subscribers are divided; None where the algorithm knows no clusters."""
        ...

    def count(self, groups: Words, group_of: Indices | None = None) -> Indices:
        """The encryptions of each event by the paper's counting rule. It moves the memory on as `plan` does."""
        ...


def events_of(groups: Words, group_of: Indices | None) -> Indices:
    """The group of each event, where nothing else is said: one event a group."""
    return np.arange(groups.shape[0], dtype=np.int64) if group_of is None else group_of
