"""A subscriber of a `layered` topic: its own mailbox at its own broker, opened with its own keys.

It has all that `clients.subscriber` has, and keeps to the same words: `poll` and iteration hand out events and leave
the cursor, `ack` is durable. What it hands out it has verified against the publisher's signature; the brokers between
could withhold an event and not invent one. Beside reading, it keeps its broker informed of what it wants (`interests`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from sealcast.clients.reading import Reading, place_named
from sealcast.errors import CannotOpen, NotFound
from sealcast.model.event import OpenedEvent, Position
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.layered.homes import Found, Homes
from sealcast.protections.layered.interests import Interests
from sealcast.protections.layered.mailbox import HopDelivery
from sealcast.protections.layered.opening import EventOpener
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.layer_keys import own_identity
from sealcast.trust.realm.state import RealmState

#: How often it looks whether its broker has to be told something, unless the registry says so before.
REFRESH_SECONDS: Final = 30.0

#: The last event of each home that was handed out.
Mark = Mapping[str, HopDelivery]


class LayeredSubscriber(Reading, Unpicklable):
    """One entity's mailbox on one layered topic. Not shared between threads."""

    def __init__(
        self,
        realm: EntityRealm | str | Path,
        topic: str,
        as_: str,
        *,
        from_: str | int | Position | datetime | None = None,
        until_us: int | None = None,
        unopenable: Callable[[Position, CannotOpen], None] | None = None,
        broker: str | None = None,
    ) -> None:
        """Starts at the durable cursor, or at `from_` (see `log.place`), which leaves the cursor where it is. Ends
        before what was committed at `until_us` or later. With a `broker` it stands below that one from now on.

        An event that does not open stops the reader with CannotOpen, unless `unopenable` takes the report of it.
        """
        self.realm = realm if isinstance(realm, EntityRealm) else EntityRealm(realm)
        self.topic = topic
        self.name = as_
        self._until_us = until_us
        self._unopenable = unopenable
        state = self._current()
        #: What it wants; filters are added and ended there.
        self.interests = Interests(self.realm, topic, as_, identity=own_identity(self.realm, state, as_))
        if broker is not None:
            self.realm.place_subscriber(topic, as_, broker)
        self._told: RealmState | None = None
        self._look_at = 0.0
        self._look()
        if as_ not in self.realm.state().overlay(topic).places:
            self.interests.close()
            raise NotFound(
                f"entity {as_!r} has no subscription on topic {topic!r}",
                hint=f'add one: sealcast subscription add {topic} --as {as_} --filter "..."',
            )
        about = state.topic(topic)
        self._opener = EventOpener(about.schema, about.id, self._verify_key_of, self.interests.standing.opener)
        self._homes = Homes(self._directories(), as_, routes=Role.BROKER in state.entity(as_).roles)
        if from_ is not None:
            self._homes.locate(place_named(from_))
        self._handed_out: dict[str, HopDelivery] = {}

    def events_of(self, first: int, end: int) -> Iterator[OpenedEvent]:
        """What the records `first` to before `end` of its broker's ledger hold for it: for a reader that keeps its
        place itself."""
        self._current()
        for delivery in self._homes.between(first, end):
            yield self._opener.open(delivery.piece, delivery.row)

    @property
    def handed_out(self) -> Mark | None:
        """The last events that were handed out and not acknowledged: how far `ack` goes, now or later."""
        return dict(self._handed_out) or None

    def ack(self, upto: Mark | None = None) -> None:
        """Durably done with everything that was handed out so far, or up to what was `handed_out` before."""
        done = self._handed_out if upto is None else upto
        self._homes.acknowledge(done)
        self._handed_out = {h: last for h, last in self._handed_out.items() if done.get(h) is not last}

    def lag(self) -> int:
        return self._homes.lag()

    def close(self) -> None:
        self._homes.close()
        self.interests.close()

    # --- inside ---------------------------------------------------------------------------------------

    def _take(self, max_events: int) -> list[OpenedEvent]:
        events: list[OpenedEvent] = []
        for found in self._homes.deliveries():
            delivery = found.delivery
            if len(events) >= max_events or (self._until_us is not None and delivery.committed_us >= self._until_us):
                break
            try:
                event = self._opener.open(delivery.piece, delivery.row)
            except CannotOpen as error:
                if self._unopenable is None and events:
                    break  # hand out what is good; the next poll says what is wrong with this one
                if self._unopenable is None:
                    raise
                self._unopenable(delivery.position, error)
            else:
                events.append(event)
            self._passed(found)
        return events

    def _passed(self, found: Found) -> None:
        self._homes.passed(found)
        self._handed_out[found.home] = found.delivery

    def _look(self) -> None:
        """Tells the broker what it does not know yet, when the registry changed, and now and then."""
        state, now = self._current(), time.monotonic()
        if state is self._told and now < self._look_at:
            return
        self.interests.try_refresh()
        moved = self._told is not None
        self._told, self._look_at = self.realm.state(), now + REFRESH_SECONDS
        if moved:
            self._homes.update(self._directories())

    def _directories(self) -> dict[str, Path]:
        return {home: self.realm.paths.topic(self.topic, home).hops.root for home in self.interests.homes()}
