"""The places of one peer among others, and the cryptography behind them: `PeerCredentials` with the real scheme.

An event that a subscription wants carries one of its labels on every attribute. So one attribute's tree brings all of
them, and a peer takes a seat for each label of the attribute on which the subscription asks for least: where a parent
above has the least to send that is not wanted. Other attributes are looked at when an event is here.

Where a topic says so, labels are split before that (the paper's k_D): a label gives way to those right below it, which
together hold the same, until there are enough. Each finds a parent of its own, so that no parent gets a token of the
label itself. Which label is split follows from a secret of the peer, and is the same in every epoch and every life:
else its parents of different times would know more than those of one.

A rendezvous has the roots of all trees instead. Whatever is published comes there first.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from sealcast.errors import FrameRejected, Misuse, Rejected
from sealcast.model.schema import Schema
from sealcast.overlay.peers.port import PeerId, SeatPlan, SeatRequest
from sealcast.primitives import kdf, mac
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.attribute.arriving import ArrivalGate
from sealcast.protections.attribute.connecting import MAX_PLACES, ConnectingPlace, TreeLabel, places_of
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.scheme import (
    AttributeReason,
    AttributeRejected,
    ConnectionRequest,
    EventHeader,
    Label,
    PublicParameters,
    RoutingToken,
    SubscriptionKey,
    inspect,
)
from sealcast.protections.attribute.scheme.tags import matching
from sealcast.protections.attribute.settings import event_space, settings_of, token_bytes
from sealcast.protections.attribute.spaces import CredentialSpace
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.wire.attribute import SealedAttributeEvent
from sealcast.wire.carried import CarriedEvent

#: Labels of one attribute that a subscription takes seats for; with more, another attribute is chosen if there is one.
SEATS_EACH: Final = 16
#: Events that were parsed a moment ago: a node asks several things of one.
_PARSED: Final = 64
#: Of whose schemas spaces are kept ready: this one, and the one before.
_EPOCHS: Final = 2
#: Chooses what is looked at: a publisher must not foresee it.
_RANDOM: Final = random.SystemRandom()
#: An epoch, the names of its keys, and whether the peer is a rendezvous.
PlacesStamp = tuple[int, tuple[str, ...], bool]


@dataclass(slots=True)
class _EpochKeys:
    """What a peer holds of one epoch."""

    parameters: PublicParameters
    subscriptions: Sequence[SubscriptionKey]
    places: Mapping[TreeLabel, ConnectingPlace]
    tokens: Mapping[TreeLabel, RoutingToken]
    #: How many requests of each place were used.
    used: dict[TreeLabel, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedPlaces:
    """The places that a peer shall have, and the keys that they take."""

    epoch: int
    #: What it was made of: another one, another plan.
    stamp: PlacesStamp
    keys: Mapping[int, _EpochKeys]
    places: Mapping[TreeLabel, SeatPlan]


class PeerPlaces(Unpicklable):
    """The seats of one entity on one topic, with what it takes to fill them."""

    def __init__(self, realm: EntityRealm, topic: str, name: str, ring: CredentialRing) -> None:
        self._realm, self._topic, self._name, self._ring = realm, topic, name, ring
        #: The registry that this goes by.
        self.state = realm.state()
        about = self.state.topic(topic)
        self.topic_id = about.id
        self._split = settings_of(about).split
        self._spaces = lru_cache(_EPOCHS)(self._made_space)
        self._token_bytes = token_bytes(settings_of(about))
        self._secret = kdf.derive(realm.identity(name).signer.seed, b"peer split", about.id)
        self._gates = ArrivalGate(realm, topic, name)
        self._epochs: dict[int, _EpochKeys] = {}
        self._epoch = -1
        #: Labels keep their seats' numbers while the process lasts.
        self._numbers: dict[TreeLabel, int] = {}
        self._seats: dict[int, SeatPlan] = {}
        self._labels: dict[int, TreeLabel] = {}
        self._stamp: PlacesStamp | None = None
        self._parsed = lru_cache(_PARSED)(_parsed)

    def refresh(self, *, rendezvous: bool) -> tuple[bool, bool]:
        """`prepare` and `take`."""
        return self.take(self.prepare(rendezvous=rendezvous))

    def prepare(self, *, rendezvous: bool) -> PlannedPlaces | None:
        """The places that the keys of now are for, with what was asked for them; None if nothing changed. It may take
        as long as the key center does, and changes nothing here: it can be called beside everything else. Unavailable
        or Rejected where the key center does not give what is missing."""
        epoch = self.state.topic(self._topic).epoch
        stamp = (epoch, self._ring.stamp(epoch, live=True), rendezvous)
        if stamp == self._stamp:
            return None
        keys = self._keys(epoch)
        roots = [(name, space.root) for name, space in self._space(epoch).spaces.items()]
        # The labels of each subscription, whose places shall have different parents.
        groups = dict[TreeLabel, int]()
        for number, key in enumerate(keys):
            groups = {**dict.fromkeys(self._seats_of(key, epoch), number), **groups}
        wanted = roots if rendezvous else sorted(groups)
        if len(wanted) > MAX_PLACES:
            raise Misuse(f"{self._name!r} wants {len(wanted)} places on topic {self._topic!r}, more than {MAX_PLACES}")
        found = dict[int, _EpochKeys]()
        if wanted:
            may_read = self.state.may_subscribe(self._topic, self._name, self._realm.clock())
            given = self._ring.connecting(epoch, wanted, Right.SUBSCRIBE if may_read else Right.PUBLISH)
            parameters = PublicParameters.from_bytes(given.parameters)
            found[epoch] = _EpochKeys(parameters, keys, places_of(given), _tokens(keys, places_of(given)))
            # The epoch before, for events that are still on their way: nobody finds a place by its keys any more.
            former = self._keys(epoch - 1) if epoch - 1 not in self._epochs else []
            if former:
                found[epoch - 1] = _EpochKeys(parameters, former, {}, self._former_tokens(epoch - 1, former))
        self._ring.prune(epoch)
        places = {label: SeatPlan(label[0], root=rendezvous, group=groups.get(label, 0)) for label in wanted}
        return PlannedPlaces(epoch, stamp, found, places)

    def take(self, planned: PlannedPlaces | None) -> tuple[bool, bool]:
        """Goes by what was prepared. Whether seats changed, and whether an epoch began."""
        if planned is None:
            return False, False
        began, self._stamp = self._epoch not in (-1, planned.epoch), planned.stamp
        self._epoch, before = planned.epoch, dict(self._seats)
        kept = {epoch: keys for epoch, keys in self._epochs.items() if epoch >= self._epoch - 1}
        self._epochs = {**kept, **planned.keys}
        for label in planned.places:
            self._numbers.setdefault(label, len(self._numbers))
        self._labels = {self._numbers[label]: label for label in planned.places}
        self._seats = {self._numbers[label]: plan for label, plan in planned.places.items()}
        return before != self._seats, began

    def _space(self, epoch: int) -> EventSpace:
        """Where events of an epoch have labels."""
        return self._spaces(self.state.topic(self._topic).in_epoch(epoch).schema)

    def _made_space(self, schema: Schema) -> EventSpace:
        return event_space(replace(self.state.topic(self._topic), schema=schema))

    def _keys(self, epoch: int) -> list[SubscriptionKey]:
        return [SubscriptionKey.parse(key) for each in self._ring.subscribing(epoch, live=True) for key in each.keys]

    def _seats_of(self, key: SubscriptionKey, epoch: int) -> Iterable[TreeLabel]:
        """The labels of the attribute on which a subscription asks for least."""
        by_attribute = dict[str, list[tuple[int, bytes]]]()
        for credential in key.credentials:
            by_attribute.setdefault(credential.attribute, []).append((credential.position, credential.label))

        def cost(attribute: str) -> tuple[bool, float, int]:
            labels = by_attribute[attribute]
            return len(labels) > SEATS_EACH, sum(2.0**-position for position, _ in labels), len(labels)

        chosen = min(by_attribute, key=cost)
        space, labels = self._space(epoch).spaces[chosen], [label for _, label in by_attribute[chosen]]
        return [(chosen, label) for label in split_labels(space, labels, self._split, self._secret)]

    def _former_tokens(self, epoch: int, keys: Sequence[SubscriptionKey]) -> dict[TreeLabel, RoutingToken]:
        """Of labels that were split, the key center has the tokens; of the others, the subscriptions' keys."""
        own = _tokens(keys, {})
        more = sorted({label for key in keys for label in self._seats_of(key, epoch)} - set(own))
        if not more:
            return own
        return {**own, **_tokens([], places_of(self._ring.connecting(epoch, more, Right.SUBSCRIBE)))}

    # --- PeerCredentials ----------------------------------------------------------------------------

    @property
    def seats(self) -> Mapping[int, SeatPlan]:
        return self._seats

    def ask(self, seat: int) -> SeatRequest:
        keys, label = self._epochs[self._epoch], self._labels[seat]
        requests = keys.places[label].requests
        used = keys.used.get(label, 0)
        keys.used[label] = used + 1
        request, key = requests[min(used, len(requests) - 1)]
        return SeatRequest(request, key)

    def open_request(self, seat: int, request: bytes, origin: PeerId) -> Secret | None:
        """A request counts for who asked the key center for it: nobody learns from the answers to another's."""
        asked = ConnectionRequest.parse(request)
        keys = self._epochs.get(asked.epoch)
        place = None if keys is None else keys.places.get(self._labels[seat])
        if keys is None or place is None:
            return None
        return place.key.open(keys.parameters, asked, origin)

    def token(self, seat: int) -> bytes:
        """That of the epoch, and behind it that of the one before: a parent may have kept events of it."""
        label, epochs = self._labels[seat], (self._epoch, self._epoch - 1)
        found = (self._epochs[epoch].tokens.get(label) for epoch in epochs if epoch in self._epochs)
        return b"".join(each.token for each in found if each is not None)

    def check_token(self, attribute: str, token: bytes) -> None:
        if len(token) not in (0, self._token_bytes, 2 * self._token_bytes):
            raise AttributeRejected(AttributeReason.MALFORMED, f"a token of {len(token)} bytes is none")

    def check_event(self, event: bytes) -> None:
        carried, _ = self._parsed(event)
        try:
            self._gates.check(carried, self._gates.at(self.state.version), self._realm.clock())
        except FrameRejected:
            # Its publisher may know a newer registry, and be right: an epoch that has begun, a right that was given.
            newest = self._realm.state()
            if newest.version == self.state.version:
                raise
            self.state = newest
            self._gates.check(carried, self._gates.at(newest.version), self._realm.clock())

    def check_points(self, event: bytes) -> None:
        parameters = self._epochs[self._epoch].parameters
        inspect(parameters, self._parsed(event)[1], _RANDOM.randrange)

    def check_publisher(self, peer: PeerId, advertisement: bytes) -> None:
        if advertisement != self.topic_id:
            raise Rejected(f"{peer!r} announced itself for another topic")
        if not self.state.may_publish(self._topic, peer, self._realm.clock()):
            raise Rejected(f"{peer!r} may not publish on topic {self._topic!r}")

    def matches(self, seat: int, event: bytes) -> bool:
        header = self._parsed(event)[1]
        keys = self._epochs.get(header.epoch)
        token = None if keys is None else keys.tokens.get(self._labels[seat])
        return keys is not None and token is not None and matching(keys.parameters, token, header)

    def routes(self, attribute: str, token: bytes, event: bytes) -> bool:
        header = self._parsed(event)[1]
        # Of the epoch before, a rendezvous has no keys: what is public is the same in all.
        parameters, size = self._epochs[self._epoch].parameters, self._token_bytes
        return any(
            matching(parameters, RoutingToken(header.epoch, attribute, token[at : at + size]), header)
            for at in range(0, len(token), size)
        )

    def wants(self, event: bytes) -> bool:
        header = self._parsed(event)[1]
        keys = self._epochs.get(header.epoch)
        return keys is not None and any(_wanted(keys.parameters, key, header) for key in keys.subscriptions)

    def early(self, event: bytes) -> bool:
        return self._parsed(event)[1].epoch > self._epoch


