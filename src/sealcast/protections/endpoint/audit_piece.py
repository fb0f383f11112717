"""One sealed piece against what should be in it: who gets what, what was refused, and whether it opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.deliver import rejected_by_reason
from sealcast.errors import CannotOpen
from sealcast.groupkeys.interface import KeyRef, holders_of
from sealcast.log.entry import PieceRef, slot_bits
from sealcast.model.event import Position
from sealcast.model.stages import Admitted
from sealcast.primitives import aead, labels
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.expected import Expected
from sealcast.protections.endpoint.sealer import EndpointSealer
from sealcast.protections.endpoint.tables import WRAP
from sealcast.wire.sealed import TABLE, SealedPiece

Ints = NDArray[np.int64]
_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Delivered:
    """A piece's deliveries, flat: slot and place of each, in the order of the mailboxes. A place is offset and row."""

    slot: Ints
    event: Ints
    use: Ints
    place: Ints

    @classmethod
    def of(cls, piece: SealedPiece) -> Delivered:
        event = np.asarray(piece.mailbox_event, np.int64)
        starts = np.asarray(piece.mailbox_start, np.int64)
        per_slot = starts[1:] - starts[:-1]
        slot = np.repeat(np.asarray(piece.slots, np.int64), per_slot)
        return cls(slot, event, np.asarray(piece.mailbox_use, np.int64), places(piece)[event])


def places(piece: SealedPiece) -> Ints:
    """Offset and row of each event in one number, ascending: offsets have 40 bits, rows 16."""
    offsets = np.array([proof.offset for proof in piece.frames], np.int64)
    return offsets[piece.frame_index] * _ROWS + np.asarray(piece.row, np.int64)


def admitted_places(admitted: Admitted) -> Ints:
    return admitted.offset * _ROWS + admitted.row if len(admitted.messages) else np.empty(0, np.int64)


def place_of(offset: int, row: int) -> int:
    return offset * _ROWS + row


