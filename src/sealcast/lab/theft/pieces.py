"""Opening sealed pieces with stolen keys, whatever the registry says of their owner by now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

from sealcast.errors import CannotOpen, FrameRejected, Misuse, NotFound
from sealcast.groupkeys.interface import PairKey
from sealcast.lab.theft.loot import KeysOf, Loot
from sealcast.log.replays import READER_SLOT
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.sealer import sealer_with
from sealcast.protections.port import Opens, client_side
from sealcast.trust.keys.topic_keys import EntityKeys
from sealcast.trust.realm.state import RealmState
from sealcast.wire import sealed
from sealcast.wire.sealed import SealedPiece


def pieces_in(directory: Path) -> Iterator[SealedPiece]:
    """Every file, named by a ledger or not, the oldest first: keys come with the first event that needs them."""
    for path in sorted(directory.glob("*.piece")) if directory.is_dir() else ():
        with suppress(FrameRejected):
            yield sealed.parse(path.read_bytes())


def open_own(state: RealmState, loot: Loot, topic: str, broker: str, root: Path) -> tuple[int, int]:
    """What was sealed for the victim, delivered or replayed, with the keys that the thief has of any epoch."""
    slot, opened, tried = state.slot_of(topic, loot.name), 0, 0

    def taken(epoch: int) -> EntityKeys:
        keys = loot.keys.get((topic, epoch))
        if keys is None:
            raise CannotOpen(f"no key of epoch {epoch} was taken")
        return keys

    for directory, place in ((root / "pieces", slot), (root / "replays" / "pieces", READER_SLOT)):
        if place is None:
            continue
        opens = client_side(state.topic(topic).protection).opens_with(state, topic, broker, place, taken)
        for piece in pieces_in(directory):
            for event, use in zip(*(rows.tolist() for rows in piece.rows_for(place)), strict=True):
                # What was replayed lies there for everybody: others' attempts fail and are no deliveries of its own.
                good = _opened(opens, piece, event, use)
                opened, tried = opened + good, tried + (good or directory.parent == root)
    return opened, tried


def open_with_topic_keys(
    state: RealmState, keys_of: KeysOf, topic: str, broker: str, directory: Path
) -> tuple[int, int]:
    """Every event that anybody was sent: as a broker seals it, under the keys of its position or of its one reader; and
    as one of its readers opens it, with the keys that a key center would hand to that reader. (Bodies that are under
    one group's key alone are tried as well, and may not open this way.)"""
    about, names, opened, tried = state.topic(topic), list(state.slots_of(topic)), 0, 0
    side, bits = client_side(about.protection), about.parameters.key_bits

    @cache
    def opens_as(slot: int) -> Opens:
        return side.opens_with(state, topic, broker, slot, lambda epoch: handed(keys_of, epoch, names[slot]))

    for piece in pieces_in(directory):
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
