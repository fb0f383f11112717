"""Opening sealed events with keys that somebody kept or stole: outsiders of the demo, the revoked, the compromised."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sealcast.errors import CannotOpen, FrameRejected, Misuse, NotFound
from sealcast.log.port import PartitionLog
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.client import openers_with
from sealcast.protections.endpoint.open import Opener
from sealcast.trust.keys.frames import associated_data, frame_key
from sealcast.trust.keys.topic_keys import EntityKeys
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.wire import frame
from sealcast.wire.sealed import SealedPiece


def opener(state: RealmState, topic: str, slot: int, pair: Secret) -> Callable[[SealedPiece], Opener]:
    """Makes what opens a slot's events of a piece with a pair key, whatever the registry says of its owner by now."""
    return openers_with(state, topic, FIRST_BROKER, slot, lambda epoch: EntityKeys(pair, None))


def opens(thief: Callable[[SealedPiece], Opener], piece: SealedPiece, event: int, use: int) -> bool:
    """Tries one key that an event was sealed under."""
    try:
        thief(piece).open(piece, event, use)
    except CannotOpen:
        return False
    return True


class FramesRead(NamedTuple):
    """What of a frame log was read with stolen keys."""

    messages: int
    #: One past the last frame that was; 0 when none was.
    end: int


def read(log: PartitionLog, topic: Topic, pair_of: Callable[[str, int], Secret]) -> FramesRead:
    """Tries every frame of a log with the pair key of its publisher and epoch, as far as one was stolen: `pair_of`
    raises NotFound, Misuse or CannotOpen for the others."""
    messages = end = 0
    for record in log.read(log.start()):
        try:
            found = frame.parse(record.data)
            header = found.header
            pair, aad = pair_of(header.publisher, header.epoch), associated_data(topic.id, header.epoch)
            key = frame_key(pair, header.boot, aad, topic.parameters.key_bits)
            key.open(found.nonce, found.commitment, found.ciphertext, found.body_aad)
        except (FrameRejected, NotFound, Misuse, CannotOpen):
            continue
        messages, end = messages + header.count, record.offset + 1
    return FramesRead(messages, end)
