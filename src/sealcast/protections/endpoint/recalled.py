"""The reader's side of a replay: pieces that were sealed for it alone, opened with its own keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sealcast.errors import CannotOpen
from sealcast.log.replays import Replayed, Replays
from sealcast.model.event import OpenedEvent
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.endpoint.open import Opener
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.topic_keys import at_broker
from sealcast.trust.realm.changes import Right
from sealcast.wire import sealed

#: In pieces that are one reader's alone, it has this slot.
READER_SLOT: Final = 0


def opened(realm: EntityRealm, topic: str, broker: str, replayed: Replayed) -> Iterator[OpenedEvent]:
    """What a replay holds, in the order in which it was committed. Reading obeys the rights of now."""
    state = realm.state()
    state.require(Right.SUBSCRIBE, topic, replayed.reader, realm.clock())
    about = state.topic(topic)
    pair = at_broker(realm.identity(replayed.reader).pair_key(state, topic, replayed.epoch), broker)

    def verify_key(publisher: str) -> VerifyKey:
        entity = state.entities.get(publisher)
        if entity is None:
            raise CannotOpen(f"it names a publisher, {publisher!r}, whom nobody enrolled")
        return VerifyKey(entity.verify_key)

    bits = about.parameters.key_bits
    opener = Opener(about.schema, about.id, replayed.epoch, READER_SLOT, pair, verify_key, bits)
    pieces = Replays(realm.paths.topic(topic, broker).root).pieces
    for ref in replayed.pieces:
        yield from opener.open_rows(sealed.parse(pieces.read(ref.name, ref.digest)))
