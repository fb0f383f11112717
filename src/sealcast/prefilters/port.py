"""The interface of every pre-filter, the hash that makes keys, and the bytes that a filter travels as.

A pre-filter answers for a batch of 64-bit keys: "certainly not inserted" or "perhaps inserted". The first answer is
never wrong. The second may be: exact matching always follows it.

    magic "SCPF" | version u16 | kind [10] | seed u64 | three sizes u64 | length of the body u64 | body | checksum [16]

All numbers are little-endian. The checksum finds accidents, not forgers: bytes from an untrusted hand have to be
authenticated by whoever takes them.
"""

from __future__ import annotations

import hashlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Misuse, ReasonedRejection, Unavailable

#: A batch of keys, and one answer for each of them.
Keys: TypeAlias = NDArray[np.uint64]
Answers: TypeAlias = NDArray[np.bool_]

#: The largest body that is made or read: a broadcast should not fill an executor.
MAX_BODY_BYTES: Final = 1 << 30
MAX_ITEMS: Final = 1 << 30
MAX_KEY: Final = (1 << 64) - 1
_FACTORS: Final = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
_HALF: Final = 33
_MAGIC: Final = b"SCPF"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sH10s5Q")
_CHECKSUM_BYTES: Final = 16
_PERSON: Final = b"sealcast prefilt"


class Full(Unavailable):
    """The filter has no room for the whole batch, and is as it was before. Its owner builds a larger one."""

    code = "prefilter-full"


class PrefilterReason(StrEnum):
    """Why bytes are not a filter."""

    LENGTH = "length"
    MAGIC = "magic"
    VERSION = "version"
    CHECKSUM = "checksum"
    KIND = "kind"
    #: Sizes that no filter of this kind has, or that contradict the body.
    SHAPE = "shape"


class PrefilterRejected(ReasonedRejection[PrefilterReason]):
    """Bytes that are not a pre-filter of ours."""

    code = "prefilter"


class Prefilter(ABC):
    """A set of keys that may say yes wrongly, and never says no wrongly."""

    #: The name under which the catalog knows this kind.
    kind: ClassVar[str]
    #: Whether `delete` works. Where it does not, the owner rebuilds (`Members` does).
    deletes: ClassVar[bool] = False

    @abstractmethod
    def insert(self, keys: Keys) -> None:
        """Inserts a batch. Raises `Full`, and inserts nothing, if there is no room for all of it."""

    @abstractmethod
    def may_contain(self, keys: Keys) -> Answers:
        """Answers for each key: False if it was certainly not inserted."""

    @abstractmethod
    def may_contain_one(self, key: int) -> bool:
        """Answers for one key as `may_contain` does for a batch, without what a batch costs at the start."""

    def delete(self, keys: Keys) -> None:
        """Deletes keys that were inserted, and of whose class no other member is left (see `classes`)."""
        raise Misuse(f"a {self.kind} filter cannot delete keys", hint="use a cuckoo filter, or build a new filter")

    def classes(self, keys: Keys) -> Keys:
        """Numbers the class of each key. The filter cannot tell keys of one class apart, and deletes them together."""
        return keys

    @property
    @abstractmethod
    def memory(self) -> int:
        """How many bytes the filter's table takes."""

    @property
    @abstractmethod
    def false_positive_rate(self) -> float:
        """How often theory says that a key which was never inserted gets a yes, with what is inserted now."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Writes the filter for a broadcast; `catalog.from_bytes` reads it."""


# --- keys ---------------------------------------------------------------------------------------


def keys_of(tags: Iterable[bytes], key: bytes = b"") -> Keys:
    """Hashes tags to keys: BLAKE2b with a digest of 8 bytes, read as a little-endian number.

    Without `key`, anybody who has a tag computes its key. Give one (at most 64 bytes) where tags are guessable.
    """
    digests = [hashlib.blake2b(tag, digest_size=8, key=key, person=_PERSON).digest() for tag in tags]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def checked(keys: Keys) -> Keys:
    """Refuses what is not a batch of keys, before numpy converts it silently."""
    if getattr(keys, "dtype", None) != np.uint64 or keys.ndim != 1:
        raise Misuse("keys are a one-dimensional numpy array of uint64", hint="`keys_of` makes keys from byte strings")
    return keys


