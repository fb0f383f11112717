"""Keys from keys: HKDF-Expand (RFC 5869) with SHA-256 over an injective context.

    derive(secret, *context, length) = HKDF-Expand(PRK = secret, info, L = length)
    info = "sealcast/1" | length (u16, big-endian) | for each context part: its length (u32, big-endian), its bytes

There is no extract step: every secret of ours is already uniform (drawn at random, derived, or handed over by HPKE),
the case for which RFC 5869, section 3.3, lets it go. The length is part of the info, so that a short key is no prefix
of a long one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from sealcast.errors import Misuse
from sealcast.primitives.encoding import joined
from sealcast.primitives.secrets import KEY_BYTES, Secret

LABEL: Final = b"sealcast/1"
MAX_LENGTH: Final = 255 * 32

#: HMAC (RFC 2104): a key XOR these is what its two hashes start with, by `bytes.translate`.
INNER_PAD: Final = bytes(byte ^ 0x36 for byte in range(256))
OUTER_PAD: Final = bytes(byte ^ 0x5C for byte in range(256))


def hkdf_extract(salt: bytes, material: bytes) -> bytes:
    """RFC 5869, section 2.2. For material that is not uniform; nothing of ours needs it today, the vectors do."""
    return hmac.digest(salt or bytes(32), material, "sha256")


def hkdf_expand(key: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869, section 2.3."""
    if not 0 < length <= MAX_LENGTH:
        raise Misuse(f"a derived key has 1 to {MAX_LENGTH} bytes, not {length}")
    block, output, counter = b"", b"", 1
    while len(output) < length:
        block = hmac.digest(key, block + info + counter.to_bytes(1, "big"), "sha256")
        output += block
        counter += 1
    return output[:length]


def derive(secret: Secret, *context: bytes, length: int = KEY_BYTES) -> Secret:
    """The key that `context` names under `secret`. A context is never empty: a key without a purpose gets reused."""
    if not context:
        raise Misuse("derive needs a context: say what the key is for")
    return Secret(hkdf_expand(_uniform(secret), _info(context, length), length))


def derive_many(secret: Secret, contexts: Sequence[bytes]) -> list[bytes]:
    """`[derive(secret, c).reveal() for c in contexts]`, raw and fast: content keys of a whole batch.

    A keyed hash costs 1.5 us through `hmac.digest`, which sets the key up each time. Here both halves of HMAC are keyed
    once and copied (0.6 us), the same function of the same inputs, so one key of many can be derived alone elsewhere.
    """
    padded = _uniform(secret).ljust(64, b"\0")
    inner = hashlib.sha256(padded.translate(INNER_PAD))
    outer = hashlib.sha256(padded.translate(OUTER_PAD))
    inner.update(_info((), KEY_BYTES))
    keys: list[bytes] = []
    for context in contexts:
        inside, outside = inner.copy(), outer.copy()
        inside.update(len(context).to_bytes(4, "big") + context + b"\x01")
        outside.update(inside.digest())
        keys.append(outside.digest())
    return keys


def _uniform(secret: Secret) -> bytes:
    if secret.size < KEY_BYTES:
        raise Misuse(f"keys are derived from at least {KEY_BYTES} secret bytes, not {secret.size}")
    key = secret.reveal()
    # HMAC hashes a key longer than a block first; doing it here keeps `derive_many` the same function.
    return key if len(key) <= 64 else hashlib.sha256(key).digest()


def _info(context: tuple[bytes, ...], length: int) -> bytes:
    if not 0 < length <= MAX_LENGTH:
        raise Misuse(f"a derived key has 1 to {MAX_LENGTH} bytes, not {length}")
    return LABEL + length.to_bytes(2, "big") + joined(context)
