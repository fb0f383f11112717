"""Message authentication: HMAC-SHA256 over an injective encoding of its parts."""

from __future__ import annotations

import hmac
from typing import Final

from sealcast.errors import Misuse
from sealcast.primitives.encoding import joined
from sealcast.primitives.secrets import KEY_BYTES, Secret

TAG_BYTES: Final = 32


def tag(secret: Secret, *parts: bytes) -> bytes:
    """The tag of `parts`, 32 bytes. Moving a byte from one part to its neighbour changes it."""
    if secret.size < KEY_BYTES:
        raise Misuse(f"a MAC key has at least {KEY_BYTES} bytes, not {secret.size}")
    return hmac.digest(secret.reveal(), joined(parts), "sha256")


def verify(secret: Secret, given: bytes, *parts: bytes) -> bool:
    """Whether `given` is the tag of `parts`; a tag of another length, a truncated one included, is not."""
    return hmac.compare_digest(tag(secret, *parts), given)
