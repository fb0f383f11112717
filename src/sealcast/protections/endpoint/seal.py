"""seal: Grouped -> GroupSealed. Each event is encrypted once, and its key once for every key that the plan uses.

A group that one key serves is sealed under that key directly. Any other group gets a content key, derived from the
event's position and used for nothing else, which is brought to the holders of each key used. Keys that their holders
may not have yet travel with the event that first needs them: sealed for each, under other keys, or as a part of a table
from which a subscriber derives many.

Which keys a group uses depends on what the planner remembers, which may be lost at any time. Each ciphertext does not:
it is a pure function of position, epoch and keys (`protections.endpoint.keys`), so that a batch that is run again, and
planned otherwise, never uses a nonce for two plaintexts.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.interface import KeyPlan, Outline
from sealcast.model.stages import Grouped, GroupSealed, HandoutColumns
from sealcast.primitives import aead
from sealcast.protections.endpoint.sealer import EndpointSealer
from sealcast.protections.endpoint.wraps import PlannedKeys, links, wrap_content_keys
from sealcast.wire import typed
from sealcast.wire.sealed import GROUP, PAIR

Ints = NDArray[np.int64]


class Plans(Protocol):
    """What sealing needs of a planner, or of the memory around one."""

    def plan(self, groups: Words, group_of: Indices | None = None) -> KeyPlan: ...


def seal(grouped: Grouped, planner: Plans, sealer: EndpointSealer) -> GroupSealed:
    """Seal every wanted event of the batch for its group."""
    plan = planner.plan(grouped.groups, grouped.group_of)
    keys = PlannedKeys(plan.keys, sealer)
    admitted, group_of = grouped.admitted, grouped.group_of
    nonces = aead.each_nonce(admitted.partition, admitted.offset[grouped.events], admitted.row[grouped.events])
    messages = admitted.messages_of(grouped.events)

    use_start, uses = _rows_of(plan.use_start, plan.uses, group_of)
    direct = np.diff(use_start) == 1
    bodies, commitments, content_keys = _seal_bodies(messages, nonces, use_start, uses, direct, keys, sealer)
    wraps = wrap_content_keys(content_keys, nonces, use_start, uses, keys)

    first_event = _first_event_of(group_of, grouped.groups.shape[0])
    handouts = list(map(keys.hand_out, plan.handout_slot.tolist(), plan.handout_key.tolist()))
    hidden, tables = links(plan, keys), _hand_out_tables(plan, sealer)
    outline = plan.outline if plan.table_of.size or not set(keys.kinds.tolist()) <= {PAIR, GROUP} else Outline()
    columns: HandoutColumns = {
        "commitments": b"".join(commitments),
        "wrapped": (~direct).astype(np.uint8),
        "key_ids": keys.ids,
        "key_kind": keys.kinds,
        "use_start": use_start,
        "uses": uses,
        "wraps": b"".join(wraps),
        "handout_slot": plan.handout_slot,
        "handout_key": plan.handout_key,
        "handout_event": first_event[plan.handout_group],
        "handouts": b"".join(handouts),
        "link_key": plan.link_key,
        "link_under": plan.link_under,
        "link_event": first_event[plan.link_group],
        "link_grows": plan.link_grows.astype(np.uint8),
        "links": b"".join(hidden),
        "table_slot": plan.table_slot,
        "table_tile": plan.table_of,
        "table_event": first_event[plan.table_group],
        "table_names": b"".join([sealer.table_name(plan.tables[tile]) for tile in plan.table_of.tolist()]),
        "table_start": typed.starts(map(len, tables)),
        "table_parts": b"".join(tables),
        "tile_size": outline.sizes,
        "tile_run": outline.runs,
        "tile_join": outline.joins,
    }
    members = (plan.member_start, plan.members, plan.via, np.diff(plan.use_start))
    carried = int(uses.size) + len(handouts) + len(hidden) + len(tables)
    return GroupSealed(grouped, bodies, columns, *members, carried)


def _seal_bodies(
    messages: list[bytes],
    nonces: list[bytes],
    use_start: Ints,
    uses: Ints,
    direct: NDArray[np.bool_],
    keys: PlannedKeys,
    sealer: EndpointSealer,
) -> tuple[list[bytes], list[bytes], dict[int, bytes]]:
    """Bodies and commitments, by event; and the content keys of those that have one."""
    bodies = [b""] * len(messages)
    commitments = [b""] * len(messages)
    # Events under the same key go through its warm context together.
    direct_events = np.flatnonzero(direct)
    direct_keys = uses[use_start[direct_events]]
    order = np.argsort(direct_keys, kind="stable")
    starts = np.flatnonzero(np.diff(direct_keys[order], prepend=-1))
    picked, which = direct_events[order].tolist(), direct_keys[order[starts]].tolist()
    ends = np.append(starts, order.size)[1:].tolist()
    for at, end, number in zip(starts.tolist(), ends, which, strict=True):
        key = keys.body_key(number)
        if end - at == 1:
            i = picked[at]
            bodies[i], commitments[i] = key.seal(nonces[i], messages[i]), key.commitment
            continue
        mine = picked[at:end]
        sealed = key.seal_many(b"".join([nonces[i] for i in mine]), [messages[i] for i in mine])
        for i, body in zip(mine, sealed, strict=True):
            bodies[i], commitments[i] = body, key.commitment

    wrapped_events = np.flatnonzero(~direct).tolist()
    own = [nonces[i] for i in wrapped_events]
    contents = sealer.content_keys(own)
    committed, fresh = aead.seal_each(
        contents, sealer.associated_data, b"".join(own), [messages[i] for i in wrapped_events], sealer.key_bits
    )
    for at, (i, body) in enumerate(zip(wrapped_events, fresh, strict=True)):
        bodies[i] = body
        commitments[i] = committed[32 * at : 32 * at + 32]
    return bodies, commitments, dict(zip(wrapped_events, contents, strict=True))


def _hand_out_tables(plan: KeyPlan, sealer: EndpointSealer) -> list[bytes]:
    """Parts of tables, each under a key of its receiver's; a table is expanded once for all of its receivers."""
    parts = [b""] * plan.table_of.size
    for tile in np.unique(plan.table_of).tolist():
        rows = np.flatnonzero(plan.table_of == tile)
        sealed = sealer.hand_out_table(plan.tables[tile], plan.table_slot[rows].tolist())
        for row, part in zip(rows.tolist(), sealed, strict=True):
            parts[row] = part
    return parts


def _rows_of(start: Ints, values: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Compressed rows picked, and repeated, by `rows`."""
    lengths = np.diff(start)[rows]
    picked_start = np.concatenate(([0], np.cumsum(lengths)))
    within = np.arange(picked_start[-1]) - np.repeat(picked_start[:-1], lengths)
    return picked_start, values[np.repeat(start[rows], lengths) + within]


def _first_event_of(group_of: Ints, n_groups: int) -> Ints:
    first = np.zeros(n_groups, np.int64)
    first[group_of[::-1]] = np.arange(group_of.size)[::-1]
    return first
