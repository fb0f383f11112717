"""One interface for every group key algorithm: given the groups of a micro-batch, which keys seal each of them.

    plan(groups) -> keys to use, keys to hand out

A plan speaks of keys by description, never by value (decision 4): a pair key belongs to one subscriber and is there
from the start; a group key is derived from the set of its members, and a member who does not hold it yet is handed
it wrapped under the member's pair key, in the same delivery. What an algorithm remembers between batches is only who
has been handed what.

Members are slots: the small stable numbers that a topic gives its subscribers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Words


@dataclass(frozen=True, slots=True)
class PairKey:
    """The key that one subscriber shares with the broker."""

    slot: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A key that exactly these slots may hold (ascending, at least two)."""

    members: tuple[int, ...]


KeyRef = PairKey | GroupKey


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """How to seal each distinct group of a batch. Arrays in compressed rows: group g owns [start[g], start[g+1]).

    Every member of a group opens through exactly one of the group's uses, and every key used by a group belongs to
    members of that group only: that is the whole security of a plan, and `check` states it.
    """

    keys: tuple[KeyRef, ...]
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

    @property
    def encryptions(self) -> NDArray[np.int64]:
        """Encryptions per event of each group: one a key used."""
        return np.diff(self.use_start)

    def holders(self, key: int) -> frozenset[int]:
        """Who holds a key of this plan."""
        ref = self.keys[key]
        return frozenset((ref.slot,)) if isinstance(ref, PairKey) else frozenset(ref.members)


class Planner(Protocol):
    """A group key algorithm. It may remember between calls who holds what; losing that memory loses nothing else."""

    @property
    def name(self) -> str: ...

    def plan(self, groups: Words) -> KeyPlan:
        """Plan distinct groups (rows of packed slots). An empty group uses no key."""
        ...


def check(plan: KeyPlan, groups: Words) -> str | None:
    """What is wrong with a plan, or None: the statement of security, for tests and for `sealcast check`."""
    for g in range(groups.shape[0]):
        wanted = {64 * w + b for w, word in enumerate(groups[g].tolist()) for b in range(64) if word >> b & 1}
        members = plan.members[plan.member_start[g] : plan.member_start[g + 1]].tolist()
        uses = plan.uses[plan.use_start[g] : plan.use_start[g + 1]].tolist()
        via = plan.via[plan.member_start[g] : plan.member_start[g + 1]].tolist()
        if set(members) != wanted or len(members) != len(wanted):
            return f"group {g}: the plan serves {len(members)} members, the group has {len(wanted)}"
        for key in uses:
            outside = plan.holders(key) - wanted
            if outside:
                return f"group {g}: key {key} is also held by slot {min(outside)}, which is no member"
        for member, use in zip(members, via, strict=True):
            if not 0 <= use < len(uses) or member not in plan.holders(uses[use]):
                return f"group {g}: slot {member} cannot open through use {use}"
    return None
