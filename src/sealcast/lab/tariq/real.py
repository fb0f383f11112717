"""Credentials of the real scheme for simulated peers: the protocol's tests run some tens of peers with them.

A `RealTopic` is the key server and all publishers in one. The peers get from it what the key center would give them,
and compute everything else themselves.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sealcast.errors import Rejected
from sealcast.lab.tariq.ideal import DEPTH, Bits, Conjunction, IdealCredentials, Meter
from sealcast.overlay.peers.port import PeerId, SeatRequest
from sealcast.primitives.pairing import Pairing
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.scheme import (
    AttributeSealer,
    ConnectionKey,
    ConnectionRequest,
    EventHeader,
    Opener,
    OutgoingEvent,
    PlacedLabel,
    Profile,
    RoutingToken,
    SealOptions,
    TagKind,
)
from sealcast.wire import cbor, limits
from sealcast.wire.attribute import SealedAttributeEvent

EPOCH: Final = 1
_REMEMBERED: Final = 4_096


class RealTopic:
    """A key server and its publishers."""

    def __init__(
        self,
        attributes: Sequence[str],
        depth: int = DEPTH,
        *,
        profile: Profile = Profile.A,
        tags: TagKind = TagKind.KEYED,
        pairing: Pairing | None = None,
        options: SealOptions | None = None,
    ) -> None:
        self.attributes = tuple(attributes)
        self.depth = depth
        self.master = scheme.setup(profile, tags, pairing)
        self.parameters = self.master.public()
        self.header: Callable[[bytes], EventHeader] = lru_cache(_REMEMBERED)(self._header)
        key = self.master.publisher_key(EPOCH, {name: [_label("")] for name in attributes})
        self._sealer = AttributeSealer(self.parameters, key, options)
        self._signer = SigningKey.generate()

    def event(self, values: Mapping[str, Bits], payload: bytes = b"payload") -> bytes:
        """A sealed event with the publisher's signature around it, as frames have it."""
        labels = {name: self._path(values.get(name, "")) for name in self.attributes}
        (sealed,) = self._sealer.seal([OutgoingEvent(labels, payload)])
        return cbor.encode([sealed, self._signer.sign(sealed)])

    def sealed(self, event: bytes) -> bytes:
        """The sealed event inside; Rejected if no publisher signed it."""
        match cbor.decode(event, max_bytes=limits.MAX_PEER_EVENT_BYTES, max_depth=1, max_items=3):
            case [bytes(sealed), bytes(signature)] if self._signer.verify_key.verify(sealed, signature):
                return sealed
        raise Rejected("an event that no publisher signed")

    def _header(self, event: bytes) -> EventHeader:
        return SealedAttributeEvent.parse(self.sealed(event)).header

    def _path(self, bits: Bits) -> list[bytes | None]:
        found: list[bytes | None] = [_label(bits[:size]) for size in range(len(bits) + 1)]
        return found + [None] * (self.depth + 1 - len(found))

    # --- what the key server gives out ----------------------------------------------------------

    def connection_key(self, attribute: str, label: Bits) -> ConnectionKey:
        return self.master.connection_key(EPOCH, attribute, _label(label))

    def request(self, attribute: str, label: Bits, origin: PeerId) -> SeatRequest:
        path = [_label(label[:size]) for size in range(len(label) + 1)]
        made, hidden = self.master.connection_request(EPOCH, attribute, path, self.depth + 1, origin)
        return SeatRequest(made.to_bytes(), hidden)

    def token(self, attribute: str, label: Bits) -> RoutingToken:
        (made,) = self.master.tokens(EPOCH, {attribute: [_label(label)]})
        return made

    def opener(self, conjunctions: Sequence[Conjunction]) -> Opener:
        wanted = [
            {
                name: [PlacedLabel(len(bits), _label(bits)) for bits in conjunction.get(name, ("",))]
                for name in self.attributes
            }
            for conjunction in conjunctions
        ]
        return Opener(self.parameters, [self.master.subscription_key(EPOCH, labels) for labels in wanted])

    def credentials(self, name: PeerId, meter: Meter) -> RealCredentials:
        return RealCredentials(name, meter=meter, depth=self.depth, topic=self)


@dataclass(slots=True)
class RealCredentials(IdealCredentials):
    """A peer's credentials with keys of the scheme; labels are kept beside them for the checks of the simulation."""

    topic: RealTopic = field(kw_only=True)
    _keys: dict[int, ConnectionKey] = field(default_factory=dict)
    _requests: dict[int, SeatRequest] = field(default_factory=dict)
    _tokens: dict[tuple[str, Bits], RoutingToken] = field(default_factory=dict)

    def ask(self, seat: int) -> SeatRequest:
        place = self.places[seat]
        if seat not in self._requests:
            self._requests[seat] = self.topic.request(place.plan.attribute, place.label, self.name)
        return self._requests[seat]

    def open_request(self, seat: int, request: bytes, origin: PeerId) -> Secret | None:
        place = self.places[seat]
        if seat not in self._keys:
            self._keys[seat] = self.topic.connection_key(place.plan.attribute, place.label)
        asked = ConnectionRequest.parse(request)
        if asked.attribute != place.plan.attribute:
            raise Rejected("a request for another tree")
        return self._keys[seat].open(self.topic.parameters, asked, origin)

    def token(self, seat: int) -> bytes:
        place = self.places[seat]
        return self._token(place.plan.attribute, place.label).token

    def check_token(self, attribute: str, token: bytes) -> None:
        if len(token) not in (32, 48, 96):
            raise Rejected("this is no token")

    def check_event(self, event: bytes) -> None:
        self.topic.header(event)

    def check_points(self, event: bytes) -> None:
        scheme.inspect(self.topic.parameters, self.topic.header(event), secrets.randbelow)

    def matches(self, seat: int, event: bytes) -> bool:
        place = self.places[seat]
        return self._tagged(self._token(place.plan.attribute, place.label), event)

    def routes(self, attribute: str, token: bytes, event: bytes) -> bool:
        return self._tagged(RoutingToken(EPOCH, attribute, token), event)

    def wants(self, event: bytes) -> bool:
        return any(
            all(
                any(self._tagged(self._token(attribute, label), event) for label in labels)
                for attribute, labels in conjunction.items()
            )
            for conjunction in self.conjunctions
        )

    def early(self, event: bytes) -> bool:
        return self.topic.header(event).epoch > EPOCH

    def _token(self, attribute: str, label: Bits) -> RoutingToken:
        if (attribute, label) not in self._tokens:
            self._tokens[attribute, label] = self.topic.token(attribute, label)
        return self._tokens[attribute, label]

    def _tagged(self, token: RoutingToken, event: bytes) -> bool:
        self.meter.tests += 1
        return scheme.route(self.topic.parameters, [token], self.topic.header(event))


def _label(bits: Bits) -> bytes:
    """Never empty, and no label is a part of another."""
    return bits.encode() + b"|"
