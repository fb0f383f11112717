"""seal: Grouped -> GroupSealed. Each event is encrypted once, and its key once for every key that the plan uses.

A group that one key serves is sealed under that key directly. Any other group gets a content key, derived from the
event's position and used for nothing else, which is wrapped under each key used. Both are pure functions of position,
epoch and group: a task that runs again writes the same bytes, and no nonce is ever used for two plaintexts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Bug
from sealcast.groupkeys.interface import GroupKey, KeyPlan, PairKey, Planner, TableKey
from sealcast.model.stages import Grouped, GroupSealed
from sealcast.primitives import aead
from sealcast.schemes.endpoint.broker import EndpointSealer

Ints = NDArray[np.int64]


def seal(grouped: Grouped, planner: Planner, sealer: EndpointSealer) -> GroupSealed:
    """Seal every wanted event of the batch for its group."""
    plan = planner.plan(grouped.groups, grouped.group_of)
    admitted, group_of = grouped.admitted, grouped.group_of
    nonces = aead.nonces(admitted.partition, admitted.offset[grouped.events], admitted.row[grouped.events])
    messages = [admitted.messages[e] for e in grouped.events.tolist()]

    use_start, uses = _rows_of(plan.use_start, plan.uses, group_of)
    direct = np.diff(use_start) == 1
    sealed = _seal_bodies(messages, nonces, use_start, uses, direct, plan, sealer)
    wraps = _wrap_content_keys(sealed.content_keys, nonces, use_start, uses, plan, sealer)

    slots, event, use = _deliveries(plan, group_of, use_start)
    return GroupSealed(
        grouped=grouped,
        bodies=sealed.bodies,
        commitments=b"".join(sealed.commitments),
        wrapped=(~direct).astype(np.uint8),
        key_ids=b"".join(map(sealer.key_id, plan.keys)),
        use_start=use_start,
        uses=uses,
        wraps=wraps,
        slots=slots,
        delivered_event=event,
        delivered_use=use,
        handout_slot=plan.handout_slot,
        handout_key=plan.handout_key,
        handout_event=_first_event_of(group_of, grouped.groups.shape[0])[plan.handout_group],
        handouts=_hand_out(plan, sealer),
        encryptions=int(uses.size),
    )


@dataclass(frozen=True, slots=True)
class _Bodies:
    bodies: list[bytes]
    commitments: list[bytes]
    #: Of wrapped events only, by position in the batch.
    content_keys: dict[int, bytes]


def _seal_bodies(
    messages: list[bytes],
    nonces: bytes,
    use_start: Ints,
    uses: Ints,
    direct: NDArray[np.bool_],
    plan: KeyPlan,
    sealer: EndpointSealer,
) -> _Bodies:
    bodies = [b""] * len(messages)
    commitments = [b""] * len(messages)
    # Events under the same key go through its warm context together.
    direct_events = np.flatnonzero(direct)
    direct_keys = uses[use_start[direct_events]]
    order = np.argsort(direct_keys, kind="stable")
    bounds = np.flatnonzero(np.diff(direct_keys[order], prepend=-1))
    for rows in np.split(direct_events[order], bounds[1:]) if order.size else []:
        key = sealer.body_key(plan.keys[int(uses[use_start[rows[0]]])])
        picked = rows.tolist()
        own_nonces = b"".join([nonces[12 * i : 12 * i + 12] for i in picked])
        for i, body in zip(picked, key.seal_many(own_nonces, [messages[i] for i in picked]), strict=True):
            bodies[i] = body
            commitments[i] = key.commitment

    wrapped_events = np.flatnonzero(~direct).tolist()
    own = [nonces[12 * i : 12 * i + 12] for i in wrapped_events]
    keys = sealer.content_keys(own)
    committed, fresh = aead.seal_each(
        keys, sealer.associated_data, b"".join(own), [messages[i] for i in wrapped_events], sealer.key_bits
    )
    for at, (i, body) in enumerate(zip(wrapped_events, fresh, strict=True)):
        bodies[i] = body
        commitments[i] = committed[32 * at : 32 * at + 32]
    return _Bodies(bodies, commitments, dict(zip(wrapped_events, keys, strict=True)))


def _wrap_content_keys(
    content_keys: dict[int, bytes],
    nonces: bytes,
    use_start: Ints,
    uses: Ints,
    plan: KeyPlan,
    sealer: EndpointSealer,
) -> list[bytes]:
    """One wrap a use of a wrapped event, in the order of the uses: the widest loop of the naive plan."""
    ring = aead.KeyRing(list(map(sealer.wrap_key, plan.keys)))
    ring.account(np.bincount(uses, minlength=len(plan.keys)).tolist())
    start, keys = use_start.tolist(), uses.tolist()
    wraps: list[bytes] = []
    for i, content_key in content_keys.items():
        wraps += ring.seal_under(keys[start[i] : start[i + 1]], nonces[12 * i : 12 * i + 12], content_key)
    return wraps


def _hand_out(plan: KeyPlan, sealer: EndpointSealer) -> list[bytes]:
    """New group keys, each under a key of its receiver's."""
    handouts = []
    for slot, key in zip(plan.handout_slot.tolist(), plan.handout_key.tolist(), strict=True):
        ref = plan.keys[key]
        if not isinstance(ref, GroupKey | TableKey):
            raise Bug("a plan hands out a pair key, which its owner has from the start")
        handouts.append(sealer.hand_out(PairKey(slot), ref))
    return handouts


def _rows_of(start: Ints, values: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Compressed rows picked, and repeated, by `rows`."""
    lengths = np.diff(start)[rows]
    picked_start = np.concatenate(([0], np.cumsum(lengths)))
    within = np.arange(picked_start[-1]) - np.repeat(picked_start[:-1], lengths)
    return picked_start, values[np.repeat(start[rows], lengths) + within]


def _deliveries(plan: KeyPlan, group_of: Ints, use_start: Ints) -> tuple[Ints, Ints, Ints]:
    member_start, members = _rows_of(plan.member_start, plan.members, group_of)
    _, via = _rows_of(plan.member_start, plan.via, group_of)
    event = np.repeat(np.arange(group_of.size), np.diff(member_start))
    order = np.argsort(members, kind="stable")
    return members[order], event[order], (use_start[event] + via)[order]


def _first_event_of(group_of: Ints, n_groups: int) -> Ints:
    first = np.zeros(n_groups, np.int64)
    first[group_of[::-1]] = np.arange(group_of.size)[::-1]
    return first