def _wanted(parameters: PublicParameters, key: SubscriptionKey, header: EventHeader) -> bool:
    """Whether the event carries one of the subscription's labels on each attribute."""
    found = dict[str, bool]()
    for each in key.credentials:
        if not found.get(each.attribute):
            token = RoutingToken(key.epoch, each.attribute, each.token)
            found[each.attribute] = matching(parameters, token, header)
    return all(found.values())


def _tokens(
    keys: Iterable[SubscriptionKey], places: Mapping[TreeLabel, ConnectingPlace]
) -> dict[TreeLabel, RoutingToken]:
    own = {
        (each.attribute, each.label): RoutingToken(key.epoch, each.attribute, each.token)
        for key in keys
        for each in key.credentials
    }
    return {**own, **{label: place.token for label, place in places.items() if place.token.token}}


def split_labels(space: CredentialSpace, labels: Sequence[Label], least: int, secret: Secret) -> list[Label]:
    """Labels that together hold the same, as many as `least` where that is possible: a single value has nothing below
    it, and what has too much below it stays whole."""
    found = list(labels)
    while len(found) < least:
        below = {label: space.children(label) for label in found}
        can = [label for label, parts in below.items() if 1 < len(parts) <= SEATS_EACH + 1 - len(found)]
        if not can:
            break
        chosen = min(can, key=lambda label: mac.tag(secret, label))
        at = found.index(chosen)
        found[at : at + 1] = below[chosen]
    return found


def _parsed(event: bytes) -> tuple[CarriedEvent, EventHeader]:
    """FrameRejected or AttributeRejected for what is no event."""
    carried = CarriedEvent.from_bytes(event)
    return carried, SealedAttributeEvent.parse(carried.message).header
