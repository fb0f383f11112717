"""What a broker handed to one reader out of the past, opened with the reader's own keys."""

from __future__ import annotations

from collections.abc import Iterator

from sealcast.log.pieces import verified
from sealcast.log.replays import READER_SLOT, Replayed
from sealcast.model.event import OpenedEvent
from sealcast.protections.port import client_side
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.wire import sealed


def replayed_events(realm: EntityRealm, topic: str, broker: str, replayed: Replayed) -> Iterator[OpenedEvent]:
    """Opens what a replay holds, in the order in which it was committed. Reading obeys the rights of now."""
    state, identity = realm.state(), realm.identity(replayed.reader)
    state.require(Right.SUBSCRIBE, topic, replayed.reader, realm.clock())
    side = client_side(state.topic(topic).protection)
    opens = side.opens_with(state, topic, broker, READER_SLOT, lambda epoch: identity.topic_keys(state, topic, epoch))
    journal = realm.site.of(replayed.reader).journal(topic, broker, "replays")
    for ref in replayed.pieces:
        piece = sealed.parse(verified(journal.piece(ref.name), ref.digest, f"{journal.shown}/pieces/{ref.name}"))
        events, uses = piece.rows_for(READER_SLOT)
        yield from (opens(piece, event, use) for event, use in zip(events.tolist(), uses.tolist(), strict=True))
