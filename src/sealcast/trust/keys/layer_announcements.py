"""What a participant of a layered topic says of its agreement key, and when it is believed. Pure: no file, no clock.

    announcement = Ed25519 signature (64 bytes) | statement
    statement    = CBOR [realm id, topic id, epoch, name, X25519 public key]

Signed with the key that the participant's certificate binds to its name, over the statement with a label before it, so
that no frame can be taken for one. The statement says all that it is for, so that one that is carried elsewhere, to
another topic, epoch or name, is told from one that is forged.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sealcast.errors import CertificateRejected, FrameRejected, ReasonedRejection
from sealcast.model.dataclass import dataclass
from sealcast.primitives import hpke
from sealcast.primitives.sign import SIGNATURE_BYTES, SigningKey, VerifyKey
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.certificates.revocation import NOTHING_REVOKED, RevocationView
from sealcast.trust.realm.state import Entity
from sealcast.wire import cbor

_LABEL: Final = b"sealcast/1 layer key\0"
MAX_STATEMENT_BYTES: Final = 256


class LayerKeyReason(StrEnum):
    """Why an announced key is not used, in the order of the checks; the first that fails is the reason."""

    FORM = "form"
    REALM = "realm"
    TOPIC = "topic"
    EPOCH = "epoch"
    HOLDER = "holder"
    KEY = "key"
    REVOKED = "revoked"
    CERTIFICATE = "certificate"
    SIGNATURE = "signature"


class LayerKeyRejected(ReasonedRejection[LayerKeyReason]):
    """An agreement key that its holder did not announce for this, or whose holder does not count any more."""

    code = "layer-key"


@dataclass(frozen=True, slots=True)
class About:
    """What an announcement is for."""

    realm_id: bytes
    topic_id: bytes
    epoch: int
    name: str

    def statement(self, public: bytes) -> bytes:
        return cbor.encode([self.realm_id, self.topic_id, self.epoch, self.name, public])


def announce(signer: SigningKey, about: About, public: bytes) -> bytes:
    """The announcement of a public key."""
    statement = about.statement(public)
    return signer.sign(_LABEL + statement) + statement


def judge(
    announcement: bytes,
    about: About,
    who: Entity,
    trust: Trust | None,
    revoked: RevocationView,
    at_us: int,
    *,
    former: bool = False,
) -> bytes:
    """The public key, if `who` announced it for this and counts; LayerKeyRejected, with a reason for each check.

    `trust` is None where there are no certificates. With `former`, the key of someone who does not count any more is
    shown, too: what came from it has to be taken out of tables again, and nothing else is to be done with it.
    """
    # (1) to (6): what it says, and for what
    public = _read(announcement, about)
    # (7) still here
    if who.revoked and not former:
        raise LayerKeyRejected(
            LayerKeyReason.REVOKED, f"{who.name!r} was revoked: nobody shares keys with it from now on"
        )
    # (8) certified
    verify_key = who.verify_key if trust is None else _certified(who, trust, revoked, at_us, former)
    # (9) signed
    if not VerifyKey(verify_key).verify(_LABEL + announcement[SIGNATURE_BYTES:], announcement[:SIGNATURE_BYTES]):
        raise LayerKeyRejected(
            LayerKeyReason.SIGNATURE,
            f"the agreement key that is said to be {who.name!r}'s was not signed by it",
            hint="the registry was altered: restore it from a copy",
        )
    return public


def _read(announcement: bytes, about: About) -> bytes:
    # (1)
    statement = announcement[SIGNATURE_BYTES:]
    try:
        if not 0 < len(statement) <= MAX_STATEMENT_BYTES:
            raise ValueError(len(statement))
        match cbor.decode(statement, max_items=8):
            case [bytes(realm_id), bytes(topic_id), int(epoch), str(name), bytes(public)] if epoch is not True:
                pass
            case _:
                raise ValueError(statement)
    except (ValueError, FrameRejected):
        raise LayerKeyRejected(LayerKeyReason.FORM, f"this is no announcement of {about.name!r}'s key") from None
    # (2) to (5): for this, and nothing else
    said = {
        LayerKeyReason.REALM: (realm_id == about.realm_id, "another realm"),
        LayerKeyReason.TOPIC: (topic_id == about.topic_id, "another topic"),
        LayerKeyReason.EPOCH: (epoch == about.epoch, f"epoch {epoch}, not {about.epoch}"),
        LayerKeyReason.HOLDER: (name == about.name, f"{name!r}, not {about.name!r}"),
    }
    for reason, (holds, what) in said.items():
        if not holds:
            raise LayerKeyRejected(reason, f"the announcement of {about.name!r}'s agreement key is for {what}")
    # (6) two of these would agree on what everyone knows
    if not hpke.is_usable(public):
        raise LayerKeyRejected(LayerKeyReason.KEY, f"the agreement key of {about.name!r} is of small order")
    return public


def _certified(who: Entity, trust: Trust, revoked: RevocationView, at_us: int, former: bool) -> bytes:
    try:
        if former:
            # As of when it was issued, whatever was said of it later.
            at_us, revoked = certificates.parse(who.certificate).not_before_us, NOTHING_REVOKED
        return trust.verify(who.certificate, at_us, revoked, name=who.name).verify_key
    except CertificateRejected as error:
        raise LayerKeyRejected(
            LayerKeyReason.CERTIFICATE,
            f"the agreement key of {who.name!r} is not used: {error.message}",
            hint=error.hint,
        ) from None
