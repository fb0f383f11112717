"""An appointment: the root's word on whose key signs for the realm's administrator.

    appointment = number (8 bytes) | Ed25519 public key (32 bytes) | the root's ES256 signature (64 bytes)

Signed with a label and the realm's id before it, so that nothing else that the root signs can be taken for one. Numbers
grow: a key that was replaced cannot be put back with the appointment that it once had.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from sealcast.errors import ReasonedRejection, Rejected
from sealcast.primitives import p256
from sealcast.primitives.p256 import P256SigningKey, P256VerifyKey
from sealcast.primitives.sign import PUBLIC_BYTES, VerifyKey
from sealcast.trust.certificates.profile import Certificate

NUMBER_BYTES: Final = 8
FIRST_NUMBER: Final = 1
APPOINTMENT_BYTES: Final = NUMBER_BYTES + PUBLIC_BYTES + p256.SIGNATURE_BYTES
_LABEL: Final = b"sealcast/1 administrator\0"
_SIGNED_BYTES: Final = NUMBER_BYTES + PUBLIC_BYTES


class AppointmentReason(StrEnum):
    """Why an appointment is not believed, in the order of the checks."""

    FORM = "form"
    SIGNATURE = "signature"


class AppointmentRejected(ReasonedRejection[AppointmentReason]):
    """An administrator whom the realm's root did not appoint."""

    code = "appointment"


class Appointed(NamedTuple):
    """The administrator's key, and which one it is."""

    number: int
    verify_key: VerifyKey


def appoint(root: P256SigningKey, realm: bytes, public: bytes, number: int = FIRST_NUMBER) -> bytes:
    """By the root: that key signs for the administrator from now on."""
    said = number.to_bytes(NUMBER_BYTES, "big") + public
    return said + root.sign(_LABEL + realm + said)


def number_of(appointment: bytes) -> int:
    """Which appointment it says it is; 0 for none. Nothing is verified."""
    return int.from_bytes(appointment[:NUMBER_BYTES], "big")


def names(appointment: bytes, public: bytes) -> bool:
    """Whether it is about that key. Nothing is verified."""
    return appointment[NUMBER_BYTES:_SIGNED_BYTES] == public


def appointed(root: Certificate, appointment: bytes) -> Appointed:
    """Whom the root appointed; AppointmentRejected when it did not."""
    if len(appointment) != APPOINTMENT_BYTES:
        raise AppointmentRejected(AppointmentReason.FORM, "the realm's root has appointed no administrator")
    said, signature = appointment[:_SIGNED_BYTES], appointment[_SIGNED_BYTES:]
    if not P256VerifyKey(root.identity_key).verify(_LABEL + root.realm + said, signature):
        raise AppointmentRejected(
            AppointmentReason.SIGNATURE, "the administrator was not appointed by the realm's root"
        )
    try:
        return Appointed(number_of(appointment), VerifyKey(said[NUMBER_BYTES:]))
    except Rejected as error:
        raise AppointmentRejected(AppointmentReason.FORM, error.message) from None
