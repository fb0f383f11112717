"""The bytes of what the key server of an attribute topic hands out: public parameters, keys, connection requests.

Each is deterministic CBOR (SPEC.md, section 1): an array whose first item names the format. Points are byte strings of
48 (G1) or 96 (G2) bytes. Reading checks shapes and limits; whoever computes with a point decodes it, which checks it.

    parameters          ["attribute parameters 1", profile, tags, verify key, {name: point}, [Waters points]]
    publisher key       ["attribute publisher key 1", epoch, routing key or null, [[attribute, label, Prp1, Prp2]]]
    subscription key    ["attribute subscription key 1", epoch, Pr4, [[attribute, position, label, Pr1, Pr2, token]]]
    signed credentials  [[attribute, label, S1, S2, S3]]
    session             ["attribute session 1", verify key, signed credentials]
    connection request  ["attribute request 1", epoch, attribute, C0, slots, signature]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from sealcast.errors import FrameRejected
from sealcast.primitives.pairing.port import G1_BYTES, G2_BYTES
from sealcast.primitives.secrets import KEY_BYTES, Unpicklable
from sealcast.wire import cbor
from sealcast.wire.attribute import SIGNATURE_BYTES, AttributeReason, AttributeRejected, Profile, TagKind
from sealcast.wire.limits import (
    MAX_ATTRIBUTE_KEY_BYTES,
    MAX_ATTRIBUTE_KEY_LABELS,
    MAX_ATTRIBUTE_LABEL_BYTES,
    MAX_ATTRIBUTE_PARAMETERS_BYTES,
    MAX_ATTRIBUTE_POSITIONS,
    MAX_ATTRIBUTE_SESSION_BYTES,
    MAX_ATTRIBUTE_TREES,
    MAX_CONNECTION_REQUEST_BYTES,
    MAX_EPOCH,
)

_PARAMETERS: Final = "attribute parameters 1"
_PUBLISHER: Final = "attribute publisher key 1"
_SUBSCRIPTION: Final = "attribute subscription key 1"
_SESSION: Final = "attribute session 1"
_REQUEST: Final = "attribute request 1"
#: A key has the most of them: eight at most for each of its labels.
_MAX_ITEMS: Final = 8 * MAX_ATTRIBUTE_KEY_LABELS

VERIFY_BYTES: Final = 32
#: K_conn under a slot's key: 16 bytes and a tag.
SLOT_BYTES: Final = 32
WATERS_POINTS: Final = 257

_T = TypeVar("_T")


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
                _sized(points[name], size, name)
            if len(_many(waters, WATERS_POINTS)) != (WATERS_POINTS if profile is Profile.A else 0):
                raise cbor.refused("a hash of Waters has another number of points")
            for point in waters:
                _sized(point, G1_BYTES, "a point of the Waters hash")
            return cls(profile, tags, _sized(verify_key, VERIFY_BYTES, "the verify key"), points, tuple(waters))

        return _parsed("public parameters", data, MAX_ATTRIBUTE_PARAMETERS_BYTES, _PARAMETERS, read)


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
                _sized(routing, KEY_BYTES, "a routing key")
            _many(credentials, MAX_ATTRIBUTE_KEY_LABELS)
            found = [
                PublisherCredential(
                    _name(attribute), _label(label), _sized(first, G1_BYTES, "Prp1"), _sized(second, G2_BYTES, "Prp2")
                )
                for attribute, label, first, second in credentials
            ]
            return cls(_epoch(epoch), routing, tuple(found))

        return _parsed("a publisher's key", data, MAX_ATTRIBUTE_KEY_BYTES, _PUBLISHER, read)


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
            _many(credentials, MAX_ATTRIBUTE_KEY_LABELS)
            found = [
                SubscriptionCredential(
                    _name(attribute), _position(position), _label(label), _point(one), _point(two), _token(token)
                )
                for attribute, position, label, one, two, token in credentials
            ]
            return cls(_epoch(epoch), _point(bond), tuple(found))

        return _parsed("a subscription's key", data, MAX_ATTRIBUTE_KEY_BYTES, _SUBSCRIPTION, read)


# --- signatures ---------------------------------------------------------------------------------------------------


class SignedCredential(NamedTuple):
    """A signature in the name of one label of one attribute."""

    attribute: str
    label: bytes
    s1: bytes
    s2: bytes
    s3: bytes


Signed = tuple[SignedCredential, ...]


def encode_signed(signed: Signed) -> bytes:
    return cbor.encode([list(one) for one in signed])


def parse_signed(data: bytes) -> Signed:
    """AttributeRejected unless attributes ascend: one signature for each, and one spelling."""

    def read() -> Signed:
        return _signed(cbor.decode(data, max_bytes=MAX_ATTRIBUTE_SESSION_BYTES, max_items=_MAX_ITEMS))

    return _guarded("signed credentials", read)


class SessionCertificate(NamedTuple):
    """A publisher's key for one epoch, signed in the name of its credentials: events under it cost Ed25519 alone."""

    verify_key: bytes
    signed: Signed

    def to_bytes(self) -> bytes:
        return cbor.encode([_SESSION, self.verify_key, [list(one) for one in self.signed]])

    @classmethod
    def parse(cls, data: bytes) -> SessionCertificate:
        def read(items: list[Any]) -> SessionCertificate:
            verify_key, signed = items
            return cls(_sized(verify_key, VERIFY_BYTES, "a session's key"), _signed(signed))

        return _parsed("a session certificate", data, MAX_ATTRIBUTE_SESSION_BYTES, _SESSION, read)


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
                _epoch(epoch),
                _name(attribute),
                _sized(first, G2_BYTES, "C0"),
                slots,
                _sized(signature, SIGNATURE_BYTES, "a signature"),
            )

        return _parsed("a connection request", data, MAX_CONNECTION_REQUEST_BYTES, _REQUEST, read)


