"""Keys out of keys, and keys under keys, at the price of one block of a hash.

    left child | right child = SHA-512("sealcast/1 label" | label)          32 bytes each

This is the tree of Goldreich, Goldwasser and Micali: to whoever holds some labels and not the root, every leaf that is
not below one of them is as good as random. A label is 32 secret, uniform bytes.

    grown label = the first half of SHA-512("sealcast/1 grown" | label | name)

One label may grow many others, by name.

    check  = the first 16 bytes of SHA-512("sealcast/1 check" | key)
    masked = (key | check) XOR the first 48 bytes of SHA-512("sealcast/1 masks" | purpose | under | place)

Masks wrap keys under keys that serve a few times only: expanding a cipher for each would cost five times as much as
using it once.

**Why this is safe.** (1) Each use of a secret is SHA-512 of a fixed label of 16 bytes, the secret and a few bytes more.
What is assumed of it is what HMAC and HKDF assume of their inner workings: keyed by 32 uniform bytes within its block,
the compression function is pseudorandom; every input here but a long name of a grown label fits that one block. (2) The
four labels have one length and differ, so that no two uses of a secret ever hash the same bytes; within a use, lengths
are fixed by the purpose (a place of 12 bytes for one, of 16 for the other). (3) Of what could be extended, grown labels
and masks, a part of the digest never leaves; of labels both halves may, but nothing hashes a longer input with that
prefix. (4) A mask hides one key in its life: its place is a position, or the name of the very key that it hides, and
both determine what is hidden, also when a batch is planned again and otherwise. So it is a one-time pad whose bits
nobody outside can tell from random. (5) Whoever alters a masked key must alter the check by check(key) XOR check(other
key): 128 bits that are random to whoever does not know the key. Whoever knows the key is one of its holders and could
make a mask of another under it: so could a member of any group whose members share a key. What a false content key
opens, the commitment beside the event refuses, and what a false grown key opens, likewise.
"""

from __future__ import annotations

import hashlib
import hmac
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
_CHECK: Final = b"sealcast/1 check"
_MASK: Final = b"sealcast/1 masks"
_SIDES: Final = (slice(0, LABEL_BYTES), slice(LABEL_BYTES, 2 * LABEL_BYTES))
_CHECK_BYTES: Final = MASKED_BYTES - KEY_BYTES

Rows = NDArray[np.uint8]


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


def grow_many(label: bytes, names: Iterable[bytes]) -> list[bytes]:
    """`grow` by many names."""
    sha512, prefix = hashlib.sha512, _GROWN + label
    return [sha512(prefix + name).digest()[:LABEL_BYTES] for name in names]


def checked(keys: Sequence[bytes]) -> Rows:
    """Each key with its check, a row of 48 bytes: what masks hide, once for all masks that hide it."""
    sha512 = hashlib.sha512
    rows = b"".join([key + sha512(_CHECK + key).digest()[:_CHECK_BYTES] for key in keys])
    if len(rows) != MASKED_BYTES * len(keys):
        raise Misuse(f"keys of {KEY_BYTES} bytes are masked")
    return np.frombuffer(rows, np.uint8).reshape(-1, MASKED_BYTES)


def mask_many(keys: Iterable[bytes], places: Iterable[bytes], purpose: bytes, hidden: Rows) -> list[bytes]:
    """Each row of `hidden` (as `checked` makes them) under the key and at the place of the same number: 48 bytes."""
    if len(purpose) != PURPOSE_BYTES:
        raise Misuse(f"a purpose has {PURPOSE_BYTES} bytes, not {len(purpose)}")
    sha512, prefix = hashlib.sha512, _MASK + purpose
    masks = b"".join([sha512(prefix + key + place).digest() for key, place in zip(keys, places, strict=True)])
    out = np.frombuffer(masks, np.uint8).reshape(-1, 64)[:, :MASKED_BYTES] ^ hidden
    split: list[bytes] = np.ascontiguousarray(out).view(f"V{MASKED_BYTES}").reshape(-1).tolist()
    return split


def unmask(key: bytes, place: bytes, purpose: bytes, masked: bytes) -> bytes:
    """The key that was hidden, or CannotOpen: another key, another place, or altered."""
    if len(masked) != MASKED_BYTES:
        raise CannotOpen(f"a key under a mask has {MASKED_BYTES} bytes, not {len(masked)}")
    mask = hashlib.sha512(_MASK + purpose + key + place).digest()[:MASKED_BYTES]
    plain = (int.from_bytes(mask, "big") ^ int.from_bytes(masked, "big")).to_bytes(MASKED_BYTES, "big")
    hidden = plain[:KEY_BYTES]
    if not hmac.compare_digest(plain[KEY_BYTES:], hashlib.sha512(_CHECK + hidden).digest()[:_CHECK_BYTES]):
        raise CannotOpen("this was sealed under another key or at another position, or it was altered")
    return hidden
