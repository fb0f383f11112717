"""Sealing: AES-GCM that commits to its key, under nonces that are places in the log.

**Nonces are positions.** GCM falls apart when a nonce is used twice under one key. Ours are no counters (a retried
Spark task would start the counter again) and not random (a retried task would give other bytes): a nonce is where the
event stands,

    partition u32 | offset u40 | row u16 | slot u8        12 bytes, big-endian

and a key belongs to one topic and one epoch, so a nonce is unique under its key because a position is unique in its
topic. Sealing the same thing again gives the same bytes. The slot is for a key that seals several things at one
position; `endpoint` has a key for each purpose instead and leaves it zero.

**Keys are committed to.** A GCM ciphertext can be made to open under two keys to two messages; whoever checks first
then sees another event than whoever checks next. So a 32-byte key is expanded into an AES key and a commitment:

    AES-256 key (32) | commitment (32) = HKDF-Expand-SHA512(key, "sealcast/1 aead" | aad length u32 | aad, 64)

**AES keys have 256 bits, or as few as a topic's owner asks for** (128, 192): paper 004's key size. What keys are
derived from always has 256; only the AES key is shorter. The context of a shorter one names its size ("sealcast/1 aead
128"), so that no key is the beginning of another and a commitment tells the size as well.

The commitment travels beside the ciphertext and is compared before anything is opened. Two keys with one commitment
would be a collision of SHA-512 cut to 256 bits. One block of SHA-512 gives both halves at once: keys that seal a
single event are as common as events, so this counts. The associated data is constant per key (topic, epoch, purpose);
it enters here, not at each seal, which binds it to every ciphertext and to the commitment for free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from hmac import compare_digest
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealcast.errors import Bug, CannotOpen, Misuse
from sealcast.model.event import Position
from sealcast.primitives.kdf import INNER_PAD, OUTER_PAD
from sealcast.primitives.secrets import KEY_BYTES, Secret, Unpicklable

# Key files are sealed with this, so every command loads it; numpy, which is for batches, would take a fifth of the time
# that a short command takes.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.integer[Any]]

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
COMMITMENT_BYTES: Final = 32
#: A key sealed under another: 32 bytes and a tag.
WRAPPED_BYTES: Final = KEY_BYTES + TAG_BYTES

#: The nonce layout bounds positions; the log rolls over to a new epoch long before.
MAX_PARTITION: Final = 2**32 - 1
MAX_OFFSET: Final = 2**40 - 1
MAX_ROW: Final = 2**16 - 1
MAX_SLOT: Final = 2**8 - 1


#: Sizes of AES keys, in bits.
KEY_BITS: Final = (128, 192, 256)
DEFAULT_KEY_BITS: Final = 256

#: A hard limit per key: NIST SP 800-38D's for the worst case. Unique nonces would allow more.
MAX_SEALS_PER_KEY: Final = 2**32

_LABEL: Final = b"sealcast/1 aead"
_ALTERED: Final = "this was sealed under another key or at another position, or it was altered"
#: A block of SHA-512.
_BLOCK_BYTES: Final = 128


class SealingKey(Unpicklable):
    """One key made ready: its AES context stays warm, its commitment is computed once. It never leaves its process."""

    __slots__ = ("_aead", "_sealed", "commitment", "key_bits")

    def __init__(self, secret: Secret, aad: bytes, key_bits: int = DEFAULT_KEY_BITS) -> None:
        if secret.size != KEY_BYTES:
            raise Misuse(f"a sealing key is made of {KEY_BYTES} bytes, not {secret.size}")
        expanded = _expand(secret.reveal(), _context(aad, key_bits))
        self._aead = AESGCM(expanded[: key_bits // 8])
        self._sealed = 0
        self.key_bits = key_bits
        self.commitment = expanded[KEY_BYTES:]

    def seal(self, nonce: bytes, plaintext: bytes, aad: bytes | None = None) -> bytes:
        """Ciphertext and tag. The caller answers for the nonce: make it with `nonce`, never draw or count it.

        `aad` is for what changes from one seal to the next (a frame's signed header), beside the key's own.
        """
        if len(nonce) != NONCE_BYTES:
            raise Misuse(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        self._count(1)
        return self._aead.encrypt(nonce, plaintext, aad)

    def seal_many(self, nonces: bytes, plaintexts: Sequence[bytes]) -> list[bytes]:
        """`seal` for each plaintext; `nonces` are as many, in one piece, as the function of that name makes them."""
        ready = _split_nonces(nonces, len(plaintexts))
        self._count(len(plaintexts))
        # The loop runs in C; a Python-level call per event would cost a third of the encryption itself.
        return list(map(self._aead.encrypt, ready, plaintexts, repeat(None)))

    def open(self, nonce: bytes, commitment: bytes, ciphertext: bytes | memoryview, aad: bytes | None = None) -> bytes:
        """The plaintext, or CannotOpen: another key, another position, or altered."""
        if not compare_digest(self.commitment, commitment):
            raise CannotOpen("this was sealed under another key")
        if len(nonce) != NONCE_BYTES:
            raise Misuse(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        try:
            return self._aead.decrypt(nonce, ciphertext, aad)
        except InvalidTag:
            raise CannotOpen(_ALTERED) from None

    def open_many(
        self, nonces: Sequence[bytes], commitments: Sequence[bytes], ciphertexts: Sequence[bytes]
    ) -> list[bytes | None]:
        """`open` for each, None in the place of those that do not open."""
        committed = compare_digest(self.commitment * len(commitments), b"".join(commitments))
        if committed and len(nonces) == len(ciphertexts) == len(commitments):
            with suppress(InvalidTag):
                # The loop runs in C; it stops at the first that does not open.
                return list(map(self._aead.decrypt, nonces, ciphertexts, repeat(None)))
        return [self._opened(*each) for each in zip(nonces, commitments, ciphertexts, strict=True)]

    def _opened(self, nonce: bytes, commitment: bytes, ciphertext: bytes) -> bytes | None:
        try:
            return self.open(nonce, commitment, ciphertext)
        except CannotOpen:
            return None

    def wrap(self, nonce: bytes, key: Secret) -> bytes:
        """Another key, sealed under this one: 48 bytes."""
        if key.size != KEY_BYTES:
            raise Misuse(f"keys of {KEY_BYTES} bytes are wrapped, not of {key.size}")
        return self.seal(nonce, key.reveal())

    def unwrap(self, nonce: bytes, wrapped: bytes) -> Secret:
        """The key inside. A wrapped key carries no commitment: what it opens does, so a lie surfaces there."""
        if len(wrapped) != WRAPPED_BYTES:
            raise CannotOpen(f"a wrapped key has {WRAPPED_BYTES} bytes, not {len(wrapped)}")
        return Secret(self.unseal(nonce, wrapped))

    def unwrap_many(self, nonces: bytes, wrapped: Sequence[bytes]) -> list[bytes]:
        """`unwrap` for each, raw: for keys as common as events. One that does not open fails the call."""
        ready = _split_nonces(nonces, len(wrapped))
        if {*map(len, wrapped)} - {WRAPPED_BYTES}:
            raise CannotOpen(f"a wrapped key has {WRAPPED_BYTES} bytes")
        try:
            return list(map(self._aead.decrypt, ready, wrapped, repeat(None)))
        except InvalidTag:
            raise CannotOpen(_ALTERED) from None

    def unseal(self, nonce: bytes, sealed: bytes | memoryview, aad: bytes | None = None) -> bytes:
        """What `seal` hid where no commitment travels beside it, because a lie surfaces in what it opens: keys."""
        if len(nonce) != NONCE_BYTES:
            raise Misuse(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        try:
            return self._aead.decrypt(nonce, sealed, aad)
        except InvalidTag:
            raise CannotOpen(_ALTERED) from None

    def _count(self, seals: int) -> None:
        # Per process, so no proof; a key that reaches it here is far beyond what its epoch should have sealed.
        self._sealed += seals
        if self._sealed > MAX_SEALS_PER_KEY:
            raise Bug(f"a key has sealed {MAX_SEALS_PER_KEY} times: its topic needs a new epoch")


def seal_each(
    keys: Sequence[bytes],
    aad: bytes,
    nonces: bytes,
    plaintexts: Sequence[bytes],
    key_bits: int = DEFAULT_KEY_BITS,
) -> tuple[bytes, list[bytes]]:
    """Seal each plaintext under a key of its own: `SealingKey(keys[i], ...).seal(...)` for a batch of content keys.

    Returns the commitments in one piece, 32 bytes each, and the ciphertexts.
    """
    if len(keys) != len(plaintexts):
        raise Misuse(f"{len(keys)} keys for {len(plaintexts)} plaintexts")
    context, size = _context(aad, key_bits), key_bits // 8
    commitments: list[bytes] = []
    sealed: list[bytes] = []
    ready = _split_nonces(nonces, len(plaintexts))
    for expanded, nonce_, plaintext in zip(_expand_many(keys, context), ready, plaintexts, strict=True):
        commitments.append(expanded[KEY_BYTES:])
        sealed.append(AESGCM(expanded[:size]).encrypt(nonce_, plaintext, None))
    return b"".join(commitments), sealed


def open_each(
    keys: Sequence[bytes],
    aad: bytes,
    nonces: Sequence[bytes],
    commitments: Sequence[bytes],
    ciphertexts: Sequence[bytes],
    key_bits: int = DEFAULT_KEY_BITS,
) -> list[bytes | None]:
    """Open what `seal_each` made, each under its own key; None in the place of those that do not open."""
    ready, size = _expand_many(keys, _context(aad, key_bits)), key_bits // 8
    own = [expanded[KEY_BYTES:] for expanded in ready]
    if len(own) == len(commitments) and compare_digest(b"".join(own), b"".join(commitments)):
        with suppress(InvalidTag):
            each = zip(ready, nonces, ciphertexts, strict=True)
            return [AESGCM(expanded[:size]).decrypt(nonce_, ciphertext, None) for expanded, nonce_, ciphertext in each]
    # One of them does not open: each by itself.
    opened: list[bytes | None] = []
    rows = zip(own, commitments, ready, nonces, ciphertexts, strict=True)
    for made, commitment, expanded, nonce_, ciphertext in rows:
        try:
            committed = compare_digest(made, commitment)
            opened.append(AESGCM(expanded[:size]).decrypt(nonce_, ciphertext, None) if committed else None)
        except InvalidTag:
            opened.append(None)
    return opened


class KeyRing(Unpicklable):
    """Many keys made ready, to seal one small thing under several of them: an event's content key for its group."""

    __slots__ = ("_encrypt", "_keys")

    def __init__(self, keys: Sequence[SealingKey]) -> None:
        self._keys = keys
        # Bound once: a look-up per call would add a tenth to the widest loop there is.
        self._encrypt = [key._aead.encrypt for key in keys]

    def account(self, seals: Sequence[int]) -> None:
        """Count what is about to be sealed under each key, before it is: `seal_under` itself does not."""
        for key, count in zip(self._keys, seals, strict=True):
            key._count(count)

    def seal_under(self, which: Sequence[int], nonce: bytes, plaintext: bytes) -> list[bytes]:
        """`plaintext`, sealed under each of the keys at positions `which`."""
        encrypt = self._encrypt
        return [encrypt[key](nonce, plaintext, None) for key in which]


# --- nonces -------------------------------------------------------------------------------------


def nonce(position: Position, slot: int = 0) -> bytes:
    """The nonce of one position."""
    _bounded("partition", position.partition, MAX_PARTITION)
    _bounded("offset", position.offset, MAX_OFFSET)
    _bounded("row", position.row, MAX_ROW)
    _bounded("slot", slot, MAX_SLOT)
    number = (position.partition << 40 | position.offset) << 24 | position.row << 8 | slot
    return number.to_bytes(NONCE_BYTES, "big")


def each_nonce(partition: int, offsets: IntArray | Sequence[int], rows: IntArray | Sequence[int]) -> list[bytes]:
    """The nonces of many positions of one partition, one by one."""
    return _split_nonces(nonces(partition, offsets, rows), len(rows))


def nonces(
    partition: int,
    offsets: IntArray | Sequence[int],
    rows: IntArray | Sequence[int],
    slot: int | IntArray = 0,
) -> bytes:
    """The nonces of many positions of one partition, in one piece, 12 bytes each."""
    import numpy as np

    wide, narrow = np.asarray(offsets, dtype=np.int64), np.asarray(rows, dtype=np.int64)
    slots = np.asarray(slot, dtype=np.int64)
    if wide.ndim != 1 or wide.shape != narrow.shape or (slots.ndim and slots.shape != wide.shape):
        raise Misuse("nonces take one row (and one slot) per offset")
    _bounded("partition", partition, MAX_PARTITION)
    if not wide.size:
        return b""
    for name, array, limit in (("offset", wide, MAX_OFFSET), ("row", narrow, MAX_ROW), ("slot", slots, MAX_SLOT)):
        _bounded(name, int(array.min()), limit)
        _bounded(name, int(array.max()), limit)
    out = np.empty((wide.size, NONCE_BYTES), dtype=np.uint8)
    out[:, 0:4] = np.frombuffer(partition.to_bytes(4, "big"), dtype=np.uint8)
    out[:, 4:9] = wide.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 3:]
    out[:, 9:11] = narrow.astype(">u2").view(np.uint8).reshape(-1, 2)
    out[:, 11] = slots
    return out.tobytes()


