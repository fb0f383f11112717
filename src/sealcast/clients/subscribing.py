"""Opening a subscriber's mailbox, whatever protects the topic: the same words for both kinds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from sealcast.clients.layered_subscriber import LayeredSubscriber
from sealcast.clients.reading import Reading
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import CannotOpen
from sealcast.model.event import Position
from sealcast.protections.endpoint.missing import Ask
from sealcast.trust.handles import EntityRealm


def open_subscriber(
    realm: EntityRealm | str | Path,
    topic: str,
    as_: str,
    *,
    from_: str | int | Position | datetime | None = None,
    until_us: int | None = None,
    unopenable: Callable[[Position, CannotOpen], None] | None = None,
    ask: Ask | None = None,
    broker: str | None = None,
) -> Reading:
    """The subscriber's reader, by the topic's protection; see `clients.subscriber.Subscriber` for what is asked."""
    here = realm if isinstance(realm, EntityRealm) else EntityRealm(realm)
    if here.state().topic(topic).protection.overlay:
        return LayeredSubscriber(here, topic, as_, from_=from_, until_us=until_us, unopenable=unopenable, broker=broker)
    return Subscriber(here, topic, as_, from_=from_, until_us=until_us, unopenable=unopenable, ask=ask, broker=broker)
