"""From "which key serves whom" to a plan: the arrays every algorithm would otherwise build for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Indices, starts
from sealcast.groupkeys.interface import GroupKey, KeyPlan, PairKey

#: In `assign`: this member opens through its own pair key.
OWN: Final = -1


def assign(
    n_groups: int,
    group: Indices,
    slot: Indices,
    key: Indices,
    refs: Sequence[GroupKey],
    new: NDArray[np.bool_],
) -> KeyPlan:
    """The plan in which member `slot[i]` of group `group[i]` opens through `refs[key[i]]`, or its pair key for OWN.

    Pairs come ordered by group, then by slot (as from `bits.pairs`). Every ref is used; those that are `new` are handed
    out to all of their members, with the first group that uses them.
    """
    own = key == OWN
    present = np.bincount(slot[own]) > 0
    position = len(refs) - 1 + np.cumsum(present)
    key = key.copy()
    key[own] = position[slot[own]]
    pair_keys = np.flatnonzero(present).tolist()
    n_keys = len(refs) + len(pair_keys)

    # A use is a (group, key). Neighbours mostly share theirs, so that only where it changes is anything sorted.
    changes = np.ones(group.size, np.bool_)
    changes[1:] = (np.diff(group) != 0) | (np.diff(key) != 0)
    heads = np.flatnonzero(changes)
    distinct, of_head = np.unique(group[heads] * n_keys + key[heads], return_inverse=True)
    use_group, uses = np.divmod(distinct, max(1, n_keys))
    use_start = starts(use_group, n_groups)
    via = of_head[np.cumsum(changes) - 1] - use_start[group]

    handout_slot, handout_key, handout_group = _handouts(refs, new, use_group, uses)
    return KeyPlan(
        keys=(*refs, *map(PairKey, pair_keys)),
        use_start=use_start,
        uses=uses,
        member_start=starts(group, n_groups),
        members=slot,
        via=via,
        handout_slot=handout_slot,
        handout_key=handout_key,
        handout_group=handout_group,
    )


def _handouts(
    refs: Sequence[GroupKey], new: NDArray[np.bool_], use_group: Indices, uses: Indices
) -> tuple[Indices, Indices, Indices]:
    fresh = np.flatnonzero(new)
    if fresh.size == 0:
        none = np.empty(0, np.int64)
        return none, none, none
    members = [refs[k].members for k in fresh.tolist()]
    sizes = np.fromiter(map(len, members), np.int64, len(members))
    slots = np.fromiter((slot for each in members for slot in each), np.int64, int(sizes.sum()))
    # Uses are ordered by group: the first one of a key is with the first group that needs it.
    first_use = np.full(len(refs), -1, np.int64)
    first_use[uses[::-1][uses[::-1] < len(refs)]] = np.flatnonzero(uses < len(refs))[::-1]
    return slots, np.repeat(fresh, sizes), np.repeat(use_group[first_use[fresh]], sizes)