def position(partition: int, place: int) -> Position:
    return Position(partition, place // _ROWS, place % _ROWS)


@dataclass(frozen=True, slots=True)
class Difference:
    """What a piece delivers too little and too much: (slot, place) each."""

    lost: list[tuple[int, int]]
    unexpected: list[tuple[int, int]]


def compare(delivered: Delivered, expected: Expected) -> Difference:
    admitted = admitted_places(expected.admitted)
    count = max(1, admitted.size)
    at = np.searchsorted(admitted, delivered.place)
    known = np.zeros(at.size, np.bool_)
    known[at < admitted.size] = admitted[at[at < admitted.size]] == delivered.place[at < admitted.size]
    # Slot and event in one number, as `expected` has them.
    mine = delivered.slot[known] * count + at[known]
    wanted = expected.slot * count + expected.event

    def named(codes: Ints) -> list[tuple[int, int]]:
        return list(zip((codes // count).tolist(), admitted[codes % count].tolist(), strict=True))

    strangers = list(zip(delivered.slot[~known].tolist(), delivered.place[~known].tolist(), strict=True))
    return Difference(named(np.setdiff1d(wanted, mine)), named(np.setdiff1d(mine, wanted)) + strangers)


def contradictions(piece: SealedPiece, ref: PieceRef, delivered: Delivered) -> Iterator[str]:
    """Where the ledger's words about the piece, or the piece's about itself, are not so."""
    hidden = int((np.asarray(piece.link_grows) == 0).sum())
    encryptions = len(piece.uses) + len(piece.handout_slot) + hidden + len(piece.table_slot)
    slots = slot_bits([*np.asarray(piece.slots).tolist(), *np.asarray(piece.handout_slot).tolist()])
    said = (ref.events, ref.deliveries, ref.encryptions)
    found = (len(piece), int(delivered.slot.size), encryptions)
    for what, claim, truth in zip(("events", "deliveries", "encryptions"), said, found, strict=True):
        if claim != truth:
            yield f"the ledger says {claim} {what}, the piece has {truth}"
    if ref.slots is not None and ref.slots != slots:
        yield "the ledger names other subscribers than the piece serves: some would never look into it"
    for name, truth in {"matched": found[0], "deliveries": found[1], "encryptions": found[2]}.items():
        if piece.counts.get(name, 0) != truth:
            yield f"the piece counts {piece.counts.get(name, 0)} {name} and has {truth}"


def refusals(piece: SealedPiece, expected: Expected) -> Iterator[str]:
    """Where admission, done again, refuses other things than the piece says were refused."""
    again = {r.position: r for r in expected.admitted.rejections}
    said = {r.position: r for r in piece.rejected}
    for where in sorted(again.keys() | said.keys()):
        if where not in said:
            yield f"{where} must be refused ({again[where].reason}), and the piece does not say so"
        elif where not in again:
            yield f"{where} is said to be refused ({said[where].reason}), and passes every check"
        elif again[where].reason != said[where].reason:
            yield f"{where} is refused for {again[where].reason}, not for {said[where].reason}"
    counted = {name: count for name, count in piece.counts.items() if name.startswith("rejected_") and count}
    if counted != rejected_by_reason(piece.rejected):
        yield "the piece's counts of what was refused are not those of its list"
    if piece.counts.get("admitted", 0) != len(expected.admitted.messages):
        yield f"the piece counts {piece.counts.get('admitted', 0)} admitted, {len(expected.admitted.messages)} are"


# --- does it open? --------------------------------------------------------------------------------------


def unopenable(
    piece: SealedPiece, delivered: Delivered, expected: Expected, sealer: EndpointSealer, refs: Mapping[int, KeyRef]
) -> Iterator[tuple[int, int]]:
    """(slot, place) of deliveries that the key they are to be opened through does not open to the very message that was
    published. `refs` are the keys of the piece that are what they should be (`audit_keys`)."""
    offsets = np.array([proof.offset for proof in piece.frames], np.int64)[piece.frame_index]
    raw = aead.nonces(piece.partition, offsets, piece.row)
    nonces = [raw[at : at + aead.NONCE_BYTES] for at in range(0, len(raw), aead.NONCE_BYTES)]
    published = dict(zip(admitted_places(expected.admitted).tolist(), expected.admitted.messages, strict=True))
    content = [Secret(key) for key in sealer.content_keys(nonces)]
    here = places(piece).tolist()

    def opens(key: SealingKey, event: int) -> bool:
        try:
            return key.open(nonces[event], piece.commitment(event), piece.body(event)) == published.get(here[event])
        except CannotOpen:
            return False

    def good(event: int, use: int) -> bool:
        key = int(piece.uses[use])
        ref = refs.get(key)
        if ref is None or not sound[event]:
            return False
        if not piece.wrapped[event]:
            return opens(sealer.body_key(ref), event)
        if piece.key_kind[key] == TABLE:
            return _unmasks(sealer.secret(ref), nonces[event], piece.wrap(use), content[event])
        return _unwraps(sealer.wrap_key(ref), nonces[event], piece.wrap(use), content[event])

    aad, bits = sealer.associated_data, sealer.key_bits
    sound = [not piece.wrapped[e] or opens(SealingKey(content[e], aad, bits), e) for e in range(len(piece))]
    # Whoever opens an event through one use does so with one key: it is tried once.
    tried: dict[int, bool] = {}
    for slot, event, use in zip(delivered.slot.tolist(), delivered.event.tolist(), delivered.use.tolist(), strict=True):
        if use not in tried:
            tried[use] = good(event, use)
        ref = refs.get(int(piece.uses[use]))
        if not tried[use] or ref is None or slot not in _holders(ref):
            yield slot, here[event]


@lru_cache(4_096)
def _holders(ref: KeyRef) -> frozenset[int]:
    return holders_of(ref)


def groups_of(piece: SealedPiece, delivered: Delivered, expected: Expected | None) -> Callable[[int], list[int]]:
    """Who should get an event of a piece; as far as nobody can tell, who does."""
    if expected is None:
        slot, event, at = delivered.slot, delivered.event, np.arange(len(piece))
    else:
        slot, event = expected.slot, expected.event
        at = np.searchsorted(admitted_places(expected.admitted), places(piece))
    order = np.argsort(event, kind="stable")
    slot, event = slot[order], event[order]

    def group(number: int) -> list[int]:
        start, end = np.searchsorted(event, [at[number], at[number] + 1]).tolist()
        found: list[int] = slot[start:end].tolist()
        return found

    return group


def _unwraps(key: SealingKey, nonce: bytes, wrapped: bytes, content: Secret) -> bool:
    try:
        return key.unwrap(nonce, wrapped) == content
    except CannotOpen:
        return False


def _unmasks(secret: bytes, nonce: bytes, masked: bytes, content: Secret) -> bool:
    try:
        return Secret(labels.unmask(secret, nonce, WRAP, masked)) == content
    except CannotOpen:
        return False
