"""The client side of `attribute`: publishers seal into logs of their own, subscribers read inboxes of their own.

event  ── publish ──> the publisher's own log           peers carry it from there (`carry`)
filter ── interests ──> the key center, which knows it and answers with keys
inbox  ── open ──> OpenedEvent
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from sealcast.errors import CannotOpen, Misuse, SealcastError
from sealcast.log.mailbox import inbox_mailbox
from sealcast.model.event import OpenedEvent
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.carry import refresh_here, subscribers_here
from sealcast.protections.attribute.center import wanted_labels
from sealcast.protections.attribute.interests import CredentialInterests
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.open import AttributeOpener
from sealcast.protections.attribute.publish import AttributeWay
from sealcast.protections.journals import journal_signer
from sealcast.protections.labelled import LabelledSide
from sealcast.protections.opened import OpenedBatch, OpenedPart
from sealcast.protections.port import AsksOf, ClientSide, Interest, KeysOf, Measured, Opens, Proven, Reader, Wanted
from sealcast.protections.proving import part_of, proven
from sealcast.protections.stays import FoundPart, Stays, no_subscription
from sealcast.protections.verify import VerifiedRecord
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Stay, Topic
from sealcast.wire.peer_pieces import PeerPiece

#: Events that are opened together: a batch of more gains little, and the first one waits for it.
AHEAD: Final = 16


class AttributeInbox(Unpicklable):
    """One subscriber's inbox, and the keys of every epoch while it reads."""

    def __init__(self, reader: Reader) -> None:
        realm, topic, name = reader.realm, reader.topic, reader.name
        if reader.broker is not None:
            raise _no_broker(topic)
        self.mail = mail(realm, topic, name)
        self._ring = CredentialRing(realm, topic, realm.identity(name))
        self._interests = CredentialInterests(realm, topic, name, self._ring)
        self._opener = AttributeOpener.of(realm.state, topic, self._ring)
        self._looked: RealmState | None = None
        #: Events of one piece that were opened together.
        self._ahead_of: PeerPiece | None = None
        self._ahead: dict[int, VerifiedRecord | CannotOpen] = {}
        #: A few keys an epoch, which take no room worth counting.
        self.keys = Measured()
        self.look(realm.state())

    @property
    def trouble(self) -> SealcastError | None:
        return self._interests.trouble

    def look(self, state: RealmState) -> None:
        if state is not self._looked:
            self._opener.look()
            self._ahead_of, self._ahead = None, {}
            self._interests.try_refresh()
            self._looked = state

    def open(self, found: FoundPart[PeerPiece]) -> OpenedPart:
        """A few at a time, as pairings take milliseconds."""
        some = found.part.cut(0, min(AHEAD, len(found.part)))
        return self._opener.open_part(some, lambda event: self._opened(some.piece, event))

    def _opened(self, piece: PeerPiece, event: int) -> VerifiedRecord | CannotOpen:
        """Opens those that follow with it: what is verified together costs less, and who reads one reads on."""
        if self._ahead_of is not piece or event not in self._ahead:
            events = range(event, min(event + AHEAD, len(piece)))
            opened = self._opener.open_many([piece.carried(each) for each in events])
            self._ahead_of, self._ahead = piece, dict(zip(events, opened, strict=True))
        return self._ahead[event]

    def unwanted(self, opened: OpenedBatch) -> Sequence[int]:
        """It has opened them with a subscription's key, which opens nothing else."""
        return ()

    def report(self, events: Sequence[OpenedEvent], count: int) -> None:
        """All that comes is wanted here."""

    def prove(self, broker: str, piece: PeerPiece, known: dict[int, bytes]) -> Proven:
        """Every subscriber for itself: no two have the same keys."""
        part = part_of(piece, self.mail.mailbox(broker).recipient)
        return proven(part, lambda some: self._opener.open_part(some, lambda event: self._opened(piece, event)))

    def close(self) -> None:
        self.mail.close()
        self._ring.close()


