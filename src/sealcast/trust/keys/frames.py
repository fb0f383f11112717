"""The keys that seal frames on their way to a broker: both ends derive them from the pair key that they share.

What is inside a frame differs by protection; how a frame is sealed to the broker that admits it does not.
"""

from __future__ import annotations

from sealcast.primitives import kdf
from sealcast.primitives.aead import DEFAULT_KEY_BITS, SealingKey
from sealcast.primitives.secrets import Secret


def associated_data(topic_id: bytes, epoch: int) -> bytes:
    """What every ciphertext of a topic and epoch is bound to."""
    return b"sealcast/endpoint/1" + topic_id + epoch.to_bytes(8, "big")


def frame_key(pair: Secret, boot: bytes, aad: bytes, key_bits: int = DEFAULT_KEY_BITS) -> SealingKey:
    """Seals the frames of one boot. The nonce is the sequence number, which a publisher's boot never repeats."""
    return SealingKey(kdf.derive(pair, b"frame", boot), aad, key_bits)
