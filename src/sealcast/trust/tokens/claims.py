"""What a token says, and its bytes: a CWT (RFC 8392) in a COSE_Sign1 (RFC 9052), read in exactly one way.

    18([protected {1: algorithm, 4: kid}, {}, << claims >>, signature])      external data: "sealcast/1 token"

    1 iss       the key center's name                  8 cnf       {1: {1: 1, -1: 6, -2: Ed25519 key}}   (RFC 8747)
    2 sub       the entity's name                      -65537      SHA-256 of the entity's certificate
    3 aud       sealcast:REALM/topic/TOPIC             -65538      the serial number of that certificate
    4 exp       seconds since 1970, not included       -65539      the topic template
    5 nbf       seconds since 1970, included           -65540      rights: 1 publish, 2 subscribe, 3 both
    6 iat       seconds since 1970                     -65541      the topic's epoch
    7 cti       16 random bytes

All claims are there and no others, each within its bounds, in deterministic CBOR: what was signed has one reading.
The algorithm is ES256, ES384 or ES512 by the key center's P-256 key, and which of them is the topic's parameter, never
the token's word (`tokens.py`). `kid` is the SHA-256 of the key center's certificate. Labels below -65536 are for
private use (RFC 8392, section 9.1). Here nothing is verified, and no key is needed to read.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from sealcast.errors import FilterRejected, FrameRejected, Misuse, TokenRejected
from sealcast.filters.remembered import CONDITION_BYTES, Remembered
from sealcast.model.dataclass import dataclass
from sealcast.model.names import NAME
from sealcast.primitives.p256 import SIGNATURE_BYTES, Hash
from sealcast.primitives.sign import PUBLIC_BYTES
from sealcast.trust.certificates.certificate import REALM_BYTES, SERIAL_BYTES
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.templates import Template
from sealcast.trust.tokens.reasons import TokenReason, refused
from sealcast.wire import cbor, cose
from sealcast.wire.limits import MAX_EPOCH, MAX_TEMPLATE_BYTES, MAX_TIME_MICROS, MAX_TOKEN_BYTES

#: External data of the signature: a center's other signatures are never tokens, nor tokens anything else.
CONTEXT: Final = b"sealcast/1 token"
LABEL_KID: Final = 4
#: COSE's numbers of ECDSA with SHA-256, SHA-384 and SHA-512 (RFC 9053, section 2.1).
ALGORITHMS: Final = {Hash.SHA256: -7, Hash.SHA384: -35, Hash.SHA512: -36}
HASHES: Final = {number: hash for hash, number in ALGORITHMS.items()}

ISS, SUB, AUD, EXP, NBF, IAT, CTI, CNF = range(1, 9)
CERTIFICATE, SERIAL, TEMPLATE, RIGHTS, EPOCH = range(-65537, -65542, -1)
CLAIMS: Final = {
    ISS: "iss",
    SUB: "sub",
    AUD: "aud",
    EXP: "exp",
    NBF: "nbf",
    IAT: "iat",
    CTI: "cti",
    CNF: "cnf",
    CERTIFICATE: "certificate",
    SERIAL: "serial",
    TEMPLATE: "template",
    RIGHTS: "rights",
    EPOCH: "epoch",
}

ID_BYTES: Final = 16
TOPIC_BYTES: Final = 16
FINGERPRINT_BYTES: Final = 32
MAX_TIME_SECONDS: Final = MAX_TIME_MICROS // 1_000_000
MICROS: Final = 1_000_000

_AUDIENCE: Final = re.compile(
    rf"sealcast:(?P<realm>[0-9a-f]{{{2 * REALM_BYTES}}})/topic/(?P<topic>[0-9a-f]{{{2 * TOPIC_BYTES}}})", re.ASCII
)
_RIGHTS: Final = {
    1: frozenset({Right.PUBLISH}),
    2: frozenset({Right.SUBSCRIBE}),
    3: frozenset({Right.PUBLISH, Right.SUBSCRIBE}),
}
_RIGHT_CODES: Final = {rights: code for code, rights in _RIGHTS.items()}
#: Of all templates that are remembered.
_TEMPLATE_BYTES: Final = 16 << 20
#: The COSE_Key of a frame key: kty OKP, crv Ed25519, x.
_KTY_OKP, _CRV_ED25519 = 1, 6


@dataclass(frozen=True, slots=True)
class Claims:
    """What a key center says of an entity and a topic."""

    #: The key center, and the fingerprint of the certificate whose key signs (the token's `kid`).
    issuer: str
    issuer_certificate: bytes
    #: The entity, the certificate that the center saw, and the key that whoever shows the token must hold.
    subject: str
    subject_certificate: bytes
    subject_serial: int
    holder_key: bytes
    realm: bytes
    topic: bytes
    template: Template
    rights: frozenset[Right]
    epoch: int
    #: Seconds since 1970: valid from, up to but not at; and when it was made.
    not_before: int
    expires: int
    issued: int
    id: bytes

    @property
    def not_before_us(self) -> int:
        return self.not_before * MICROS

    @property
    def expires_us(self) -> int:
        return self.expires * MICROS


@dataclass(frozen=True, slots=True)
class Token:
    """A token taken apart. Whether it counts is `TokenGate.verify`'s answer, which is one of these too."""

    claims: Claims
    hash: Hash
    #: SHA-256 of the whole token: what a frame's header binds, and what caches go by.
    digest: bytes
    to_be_signed: bytes
    signature: bytes


