"""The keys that seal and open envelopes, and where they come from. No broker has any of them.

    content key (per topic and epoch; the key center's, and of everyone who may read)
      └── a publisher's own part of it    which is all that somebody gets who may only publish
            └── boot key                  seals its events during one of its boots

Every publisher and boot has a key of its own: the nonce is a number that a boot never gives twice, and nobody else
seals under that key. So no nonce repeats, whatever others who hold the content key do.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.primitives import kdf
from sealcast.primitives.aead import NONCE_BYTES, SealingKey
from sealcast.primitives.secrets import Secret

#: A nonce is the eight bytes of a number behind these.
NUMBER_PAD: Final = bytes(NONCE_BYTES - 8)


def associated_data(protection: str, topic_id: bytes, epoch: int) -> bytes:
    """What every ciphertext of a topic and epoch is bound to."""
    return b"sealcast/" + protection.encode() + b"/1" + topic_id + epoch.to_bytes(8, "big")


def boot_key(publishers: Secret, boot: bytes, aad: bytes, key_bits: int) -> SealingKey:
    return SealingKey(kdf.derive(publishers, b"payload", boot), aad, key_bits)


def nonce(number: int) -> bytes:
    return number.to_bytes(NONCE_BYTES, "big")


def nonces(numbers: NDArray[np.int64]) -> bytes:
    """`nonce` of each, in one piece."""
    out = np.zeros((numbers.size, NONCE_BYTES), np.uint8)
    out[:, NONCE_BYTES - 8 :] = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
    return out.tobytes()
