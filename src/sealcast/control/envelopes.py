"""Envelopes: how a request reaches one service and a reply one entity, over topics that anybody may write to.

    envelope  = ["sealcast-envelope", 1, way, sealed]                                    way 1: request, 2: reply
    sealed    = HPKE to the recipient's receiving key      info: way and realm, aad: the recipient's name and that key
      opened  = length u32 | COSE_Sign1 | zeros up to the next bucket
        COSE_Sign1  protected {1: -7, 33: certificate}     ES256 by the sender's identity key; aad: way and realm
          payload   {1: kind, 2: recipient, 3: the recipient's key, 4: request id, 5: time, 6: reply topic, 7: body}

Sign, then seal, with the recipient inside what is signed: who opens an envelope can show it to a third party but not
pass it on as if it had been meant for it. The way is bound by the seal *and* by the signature, so a reply is never
taken for a request. The kind of a request is inside: whoever watches a topic sees that something was asked, of a size
that is a power of two, and nothing else. The certificate is in the protected header: it cannot be exchanged for another
of the same key.

Numbered checks, the first failure wins, each has its own reason:

     1 size         larger than any envelope                     8 signature    not by the key of that certificate
     2 form         no envelope at all                           9 payload      the signed fields are not those above
     3 version      of another release                          10 recipient    meant for someone else
     4 way          a reply where a request belongs             11 kind         nothing this service knows
     5 seal         not sealed to us, or altered                12 early        from a time that has not come
     6 signed       what was sealed is no signed message        13 late         too old
     7 certificate  the sender's is not to be trusted           14 replay       this request came before
                                                                15 answer       not by whom was asked, or not to this

Checks 1 to 4 cost nothing; 5 is the first that costs cryptography (`budgets` stands before it), and nobody is named
before 8 has passed: a forged request costs its origin, never the entity in whose name it was written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any, Final, Protocol

from sealcast.errors import CannotOpen, FrameRejected, Misuse, ReasonedRejection
from sealcast.model.dataclass import dataclass
from sealcast.primitives import kem as kems
from sealcast.primitives.encoding import joined
from sealcast.primitives.kem import EntityKey
from sealcast.primitives.p256 import P256SigningKey
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.certificates import signed
from sealcast.trust.certificates.certificate import Certificate
from sealcast.trust.certificates.signed import SignedReason, SignedRejected
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_ENVELOPE_BYTES, MAX_TIME_MICROS

MAGIC: Final = "sealcast-envelope"
VERSION: Final = 1
ID_BYTES: Final = 16
MAX_KIND_BYTES: Final = 48
MAX_NAME_BYTES: Final = 64
#: The largest bucket; everything that is asked or answered fits, or comes in parts.
MAX_OPENED_BYTES: Final = MAX_ENVELOPE_BYTES - kems.MAX_OVERHEAD_BYTES - 64
MIN_OPENED_BYTES: Final = 2_048
#: What an envelope may carry: the rest of the largest bucket is for the certificate and the fields around it.
MAX_BODY_BYTES: Final = MAX_OPENED_BYTES - 16_384
#: How far a request's time may be from the clock of who opens it.
DEFAULT_SKEW_US: Final = 30_000_000
DEFAULT_AGE_US: Final = 300_000_000

_LENGTH: Final = 4
_PURPOSE: Final = b"sealcast envelope 1"
_KIND, _RECIPIENT, _KEY, _ID, _TIME, _REPLY_TOPIC, _BODY = range(1, 8)
_FIELDS: Final = frozenset({_KIND, _RECIPIENT, _KEY, _ID, _TIME, _REPLY_TOPIC, _BODY})


class Direction(IntEnum):
    """Which way an envelope goes."""

    REQUEST = 1
    REPLY = 2


class EnvelopeReason(StrEnum):
    """Why an envelope is refused; the table above, in its order."""

    SIZE = "size"
    FORM = "form"
    VERSION = "version"
    WAY = "way"
    SEAL = "seal"
    SIGNED = "signed"
    CERTIFICATE = "certificate"
    SIGNATURE = "signature"
    PAYLOAD = "payload"
    RECIPIENT = "recipient"
    KIND = "kind"
    EARLY = "early"
    LATE = "late"
    REPLAY = "replay"
    ANSWER = "answer"


class EnvelopeRejected(ReasonedRejection[EnvelopeReason]):
    """An envelope that does not pass; counted by its reason, never answered."""

    code = "envelope"


class Verify(Protocol):
    """Says whose certificate this is, or raises CertificateRejected: `Trust.verify` with today's revocations."""

    def __call__(self, der: bytes, at_us: int, /) -> Certificate: ...


