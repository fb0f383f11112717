"""The bytes of revocation lists: how they are written, signed and taken apart. Whether one counts: `revocation`.

    COSE_Sign1  18([{1: -7, 33: signer's certificate}, {}, payload, signature])   ES256; x5chain of RFC 9360
    payload     {1: kind, 2: realm, 3: number, 4: link, 5: time, 6: serials, 7: causes, 8: times}

A delta's link is the digest of the delta before it, a base's the digest of the delta of its own number; a digest is
SHA-256 of a payload, not of a signature, which can be respelled. Entries are three columns by ascending serial number,
so that a list of 100,000 is three items for a decoder, and has one spelling.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sealcast.errors import FrameRejected, Misuse, RevocationRejected
from sealcast.model.dataclass import dataclass
from sealcast.primitives.p256 import P256SigningKey
from sealcast.trust.certificates import signed
from sealcast.trust.certificates.certificate import REALM_BYTES, SERIAL_BYTES, Certificate
from sealcast.trust.certificates.signed import SignedReason, SignedRejected
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_TIME_MICROS

DIGEST_BYTES: Final = 32
#: Room for 40 million entries; an honest realm is far below.
MAX_LIST_BYTES: Final = 1 << 30
#: Entries are columns, so that their number does not count here.
MAX_LIST_ITEMS: Final = 32
MAX_NUMBER: Final = 2**63 - 1
#: What the first delta follows.
BEGINNING: Final = bytes(DIGEST_BYTES)

#: Says what the signature is for: it counts as nothing else.
_BOUND: Final = b"sealcast/1 revocation list"
_DELTA, _BASE = 1, 2
_KIND, _REALM, _NUMBER, _LINK, _TIME, _SERIALS, _CAUSES, _TIMES = range(1, 9)


class Cause(StrEnum):
    """Why a certificate was revoked, in RFC 5280's terms. There is no hold: revocation is for good."""

    UNSPECIFIED = "unspecified"
    KEY_COMPROMISE = "key-compromise"
    AUTHORITY_COMPROMISE = "authority-compromise"
    AFFILIATION_CHANGED = "affiliation-changed"
    SUPERSEDED = "superseded"
    CESSATION = "cessation"
    PRIVILEGE_WITHDRAWN = "privilege-withdrawn"


#: RFC 5280, section 5.3.1.
CAUSE_CODES: Final[Mapping[Cause, int]] = MappingProxyType(dict(zip(Cause, (0, 1, 2, 3, 4, 5, 9), strict=True)))
_CAUSES_BY_CODE: Final = {code: cause for cause, code in CAUSE_CODES.items()}


class RevocationReason(StrEnum):
    """Why a list is refused, in the order of the checks."""

    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    ENTRIES = "entries"
    REALM = "realm"
    SIGNER = "signer"
    SIGNER_REVOKED = "signer-revoked"
    SIGNATURE = "signature"
    SCOPE = "scope"
    ROLLBACK = "rollback"
    REORDERED = "reordered"
    GAP = "gap"
    FORK = "fork"
    TIME = "time"
    SHRUNK = "shrunk"


class Revoked(NamedTuple):
    """Why and when."""

    cause: Cause
    at_us: int


@dataclass(frozen=True, slots=True)
class RevocationDelta:
    """A list as it travels, taken apart and not yet verified."""

    raw: bytes
    whole: bool
    realm: bytes
    number: int
    #: Of the delta before; in a base, of the delta of the same number.
    link: bytes
    at_us: int
    entries: Mapping[int, Revoked]
    signer_der: bytes
    payload: bytes
    signature: bytes

    @property
    def digest(self) -> bytes:
        """What the next delta must name."""
        return self.link if self.whole else hashlib.sha256(self.payload).digest()


# --- bytes ----------------------------------------------------------------------------------------


def sign(
    signer: P256SigningKey,
    certificate: Certificate,
    number: int,
    link: bytes,
    entries: Mapping[int, Revoked],
    at_us: int,
    *,
    whole: bool,
) -> RevocationDelta:
    """Delta `number`, which follows the one with the digest `link`; or, if it is whole, everything revoked up to
    `number`, whose delta has the digest `link`."""
    if not entries and not whole:
        raise Misuse("a revocation list that revokes nothing says nothing")
    kind = _BASE if whole else _DELTA
    payload = cbor.encode(
        {_KIND: kind, _REALM: certificate.realm, _NUMBER: number, _LINK: link, _TIME: at_us, **columns(entries)}
    )
    return parse(signed.sign(signer, certificate.der, payload, _BOUND))


