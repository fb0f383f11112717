"""Opening a subscriber's mailbox, whatever protects the topic: the same words for both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, Self

from sealcast.clients.layered.subscriber import LayeredSubscriber
from sealcast.clients.missing import Ask
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import CannotOpen
from sealcast.model.event import OpenedEvent, Position
from sealcast.trust.deployment import Realm
from sealcast.trust.layering import LAYERED


class Reader(Protocol):
    """One entity's mailbox on one topic: `clients.subscriber.Subscriber`, or one of another protection's."""

    realm: Realm
    topic: str
    name: str

    def poll(self, max_events: int = ..., timeout: float = ...) -> list[OpenedEvent]:
        """The next events, at most so many; waits up to `timeout` seconds for the first, and may return none."""
        ...

    def __iter__(self) -> Iterator[OpenedEvent]:
        """Everything that is there by now."""
        ...

    def follow(self, stop: Callable[[], bool] = ...) -> Iterator[OpenedEvent]:
        """Everything, and then every event as it is delivered, until `stop` says so."""
        ...

    def events_of(self, first: int, end: int) -> Iterator[OpenedEvent]:
        """What the ledger's records `first` to before `end` hold for it."""
        ...

    @property
    def handed_out(self) -> Any:
        """How far `ack` goes, now or later; None when there is nothing to acknowledge."""
        ...

    def ack(self, upto: Any = None) -> None:
        """Durably done with everything that was handed out so far, or up to what was `handed_out` before."""
        ...

    def lag(self) -> int:
        """How many events wait after the durable cursor."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


def open_subscriber(
    realm: Realm | str | Path,
    topic: str,
    as_: str,
    *,
    from_: str | int | Position | datetime | None = None,
    until_us: int | None = None,
    unopenable: Callable[[Position, CannotOpen], None] | None = None,
    ask: Ask | None = None,
    broker: str | None = None,
) -> Reader:
    """The subscriber's reader, by the topic's protection; see `clients.subscriber.Subscriber` for what is asked."""
    here = realm if isinstance(realm, Realm) else Realm(realm)
    if here.state().topic(topic).protection == LAYERED:
        return LayeredSubscriber(here, topic, as_, from_=from_, until_us=until_us, unopenable=unopenable, broker=broker)
    return Subscriber(here, topic, as_, from_=from_, until_us=until_us, unopenable=unopenable, ask=ask, broker=broker)
