"""open: an event of the inbox -> OpenedEvent, with the keys of one's own subscriptions.

(1) the frame's header is its publisher's, signed, for this topic; the event is a leaf of the tree that it commits to
    (`verify`), and was sealed in the epoch that the header states;
(2) one of the subscriptions has a credential for each part of the event, and the keys open it (`scheme.open`);
(3) who signed the frame made what is inside, for this topic (`publish`);
(4) the record inside is one of the topic's schema, and its values are those of the labels: of those that opened it, so
    that a publisher cannot send what was not asked for; of those that its publisher signed for, so that it publishes
    nothing that it may not.

Whatever fails is CannotOpen: a subscriber learns that something was altered, and uses nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from sealcast.errors import CannotOpen, EventRejected
from sealcast.model.event import OpenedEvent
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.asking import Subscribing
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.publish import inside_record
from sealcast.protections.attribute.scheme import OpenedContent, Opener, PublicParameters, SubscriptionKey
from sealcast.protections.verify import SignedHeaders, opened_event, publishers_keys
from sealcast.trust.realm.state import RealmState
from sealcast.wire.attribute import AttributeReason, AttributeRejected, SealedAttributeEvent
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.frame import Header
from sealcast.wire.records import RecordCodec

#: Epochs whose keys are kept ready: this one, the one before, and some that a reader goes back to.
_READY: Final = 4
#: What a subscriber holds for an epoch, filter by filter, and what changes with it.
KeysOfEpoch = Callable[[int], Sequence[Subscribing]]
StampOfEpoch = Callable[[int], object]


class NotOurs(CannotOpen):
    """Nothing is wrong with it: it is for others."""


class AttributeOpener(Unpicklable):
    """What one subscriber of a topic opens."""

    def __init__(
        self, state: Callable[[], RealmState], topic: str, keys: KeysOfEpoch, stamp: StampOfEpoch = lambda epoch: None
    ) -> None:
        about = self._about = state().topic(topic)
        self._codec, self._space = RecordCodec(about.schema), EventSpace(about.schema)
        self._headers = SignedHeaders(about.id, publishers_keys(state))
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

    def open(self, event: CarriedEvent) -> OpenedEvent:
        """CannotOpen says why not."""
        (found,) = self.open_many([event])
        if isinstance(found, CannotOpen):
            raise found
        return found

    def open_many(self, events: Sequence[CarriedEvent]) -> list[OpenedEvent | CannotOpen]:
        """Each event opened, or why not. What publishers signed with their credentials is verified together."""
        found: list[OpenedEvent | CannotOpen] = [NotOurs("no subscription matches it")] * len(events)
        by_epoch = dict[int, list[int]]()
        for number, event in enumerate(events):
            try:
                by_epoch.setdefault(self._signed(event).epoch, []).append(number)
            except CannotOpen as error:
                found[number] = error
        for epoch, numbers in by_epoch.items():
            opener = self._at(epoch)
            if opener is None:
                why = NotOurs(f"no key of topic {self._about.name!r} (epoch {epoch}) is at hand")
                found = [why if number in numbers else each for number, each in enumerate(found)]
                continue
            opened = opener.open_many([events[number].message for number in numbers])  # (2)
            for number, content in zip(numbers, opened, strict=True):
                found[number] = self._read(events[number], content)
        return found

    def _signed(self, event: CarriedEvent) -> Header:
        """(1)"""
        header = self._headers.header(event.signed)
        self._headers.verify(header, event.message, event.position, event.path)
        try:
            sealed = SealedAttributeEvent.parse(event.message).header
        except AttributeRejected as error:
            raise CannotOpen(error.message) from None
        if sealed.epoch != header.epoch:
            raise CannotOpen(f"{header.publisher} sealed it in another epoch than it states")
        return header

    def _read(self, event: CarriedEvent, content: OpenedContent | AttributeRejected) -> OpenedEvent | CannotOpen:
        if isinstance(content, AttributeRejected):
            ours = content.reason is not AttributeReason.MISMATCH
            return CannotOpen(content.message) if ours else NotOurs(content.message)
        header = self._headers.header(event.signed)
        try:
            record = inside_record(content.payload, self._about.id, header.publisher)  # (3)
            found = opened_event(header, event.position, self._codec, record)  # (4)
            self._space.verify(found.attributes, content.own, "the label that opened it")
            self._space.verify(found.attributes, content.publisher, f"what {header.publisher} may publish")
        except CannotOpen as error:
            return error
        except EventRejected as error:
            return CannotOpen(f"event {event.position} is not of its topic's schema: {error.message}")
        return found

    def _at(self, epoch: int) -> Opener | None:
        return self._opener(epoch, self._stamp(epoch))

    def _made(self, epoch: int, stamp: object) -> Opener | None:
        held = self._keys(epoch)
        keys = [SubscriptionKey.parse(key) for each in held for key in each.keys]
        return Opener(PublicParameters.from_bytes(held[0].parameters), keys) if keys else None
