"""The keys of the `payload` protection: the content key of an epoch, and what follows from it (`enveloped.keys`). What
is sealed under them is bound to this protection by its associated data."""

from __future__ import annotations

from sealcast.model.protection import Payload
from sealcast.protections.enveloped import keys
from sealcast.protections.enveloped.keys import boot_key as boot_key
from sealcast.protections.enveloped.keys import nonce as nonce


def associated_data(topic_id: bytes, epoch: int) -> bytes:
    """What every ciphertext of a topic and epoch is bound to."""
    return keys.associated_data(Payload.name, topic_id, epoch)
