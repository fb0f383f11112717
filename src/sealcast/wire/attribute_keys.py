"""The bytes of what the key server of an attribute topic hands out: public parameters, keys, connection requests.

Each is deterministic CBOR (SPEC.md, section 1): an array whose first item names the format. Points are byte strings of
48 (G1) or 96 (G2) bytes. Reading checks shapes and limits; whoever computes with a point decodes it, which checks it.

    parameters          ["attribute parameters 1", profile, tags, verify key, {name: point}, [Waters points]]
    publisher key       ["attribute publisher key 1", epoch, routing key or null, [[attribute, label, Prp1, Prp2]]]
    subscription key    ["attribute subscription key 1", epoch, Pr4, [[attribute, position, label, Pr1, Pr2, token]]]
    connection request  ["attribute request 1", epoch, attribute, C0, slots, signature]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sealcast.primitives.pairing.port import G1_BYTES, G2_BYTES
from sealcast.primitives.secrets import KEY_BYTES, Unpicklable
from sealcast.wire import cbor
from sealcast.wire.attribute import Profile, TagKind
from sealcast.wire.attribute_items import (
    SIGNATURE_BYTES,
    VERIFY_BYTES,
    a_label,
    a_name,
    a_point,
    a_position,
    a_token,
    an_epoch,
    many,
    parsed,
    sized,
)
from sealcast.wire.limits import (
    MAX_ATTRIBUTE_KEY_BYTES,
    MAX_ATTRIBUTE_KEY_LABELS,
    MAX_ATTRIBUTE_PARAMETERS_BYTES,
    MAX_ATTRIBUTE_POSITIONS,
    MAX_CONNECTION_REQUEST_BYTES,
)

_PARAMETERS: Final = "attribute parameters 1"
_PUBLISHER: Final = "attribute publisher key 1"
_SUBSCRIPTION: Final = "attribute subscription key 1"
_REQUEST: Final = "attribute request 1"

#: K_conn under a slot's key: 16 bytes and a tag.
SLOT_BYTES: Final = 32
WATERS_POINTS: Final = 257


# --- public parameters --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParameterBytes:
    """The public parameters of a topic, as they travel."""

    profile: Profile
    tags: TagKind
    verify_key: bytes
    points: dict[str, bytes]
    waters: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        return cbor.encode(
            [_PARAMETERS, str(self.profile), str(self.tags), self.verify_key, self.points, list(self.waters)]
        )

    @classmethod
    def parse(cls, data: bytes) -> ParameterBytes:
        def read(items: list[Any]) -> ParameterBytes:
            profile, tags, verify_key, points, waters = items
            profile, tags = Profile(profile), TagKind(tags)
            if not isinstance(points, dict) or points.keys() != POINTS[profile].keys():
                raise cbor.refused(f"the parameters of profile {profile} are {', '.join(POINTS[profile])}")
            for name, size in POINTS[profile].items():
                sized(points[name], size, name)
            if len(many(waters, WATERS_POINTS)) != (WATERS_POINTS if profile is Profile.A else 0):
                raise cbor.refused("a hash of Waters has another number of points")
            for point in waters:
                sized(point, G1_BYTES, "a point of the Waters hash")
            return cls(profile, tags, sized(verify_key, VERIFY_BYTES, "the verify key"), points, tuple(waters))

        return parsed("public parameters", data, MAX_ATTRIBUTE_PARAMETERS_BYTES, _PARAMETERS, read)


#: The named points of each profile, and their sizes. A: h, hr and G1's image of the KEM's key; both: of requests, of
#: signatures.
POINTS: Final = {
    Profile.A: {"h": G1_BYTES, "hr": G1_BYTES, "y": G1_BYTES, "hc": G2_BYTES, "sign": G2_BYTES},
    Profile.P: {"h": G2_BYTES, "hr": G2_BYTES, "y": G2_BYTES, "hc": G2_BYTES, "sign": G2_BYTES},
}


# --- keys ---------------------------------------------------------------------------------------------------------


class PublisherCredential(NamedTuple):
    """What lets a publisher sign for one label of one attribute."""

    attribute: str
    label: bytes
    first: bytes
    second: bytes


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PublisherKey(Unpicklable):
    """A publisher's key of one epoch: its credentials, and where tags are keyed, the key that they are made with."""

    epoch: int
    routing: bytes | None
    credentials: tuple[PublisherCredential, ...]

    def to_bytes(self) -> bytes:
        """Secret: for the publisher alone, sealed."""
        return cbor.encode([_PUBLISHER, self.epoch, self.routing, [list(one) for one in self.credentials]])

    @classmethod
    def parse(cls, data: bytes) -> PublisherKey:
        def read(items: list[Any]) -> PublisherKey:
            epoch, routing, credentials = items
            if routing is not None:
                sized(routing, KEY_BYTES, "a routing key")
            many(credentials, MAX_ATTRIBUTE_KEY_LABELS)
            found = [
                PublisherCredential(
                    a_name(attribute), a_label(label), sized(first, G1_BYTES, "Prp1"), sized(second, G2_BYTES, "Prp2")
                )
                for attribute, label, first, second in credentials
            ]
            return cls(an_epoch(epoch), routing, tuple(found))

        return parsed("a publisher's key", data, MAX_ATTRIBUTE_KEY_BYTES, _PUBLISHER, read)


