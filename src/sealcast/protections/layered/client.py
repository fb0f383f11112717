"""The client side of `layered`: events and filters leave their owners only under layers, for brokers that cannot read.

    Publisher ── notifying ── sealing ──> a frame for every root broker
    filter ── own_filters ── told ── interests ──> posts to one's own broker
    one's own broker's hops ── mailbox ── open ──> OpenedEvent

A subscriber reads at its own broker, and keeps that broker informed of what it wants. What it hands out it has verified
against the publisher's signature: the brokers between could withhold an event and not invent one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from sealcast.errors import CannotOpen, Misuse, SealcastError
from sealcast.filters.check import check
from sealcast.filters.labels import label_filter
from sealcast.filters.parse import parse
from sealcast.log.mailbox import Mailbox, hop_mailbox
from sealcast.model.event import OpenedEvent
from sealcast.model.protection import Layered
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.journals import HOPS_PART, journal_signer
from sealcast.protections.labelled import LabelledSide
from sealcast.protections.layered.interests import LayeredInterests, homes_of
from sealcast.protections.layered.layering import check_slots
from sealcast.protections.layered.notifying import Notifying
from sealcast.protections.layered.open import EventOpener
from sealcast.protections.layered.participant import Participant
from sealcast.protections.layered.reports import Reporter
from sealcast.protections.layered.telling import Refreshed
from sealcast.protections.layered.together import refresh_all, subscribe_together, subscribers_here
from sealcast.protections.opened import OpenedBatch, OpenedPart
from sealcast.protections.port import AsksOf, ClientSide, Interest, KeysOf, Measured, Opens, Proven, Reader, Wanted
from sealcast.protections.proving import part_of, proven
from sealcast.protections.stays import FoundPart, Stays, no_subscription
from sealcast.protections.verify import publishers_keys
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Stay, Topic
from sealcast.wire.hops import HopPiece

#: How often a reader looks whether its broker has to be told something, unless the registry says so before.
REFRESH_SECONDS: Final = 30.0


class LayeredInbox(Unpicklable):
    """Keys are agreed on with those above: none come with events, and none have to be asked for."""

    def __init__(self, reader: Reader) -> None:
        self._realm, self._topic, self._name = reader.realm, reader.topic, reader.name
        self._interests = LayeredInterests(reader.realm, reader.topic, reader.name)
        if reader.broker is not None:
            self._realm.place_subscriber(self._topic, self._name, reader.broker)
        self._told: RealmState | None = None
        self._look_at = 0.0
        self._homes: list[Stay] = []
        self.look(self._realm.state())
        if self._name not in self._realm.state().overlay(self._topic).places:
            self._interests.close()
            no_subscription(self._topic, self._name)
        self._schema = b""
        self._known = self._opener
        self.mail = _mail(self._realm, self._topic, self._name, lambda: self._homes)
        self.keys = Measured()
        self._reporter = Reporter(self._realm, self._topic, self._name)

    @property
    def trouble(self) -> SealcastError | None:
        return self._interests.trouble

    @property
    def _opener(self) -> EventOpener:
        """A version of the schema that came since is for an opener that knows it."""
        schema = (self._realm.registry.known or self._realm.state()).topic(self._topic).schema.digest
        if schema != self._schema:
            self._schema = schema
            self._known = opener_for(self._realm, self._topic, self._interests.participant)
        return self._known

    def look(self, state: RealmState) -> None:
        """Tells the broker what it does not know yet, when the registry changed, and now and then."""
        now = time.monotonic()
        if state is not self._told or now >= self._look_at:
            self._interests.try_refresh()
            self._told, self._look_at = self._realm.state(), now + REFRESH_SECONDS
            self._homes = [Stay(home) for home in homes_of(self._realm, self._topic, self._name)]

    def open(self, found: FoundPart[HopPiece]) -> OpenedPart:
        return self._opener.open_part(found.part)

    def unwanted(self, opened: OpenedBatch) -> Sequence[int]:
        """Keys are not bound to what was asked for: brokers above can hand on any event. Its own filters can tell."""
        return self._interests.unwanted(opened.columns, self._known.schema) if len(opened) else ()

    def report(self, events: Sequence[OpenedEvent], count: int) -> None:
        self._reporter.report(events, count)

    def prove(self, broker: str, piece: HopPiece, known: dict[int, bytes]) -> Proven:
        """Every subscriber for itself: each has another entry, under layers of its own."""
        return proven(part_of(piece, self.mail.mailbox(broker).recipient), self._opener.open_part)

    def close(self) -> None:
        self._reporter.close()
        self.mail.close()
        self._interests.close()


def opener_for(realm: EntityRealm, topic: str, participant: Participant) -> EventOpener:
    """What opens the events of one subscriber, by the places and keys that it has."""
    about = realm.state().topic(topic)
    return EventOpener(about, publishers_keys(realm.state), participant.opener)


def mailbox_at(
    realm: EntityRealm, topic: str, broker: str, subscriber: str, patience_s: float | None = None
) -> Mailbox[HopPiece]:
    """What one broker has for one subscriber."""
    state = realm.state()
    by = journal_signer(state, state.topic(topic), broker, HOPS_PART)
    routes = Role.BROKER in state.entity(subscriber).roles
    site, own = realm.site.of(subscriber), realm.paths.topic(topic, broker).hops
    told = site.told(state, topic, broker, "hops")
    journal = site.journal(topic, broker, "hops", patience_s)
    noted = list(state.entities).index(subscriber)
    return hop_mailbox(journal, subscriber, by, own.cursors, told, routes=routes, noted=noted)


def _mail(realm: EntityRealm, topic: str, subscriber: str, homes: Callable[[], Sequence[Stay]]) -> Stays[HopPiece]:
    return Stays(homes, lambda broker, patience: mailbox_at(realm, topic, broker, subscriber, patience), _generation)


def _generation(piece: HopPiece, event: int) -> int:
    return piece.place(event)[2]


class LayeredClient(LabelledSide):
    def vet(self, text: str, topic: Topic) -> None:
        if isinstance(topic.protection, Layered):
            check_slots(label_filter(check(parse(text), topic.schema).condition, topic.schema), topic.protection)

    def way(self, realm: EntityRealm, topic: str, identity: Identity, broker: str) -> Notifying:
        return Notifying(realm, topic, identity, broker)

    def inbox(self, reader: Reader) -> LayeredInbox:
        return LayeredInbox(reader)

    def mail(self, realm: EntityRealm, topic: str, subscriber: str) -> Stays[HopPiece]:
        homes = [Stay(home) for home in homes_of(realm, topic, subscriber)] or no_subscription(topic, subscriber)
        return _mail(realm, topic, subscriber, lambda: homes)

    def key_asker(self, realm: EntityRealm, topic: str, subscriber: str) -> AbstractContextManager[None]:
        return nullcontext()

    def opens_with(self, state: RealmState, topic: str, broker: str, slot: int, keys_of: KeysOf) -> Opens:
        def nothing(piece: object, event: int, row: int) -> OpenedEvent:
            raise CannotOpen(f"the key center of the layered topic {topic!r} hands out no key that opens an event")

        return nothing

    def move(self, realm: Realm, topic: str, subscriber: str, to: str | None, *, abandon: bool = False) -> bool:
        if to is None:
            raise Misuse(
                f"a subscriber of the layered topic {topic!r} moves at once: there is no move to give up",
                hint="say where it goes: --to BROKER",
            )
        realm.place_subscriber(topic, subscriber, to)
        return False

    def asks_of_past(self, realm: EntityRealm, topic: str, reader: str, text: str) -> AsksOf:
        raise Misuse(f"topic {topic!r} cannot be replayed: {realm.state().topic(topic).protection.lacks['replay']}")

    def interests(self, realm: EntityRealm, topic: str, subscriber: str) -> LayeredInterests:
        return LayeredInterests(realm, topic, subscriber)

    def subscribe_many(
        self, realm: Realm, topic: str, wanted: Sequence[Wanted], *, broker: str | None = None
    ) -> list[Interest]:
        return subscribe_together(realm, topic, wanted, broker=broker)

    def listed(self, realm: EntityRealm, topic: str, subscriber: str | None = None) -> list[Interest]:
        if subscriber is not None:
            with LayeredInterests(realm, topic, subscriber) as interests:
                return interests.filters()
        places = realm.state().overlay(topic).places
        return [Interest(None, topic, name, None, broker) for name, broker in places.items()]

    def filter_owners(self, realm: EntityRealm, topic: str) -> list[str]:
        return subscribers_here(realm, realm.state(), topic)

    def refresh_here(self, realm: EntityRealm, topic: str) -> Iterator[tuple[str, bool | SealcastError]]:
        for _, name, done in refresh_all(realm, [topic]):
            yield name, done.posts > 0 if isinstance(done, Refreshed) else done


CLIENT: Final[ClientSide] = LayeredClient()