class EnvelopeParty(Unpicklable):
    """Oneself: a name, the certificate that proves it, and the keys that go with it."""

    __slots__ = ("_newest", "kem", "name", "signer")

    def __init__(
        self, name: str, certificate: bytes | Callable[[], bytes], signer: P256SigningKey, kem: EntityKey
    ) -> None:
        """Certificates are renewed while services run: who runs for long gives a way to the newest, not one of them."""
        self.name = name
        self._newest = certificate
        self.signer = signer
        self.kem = kem

    @property
    def certificate(self) -> bytes:
        return self._newest if isinstance(self._newest, bytes) else self._newest()


@dataclass(frozen=True, slots=True)
class EnvelopeRecipient:
    """Whom an envelope is for: the name, and the receiving key that its certificate carries."""

    name: str
    kem_public: bytes

    @classmethod
    def of(cls, certificate: Certificate) -> EnvelopeRecipient:
        return cls(certificate.name, certificate.kem_public)


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """What is asked or answered. A reply carries the id of the request it answers, and no reply topic."""

    kind: str
    body: bytes
    request_id: bytes
    time_us: int
    reply_topic: bytes | None = None

    @classmethod
    def request(cls, kind: str, body: bytes, reply_topic: bytes, at_us: int) -> ControlMessage:
        """A new question, by a fresh id."""
        return cls(kind, body, os.urandom(ID_BYTES), at_us, reply_topic)

    def reply(self, kind: str, body: bytes, at_us: int) -> ControlMessage:
        """The answer to this question."""
        return ControlMessage(kind, body, self.request_id, at_us)

    @property
    def way(self) -> Direction:
        return Direction.REPLY if self.reply_topic is None else Direction.REQUEST


@dataclass(frozen=True, slots=True)
class ProvenMessage:
    """A message and who sent it, proven."""

    sender: Certificate
    message: ControlMessage


# --- sealing ------------------------------------------------------------------------------------------


def seal(sender: EnvelopeParty, realm: bytes, to: EnvelopeRecipient, message: ControlMessage) -> bytes:
    """The envelope that carries `message` to `to` alone."""
    if len(message.body) > MAX_BODY_BYTES:
        raise Misuse(f"an envelope carries at most {MAX_BODY_BYTES} bytes, not {len(message.body)}: send it in parts")
    payload = {
        _KIND: message.kind,
        _RECIPIENT: to.name,
        _KEY: to.kem_public,
        _ID: message.request_id,
        _TIME: message.time_us,
        _REPLY_TOPIC: message.reply_topic,
        _BODY: message.body,
    }
    _check_fields(payload, message.way, Misuse)
    bound = _bound(message.way, realm)
    inside = signed.sign(sender.signer, sender.certificate, cbor.encode(payload), bound)
    sealed = kems.seal(to.kem_public, _padded(inside), bound, _place(to))
    return cbor.encode([MAGIC, VERSION, int(message.way), sealed])


# --- opening ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """How old, and how far ahead of the opener's clock, an envelope may be."""

    age_us: int = DEFAULT_AGE_US
    skew_us: int = DEFAULT_SKEW_US

    def __post_init__(self) -> None:
        if self.age_us < 1 or self.skew_us < 0:
            raise Misuse("a window has an age above zero and a skew that is not negative")


DEFAULT_WINDOW: Final = Window()


def open_request(
    data: bytes,
    me: EnvelopeParty,
    realm: bytes,
    verify: Verify,
    at_us: int,
    kinds: frozenset[str],
    window: Window = DEFAULT_WINDOW,
) -> ProvenMessage:
    """A request to `me`: checks 1 to 13. Whether it came before (14) is for who remembers: `control.Service`."""
    opened = _open(data, Direction.REQUEST, me, realm, verify, at_us)
    # (11) Only what this service knows.
    if opened.message.kind not in kinds:
        raise _no(EnvelopeReason.KIND, f"{me.name!r} is not asked for {opened.message.kind!r}")
    _check_time(opened.message.time_us, at_us, window)
    return opened


