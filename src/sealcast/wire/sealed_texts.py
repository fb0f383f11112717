"""The bytes of a filter's text where brokers read filters: sealed to the brokers that serve the topic, and its owner.

    sealed text  = "ST1" | filter key (16) | salt (16) | for the owner (80) | commitment (32) | ciphertext
                   as text: "sealed-text:" and the bytes in base64url without padding
    opened       = length u32 | the text, UTF-8 | zeros up to the next bucket

Buckets are 128 bytes, 256, 512 and so on. So what shows of a filter is its bucket. trust/keys/filter_texts.py says
which keys these are.
"""

from __future__ import annotations

import binascii
from base64 import b64encode, urlsafe_b64decode
from typing import Final

from sealcast.errors import CannotOpen, FilterRejected, Misuse
from sealcast.model.dataclass import dataclass
from sealcast.primitives.aead import COMMITMENT_BYTES, TAG_BYTES
from sealcast.primitives.hpke import OVERHEAD_BYTES
from sealcast.primitives.kem import sealed_sizes
from sealcast.primitives.secrets import KEY_BYTES
from sealcast.wire.limits import MAX_SEALED_TEXT_CHARACTERS, MAX_TEXT_BYTES, MIN_TEXT_BYTES

MAGIC: Final = b"ST1"
PREFIX: Final = "sealed-text:"
KEY_ID_BYTES: Final = 16
SALT_BYTES: Final = 16
#: A key of 32 bytes, sealed to the X25519 key of its owner, and to a broker's receiving key of either kind.
WRAPPED_KEY_BYTES: Final = KEY_BYTES + OVERHEAD_BYTES
HANDED_KEY_SIZES: Final = sealed_sizes(KEY_BYTES)

_LENGTH: Final = 4
_KEY_END: Final = len(MAGIC) + KEY_ID_BYTES
_SALT_END: Final = _KEY_END + SALT_BYTES
_OWNER_END: Final = _SALT_END + WRAPPED_KEY_BYTES
_HEAD_BYTES: Final = _OWNER_END + COMMITMENT_BYTES
#: As many characters as hold the name of the key.
_KEY_CHARACTERS: Final = 4 * -(-_KEY_END // 3)


@dataclass(frozen=True, slots=True)
class SealedText:
    """One filter's text as the registry has it."""

    #: Names the filter key, which each broker that serves the topic was handed.
    key_id: bytes
    salt: bytes
    #: What opens it for its owner, sealed to the owner.
    owner: bytes
    commitment: bytes
    ciphertext: bytes

    def to_text(self) -> str:
        data = MAGIC + self.key_id + self.salt + self.owner + self.commitment + self.ciphertext
        return PREFIX + b64encode(data, altchars=b"-_").rstrip(b"=").decode()

    @classmethod
    def from_text(cls, text: str) -> SealedText:
        """FilterRejected for what `to_text` never writes."""
        if not is_sealed_text(text):
            raise FilterRejected(
                "sealed",
                "this filter is not sealed, and every client of the registry would read it there",
                at=0,
                hint="subscribe through sealcast, which seals it to the brokers that serve the topic",
            )
        if len(text) > MAX_SEALED_TEXT_CHARACTERS:
            raise FilterRejected("limit", f"a sealed text has at most {MAX_SEALED_TEXT_CHARACTERS} characters")
        data = _decoded(text[len(PREFIX) :])
        size = len(data) - _HEAD_BYTES - TAG_BYTES
        if data[: len(MAGIC)] != MAGIC or size != _bucket(size):
            raise FilterRejected("sealed", "this is no sealed text, or not all of one", at=0)
        return cls(
            data[len(MAGIC) : _KEY_END],
            data[_KEY_END:_SALT_END],
            data[_SALT_END:_OWNER_END],
            data[_OWNER_END:_HEAD_BYTES],
            data[_HEAD_BYTES:],
        )


def is_sealed_text(text: str) -> bool:
    """Whether this is a filter's sealed text, and not the text itself, as registries of earlier releases have it."""
    return text.startswith(PREFIX)


def key_id_of(text: str) -> bytes:
    """The filter key that the head of a sealed text names; FilterRejected if it has no such head."""
    data = _decoded(text[len(PREFIX) : len(PREFIX) + _KEY_CHARACTERS])
    if not data.startswith(MAGIC) or len(data) < _KEY_END:
        raise FilterRejected("sealed", "this is no sealed text: it does not begin as one", at=0)
    return data[len(MAGIC) : _KEY_END]


def padded(text: str) -> bytes:
    """What is sealed of a text."""
    encoded = text.encode()
    if _LENGTH + len(encoded) > MAX_TEXT_BYTES:
        raise Misuse(f"a filter has at most {MAX_TEXT_BYTES - _LENGTH} bytes")
    whole = len(encoded).to_bytes(_LENGTH, "big") + encoded
    return whole.ljust(_bucket(len(whole)), b"\0")


def unpadded(opened: bytes) -> str:
    """The text again; CannotOpen for what `padded` never made."""
    end = _LENGTH + int.from_bytes(opened[:_LENGTH], "big")
    if not _LENGTH <= end <= len(opened) or len(opened) != _bucket(end) or any(opened[end:]):
        raise CannotOpen("what was sealed as a filter is not as long as it says")
    try:
        return opened[_LENGTH:end].decode()
    except UnicodeDecodeError:
        raise CannotOpen("what was sealed as a filter is not UTF-8") from None


def _bucket(size: int) -> int:
    bucket = MIN_TEXT_BYTES
    while bucket < size:
        bucket *= 2
    return min(bucket, MAX_TEXT_BYTES)


def _decoded(body: str) -> bytes:
    try:
        data = urlsafe_b64decode(body + "=" * (-len(body) % 4))
    except (binascii.Error, ValueError):
        raise FilterRejected("sealed", "a sealed text is not base64url", at=0) from None
    if b64encode(data, altchars=b"-_").rstrip(b"=").decode() != body:
        raise FilterRejected("sealed", "a sealed text is not base64url as it is written", at=0)
    return data
