"""Advertisements: what is there, whose it is, and who may find it; signed by its owner and by nobody else.

    COSE_Sign1 by the owner's identity key (`signed`), external aad: "sealcast advertisement 1" and the realm
      payload {1: id, 2: what, 3: path, 4: tags, 5: schema, 6: control topic, 7: restrictions,
               8: sequence, 9: issued, 10: expires, 11: withdrawn}

The owner is whoever the certificate names: provenance is verified, not told. An advertisement is known by (owner, id);
of two the one with the higher sequence counts, wherever it was found. A withdrawal is the last of them: it says that
there is nothing any more, to those who could have found it, and lives as long as what it ends would have.

Numbered checks, the first failure wins:

     1 size          larger than any advertisement              7 restrictions   nobody knows whom they would let in
     2 form          no signed message of ours                  8 lifetime       ends before it begins, or too late
     3 algorithm     signed by another algorithm                9 early          from a time that has not come
     4 certificate   its owner's is not to be trusted          10 expired        its time is over
     5 signature     not by the key of that certificate        11 role           its owner may not offer this service
     6 payload       the fields are not those above

and by a node, before it stores one:

    12 owner         what it is about is someone else's        14 quota          there is no room left for this owner
    13 sequence      a newer one is known, or another of the same number
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from sealcast.control.discovery.restrictions import EVERYONE, Restrictions
from sealcast.control.envelopes import EnvelopeParty, Verify
from sealcast.errors import FrameRejected, Misuse, ReasonedRejection, SchemaRejected
from sealcast.model.schema import Schema
from sealcast.primitives.encoding import joined
from sealcast.trust.certificates import signed
from sealcast.trust.certificates.certificate import Certificate, Role
from sealcast.trust.certificates.signed import SignedRejected
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_TIME_MICROS

MAX_BYTES: Final = 65_536
ID_BYTES: Final = 16
MAX_PATH: Final = 64
MAX_TAGS: Final = 32
MAX_TAG_CHARACTERS: Final = 128
MAX_LIFETIME_US: Final = 366 * 86_400 * 1_000_000
DEFAULT_LIFETIME_US: Final = 7 * 86_400 * 1_000_000
MAX_SEQUENCE: Final = 2**63 - 1
#: How far ahead of a verifier's clock an owner's may be.
SKEW_US: Final = 30_000_000

_PURPOSE: Final = b"sealcast advertisement 1"
_LABELS: Final = (
    "id", "what", "path", "tags", "schema", "control_topic", "restrictions",
    "sequence", "issued_us", "expires_us", "withdrawn",
)  # fmt: skip
_FIELDS: Final = {label: number for number, label in enumerate(_LABELS, start=1)}


class What(StrEnum):
    """What is offered."""

    TOPIC = "topic"
    KEY_CENTER = "key-center"
    BROKER = "broker"
    DISCOVERY = "discovery"


#: Services are offered by whom the authority marked for them; a topic by anyone.
_ROLES: Final[Mapping[What, Role]] = {
    What.KEY_CENTER: Role.KEY_CENTER,
    What.BROKER: Role.BROKER,
    What.DISCOVERY: Role.DISCOVERY,
}


class AdvertisementReason(StrEnum):
    """Why an advertisement is refused; the tables above, in their order."""

    SIZE = "size"
    FORM = "form"
    ALGORITHM = "algorithm"
    CERTIFICATE = "certificate"
    SIGNATURE = "signature"
    PAYLOAD = "payload"
    RESTRICTIONS = "restrictions"
    LIFETIME = "lifetime"
    EARLY = "early"
    EXPIRED = "expired"
    ROLE = "role"
    OWNER = "owner"
    SEQUENCE = "sequence"
    QUOTA = "quota"


class AdvertisementRejected(ReasonedRejection[AdvertisementReason]):
    """An advertisement that does not pass."""

    code = "advertisement"


@dataclass(frozen=True, slots=True)
class Advertisement:
    """What its owner says. Made by the owner, or by `verify`."""

    #: Of the topic itself; of a service, any number that its owner keeps for it.
    id: bytes
    what: What
    #: The topic's or the service's name: words with dots between them.
    path: str
    sequence: int
    issued_us: int
    expires_us: int
    tags: Mapping[str, str] = field(default_factory=dict)
    schema: Schema | None = None
    #: Where a service listens.
    control_topic: bytes | None = None
    restrictions: Restrictions = EVERYONE
    withdrawn: bool = False

    def withdrawal(self, at_us: int) -> Advertisement:
        """The one that ends it."""
        return replace(self, sequence=max(at_us, self.sequence + 1), issued_us=at_us, withdrawn=True)


@dataclass(frozen=True, slots=True)
class Advertised:
    """An advertisement with its owner, proven, and the bytes that prove it."""

    owner: Certificate
    about: Advertisement
    data: bytes

    @property
    def key(self) -> tuple[str, bytes]:
        """What it replaces, and is replaced by."""
        return self.owner.name, self.about.id


def sign(owner: EnvelopeParty, realm: bytes, advertisement: Advertisement) -> bytes:
    """The advertisement as it travels."""
    _check(advertisement, lambda _, why: Misuse(why))
    data = signed.sign(owner.signer, owner.certificate, cbor.encode(_to_cbor(advertisement)), _bound(realm))
    if len(data) > MAX_BYTES:
        raise Misuse(f"an advertisement has at most {MAX_BYTES} bytes, not {len(data)}")
    return data


def verify(data: bytes, realm: bytes, trusted: Verify, at_us: int) -> Advertised:
    """Checks 1 to 11."""
    if len(data) > MAX_BYTES:
        raise _no(AdvertisementReason.SIZE, f"{len(data)} bytes; an advertisement has at most {MAX_BYTES}")
    try:
        proven = signed.verify(data, _bound(realm), trusted, at_us)  # (2) to (5)
    except SignedRejected as error:
        raise _no(AdvertisementReason(error.reason), error.message) from error
    about = _from_cbor(proven.payload)  # (6) to (8)
    # (9), (10) In its time.
    if about.issued_us > at_us + SKEW_US:
        raise _no(AdvertisementReason.EARLY, "its owner issued this in the future", hint="set the owner's clock")
    if at_us >= about.expires_us:
        raise _no(AdvertisementReason.EXPIRED, "its time is over", hint="its owner advertises it again")
    # (11) A key center is who the authority says is one.
    role = _ROLES.get(about.what)
    if role is not None and role not in proven.signer.roles:
        raise _no(AdvertisementReason.ROLE, f"{proven.signer.name!r} is no {role} and cannot offer to be one")
    return Advertised(proven.signer, about, data)


def stored(data: bytes, certificate: Certificate) -> Advertised:
    """Reads an advertisement that was verified when it was stored, and does not verify it again."""
    return Advertised(certificate, _from_cbor(signed.apart(data).payload), data)


# --- the payload --------------------------------------------------------------------------------------


def _to_cbor(about: Advertisement) -> dict[int, Any]:
    schema = None if about.schema is None else json.dumps(about.schema.to_json(), separators=(",", ":")).encode()
    written = {"what": str(about.what), "tags": dict(about.tags), "restrictions": about.restrictions.to_cbor()}
    values = {name: getattr(about, name) for name in _FIELDS} | written | {"schema": schema}
    return {number: values[name] for name, number in _FIELDS.items()}


def _from_cbor(payload: bytes) -> Advertisement:
    # (6) Exactly these fields.
    try:
        body = cbor.decode(payload, max_bytes=MAX_BYTES, max_depth=5, max_items=4_096)
    except FrameRejected as error:
        raise _no(AdvertisementReason.PAYLOAD, error.message) from None
    if not isinstance(body, dict) or set(body) != set(_FIELDS.values()):
        raise _no(AdvertisementReason.PAYLOAD, "the signed fields are not an advertisement's")
    fields = {name: body[number] for name, number in _FIELDS.items()}
    if fields["what"] not in What._value2member_map_ or not isinstance(fields["withdrawn"], bool):
        raise _no(AdvertisementReason.PAYLOAD, "it offers nothing that this release knows")
    schema = _schema(fields["schema"])
    # (7) What is not understood lets nobody in; it must not even be kept.
    try:
        restrictions = Restrictions.from_cbor(fields["restrictions"])
    except Misuse as error:
        raise _no(AdvertisementReason.RESTRICTIONS, error.message) from None
    about = Advertisement(**fields | {"what": What(fields["what"]), "schema": schema, "restrictions": restrictions})
    _check(about, _no)
    return about


def _schema(raw: Any) -> Schema | None:
    if raw is None:
        return None
    try:
        if not isinstance(raw, bytes):
            raise ValueError
        return Schema.from_json(json.loads(raw, parse_float=Decimal))
    except (ValueError, RecursionError, SchemaRejected):
        raise _no(AdvertisementReason.PAYLOAD, "its schema is none") from None


def _check(about: Advertisement, refuse: Any) -> None:
    """Checks the fields, for who signs (Misuse) and for who verifies (AdvertisementRejected)."""
    for trouble in _troubles(about):
        if trouble is not None:
            raise refuse(AdvertisementReason.PAYLOAD, trouble)
    # (8)
    if not 0 < about.expires_us - about.issued_us <= MAX_LIFETIME_US:
        raise refuse(
            AdvertisementReason.LIFETIME,
            f"it lives from its issue on, {MAX_LIFETIME_US // 86_400_000_000} days at most",
        )


def _troubles(about: Advertisement) -> list[str | None]:
    def unless(fine: bool, why: str) -> str | None:
        return None if fine else why

    topic, tags = about.control_topic, about.tags
    pairs: Any = tags.items() if isinstance(tags, dict) else [(None, None)]
    return [
        unless(_is_id(about.id), f"an id has {ID_BYTES} bytes"),
        unless(_is_path(about.path), f"a path has 1 to {MAX_PATH} of A-Z a-z 0-9 . _ -"),
        unless(len(pairs) <= MAX_TAGS, f"it has at most {MAX_TAGS} tags"),
        unless(all(_is_tag(tag) and _is_tag(value) for tag, value in pairs), _TAG_TROUBLE),
        unless(topic is None or _is_id(topic), f"a control topic's id has {ID_BYTES} bytes"),
        unless(about.what is What.TOPIC or topic is not None, "a service says where it listens"),
        unless(_is_number(about.sequence, MAX_SEQUENCE), "a sequence is a number of 63 bits"),
        unless(_is_number(about.issued_us, MAX_TIME_MICROS), "a time is in microseconds since 1970"),
        unless(_is_number(about.expires_us, MAX_TIME_MICROS), "a time is in microseconds since 1970"),
    ]


_TAG_TROUBLE: Final = f"tags and their values have 1 to {MAX_TAG_CHARACTERS} printable characters"


def _is_id(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) == ID_BYTES


def _is_path(value: Any) -> bool:
    plain = isinstance(value, str) and 0 < len(value) <= MAX_PATH and value.isascii()
    return plain and all(c.isalnum() or c in "._-" for c in value)


def _is_tag(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TAG_CHARACTERS and value.isprintable()


def _is_number(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _bound(realm: bytes) -> bytes:
    return joined((_PURPOSE, realm))


def _no(reason: AdvertisementReason, message: str, *, hint: str | None = None) -> AdvertisementRejected:
    return AdvertisementRejected(reason, message, hint=hint)