def open_reply(
    data: bytes,
    me: EnvelopeParty,
    realm: bytes,
    verify: Verify,
    at_us: int,
    asked: ControlMessage,
    of: str,
    window: Window = DEFAULT_WINDOW,
) -> ProvenMessage:
    """The reply of `of` to `asked`: checks 1 to 13, and that it is an answer to this question (15)."""
    opened = _open(data, Direction.REPLY, me, realm, verify, at_us)
    _check_time(opened.message.time_us, at_us, window)
    # (15) By whom it was asked of, and to this question: an old answer, or another service's, is none.
    if opened.sender.name != of:
        raise _no(EnvelopeReason.ANSWER, f"{of!r} was asked and {opened.sender.name!r} answered")
    if opened.message.request_id != asked.request_id:
        raise _no(EnvelopeReason.ANSWER, "this answers another question")
    return opened


def _open(data: bytes, way: Direction, me: EnvelopeParty, realm: bytes, verify: Verify, at_us: int) -> ProvenMessage:
    sealed = _outside(data, way)
    to, bound = EnvelopeRecipient(me.name, me.kem.public), _bound(way, realm)
    # (5) Sealed to this key, under this name, in this realm, this way.
    try:
        opened = me.kem.open(sealed, bound, _place(to))
    except CannotOpen:
        raise _no(EnvelopeReason.SEAL, "this was not sealed to us, or it was altered") from None
    # (6) to (8): what was sealed is signed, by whom the certificate names.
    try:
        proven = signed.verify(_unpadded(opened), bound, verify, at_us)
    except SignedRejected as error:
        raise _no(_SIGNED_REASONS[error.reason], error.message) from error
    fields = _payload(proven.payload, way)
    # (10) Meant for us: without this, who received it could seal it to someone else.
    if fields[_RECIPIENT] != to.name or fields[_KEY] != to.kem_public:
        raise _no(EnvelopeReason.RECIPIENT, f"this was meant for {fields[_RECIPIENT]!r}")
    message = ControlMessage(fields[_KIND], fields[_BODY], fields[_ID], fields[_TIME], fields[_REPLY_TOPIC])
    return ProvenMessage(proven.signer, message)


def _outside(data: bytes, way: Direction) -> bytes:
    # (1) Before anything is read.
    if len(data) > MAX_ENVELOPE_BYTES:
        raise _no(EnvelopeReason.SIZE, f"{len(data)} bytes; an envelope has at most {MAX_ENVELOPE_BYTES}")
    # (2) The one form there is.
    try:
        parts = cbor.decode(data, max_bytes=MAX_ENVELOPE_BYTES, max_depth=4, max_items=64)
    except FrameRejected as error:
        raise _no(EnvelopeReason.FORM, error.message) from None
    if not isinstance(parts, list) or len(parts) < 2 or parts[0] != MAGIC or not _is_int(parts[1]):
        raise _no(EnvelopeReason.FORM, "this is no envelope")
    # (3) A later release says so where every release looks first.
    if parts[1] != VERSION:
        raise _no(EnvelopeReason.VERSION, f"an envelope of version {parts[1]}; this release knows {VERSION}")
    if len(parts) != 4 or not _is_int(parts[2]) or not isinstance(parts[3], bytes):
        raise _no(EnvelopeReason.FORM, "this is no envelope")
    # (4) Also bound by the seal; said here so that the reason is the right one.
    if parts[2] != way:
        raise _no(EnvelopeReason.WAY, f"way {parts[2]} where {way.name.lower()}s belong")
    return parts[3]


def _payload(payload: bytes, way: Direction) -> dict[int, Any]:
    # (9) Exactly the fields there are, each of its type and size.
    try:
        fields = cbor.decode(payload, max_bytes=MAX_OPENED_BYTES, max_depth=1, max_items=32)
    except FrameRejected as error:
        raise _no(EnvelopeReason.PAYLOAD, error.message) from None
    if not isinstance(fields, dict) or frozenset(fields) != _FIELDS:
        raise _no(EnvelopeReason.PAYLOAD, "the signed fields are not an envelope's")
    _check_fields(fields, way, lambda why: _no(EnvelopeReason.PAYLOAD, why))
    return fields


