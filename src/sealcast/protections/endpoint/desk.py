"""The broker's desk for key requests, as a pure function: request, state of the realm, piece of the ledger -> reply.

(1) the request is for this piece: its topic, its epoch, its partition;
(2) the asker is enrolled, not revoked, and may read the topic now: rights of the past open nothing;
(3) each event that it names is in the piece, and was delivered to it;
(4) the key that it would open the event through is the key of exactly those who open through it, the asker among them.
What is given is what a handout would have given it: the key itself, or its part of the table that the key is of.
Whoever calls this has verified who asks (`requests.parse_request`), has read the piece that its own ledger names, and
keeps count of how often anyone asks.
"""

from __future__ import annotations

from typing import Final

from sealcast.errors import Rejected
from sealcast.groupkeys.interface import PairKey, TableKey
from sealcast.protections.endpoint.refs import PieceKeys
from sealcast.protections.endpoint.requests import GivenPart, KeyReply, KeyRequest
from sealcast.protections.endpoint.sealer import EndpointSealer
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.machine import RealmState
from sealcast.wire.sealed import SealedPiece

#: Parts of tables in one reply: each takes a few milliseconds to make. The other keys are given one by one.
MAX_PARTS: Final = 4


def answer(
    request: KeyRequest, topic: str, state: RealmState, sealer: EndpointSealer, piece: SealedPiece, now_us: int
) -> KeyReply:
    """The keys that the asker needs for the events it names, sealed for it; Rejected if it may not have one of them.

    `topic` is the name of the topic whose keys `sealer` makes, in the piece's epoch.
    """
    # (1)
    about = state.topic(topic)
    here = (piece.topic, piece.epoch, piece.partition)
    if (request.topic, request.epoch, request.partition) != here or about.id != piece.topic:
        raise Rejected("the key request is about other events than those at hand")
    # (2)
    state.require(Right.SUBSCRIBE, topic, request.entity, now_us)
    slot = state.slot_of(topic, request.entity)
    if slot is None:
        raise Rejected(f"entity {request.entity!r} never subscribed to topic {topic!r}")
    # (3)
    delivered = _delivered(piece, slot)
    known, found = PieceKeys(piece, sealer), dict[bytes, bytes]()
    parts: dict[bytes, GivenPart] = {}
    for event in request.events:
        use = delivered.get(event)
        if use is None:
            raise Rejected(f"event {piece.partition}/{event[0]}/{event[1]} was not delivered to {request.entity!r}")
        # (4)
        key = int(piece.uses[use])
        key_id = piece.key_id(key)
        if key_id in found:
            continue
        ref = known.held_by(key, piece.readers(use))
        if ref is None:
            raise Rejected("the piece names a key that is not its readers'")
        if isinstance(ref, PairKey):
            continue  # the asker has it from the start
        if request.tables and isinstance(ref, TableKey) and len(parts) < MAX_PARTS:
            name = sealer.table_name(ref.slots)
            if name not in parts:
                (part,) = sealer.hand_out_table(ref.slots, [slot])
                parts[name] = GivenPart(name, ref.slots.index(slot), len(ref.slots), part)
        else:
            found[key_id] = sealer.hand_out(PairKey(slot), ref, key_id)
    return KeyReply(tuple(found.items()), tuple(parts.values()))


def _delivered(piece: SealedPiece, slot: int) -> dict[tuple[int, int], int]:
    """What is in a slot's mailbox: offset and row of each event, and the use through which it opens."""
    events, uses = piece.rows_for(slot)
    positions = map(piece.position, events.tolist())
    return {(p.offset, p.row): use for p, use in zip(positions, uses.tolist(), strict=True)}