def checked_one(key: int) -> int:
    if not 0 <= key <= MAX_KEY:
        raise Misuse("a key is a number of 64 bits, and not negative")
    return key


def checked_size(items: int, rate: float) -> None:
    if not 1 <= items <= MAX_ITEMS:
        raise Misuse(f"a pre-filter is made for 1 to {MAX_ITEMS:,} keys, not {items:,}")
    if not 0.0 < rate < 1.0:
        raise Misuse(f"a false-positive rate lies between 0 and 1, and is not {rate}")


def scrambled(keys: Keys, seed: int) -> Keys:
    """Mixes keys under a seed: the finalizer of MurmurHash3, a bijection of 64-bit numbers.

    It spreads any keys evenly. It resists nobody who knows the seed, so filters draw theirs at random.
    """
    mixed = keys ^ np.uint64(seed)
    for factor in _FACTORS:
        mixed ^= mixed >> _HALF
        mixed *= factor
    mixed ^= mixed >> _HALF
    return mixed


def scrambled_one(key: int, seed: int) -> int:
    """Does to one number what `scrambled` does to many."""
    mixed = key ^ seed
    for factor in _FACTORS:
        mixed = (mixed ^ mixed >> _HALF) * factor & MAX_KEY
    return mixed ^ mixed >> _HALF


# --- bytes --------------------------------------------------------------------------------------


class Packed(NamedTuple):
    """A filter's parts, as they are written. What the three sizes mean is each kind's own."""

    kind: str
    seed: int
    sizes: tuple[int, int, int]
    body: bytes


def pack(parts: Packed) -> bytes:
    head = _HEAD.pack(_MAGIC, _VERSION, parts.kind.encode(), parts.seed, *parts.sizes, len(parts.body))
    return head + parts.body + _checksum(head + parts.body)


def unpack(data: bytes) -> Packed:
    """Checks everything that all kinds have in common. The sizes are still to be checked by the kind."""
    # (1) Nothing is read beyond what is there, and nothing large is hashed.
    if not _HEAD.size + _CHECKSUM_BYTES <= len(data) <= _HEAD.size + MAX_BODY_BYTES + _CHECKSUM_BYTES:
        raise PrefilterRejected(PrefilterReason.LENGTH, f"{len(data):,} bytes cannot be a pre-filter")
    magic, version, kind, seed, first, second, third, length = _HEAD.unpack_from(data)
    # (2) It claims to be one of ours.
    if magic != _MAGIC:
        raise PrefilterRejected(PrefilterReason.MAGIC, "these bytes do not begin like a pre-filter")
    if version != _VERSION:
        raise PrefilterRejected(
            PrefilterReason.VERSION, f"pre-filters of version {version} are unknown; this is {_VERSION}"
        )
    # (3) It is whole, and has nothing behind its end.
    if len(data) != _HEAD.size + length + _CHECKSUM_BYTES:
        raise PrefilterRejected(
            PrefilterReason.LENGTH, f"a body of {length:,} bytes is announced, and not what follows"
        )
    if _checksum(data[:-_CHECKSUM_BYTES]) != data[-_CHECKSUM_BYTES:]:
        raise PrefilterRejected(PrefilterReason.CHECKSUM, "the pre-filter was damaged on its way")
    # (4) There is one encoding of a name.
    name = kind.rstrip(b"\0")
    if not name.isalnum():
        raise PrefilterRejected(PrefilterReason.KIND, "the pre-filter's kind is not a name")
    return Packed(name.decode(), seed, (first, second, third), data[_HEAD.size : -_CHECKSUM_BYTES])


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES, person=_PERSON).digest()