# --- inside -------------------------------------------------------------------------------------


def _split_nonces(joined: bytes, count: int) -> list[bytes]:
    if len(joined) != count * NONCE_BYTES:
        raise Misuse(f"{count} nonces have {count * NONCE_BYTES} bytes, not {len(joined)}")
    import numpy as np

    # Five times as fast as slicing; `V` is raw bytes, where `S` would drop trailing zeros.
    split: list[bytes] = np.frombuffer(joined, dtype=f"V{NONCE_BYTES}").tolist()
    return split


def _bounded(name: str, value: int, limit: int) -> None:
    if not 0 <= value <= limit:
        raise Misuse(f"{name} {value} does not fit a nonce: it holds 0 to {limit}")


def _context(aad: bytes, key_bits: int) -> bytes:
    if key_bits not in KEY_BITS:
        raise Misuse(f"an AES key has {', '.join(map(str, KEY_BITS[:-1]))} or {KEY_BITS[-1]} bits, not {key_bits}")
    label = _LABEL if key_bits == DEFAULT_KEY_BITS else b"%b %d" % (_LABEL, key_bits)
    return label + len(aad).to_bytes(4, "big") + aad + b"\x01"


def _expand(key: bytes, context: bytes) -> bytes:
    (expanded,) = _expand_many([key], context)
    return expanded


def _expand_many(keys: Sequence[bytes], context: bytes) -> list[bytes]:
    # HMAC-SHA512 written out: `hmac.digest` takes twice as long, most of it looking the hash up by name.
    # A key fills a quarter of the block; what pads the rest of it is the same for all keys.
    lengths = {*map(len, keys)} or {KEY_BYTES}
    if len(lengths) > 1 or max(lengths) > _BLOCK_BYTES:
        raise Misuse(f"keys that are expanded together are of one length, of at most {_BLOCK_BYTES} bytes")
    rest = bytes(_BLOCK_BYTES - lengths.pop())
    inner, outer, sha512 = rest.translate(INNER_PAD) + context, rest.translate(OUTER_PAD), hashlib.sha512
    return [
        sha512(key.translate(OUTER_PAD) + outer + sha512(key.translate(INNER_PAD) + inner).digest()).digest()
        for key in keys
    ]