def audience(realm: bytes, topic: bytes) -> str:
    return f"sealcast:{realm.hex()}/topic/{topic.hex()}"


# --- writing --------------------------------------------------------------------------------------


def encode_claims(claims: Claims) -> bytes:
    """The payload; Misuse for what no reader would accept."""
    body = _body(claims)
    try:
        if _read_claims(body, claims.issuer_certificate) != claims:
            raise Misuse("these claims are not what a token would say: one of them has another type")
    except TokenRejected as error:
        raise Misuse(f"no token can say this: {error.message}", hint=error.hint) from None
    return cbor.encode(body)


def _body(claims: Claims) -> dict[int, object]:
    serial = max(claims.subject_serial, 0)
    return {
        ISS: claims.issuer,
        SUB: claims.subject,
        AUD: audience(claims.realm, claims.topic),
        EXP: claims.expires,
        NBF: claims.not_before,
        IAT: claims.issued,
        CTI: claims.id,
        CNF: {1: {1: _KTY_OKP, -1: _CRV_ED25519, -2: claims.holder_key}},
        CERTIFICATE: claims.subject_certificate,
        SERIAL: serial.to_bytes((serial.bit_length() + 7) // 8, "big"),
        TEMPLATE: str(claims.template),
        RIGHTS: _RIGHT_CODES.get(claims.rights, 0),
        EPOCH: claims.epoch,
    }


def protected_header(hash: Hash, kid: bytes) -> bytes:
    if len(kid) != FINGERPRINT_BYTES:
        raise Misuse(f"a key id is a fingerprint of {FINGERPRINT_BYTES} bytes, not {len(kid)}")
    return cbor.encode({cose.LABEL_ALGORITHM: ALGORITHMS[hash], LABEL_KID: kid})


def assemble(protected: bytes, payload: bytes, signature: bytes) -> bytes:
    return cbor.encode(cbor.TaggedValue(cose.TAG_SIGN1, [protected, {}, payload, signature]))


# --- reading --------------------------------------------------------------------------------------


def parse(data: bytes) -> Token:
    """What a token says, unverified; TokenRejected when it says anything in another way."""
    if not len(data):
        raise refused(TokenReason.ABSENT, "there is none", "ask the topic's key center for one: sealcast token request")
    if len(data) > MAX_TOKEN_BYTES:
        raise refused(TokenReason.SIZE, f"it has {len(data)} bytes, {MAX_TOKEN_BYTES} are allowed")
    message = _decode(data, "it", depth=3, tags=frozenset({cose.TAG_SIGN1}))
    parts = message.value if isinstance(message, cbor.TaggedValue) else None
    if not isinstance(parts, list) or len(parts) != 4 or parts[1] != {}:
        raise refused(TokenReason.FORM, "it is no COSE_Sign1 of four parts with an empty unprotected header")
    protected, _, payload, signature = parts
    if not all(isinstance(part, bytes) for part in (protected, payload, signature)):
        raise refused(TokenReason.FORM, "its header, claims and signature are not all byte strings")
    if len(signature) != SIGNATURE_BYTES:
        raise refused(TokenReason.FORM, f"its signature has {len(signature)} bytes, not {SIGNATURE_BYTES}")
    hash, kid = _read_header(_decode(protected, "its header", depth=2))
    claims = _read_claims(_decode(payload, "its payload", depth=3), kid)
    to_be_signed = cose.sig_structure(protected, CONTEXT, payload)
    return Token(claims, hash, hashlib.sha256(data).digest(), to_be_signed, signature)


def _decode(data: bytes, what: str, *, depth: int, tags: frozenset[int] = frozenset()) -> Any:
    try:
        return cbor.decode(data, max_bytes=MAX_TOKEN_BYTES, max_depth=depth, max_items=64, tags=tags)
    except FrameRejected as error:
        raise refused(TokenReason.ENCODING, f"{what} is {error.message}") from None


def _read_header(header: Any) -> tuple[Hash, bytes]:
    if not isinstance(header, dict) or set(header) != {cose.LABEL_ALGORITHM, LABEL_KID}:
        raise refused(TokenReason.HEADER, "its header names the algorithm and the key, nothing else")
    number, kid = header[cose.LABEL_ALGORITHM], header[LABEL_KID]
    if type(number) is not int or number not in HASHES:
        raise refused(TokenReason.ALGORITHM, "its algorithm is none of ES256, ES384 and ES512")
    if not isinstance(kid, bytes) or len(kid) != FINGERPRINT_BYTES:
        raise refused(TokenReason.KEY_ID, f"its key id is no fingerprint of {FINGERPRINT_BYTES} bytes")
    return HASHES[number], kid


def _read_claims(body: Any, kid: bytes) -> Claims:
    if not isinstance(body, dict):
        raise refused(TokenReason.FORM, "its claims are no map")
    missing = [name for label, name in CLAIMS.items() if label not in body]
    if missing:
        raise refused(TokenReason.CLAIM_MISSING, f"claim {missing[0]} is missing")
    if len(body) != len(CLAIMS):
        raise refused(TokenReason.CLAIM_UNKNOWN, "it has a claim that is not known here")
    realm, topic = _read_audience(body[AUD])
    expires, not_before, issued = (_whole(body, label, MAX_TIME_SECONDS) for label in (EXP, NBF, IAT))
    if not not_before < expires:
        raise _bad(EXP, "is not after nbf")
    if not issued < expires:
        raise _bad(IAT, "is not before exp")
    rights = _RIGHTS.get(_whole(body, RIGHTS, 3))
    if rights is None:
        raise _bad(RIGHTS, "names no right")
    return Claims(
        issuer=_name(body, ISS),
        issuer_certificate=kid,
        subject=_name(body, SUB),
        subject_certificate=_bytes(body, CERTIFICATE, FINGERPRINT_BYTES),
        subject_serial=_read_serial(body[SERIAL]),
        holder_key=_read_holder(body[CNF]),
        realm=realm,
        topic=topic,
        template=_read_template(body[TEMPLATE]),
        rights=rights,
        epoch=_whole(body, EPOCH, MAX_EPOCH),
        not_before=not_before,
        expires=expires,
        issued=issued,
        id=_bytes(body, CTI, ID_BYTES),
    )


def _read_audience(value: Any) -> tuple[bytes, bytes]:
    match = _AUDIENCE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _bad(AUD, "is not sealcast:REALM/topic/TOPIC")
    return bytes.fromhex(match["realm"]), bytes.fromhex(match["topic"])


def _read_holder(value: Any) -> bytes:
    key = value[1] if isinstance(value, dict) and set(value) == {1} else None
    if not isinstance(key, dict) or set(key) != {1, -1, -2}:
        raise _bad(CNF, "is no COSE key")
    x = key[-2]
    if (key[1], key[-1]) != (_KTY_OKP, _CRV_ED25519) or isinstance(key[1], bool):
        raise _bad(CNF, "is no Ed25519 key")
    if not isinstance(x, bytes) or len(x) != PUBLIC_BYTES:
        raise _bad(CNF, f"has no key of {PUBLIC_BYTES} bytes")
    return x


def _read_serial(value: Any) -> int:
    if not isinstance(value, bytes) or not 0 < len(value) <= SERIAL_BYTES or not value[0]:
        raise _bad(SERIAL, f"is no number of 1 to {SERIAL_BYTES} bytes")
    return int.from_bytes(value, "big")


def _read_template(value: Any) -> Template:
    if not isinstance(value, str) or len(value) > MAX_TEMPLATE_BYTES:
        raise _bad(TEMPLATE, "is not a template in its normal spelling")
    try:
        return _template(value)
    except FilterRejected as error:
        raise _bad(TEMPLATE, f"is no template: {error.message}") from None


def _parsed_template(text: str) -> Template:
    template = Template.parse(text)
    if str(template) != text:
        raise FilterRejected("syntax", f"its normal spelling is {str(template)[:60]}")
    return template


#: Few templates, many tokens: each is read once.
_template: Final = Remembered(_parsed_template, lambda text, _: CONDITION_BYTES * (len(text) + 1), _TEMPLATE_BYTES)


def _name(body: dict[Any, Any], label: int) -> str:
    value = body[label]
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise _bad(label, "is no name")
    return value


def _bytes(body: dict[Any, Any], label: int, size: int) -> bytes:
    value = body[label]
    if not isinstance(value, bytes) or len(value) != size:
        raise _bad(label, f"has not {size} bytes")
    return value


def _whole(body: dict[Any, Any], label: int, most: int) -> int:
    value = body[label]
    if type(value) is not int or not 0 <= value <= most:
        raise _bad(label, f"is no whole number up to {most}")
    return value


def _bad(label: int, why: str) -> TokenRejected:
    return refused(TokenReason.CLAIM_VALUE, f"claim {CLAIMS[label]} {why}")
