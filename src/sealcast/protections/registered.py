"""Interests that stand in the registry, and mail by slots: for every protection whose brokers evaluate filters.

A subscriber asks for its own subscriptions, with its token, at a broker's desk. An administrator adds anybody's. Either
way the broker learns of them from the registry, and seals for the subscriber's slot from its next batch on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sealcast.control.keepalive import KeepAlive
from sealcast.control.wallet import Wallet
from sealcast.errors import Misuse, NotFound, SealcastError
from sealcast.log.closing import Closing
from sealcast.log.mailbox import Mailbox, slot_mailbox
from sealcast.model.event import OpenedEvent
from sealcast.model.schema import Schema
from sealcast.model.subscription import Subscription
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.filter_texts import FilterTextsAtHand
from sealcast.protections.journals import journal_signer
from sealcast.protections.opened import OpenedBatch
from sealcast.protections.port import AsksOf, FilterCost, Interest, Interests, Reader, Wanted
from sealcast.protections.stays import Stays, no_subscription
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.wire.sealed import SealedPiece

if TYPE_CHECKING:
    from sealcast.trust.deployment import Realm


class RegisteredInterests(Closing, Unpicklable):
    """One subscriber's subscriptions on one topic, asked for by itself. The desk's answer says that they count."""

    trouble: Final = None

    def __init__(self, realm: EntityRealm, topic: str, subscriber: str) -> None:
        self._realm, self._topic, self._name = realm, topic, subscriber
        self._wallet = Wallet(realm, subscriber)

    def add(self, text: str, id: str | None = None) -> Interest:
        from sealcast.control import requests

        return _interest(self._realm.state(), requests.subscribe(self._wallet, self._topic, text, id))

    def remove(self, ids: Iterable[str]) -> None:
        from sealcast.control import requests

        broker = requests.serving_broker(self._realm.state(), self._topic)
        requests.unsubscribe(self._wallet.correspondent, broker, ids)

    def filters(self) -> list[Interest]:
        return listed(self._realm, self._topic, self._name)

    def refresh(self) -> None:
        ids = [each.id for each in self.filters() if each.id is not None]
        from sealcast.control import requests
        from sealcast.control.desk import MAX_IDS

        for first in range(0, len(ids), MAX_IDS):
            requests.renew_subscriptions(self._wallet, self._topic, ids[first : first + MAX_IDS])

    def close(self) -> None:
        self._wallet.close()


class RegisteredInbox(Unpicklable):
    """One reader's mailboxes, and its subscriptions kept alive while it reads. How mail is opened, each protection
    says."""

    def __init__(self, reader: Reader, side: RegisteredSide) -> None:
        self.reader = reader
        realm, topic, name = reader.realm, reader.topic, reader.name
        self.identity = realm.identity(name)
        self.mail = side.mail(realm, topic, name)
        self._alive = KeepAlive(realm, topic, self.identity)
        if reader.broker is not None and reader.broker != realm.state().home_of(topic, name):
            from sealcast.overlay import moves

            moves.move(realm, topic, name, reader.broker)

    @property
    def trouble(self) -> SealcastError | None:
        return self._alive.trouble

    def look(self, state: RealmState) -> None:
        self._alive.look(state)

    def unwanted(self, opened: OpenedBatch) -> Sequence[int]:
        """Filters are evaluated by brokers, as they stood when the event came."""
        return ()

    def report(self, events: Sequence[OpenedEvent], count: int) -> None:
        """All that comes is wanted here."""

    def close(self) -> None:
        self.mail.close()


class RegisteredSide:
    """What the client sides of such protections share."""

    def slot(self, realm: EntityRealm, topic: str, subscriber: str) -> int:
        """NotFound for one that never subscribed."""
        found = realm.state().slot_of(topic, subscriber)
        return no_subscription(topic, subscriber) if found is None else found

    def mail(self, realm: EntityRealm, topic: str, subscriber: str) -> Stays[SealedPiece]:
        slot, about = self.slot(realm, topic, subscriber), realm.state().topic(topic)

        def mailbox_at(broker: str, patience_s: float | None) -> Mailbox[SealedPiece]:
            state, site, own = realm.state(), realm.site.of(subscriber), realm.paths.topic(topic, broker)
            by, told = journal_signer(state, about, broker), site.told(state, topic, broker)
            journal = site.journal(topic, broker, patience_s=patience_s)
            return slot_mailbox(journal, slot, subscriber, by, own.cursors, told)

        return Stays(lambda: realm.state().stays_of(topic, subscriber), mailbox_at)

    def move(self, realm: EntityRealm, topic: str, subscriber: str, to: str | None, *, abandon: bool = False) -> bool:
        from sealcast.overlay import moves

        if to is not None:
            moves.move(realm, topic, subscriber, to)
        own = [(topic, subscriber)]
        if realm.site.here:  # elsewhere its brokers settle it, when they have caught up
            moves.settle(realm, abandon=own if abandon else (), only=own)
        elif abandon:
            raise Misuse("a move is given up where the realm is: ask its administrator")
        return (topic, subscriber) in moves.moving(realm.state())

    def vet(self, text: str, topic: Topic) -> None:
        from sealcast.filters.check import fit  # who adds no filter needs none of these
        from sealcast.filters.parse import parse
        from sealcast.filters.visible import refuse_unseen

        sight = topic.protection
        refuse_unseen(fit(parse(text), topic.schema), sight.hidden_of(topic.schema), payloads_seen=sight.payloads_seen)

    def asks_of_past(self, realm: EntityRealm, topic: str, reader: str, text: str) -> AsksOf:
        """The text. Whoever may read now opens what is sealed for it now, whenever it was published."""
        self.vet(text, realm.state().topic(topic))
        return lambda epoch: text

    def cost(self, text: str, schema: Schema) -> FilterCost:
        return FilterCost({}, "")

    def interests(self, realm: EntityRealm, topic: str, subscriber: str) -> Interests:
        return RegisteredInterests(realm, topic, subscriber)

    def subscribe_many(
        self, realm: Realm, topic: str, wanted: Sequence[Wanted], *, broker: str | None = None
    ) -> list[Interest]:
        from sealcast.trust.admin import subscriptions

        made = subscriptions.subscribe_many(realm, topic, wanted, broker=broker)
        state = realm.state()
        return [_interest(state, subscription) for subscription in made]

    def listed(self, realm: EntityRealm, topic: str, subscriber: str | None = None) -> list[Interest]:
        return listed(realm, topic, subscriber)

    def filter_owners(self, realm: EntityRealm, topic: str) -> list[str]:
        return []

    def refresh_here(self, realm: EntityRealm, topic: str) -> Iterator[tuple[str, bool | SealcastError]]:
        """Brokers read the registry: there is nothing to tell them."""
        return iter(())


def broker_that_serves(state: RealmState, topic: str, broker: str) -> str:
    """The broker that a publisher chose; NotFound unless it serves the topic."""
    serving = state.serving(topic)
    if broker not in serving:
        raise NotFound(
            f"broker {broker!r} does not serve topic {topic!r}",
            hint=f"those do: {', '.join(serving)}; or let it: sealcast topic serve {topic} {broker}",
        )
    return broker


def listed(realm: EntityRealm, topic: str, subscriber: str | None) -> list[Interest]:
    """Subscriptions with their filters, as far as these can be opened here."""
    state, texts = realm.state(), FilterTextsAtHand(realm)
    found = [each for each in state.subscriptions_of(topic) if subscriber in (None, each.subscriber)]
    return [
        Interest(each.id, topic, each.subscriber, texts.text(each), state.home_of(topic, each.subscriber))
        for each in found
    ]


def _interest(state: RealmState, made: Subscription) -> Interest:
    """One that was just made, with its filter as it was asked for."""
    home = state.home_of(made.topic, made.subscriber)
    return Interest(made.id, made.topic, made.subscriber, made.filter, home)
