"""A tree of labels: from a label follow both of its children, from neither child the label, nor one from the other.

    left child | right child = SHA-512("sealcast/1 label" | label)          32 bytes each

This is the tree of Goldreich, Goldwasser and Micali: to whoever holds some labels and not the root, every leaf that is
not below one of them is as good as random. A label is 32 secret, uniform bytes; a step hashes one block.

    grown label = the first half of SHA-512("sealcast/1 grown" | label | name)

One label may grow many others, by name. It is the same hash for another purpose: the label is a key, of fixed length
and in front, and what comes out is cut, so that nobody extends it.

    mask = SHA-512("sealcast/1 masks" | key | purpose and place)           of which 48 bytes hide a key and 16 zeros

Masks wrap keys under keys that are used a few times only: expanding a cipher for each would cost five times as much as
using it once. A mask hides one thing in its life, as its place is used once. Like every wrapped key, one that was
altered betrays itself where it is used (`aead`: what it opens commits to its key); the zeros tell a wrong key sooner.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import CannotOpen, Misuse
from sealcast.primitives.secrets import KEY_BYTES

LABEL_BYTES: Final = KEY_BYTES
MASKED_BYTES: Final = 48
PURPOSE_BYTES: Final = 4

_LABEL: Final = b"sealcast/1 label"
_GROWN: Final = b"sealcast/1 grown"
_MASK: Final = b"sealcast/1 masks"
_SIDES: Final = (slice(0, LABEL_BYTES), slice(LABEL_BYTES, 2 * LABEL_BYTES))
_ZEROS: Final = bytes(MASKED_BYTES - KEY_BYTES)


def descend(label: bytes, path: int, steps: int) -> bytes:
    """The label so many steps below; `path` says where to turn, its highest bit first, 1 for right."""
    sha512 = hashlib.sha512
    for step in range(steps - 1, -1, -1):
        both = sha512(_LABEL + label).digest()
        label = both[LABEL_BYTES:] if path >> step & 1 else both[:LABEL_BYTES]
    return label


def descend_many(above: Iterable[bytes], paths: Sequence[int], steps: int) -> list[bytes]:
    """`descend` from each of many labels, step by step for all of them."""
    sha512, level = hashlib.sha512, list(above)
    for step in range(steps - 1, -1, -1):
        sides = [_SIDES[path >> step & 1] for path in paths]
        level = [sha512(_LABEL + label).digest()[side] for label, side in zip(level, sides, strict=True)]
    return level


def expand(label: bytes, steps: int) -> bytes:
    """All labels so many steps below, from left to right, in one piece."""
    level = label
    for _ in range(steps):
        level = b"".join(
            [hashlib.sha512(_LABEL + level[i : i + LABEL_BYTES]).digest() for i in range(0, len(level), LABEL_BYTES)]
        )
    return level


def grow(label: bytes, name: bytes) -> bytes:
    """The label of that name out of another."""
    return hashlib.sha512(_GROWN + label + name).digest()[:LABEL_BYTES]


def mask_many(keys: Iterable[bytes], places: Iterable[bytes], purpose: bytes, hidden: NDArray[np.uint8]) -> list[bytes]:
    """Each row of `hidden` (32 bytes) under the key and at the place of the same number: 48 bytes each."""
    if len(purpose) != PURPOSE_BYTES:
        raise Misuse(f"a purpose has {PURPOSE_BYTES} bytes, not {len(purpose)}")
    sha512, prefix = hashlib.sha512, _MASK + purpose
    masks = b"".join([sha512(prefix + key + place).digest() for key, place in zip(keys, places, strict=True)])
    out = np.frombuffer(masks, np.uint8).reshape(-1, 64)[:, :MASKED_BYTES].copy()
    out[:, :KEY_BYTES] ^= hidden
    split: list[bytes] = out.view(f"V{MASKED_BYTES}").reshape(-1).tolist()
    return split


def unmask(key: bytes, place: bytes, purpose: bytes, masked: bytes) -> bytes:
    """The key that was hidden, or CannotOpen if this is no key's place."""
    if len(masked) != MASKED_BYTES:
        raise CannotOpen(f"a key under a mask has {MASKED_BYTES} bytes, not {len(masked)}")
    mask = hashlib.sha512(_MASK + purpose + key + place).digest()[:MASKED_BYTES]
    plain = (int.from_bytes(mask, "big") ^ int.from_bytes(masked, "big")).to_bytes(MASKED_BYTES, "big")
    if plain[KEY_BYTES:] != _ZEROS:
        raise CannotOpen("this was sealed under another key or at another position, or it was altered")
    return plain[:KEY_BYTES]