def mail(realm: EntityRealm, topic: str, subscriber: str) -> Stays[PeerPiece]:
    """A subscriber is its own and only broker; NotFound for one that never subscribed."""
    if realm.state().slot_of(topic, subscriber) is None:
        no_subscription(topic, subscriber)
    state, stays = realm.state(), (Stay(subscriber),)
    by = journal_signer(state, state.topic(topic), subscriber)
    return Stays(lambda: stays, lambda broker, _: inbox_mailbox(realm.paths.topic(topic, broker).root, subscriber, by))


class AttributeClient(LabelledSide):
    def way(self, realm: EntityRealm, topic: str, identity: Identity, broker: str) -> AttributeWay:
        return AttributeWay(realm, topic, identity)

    def inbox(self, reader: Reader) -> AttributeInbox:
        return AttributeInbox(reader)

    def mail(self, realm: EntityRealm, topic: str, subscriber: str) -> Stays[PeerPiece]:
        return mail(realm, topic, subscriber)

    def key_asker(self, realm: EntityRealm, topic: str, subscriber: str) -> AbstractContextManager[None]:
        return nullcontext()

    def opens_with(self, state: RealmState, topic: str, broker: str, slot: int, keys_of: KeysOf) -> Opens:
        def nothing(piece: object, event: int, handle: int) -> OpenedEvent:
            raise CannotOpen(f"the registry has no key that opens an event of topic {topic!r}: subscriptions have them")

        return nothing

    def move(self, realm: Realm, topic: str, subscriber: str, to: str | None, *, abandon: bool = False) -> bool:
        raise _no_broker(topic)

    def vet(self, text: str, topic: Topic) -> None:
        super().vet(text, topic)
        wanted_labels(text, topic)

    def asks_of_past(self, realm: EntityRealm, topic: str, reader: str, text: str) -> AsksOf:
        raise Misuse(f"topic {topic!r} cannot be replayed: {realm.state().topic(topic).protection.lacks['replay']}")

    def interests(self, realm: EntityRealm, topic: str, subscriber: str) -> CredentialInterests:
        return CredentialInterests(realm, topic, subscriber)

    def subscribe_many(
        self, realm: Realm, topic: str, wanted: Sequence[Wanted], *, broker: str | None = None
    ) -> list[Interest]:
        """Each subscriber asks by itself. Those of one subscriber all become subscriptions, or none does."""
        if broker is not None:
            raise _no_broker(topic)
        by_name = dict[str, list[tuple[str, str | None]]]()
        for name, text, id in wanted:
            by_name.setdefault(name, []).append((text, id))
        for text in dict.fromkeys(text for _, text, _ in wanted):
            self.vet(text, realm.state().topic(topic))
        made = dict[str, Iterator[Interest]]()
        for name, filters in by_name.items():
            with CredentialInterests(realm, topic, name) as interests:
                made[name] = iter(interests.add_many(filters))
        return [next(made[name]) for name, _, _ in wanted]

    def listed(self, realm: EntityRealm, topic: str, subscriber: str | None = None) -> list[Interest]:
        if subscriber is not None:
            with CredentialInterests(realm, topic, subscriber) as interests:
                return interests.filters()
        found = realm.state().subscriptions_of(topic)
        return [Interest(each.id, topic, each.subscriber, None, each.subscriber) for each in found]

    def filter_owners(self, realm: EntityRealm, topic: str) -> list[str]:
        return subscribers_here(realm, realm.state(), topic)

    def refresh_here(self, realm: EntityRealm, topic: str) -> Iterator[tuple[str, bool | SealcastError]]:
        return refresh_here(realm, topic)


def _no_broker(topic: str) -> Misuse:
    return Misuse(
        f"topic {topic!r} has no brokers: a subscriber is its own peer",
        hint="leave the broker out; sealcast peer run serves every peer whose keys are here",
    )


CLIENT: Final[ClientSide] = AttributeClient()