class _Refuse(Protocol):
    def __call__(self, why: str, /) -> Exception: ...


def _check_fields(fields: dict[int, Any], way: Direction, refuse: _Refuse) -> None:
    """Checks the fields, for who seals (Misuse) and for who opens (EnvelopeRejected)."""
    for label, most in ((_KIND, MAX_KIND_BYTES), (_RECIPIENT, MAX_NAME_BYTES)):
        text = fields[label]
        if not isinstance(text, str) or not 0 < len(text.encode()) <= most or not text.isprintable():
            raise refuse(f"field {label} has 1 to {most} printable bytes")
    for label, sizes in ((_KEY, kems.PUBLIC_SIZES), (_ID, (ID_BYTES,))):
        if not isinstance(fields[label], bytes) or len(fields[label]) not in sizes:
            raise refuse(f"field {label} has {' or '.join(map(str, sizes))} bytes")
    if not _is_int(fields[_TIME]) or not 0 <= fields[_TIME] <= MAX_TIME_MICROS:
        raise refuse("a time is in microseconds since 1970")
    topic = fields[_REPLY_TOPIC]
    if way is Direction.REPLY and topic is not None:
        raise refuse("a reply is not replied to")
    if way is Direction.REQUEST and (not isinstance(topic, bytes) or len(topic) != ID_BYTES):
        raise refuse(f"a request names a reply topic of {ID_BYTES} bytes")
    if not isinstance(fields[_BODY], bytes):
        raise refuse("a body is bytes")


def _check_time(time_us: int, at_us: int, window: Window) -> None:
    # (12) and (13): an id is remembered as long as its time is accepted, so nothing older may ever come in.
    if time_us > at_us + window.skew_us:
        ahead = (time_us - at_us) // 1_000_000
        raise _no(EnvelopeReason.EARLY, f"this was written {ahead} s in the future", hint="set the sender's clock")
    if time_us < at_us - window.age_us:
        behind = (at_us - time_us) // 1_000_000
        raise _no(EnvelopeReason.LATE, f"this was written {behind} s ago", hint="ask again; or set the sender's clock")


# --- padding ------------------------------------------------------------------------------------------


def bucket(size: int) -> int:
    """The size that something of `size` bytes is padded to: a power of two."""
    room = max(MIN_OPENED_BYTES, 1 << (size - 1).bit_length())
    if room > MAX_OPENED_BYTES:
        raise Misuse(f"an envelope holds at most {MAX_OPENED_BYTES} bytes, not {size}")
    return room


def _padded(inside: bytes) -> bytes:
    size = _LENGTH + len(inside)
    return len(inside).to_bytes(_LENGTH, "big") + inside + bytes(bucket(size) - size)


def _unpadded(opened: bytes) -> bytes:
    size = int.from_bytes(opened[:_LENGTH], "big")
    inside, rest = opened[_LENGTH : _LENGTH + size], opened[_LENGTH + size :]
    # One way to pad: what is not zero would be a second message that nobody signed.
    if len(opened) < MIN_OPENED_BYTES or len(inside) != size or len(opened) != bucket(_LENGTH + size) or any(rest):
        raise _no(EnvelopeReason.SIGNED, "what was sealed is not padded as an envelope is")
    return inside


def _bound(way: Direction, realm: bytes) -> bytes:
    return joined((_PURPOSE, way.name.lower().encode(), realm))


def _place(to: EnvelopeRecipient) -> bytes:
    return joined((to.name.encode(), to.kem_public))


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_SIGNED_REASONS: Final = {
    SignedReason.FORM: EnvelopeReason.SIGNED,
    SignedReason.ALGORITHM: EnvelopeReason.SIGNED,
    SignedReason.CERTIFICATE: EnvelopeReason.CERTIFICATE,
    SignedReason.SIGNATURE: EnvelopeReason.SIGNATURE,
}


def _no(reason: EnvelopeReason, message: str, *, hint: str | None = None) -> EnvelopeRejected:
    return EnvelopeRejected(reason, message, hint=hint)
