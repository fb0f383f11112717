"""open: an event of the inbox -> OpenedEvent, with the keys of one's own subscriptions.

(1) the frame's header is its publisher's, signed, for this topic; the event is a leaf of the tree that it commits to
    (`verify`), and was sealed in the epoch that the header states;
(2) one of the subscriptions has a credential for each part of the event, and the keys open it (`scheme.open`);
(3) who signed the frame made what is inside, for this topic (`publish`);
(4) the record inside is one of the schema that its epoch has, and its values are those of the labels: of those that
    opened it, so that a publisher cannot send what was not asked for; of those that its publisher signed for, so that
    it publishes nothing that it may not. One of an earlier version is then lifted to the present (`wire.lifting`).

Whatever fails is CannotOpen: a subscriber learns that something was altered, and uses nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from sealcast.errors import CannotOpen, EventRejected
from sealcast.log.mailbox import Part
from sealcast.model.event import OpenedEvent
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.asking import Subscribing
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.publish import inside_record
from sealcast.protections.attribute.scheme import OpenedContent, Opener, PublicParameters, SubscriptionKey
from sealcast.protections.attribute.settings import event_space
from sealcast.protections.opened import OpenedPart, settle
from sealcast.protections.verify import SignedHeaders, VerifiedRecord, opened_event, publishers_keys
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.wire.attribute import AttributeReason, AttributeRejected, SealedAttributeEvent
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.frame import Header
from sealcast.wire.lifting import lifts
from sealcast.wire.peer_pieces import PeerPiece
from sealcast.wire.records import RecordCodec

#: Epochs whose keys are kept ready: this one, the one before, and some that a reader goes back to.
_READY: Final = 4
#: What a subscriber holds for an epoch, filter by filter, and what changes with it.
KeysOfEpoch = Callable[[int], Sequence[Subscribing]]
StampOfEpoch = Callable[[int], object]


class NotOurs(CannotOpen):
    """Nothing is wrong with it: it is for others."""


class _Version(NamedTuple):
    """What events of an epoch are held to."""

    digest: bytes
    codec: RecordCodec
    space: EventSpace


class AttributeOpener(Unpicklable):
    """What one subscriber of a topic opens."""

    def __init__(
        self, state: Callable[[], RealmState], topic: str, keys: KeysOfEpoch, stamp: StampOfEpoch = lambda epoch: None
    ) -> None:
        self._state, self._topic, self._about = state, topic, state().topic(topic)
        self._go_by(self._about)
        self._headers = SignedHeaders(self._about.id, publishers_keys(state))
        self._keys, self._stamp = keys, stamp
        self._opener = lru_cache(_READY)(self._made)

    @classmethod
    def of(
        cls, state: Callable[[], RealmState], topic: str, ring: CredentialRing, *, live: bool = False
    ) -> AttributeOpener:
        """By the keys of a ring, also those that come later; with `live`, by those of filters that are not over."""
        return cls(
            state,
            topic,
            lambda epoch: list(ring.subscribing(epoch, live=live)),
            lambda epoch: ring.stamp(epoch, live=live),
        )

    def look(self) -> None:
        """Goes by the newest version of the topic's schema from now on."""
        about = self._state().topic(self._topic)
        if about.schema != self._about.schema:
            self._go_by(about)

    def _go_by(self, about: Topic) -> None:
        self._about = about
        self._codec, self._lifts = RecordCodec(about.schema), lifts(about.schema, about.earlier_schemas)
        self._versions = lru_cache(_READY)(self._version)

    def _version(self, epoch: int) -> _Version:
        """How events of an epoch are read."""
        about = self._about.in_epoch(epoch)
        return _Version(about.schema.digest, RecordCodec(about.schema), event_space(about))

    def open(self, event: CarriedEvent) -> OpenedEvent:
        """CannotOpen says why not."""
        (found,) = self.open_many([event])
        if isinstance(found, CannotOpen):
            raise found
        return opened_event(found.header, event.position, self._codec, found.record)

    def open_part(self, part: Part[PeerPiece], found: Callable[[int], VerifiedRecord | CannotOpen]) -> OpenedPart:
        """Deliveries of an inbox, each with what `open_many` found."""

        def one(row: int) -> VerifiedRecord:
            opened = found(part.events[row])
            if isinstance(opened, CannotOpen):
                raise opened
            return opened

        return settle(self._codec, part, {}, [None] * len(part), one)

    def open_many(self, events: Sequence[CarriedEvent]) -> list[VerifiedRecord | CannotOpen]:
        """Each event opened, or why not. What is signed in the name of credentials is verified for all of them at once,
        which takes a fraction of the pairings."""
        found = dict[int, VerifiedRecord | CannotOpen]()
        epochs = dict[int, list[tuple[int, Header]]]()
        for number, event in enumerate(events):
            try:
                header = self._header(event)  # (1)
                epochs.setdefault(header.epoch, []).append((number, header))
            except CannotOpen as error:
                found[number] = error
        for epoch, some in epochs.items():
            opened = self._opened(epoch, [events[number].message for number, _ in some])  # (2)
            for (number, header), one in zip(some, opened, strict=True):
                try:
                    found[number] = self._settled(header, events[number], one)
                except CannotOpen as error:
                    found[number] = error
        return [found[number] for number in range(len(events))]

    def _header(self, event: CarriedEvent) -> Header:
        """What its publisher signed."""
        header = self._headers.header(event.signed)
        self._headers.verify(header, event.message, event.position, event.path)
        try:
            if SealedAttributeEvent.parse(event.message).header.epoch != header.epoch:
                raise CannotOpen(f"{header.publisher} sealed it in another epoch than it states")
        except AttributeRejected as error:
            raise CannotOpen(error.message) from None
        return header

    def _opened(self, epoch: int, messages: Sequence[bytes]) -> Sequence[OpenedContent | CannotOpen]:
        opener = self._at(epoch)
        if opener is None:
            return [NotOurs(f"no key of topic {self._about.name!r} (epoch {epoch}) is at hand")] * len(messages)
        return [_why_not(one) if isinstance(one, AttributeRejected) else one for one in opener.open_many(messages)]

    def _settled(self, header: Header, event: CarriedEvent, opened: OpenedContent | CannotOpen) -> VerifiedRecord:
        if isinstance(opened, CannotOpen):
            raise opened
        record = inside_record(opened.payload, self._about.id, header.publisher)  # (3)
        version = self._versions(header.epoch)
        if header.schema != version.digest:  # (4)
            raise CannotOpen(f"{header.publisher} published event {event.position} in another schema than its epoch's")
        found = opened_event(header, event.position, version.codec, record)
        try:
            version.space.verify(found.attributes, opened.own, "the label that opened it")
            version.space.verify(found.attributes, opened.publisher, f"what {header.publisher} may publish")
        except EventRejected as error:
            raise CannotOpen(f"event {event.position} is not of its topic's schema: {error.message}") from None
        return VerifiedRecord(header, self._lifts[header.schema](record))

    def _at(self, epoch: int) -> Opener | None:
        return self._opener(epoch, self._stamp(epoch))

    def _made(self, epoch: int, stamp: object) -> Opener | None:
        held = self._keys(epoch)
        keys = [SubscriptionKey.parse(key) for each in held for key in each.keys]
        return Opener(PublicParameters.from_bytes(held[0].parameters), keys) if keys else None


def _why_not(error: AttributeRejected) -> CannotOpen:
    if error.reason is AttributeReason.MISMATCH:
        return NotOurs("no subscription has a label of each of the event's attributes")
    return CannotOpen(error.message)
