"""Keys out of keys, and keys under keys, at the price of one block of a hash.

    left child | right child = BLAKE2b("sealcast/1 label" | label)          32 bytes each

This is the tree of Goldreich, Goldwasser and Micali: to whoever holds some labels and not the root, every leaf that is
not below one of them is as good as random. A label is 32 secret, uniform bytes.

    grown label = the first half of BLAKE2b("sealcast/1 grown" | label | name)

One label may grow many others, by name.

    check  = the first 16 bytes of BLAKE2b("sealcast/1 check" | key)
    masked = (key | check) XOR the first 48 bytes of BLAKE2b("sealcast/1 masks" | purpose | under | place)

Masks wrap keys under keys that serve a few times only: expanding a cipher for each would cost five times as much as
using it once.

**Why this is safe.** (1) BLAKE2b (RFC 7693) is a hash that behaves like a random function as a whole: there is nothing
to be gained from extending inputs, so that a hash of a secret and more is pseudorandom to whoever does not have the
secret. Each secret has 32 uniform bytes. (2) The four labels have one length and differ, so that no two uses of a
secret ever hash the same bytes; after the label the secret stands at a fixed place and has a fixed length, and what
follows it is one thing of its own. (3) A mask hides one key in its life: its place is a position, or the name of the
very key that it hides, and both determine what is hidden, also when a batch is planned again and otherwise. So it is a
one-time pad whose bits nobody outside can tell from random. (4) Whoever alters a masked key must alter the check by
check(key) XOR check(other key): 128 bits that are random to whoever does not know the key. Whoever does know it could
put another in its place; so could a member of any group whose members share a key. What a false content key opens, the
commitment beside the event refuses; what a false grown key opens, likewise.
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
    blake2b = hashlib.blake2b
    for step in range(steps - 1, -1, -1):
        both = blake2b(_LABEL + label).digest()
        label = both[LABEL_BYTES:] if path >> step & 1 else both[:LABEL_BYTES]
    return label


def descend_many(above: Iterable[bytes], paths: Sequence[int], steps: int) -> list[bytes]:
    """`descend` from each of many labels, step by step for all of them."""
    blake2b, level = hashlib.blake2b, list(above)
    for step in range(steps - 1, -1, -1):
        sides = [_SIDES[path >> step & 1] for path in paths]
        level = [blake2b(_LABEL + label).digest()[side] for label, side in zip(level, sides, strict=True)]
    return level


def expand(label: bytes, steps: int) -> bytes:
    """All labels so many steps below, from left to right, in one piece."""
    level = label
    for _ in range(steps):
        level = b"".join(
            [hashlib.blake2b(_LABEL + level[i : i + LABEL_BYTES]).digest() for i in range(0, len(level), LABEL_BYTES)]
        )
    return level


def grow(label: bytes, name: bytes) -> bytes:
    """The label of that name out of another."""
    return hashlib.blake2b(_GROWN + label + name).digest()[:LABEL_BYTES]


def grow_many(label: bytes, names: Iterable[bytes]) -> list[bytes]:
    """`grow` by many names."""
    blake2b, prefix = hashlib.blake2b, _GROWN + label
    return [blake2b(prefix + name).digest()[:LABEL_BYTES] for name in names]


def checked(keys: Sequence[bytes]) -> Rows:
    """Each key with its check, a row of 48 bytes: what masks hide, once for all masks that hide it."""
    blake2b = hashlib.blake2b
    rows = b"".join([key + blake2b(_CHECK + key).digest()[:_CHECK_BYTES] for key in keys])
    if len(rows) != MASKED_BYTES * len(keys):
        raise Misuse(f"keys of {KEY_BYTES} bytes are masked")
    return np.frombuffer(rows, np.uint8).reshape(-1, MASKED_BYTES)


def mask_many(keys: Iterable[bytes], places: Iterable[bytes], purpose: bytes, hidden: Rows) -> list[bytes]:
    """Each row of `hidden` (as `checked` makes them) under the key and at the place of the same number: 48 bytes."""
    if len(purpose) != PURPOSE_BYTES:
        raise Misuse(f"a purpose has {PURPOSE_BYTES} bytes, not {len(purpose)}")
    blake2b, prefix = hashlib.blake2b, _MASK + purpose
    masks = b"".join([blake2b(prefix + key + place).digest() for key, place in zip(keys, places, strict=True)])
    out = np.frombuffer(masks, np.uint8).reshape(-1, 64)[:, :MASKED_BYTES] ^ hidden
    split: list[bytes] = np.ascontiguousarray(out).view(f"V{MASKED_BYTES}").reshape(-1).tolist()
    return split


def unmask(key: bytes, place: bytes, purpose: bytes, masked: bytes) -> bytes:
    """The key that was hidden, or CannotOpen: another key, another place, or altered."""
    if len(masked) != MASKED_BYTES:
        raise CannotOpen(f"a key under a mask has {MASKED_BYTES} bytes, not {len(masked)}")
    mask = hashlib.blake2b(_MASK + purpose + key + place).digest()[:MASKED_BYTES]
    plain = (int.from_bytes(mask, "big") ^ int.from_bytes(masked, "big")).to_bytes(MASKED_BYTES, "big")
    hidden = plain[:KEY_BYTES]
    if not hmac.compare_digest(plain[KEY_BYTES:], hashlib.blake2b(_CHECK + hidden).digest()[:_CHECK_BYTES]):
        raise CannotOpen("this was sealed under another key or at another position, or it was altered")
    return hidden
