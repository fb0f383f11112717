"""The subscriber's side of the path: its mailbox, opened with its own keys, from its own durable cursor.

It reads its own key file, the public registry, and the topic's ledger and pieces; nothing of the broker's, and nobody
else's keys. What it hands out it has opened and verified: the publisher's signature, for this topic, over this event.
`reading` says how it hands events out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from sealcast.clients.reading import Reading, place_named
from sealcast.control.keepalive import KeepAlive
from sealcast.errors import CannotOpen, KeyMissing, Misuse, NotFound
from sealcast.log.cursor import Cursor
from sealcast.log.mailbox import Delivery
from sealcast.model.event import OpenedEvent, Position
from sealcast.overlay import moves
from sealcast.protections.endpoint.keyring import DEFAULT_BYTES, Measured
from sealcast.protections.endpoint.missing import Ask, MissingKeys
from sealcast.protections.endpoint.open import Opener
from sealcast.protections.stays import Place, StayDelivery, Stays
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.topic_keys import at_broker


class Subscriber(Reading):
    """One entity's mailbox on one topic. Not shared between threads."""

    def __init__(
        self,
        realm: EntityRealm | str | Path,
        topic: str,
        as_: str,
        *,
        from_: str | int | Position | datetime | None = None,
        until_us: int | None = None,
        unopenable: Callable[[Position, CannotOpen], None] | None = None,
        key_memory: int = DEFAULT_BYTES,
        ask: Ask | None = None,
        broker: str | None = None,
    ) -> None:
        """Starts at the durable cursor, or at `from_` (see `log.place`), which leaves the cursor where it is. Ends
        before what was committed at `until_us` or later. With a `broker` that is not its home it moves there, and goes
        on where it was.

        An event that does not open stops the reader with CannotOpen, unless `unopenable` takes the report of it. Keys
        take at most `key_memory` bytes; those that it has let go, it asks for by `ask`, the way to the broker's desk,
        or looks for in the ledger again.
        """
        self.realm = realm if isinstance(realm, EntityRealm) else EntityRealm(realm)
        self.topic = topic
        self.name = as_
        self._unopenable = unopenable
        self._until_us = until_us
        self._key_memory = key_memory
        state = self._current()
        self._identity = self.realm.identity(as_)
        slot = state.slot_of(topic, as_)
        if state.topic(topic).protection.overlay:
            raise Misuse(
                f"topic {topic!r} is layered: what a subscriber gets is at its own broker, under keys of its own",
                hint="open either kind by sealcast.open_subscriber(realm, topic, as_=...)",
            )
        if slot is None:
            raise NotFound(
                f"entity {as_!r} has no subscription on topic {topic!r}",
                hint=f'add one: sealcast subscription add {topic} --as {as_} --filter "..."',
            )
        self._slot = slot
        self._alive = KeepAlive(self.realm, topic, self._identity)
        self._ask = ask
        self._openers: dict[tuple[str, int], Opener] = {}
        self._missing: dict[str, MissingKeys] = {}
        if broker is not None and broker != state.home_of(topic, as_):
            state = moves.move(self.realm, topic, as_, broker)
        self._opener(state.home_of(topic, as_), state.topic(topic).epoch)
        self._stays = Stays(self.realm, topic, slot, as_)
        self._next: Place = self._stays.start() if from_ is None else self._stays.locate(place_named(from_))
        self._handed_out: StayDelivery | None = None

    def events_of(self, first: int, end: int) -> Iterator[OpenedEvent]:
        home = self._current().home_of(self.topic, self.name)
        for delivery in self._stays.mailbox(home).deliveries(Cursor(first), end=end):
            yield self._open(delivery, home)

    @property
    def handed_out(self) -> StayDelivery | None:
        """The last event that was handed out and not acknowledged: how far `ack` goes, now or later."""
        return self._handed_out

    def ack(self, upto: StayDelivery | None = None) -> None:
        """Durably done with everything that was handed out so far, or up to what was `handed_out` before."""
        done = upto or self._handed_out
        if done is not None:
            self._stays.acknowledge(done)
            self._handed_out = None if done is self._handed_out else self._handed_out

    @property
    def keys(self) -> Measured:
        """What became of keys so far: how many were given, derived, asked for, let go; and bytes of those held."""
        return Measured.total(opener.keyring.measured for opener in self._openers.values())

    def lag(self) -> int:
        return self._stays.lag()

    def close(self) -> None:
        self._stays.close()

    # --- inside -------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._alive.look(self._current())

    def _take(self, max_events: int) -> list[OpenedEvent]:
        events: list[OpenedEvent] = []
        for delivery in self._stays.deliveries(self._next):
            if len(events) >= max_events or (self._until_us is not None and delivery.committed_us >= self._until_us):
                break
            try:
                event = self._open(delivery, delivery.broker)
            except CannotOpen as error:
                if self._unopenable is None and events:
                    break  # hand out what is good; the next poll says what is wrong with this one
                if self._unopenable is None:
                    raise
                self._unopenable(delivery.position, error)
            else:
                events.append(event)
            self._next, self._handed_out = delivery.after, delivery
        return events

    def _open(self, delivery: Delivery, broker: str) -> OpenedEvent:
        opener = self._opener(broker, delivery.piece.epoch)
        try:
            return opener.open(delivery.piece, delivery.event, delivery.use)
        except KeyMissing:
            self._missing_at(broker).find(opener, delivery)
            return opener.open(delivery.piece, delivery.event, delivery.use)

    def _missing_at(self, broker: str) -> MissingKeys:
        if broker not in self._missing:
            mailbox, signer = self._stays.mailbox(broker), self._identity.signer
            self._missing[broker] = MissingKeys(mailbox, self.name, signer, self.realm.clock, self._ask)
        return self._missing[broker]

    def _opener(self, broker: str, epoch: int) -> Opener:
        opener = self._openers.get((broker, epoch))
        if opener is None:
            state = self._current()
            about, pair = state.topic(self.topic), self._identity.pair_key(state, self.topic, epoch)
            pair = at_broker(pair, broker)
            bits = about.parameters.key_bits
            opener = Opener(
                about.schema, about.id, epoch, self._slot, pair, self._verify_key_of, bits, self._key_memory
            )
            self._openers[broker, epoch] = opener
        return opener
