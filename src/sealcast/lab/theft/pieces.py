"""Opening sealed pieces with stolen keys, whatever the registry says of their owner by now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from typing import NamedTuple

import numpy as np

from sealcast.errors import CannotOpen, FrameRejected, Misuse, NotFound
from sealcast.groupkeys.interface import PairKey
from sealcast.lab.theft.loot import KeysOf, Loot
from sealcast.log.carried_pieces import CarriedPieces
from sealcast.log.pieces import Pieces, PieceStore
from sealcast.log.replays import READER_SLOT, Replays
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.sealer import sealer_with
from sealcast.protections.port import Opens, client_side
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.topic_keys import EntityKeys
from sealcast.trust.realm.state import RealmState
from sealcast.wire import sealed
from sealcast.wire.sealed import SealedPiece


class SomePieces(NamedTuple):
    """Pieces of a store, by their names; None: all, and on a carrier also parts that no place leads to any more."""

    store: PieceStore
    names: frozenset[str] | None = None


class LyingPieces(NamedTuple):
    """Sealed pieces of a topic at one broker: of its readers, and made for one of them out of the past."""

    delivered: SomePieces
    replayed: SomePieces


def lying_at(realm: Realm, topic: str, broker: str) -> list[LyingPieces]:
    """In the broker's directory, whatever the registry says, and on the carrier that it names."""
    root = realm.paths.topic(topic, broker).root
    found = [LyingPieces(SomePieces(Pieces(root / "pieces")), SomePieces(Pieces(root / "replays" / "pieces")))]
    if (topic, broker) in (state := realm.state()).journals:
        journal = realm.carriers.journal(state, topic, broker)
        with closing(Replays(journal)) as replays:
            names = frozenset(ref.name for each in replays.all() for ref in each.pieces)
        # Those of replays are tried among all the others, too: only their notes tell them apart.
        found.append(LyingPieces(SomePieces(journal.pieces), SomePieces(journal.pieces, names)))
    return found


def bytes_in(pieces: SomePieces) -> Iterator[bytes]:
    """Every piece, named by a ledger or not, the oldest first: keys come with the first event that needs them."""
    for name in pieces.store.names():
        if pieces.names is None or name in pieces.names:
            with suppress(NotFound):
                yield pieces.store.bytes_of(name)
    if pieces.names is None and isinstance(pieces.store, CarriedPieces):
        yield from pieces.store.unplaced()


def pieces_in(pieces: SomePieces) -> Iterator[SealedPiece]:
    """The same, parsed."""
    for data in bytes_in(pieces):
        with suppress(FrameRejected):
            yield sealed.parse(data)


def open_own(state: RealmState, loot: Loot, topic: str, broker: str, lying: LyingPieces) -> tuple[int, int]:
    """What was sealed for the victim, delivered or replayed, with the keys that the thief has of any epoch."""
    slot, opened, tried = state.slot_of(topic, loot.name), 0, 0

    def taken(epoch: int) -> EntityKeys:
        keys = loot.keys.get((topic, epoch))
        if keys is None:
            raise CannotOpen(f"no key of epoch {epoch} was taken")
        return keys

    for store, place, replayed in ((lying.delivered, slot, False), (lying.replayed, READER_SLOT, True)):
        if place is None:
            continue
        opens = client_side(state.topic(topic).protection).opens_with(state, topic, broker, place, taken)
        for piece in pieces_in(store):
            for event, use in zip(*(rows.tolist() for rows in piece.rows_for(place)), strict=True):
                # What was replayed lies there for everybody: others' attempts fail and are no deliveries of its own.
                good = _opened(opens, piece, event, use)
                opened, tried = opened + good, tried + (good or not replayed)
    return opened, tried


def open_with_topic_keys(
    state: RealmState, keys_of: KeysOf, topic: str, broker: str, lying: SomePieces
) -> tuple[int, int]:
    """Every event that anybody was sent: as a broker seals it, under the keys of its position or of its one reader; and
    as one of its readers opens it, with the keys that a key center would hand to that reader. (Bodies that are under
    one group's key alone are tried as well, and may not open this way.)"""
    about, names, opened, tried = state.topic(topic), list(state.slots_of(topic)), 0, 0
    side, bits = client_side(about.protection), about.parameters.key_bits

    @cache
    def opens_as(slot: int) -> Opens:
        return side.opens_with(state, topic, broker, slot, lambda epoch: handed(keys_of, epoch, names[slot]))

    for piece in pieces_in(lying):
        tried += len(piece)
        try:
            keys = keys_of(piece.epoch)
        except (NotFound, Misuse, CannotOpen):
            continue
        sealer = sealer_with(about, keys, broker, state.incarnation(topic, broker, piece.version), names.__getitem__)
        nonces = piece.nonces()
        for event, content in enumerate(sealer.content_keys(nonces)):
            slot, use = _a_reader(piece, event)
            if piece.wrapped[event]:
                key = SealingKey(Secret(content), sealer.associated_data, bits)
            else:
                key = sealer.body_key(PairKey(slot))
            opened += _unsealed(key, nonces[event], piece, event) or _opened(opens_as(slot), piece, event, use)
    return opened, tried


def _a_reader(piece: SealedPiece, event: int) -> tuple[int, int]:
    """The slot of the first reader of an event, and the use that it opens the event through."""
    at = int(np.flatnonzero(np.asarray(piece.mailbox_event) == event)[0])
    slot = int(piece.slots[int(np.searchsorted(np.asarray(piece.mailbox_start), at, "right")) - 1])
    events, uses = piece.rows_for(slot)
    return slot, int(uses[events.tolist().index(event)])


def handed(keys_of: KeysOf, epoch: int, name: str) -> EntityKeys:
    """What a reader of that name was handed in an epoch, made by one who has the topic's keys."""
    try:
        keys = keys_of(epoch)
    except (NotFound, Misuse) as error:
        raise CannotOpen(error.message) from None
    return EntityKeys(keys.pair_key(name), keys.content)


def _opened(opens: Opens, piece: SealedPiece, event: int, use: int) -> bool:
    try:
        opens(piece, event, use)
    except CannotOpen:
        return False
    return True


def _unsealed(key: SealingKey, nonce: bytes, piece: SealedPiece, event: int) -> bool:
    try:
        key.open(nonce, piece.commitment(event), piece.body(event))
    except CannotOpen:
        return False
    return True
