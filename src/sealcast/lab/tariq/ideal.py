"""Ideal credentials: labels are compared as they are, forgeries are told apart, and what the real ones cost is counted.

The protocol's tests and simulations with thousands of peers use them. They hide nothing: a request has the label in it,
but `open_request` gives its key to those only whom the real one would give it to. Labels are strings of bits; one
covers another if it is a prefix of it, and the empty one is ROOT.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from sealcast.errors import Rejected
from sealcast.lab.tariq.costs import NO_SECURITY, CryptoCosts
from sealcast.overlay.peers.port import PeerId, SeatPlan, SeatRequest
from sealcast.primitives.secrets import Secret

Bits: TypeAlias = str
#: A conjunction: of each attribute the labels of which one has to match. An attribute that is not there is free.
Conjunction: TypeAlias = Mapping[str, Sequence[Bits]]

#: Of an attribute's labels: 256 values.
DEPTH: Final = 8
_SIGNATURE: Final = b"ideal signature"
_SEPARATOR: Final = "\x1f"


def _signed(*parts: str) -> bytes:
    text = _SEPARATOR.join(parts).encode()
    return text + hashlib.sha256(_SIGNATURE + text).digest()[:8]


@lru_cache(maxsize=1 << 16)
def _checked(data: bytes) -> tuple[str, ...]:
    text, signature = data[:-8], data[-8:]
    if hashlib.sha256(_SIGNATURE + text).digest()[:8] != signature:
        raise Rejected("this was not signed by who may sign it")
    return tuple(text.decode().split(_SEPARATOR))


# --- events -------------------------------------------------------------------------------------


def ideal_event(publisher: PeerId, number: int, values: Mapping[str, Bits], epoch: int = 0) -> bytes:
    """An event that any of these peers takes for a publisher's."""
    return _signed("event", publisher, str(number), str(epoch), *(f"{name}={bits}" for name, bits in values.items()))


@lru_cache(maxsize=1 << 16)
def _event(event: bytes) -> tuple[int, dict[str, Bits]]:
    match _checked(event):
        case ("event", _, _, epoch, *values):
            return int(epoch), dict(text.split("=", 1) for text in values)
    raise Rejected("this is no event")


def event_values(event: bytes) -> dict[str, Bits]:
    return _event(event)[1]


# --- subscribers --------------------------------------------------------------------------------


@dataclass(slots=True)
class Meter:
    """Seconds that the real cryptography would have taken, and how often it was used."""

    costs: CryptoCosts = NO_SECURITY
    seconds: float = 0.0
    requests: int = 0
    tests: int = 0

    def take(self) -> float:
        spent, self.seconds = self.seconds, 0.0
        return spent


@dataclass(frozen=True, slots=True)
class IdealSeat:
    """A plan and the label that the seat is for."""

    plan: SeatPlan
    label: Bits


@dataclass(slots=True)
class IdealCredentials:
    """A `PeerCredentials` that compares labels."""

    name: PeerId
    conjunctions: list[Conjunction] = field(default_factory=list)
    places: dict[int, IdealSeat] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    epoch: int = 0
    #: Labels of this length are values, which are never split.
    depth: int = DEPTH
    _asked: int = 0

    @property
    def seats(self) -> Mapping[int, SeatPlan]:
        return {number: place.plan for number, place in self.places.items()}

    def add_roots(self, attributes: Sequence[str]) -> None:
        """Makes this peer a rendezvous."""
        for attribute in attributes:
            self._add(IdealSeat(SeatPlan(attribute, root=True), ""))

    def subscribe(self, conjunction: Conjunction, split: int = 1) -> None:
        """Adds a subscription: a seat for each label, each split until an attribute has `split` of them."""
        group = len(self.conjunctions)
        self.conjunctions.append(conjunction)
        for attribute, labels in conjunction.items():
            for label in split_labels(labels, split, self.depth):
                self._add(IdealSeat(SeatPlan(attribute, group=group), label))

    def _add(self, place: IdealSeat) -> None:
        self.places[max(self.places, default=-1) + 1] = place

    # --- PeerCredentials ------------------------------------------------------------------------

    def ask(self, seat: int) -> SeatRequest:
        self._asked += 1
        place = self.places[seat]
        request = _signed("request", self.name, place.plan.attribute, str(self.epoch), str(self._asked), place.label)
        return SeatRequest(request, _connection_key(request))

    def open_request(self, seat: int, request: bytes, origin: PeerId) -> Secret | None:
        self.meter.seconds += self.meter.costs.open_request
        self.meter.requests += 1
        place = self.places[seat]
        match _checked(request):
            case ("request", name, attribute, epoch, _, label) if name == origin:
                pass
            case _:
                raise Rejected("this is no request of this peer")
        if attribute != place.plan.attribute:
            raise Rejected("a request for another tree")
        covers = epoch == str(self.epoch) and label.startswith(place.label)
        return _connection_key(request) if covers else None

    def token(self, seat: int) -> bytes:
        return f"token {self.epoch} {self.places[seat].label}".encode()

    def check_token(self, attribute: str, token: bytes) -> None:
        if not token.startswith(b"token "):
            raise Rejected("this is no token")

    def check_event(self, event: bytes) -> None:
        self.meter.seconds += self.meter.costs.check_event
        event_values(event)

    def check_points(self, event: bytes) -> None:
        self.meter.seconds += len(event_values(event)) * self.meter.costs.check_attribute

    def check_publisher(self, peer: PeerId, advertisement: bytes) -> None:
        if _checked(advertisement) != ("publisher", peer):
            raise Rejected("this peer may not publish here")

    def matches(self, seat: int, event: bytes) -> bool:
        self._test()
        place, (epoch, values) = self.places[seat], _event(event)
        return self._holds(epoch) and values.get(place.plan.attribute, "").startswith(place.label)

    def routes(self, attribute: str, token: bytes, event: bytes) -> bool:
        self._test()
        epoch, values = _event(event)
        _, of, label = token.decode().split(" ")
        return of == str(epoch) and values.get(attribute, "").startswith(label)

    def wants(self, event: bytes) -> bool:
        epoch, values = _event(event)
        return self._holds(epoch) and any(
            all(
                any(values.get(attribute, "").startswith(label) for label in labels)
                for attribute, labels in conjunction.items()
            )
            for conjunction in self.conjunctions
        )

    def early(self, event: bytes) -> bool:
        return _event(event)[0] > self.epoch

    def _holds(self, epoch: int) -> bool:
        """Keys of this epoch and of the one before are at hand."""
        return self.epoch - 1 <= epoch <= self.epoch

    def _test(self) -> None:
        self.meter.seconds += self.meter.costs.tag_test
        self.meter.tests += 1


def ideal_advertisement(peer: PeerId) -> bytes:
    return _signed("publisher", peer)


def split_labels(labels: Sequence[Bits], least: int, longest: int = DEPTH) -> list[Bits]:
    """The labels, the shortest halved again and again until there are `least` of them."""
    found = list(labels)
    while len(found) < least:
        at = min(range(len(found)), key=lambda i: len(found[i]))
        if len(found[at]) >= longest:
            break
        label = found.pop(at)
        found += [label + "0", label + "1"]
    return found


def _connection_key(request: bytes) -> Secret:
    return Secret(hashlib.sha256(b"connection key" + request).digest())