class SubscriptionCredential(NamedTuple):
    """What opens events of one label of one attribute, together with the others of its subscription."""

    attribute: str
    position: int
    label: bytes
    first: bytes
    second: bytes
    #: Pr3, or where tags are keyed, the label's key.
    token: bytes


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SubscriptionKey(Unpicklable):
    """The keys of one subscription and one epoch. They are bound together: those of two do not mix."""

    epoch: int
    bond: bytes
    credentials: tuple[SubscriptionCredential, ...]

    def to_bytes(self) -> bytes:
        """Secret: for the subscriber alone, sealed."""
        return cbor.encode([_SUBSCRIPTION, self.epoch, self.bond, [list(one) for one in self.credentials]])

    @classmethod
    def parse(cls, data: bytes) -> SubscriptionKey:
        def read(items: list[Any]) -> SubscriptionKey:
            epoch, bond, credentials = items
            many(credentials, MAX_ATTRIBUTE_KEY_LABELS)
            found = [
                SubscriptionCredential(
                    a_name(attribute), a_position(position), a_label(label), a_point(one), a_point(two), a_token(token)
                )
                for attribute, position, label, one, two, token in credentials
            ]
            return cls(an_epoch(epoch), a_point(bond), tuple(found))

        return parsed("a subscription's key", data, MAX_ATTRIBUTE_KEY_BYTES, _SUBSCRIPTION, read)


# --- connection requests ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnectionRequest:
    """Asks to be a child of whoever covers a label, without saying which label it is."""

    epoch: int
    attribute: str
    first: bytes
    slots: bytes
    signature: bytes

    def signed_part(self) -> bytes:
        return cbor.encode([_REQUEST, self.epoch, self.attribute, self.first, self.slots])

    def to_bytes(self) -> bytes:
        return cbor.encode([_REQUEST, self.epoch, self.attribute, self.first, self.slots, self.signature])

    @classmethod
    def parse(cls, data: bytes) -> ConnectionRequest:
        def read(items: list[Any]) -> ConnectionRequest:
            epoch, attribute, first, slots, signature = items
            if not isinstance(slots, bytes) or not slots or len(slots) % SLOT_BYTES:
                raise cbor.refused(f"slots are at least one string of {SLOT_BYTES} bytes")
            if len(slots) > MAX_ATTRIBUTE_POSITIONS * SLOT_BYTES:
                raise cbor.refused(f"{len(slots) // SLOT_BYTES} slots, {MAX_ATTRIBUTE_POSITIONS} are allowed")
            return cls(
                an_epoch(epoch),
                a_name(attribute),
                sized(first, G2_BYTES, "C0"),
                slots,
                sized(signature, SIGNATURE_BYTES, "a signature"),
            )

        return parsed("a connection request", data, MAX_CONNECTION_REQUEST_BYTES, _REQUEST, read)
