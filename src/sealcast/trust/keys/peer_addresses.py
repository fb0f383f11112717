"""Where an entity's peer process is reached, as it says itself, and when that is believed. Pure: no file, no clock.

    announcement = Ed25519 signature (64 bytes) | statement
    statement    = CBOR [realm id, name, host, port, door, serves, sequence]

Signed with the key that the entity's certificate binds to its name, with a label before it, so that nothing else that
is signed with that key can be taken for one. The sequence grows, so that an old address is never put back. A false
address would lead nowhere, for whoever answers there has to prove who it is (`overlay.peers.net`); the signature keeps
others from sending everybody astray.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from sealcast.errors import CertificateRejected, FrameRejected, Misuse, ReasonedRejection
from sealcast.model.dataclass import dataclass
from sealcast.primitives.sign import SIGNATURE_BYTES, SigningKey, VerifyKey
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.certificates.revocation import RevocationView
from sealcast.trust.realm.state import Entity
from sealcast.wire import cbor

_LABEL: Final = b"sealcast/1 peer address\0"
DOOR: Final = re.compile(r"[0-9a-f]{32}")
MAX_HOST_CHARACTERS: Final = 253
MAX_STATEMENT_BYTES: Final = 640
MAX_SEQUENCE: Final = 2**63 - 1


class PeerAddressReason(StrEnum):
    """Why an announced address is not used, in the order of the checks."""

    FORM = "form"
    REALM = "realm"
    HOLDER = "holder"
    REVOKED = "revoked"
    CERTIFICATE = "certificate"
    SIGNATURE = "signature"


class PeerAddressRejected(ReasonedRejection[PeerAddressReason]):
    """An address that its holder did not announce, or whose holder does not count any more."""

    code = "peer-address"


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Where a peer is reached."""

    host: str
    port: int
    #: Which of the identities that answer there is meant: a random word (`overlay.peers.net.doors`).
    door: str

    def __post_init__(self) -> None:
        if not 0 < len(self.host) <= MAX_HOST_CHARACTERS or not self.host.isascii() or not self.host.isprintable():
            raise Misuse("a peer's host is a name or an address in ASCII")
        if isinstance(self.port, bool) or not 0 < self.port < 65_536 or not DOOR.fullmatch(self.door):
            raise Misuse("a peer's address has a port and a door of 32 hexadecimal digits")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class StatedAddress(NamedTuple):
    """What a peer says of itself."""

    address: PeerAddress
    #: Whether it offers itself as a rendezvous, on topics on which it may publish.
    serves: bool
    sequence: int


def announce(signer: SigningKey, realm_id: bytes, name: str, stated: StatedAddress) -> bytes:
    """The announcement of an address."""
    at = stated.address
    statement = cbor.encode([realm_id, name, at.host, at.port, at.door, stated.serves, stated.sequence])
    return signer.sign(_LABEL + statement) + statement


def read(announcement: bytes, realm_id: bytes, name: str) -> StatedAddress:
    """What is stated, unverified; PeerAddressRejected if it says anything else, or is another's."""
    statement = announcement[SIGNATURE_BYTES:]
    try:
        match cbor.decode(statement, max_bytes=MAX_STATEMENT_BYTES, max_depth=1, max_items=8):
            case [bytes(realm), str(who), str(host), int(port), str(door), bool(serves), int(sequence)]:
                address = PeerAddress(host, port, door)
            case _:
                raise Misuse("not an address")
        if isinstance(sequence, bool) or not 0 <= sequence <= MAX_SEQUENCE:
            raise Misuse("not a sequence")
    except (FrameRejected, Misuse):
        raise PeerAddressRejected(PeerAddressReason.FORM, f"this is no announcement of {name!r}'s address") from None
    if realm != realm_id:
        raise PeerAddressRejected(PeerAddressReason.REALM, f"the address of {name!r} is for another realm")
    if who != name:
        raise PeerAddressRejected(PeerAddressReason.HOLDER, f"the address is {who!r}'s, not {name!r}'s")
    return StatedAddress(address, serves, sequence)


def judge(
    announcement: bytes, realm_id: bytes, who: Entity, trust: Trust, revoked: RevocationView, at_us: int
) -> StatedAddress:
    """What `who` stated, if it did and counts; PeerAddressRejected, with a reason for each check."""
    stated = read(announcement, realm_id, who.name)
    if who.revoked:
        raise PeerAddressRejected(PeerAddressReason.REVOKED, f"{who.name!r} was revoked: nobody talks to it")
    try:
        verify_key = trust.verify(who.certificate, at_us, revoked, name=who.name).verify_key
    except CertificateRejected as error:
        raise PeerAddressRejected(
            PeerAddressReason.CERTIFICATE, f"the address of {who.name!r} is not used: {error.message}", hint=error.hint
        ) from None
    if not VerifyKey(verify_key).verify(_LABEL + announcement[SIGNATURE_BYTES:], announcement[:SIGNATURE_BYTES]):
        raise PeerAddressRejected(
            PeerAddressReason.SIGNATURE,
            f"the address that is said to be {who.name!r}'s was not signed by it",
            hint="the registry was altered: restore it from a copy",
        )
    return stated