# --- inside -------------------------------------------------------------------------------------------------------


def _parsed(what: str, data: bytes, most: int, name: str, read: Callable[[list[Any]], _T]) -> _T:
    if len(data) > most:
        raise AttributeRejected(AttributeReason.OVERSIZE, f"{what}: {len(data)} bytes, {most} are allowed")

    def inside() -> _T:
        items = cbor.decode(data, max_bytes=most, max_items=_MAX_ITEMS)
        if not isinstance(items, list) or not items or items[0] != name:
            raise AttributeRejected(AttributeReason.MAGIC, f"these bytes are not {what}")
        return read(items[1:])

    return _guarded(what, inside)


def _guarded(what: str, read: Callable[[], _T]) -> _T:
    """TypeError and ValueError are what unpacking items of another number or kind raises."""
    try:
        return read()
    except FrameRejected as error:
        raise AttributeRejected(AttributeReason.MALFORMED, f"{what}: {error.message}") from None
    except (TypeError, ValueError):
        raise AttributeRejected(AttributeReason.MALFORMED, f"{what}: items of another number or kind") from None


def _signed(value: object) -> Signed:
    items = _many(value, MAX_ATTRIBUTE_TREES)
    found = tuple(
        SignedCredential(
            _name(attribute),
            _label(label),
            _sized(s1, G1_BYTES, "S1"),
            _sized(s2, G2_BYTES, "S2"),
            _sized(s3, G2_BYTES, "S3"),
        )
        for attribute, label, s1, s2, s3 in items
    )
    names = [one.attribute.encode() for one in found]
    if not found or any(one >= other for one, other in pairwise(names)):
        raise cbor.refused("signed attributes ascend, and there is at least one")
    return found


def _sized(value: object, size: int, what: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != size:
        raise cbor.refused(f"{what} has {size} bytes")
    return value


def _point(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) not in (G1_BYTES, G2_BYTES):
        raise cbor.refused(f"a point has {G1_BYTES} or {G2_BYTES} bytes")
    return value


def _token(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) not in (KEY_BYTES, G1_BYTES, G2_BYTES):
        raise cbor.refused(f"a token has {KEY_BYTES}, {G1_BYTES} or {G2_BYTES} bytes")
    return value


def _many(value: object, most: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise cbor.refused(f"an array of at most {most}")
    return value


def _epoch(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_EPOCH:
        raise cbor.refused(f"an epoch is a whole number to {MAX_EPOCH}")
    return value


def _position(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_ATTRIBUTE_POSITIONS:
        raise cbor.refused(f"a position is a whole number below {MAX_ATTRIBUTE_POSITIONS}")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= 255:
        raise cbor.refused("an attribute's name has 1 to 255 bytes")
    return value


def _label(value: object) -> bytes:
    if not isinstance(value, bytes) or not 1 <= len(value) <= MAX_ATTRIBUTE_LABEL_BYTES:
        raise cbor.refused(f"a label has 1 to {MAX_ATTRIBUTE_LABEL_BYTES} bytes")
    return value