def signed_by(given: RevocationDelta, signer: Certificate) -> bool:
    """Whether the holder of that certificate signed this list."""
    return signed.signed_by(signer, signed.SignedParts(given.signer_der, given.payload, given.signature), _BOUND)


def parse(raw: bytes) -> RevocationDelta:
    """Take a list apart: checks (1) to (3). RevocationRejected when it is not exactly one of ours."""
    # (1) its shape, (2) its algorithm, which is not negotiated
    try:
        certificate, payload, signature = signed.apart(raw, MAX_LIST_BYTES)
        body = cbor.decode(payload, max_bytes=MAX_LIST_BYTES, max_depth=2, max_items=MAX_LIST_ITEMS)
    except FrameRejected as error:
        raise _malformed(error.message) from None
    except SignedRejected as error:
        if error.reason is SignedReason.ALGORITHM:
            raise refused(RevocationReason.ALGORITHM, "a revocation list is signed with ES256") from None
        raise _malformed(error.message) from None
    _check_body(body)
    # (3) its entries
    whole = body[_KIND] == _BASE
    entries = read_columns(body)
    if not entries and not whole:
        raise refused(RevocationReason.ENTRIES, "a revocation list that revokes nothing says nothing")
    return RevocationDelta(
        bytes(raw),
        whole,
        body[_REALM],
        body[_NUMBER],
        body[_LINK],
        body[_TIME],
        entries,
        certificate,
        payload,
        signature,
    )


def _check_body(body: Any) -> None:
    if not isinstance(body, dict) or set(body) != set(range(_KIND, _TIMES + 1)):
        raise _malformed("its fields are not those of a list")
    integers = [body[_KIND], body[_NUMBER], body[_TIME]]
    if any(type(value) is not int for value in integers) or body[_KIND] not in (_DELTA, _BASE):
        raise _malformed("its kind, number or time is none")
    if not 0 <= body[_TIME] <= MAX_TIME_MICROS:
        raise _malformed("its time is out of range")
    if not (0 if body[_KIND] == _BASE else 1) <= body[_NUMBER] <= MAX_NUMBER:
        raise _malformed("its number is out of range")
    for name, size in ((_REALM, REALM_BYTES), (_LINK, DIGEST_BYTES)):
        if not isinstance(body[name], bytes) or len(body[name]) != size:
            raise _malformed("its realm or its link has another size")


def columns(entries: Mapping[int, Revoked]) -> dict[int, bytes]:
    """Entries by ascending serial number, in three byte strings: a list of 100,000 is three items, not 300,000."""
    ordered = sorted(entries.items())
    return {
        _SERIALS: b"".join([serial.to_bytes(SERIAL_BYTES, "big") for serial, _ in ordered]),
        _CAUSES: bytes([CAUSE_CODES[entry.cause] for _, entry in ordered]),
        _TIMES: struct.pack(f">{len(ordered)}Q", *[entry.at_us for _, entry in ordered]),
    }


def read_columns(body: Mapping[int, Any]) -> dict[int, Revoked]:
    serials, causes, times = body[_SERIALS], body[_CAUSES], body[_TIMES]
    if not all(isinstance(column, bytes) for column in (serials, causes, times)):
        raise _malformed("its columns are no bytes")
    count = len(causes)
    if len(serials) != count * SERIAL_BYTES or len(times) != count * 8:
        raise _malformed("its columns are not of one length")
    cut = [serials[at : at + SERIAL_BYTES] for at in range(0, len(serials), SERIAL_BYTES)]
    if any(not a < b for a, b in pairwise(cut)) or set(causes) - _CAUSES_BY_CODE.keys():
        raise refused(RevocationReason.ENTRIES, "its entries are out of order, twice, or without a cause we know")
    stamps = struct.unpack(f">{count}Q", times)
    if any(at_us > MAX_TIME_MICROS for at_us in stamps):
        raise refused(RevocationReason.ENTRIES, "an entry has a time out of range")
    known = [_CAUSES_BY_CODE[code] for code in causes]
    return dict(zip((int.from_bytes(one, "big") for one in cut), map(Revoked, known, stamps), strict=True))


def refused(reason: RevocationReason, message: str, hint: str | None = None) -> RevocationRejected:
    return RevocationRejected(reason, message, hint=hint)


def _malformed(why: str) -> RevocationRejected:
    return refused(RevocationReason.MALFORMED, f"this is no revocation list: {why}")
