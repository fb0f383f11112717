"""The Bloom filter (Bloom 1970; report, section 2.1) on the library fastbloom-rs, in batches.

The library hashes, sets and tests bits. The table's size is ours: the report's formulas, and the library with them,
round the number of hash functions after the size is computed, and so miss the false-positive rate by a few percent.
Keys are scrambled under the filter's seed first, so that nobody who does not know it chooses which bits a key sets.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final

import fastbloom_rs
import numpy as np

from sealcast.errors import Misuse
from sealcast.prefilters.port import (
    MAX_BODY_BYTES,
    MAX_ITEMS,
    Answers,
    Full,
    Keys,
    Packed,
    Prefilter,
    PrefilterReason,
    PrefilterRejected,
    checked,
    checked_one,
    checked_size,
    pack,
    scrambled,
    scrambled_one,
)

#: As many hash functions as a false-positive rate of 10^-9 asks for, and some more.
_MAX_HASHES: Final = 32
_LOWEST_RATE: Final = 1e-9
#: The library's table is made of words of so many bytes.
_WORD_BYTES: Final = 8


class BloomFilter(Prefilter):
    """As many keys as it was made for. It forgets none of them: deletion is refused."""

    kind: ClassVar[str] = "bloom"

    def __init__(self, table: fastbloom_rs.BloomFilter, items: int, inserted: int, seed: int) -> None:
        self._table = table
        self._items = items
        self._inserted = inserted
        self._seed = seed
        self._memory = len(table.get_bytes())

    @classmethod
    def sized(cls, items: int, rate: float, seed: int) -> BloomFilter:
        checked_size(items, rate)
        if rate < _LOWEST_RATE:
            raise Misuse(f"a Bloom filter's false-positive rate is at least {_LOWEST_RATE}, not {rate}")
        bits, hashes = min((_bits(items, rate, hashes), hashes) for hashes in range(1, _MAX_HASHES + 1))
        size = _WORD_BYTES * math.ceil(bits / (8 * _WORD_BYTES))
        if size > MAX_BODY_BYTES:
            raise Misuse(f"a Bloom filter for {items:,} keys at {rate} takes {size:,} bytes, and is too large")
        return cls(fastbloom_rs.BloomFilter.from_bytes(bytes(size), hashes), items, 0, seed)

    @classmethod
    def unpacked(cls, parts: Packed) -> BloomFilter:
        hashes, items, inserted = parts.sizes
        if not (1 <= hashes <= _MAX_HASHES and 0 <= inserted <= items and 1 <= items <= MAX_ITEMS):
            raise PrefilterRejected(
                PrefilterReason.SHAPE, "no Bloom filter has these numbers of hash functions and keys"
            )
        if not parts.body or len(parts.body) % _WORD_BYTES:
            raise PrefilterRejected(
                PrefilterReason.SHAPE, f"a Bloom filter's table is not {len(parts.body):,} bytes long"
            )
        return cls(fastbloom_rs.BloomFilter.from_bytes(parts.body, hashes), items, inserted, parts.seed)

    def insert(self, keys: Keys) -> None:
        if self._inserted + len(checked(keys)) > self._items:
            raise Full(f"this Bloom filter is made for {self._items:,} keys", hint="build a larger one")
        self._table.add_int_batch(self._numbers(keys))
        self._inserted += len(keys)

    def may_contain(self, keys: Keys) -> Answers:
        return np.array(self._table.contains_int_batch(self._numbers(checked(keys))), dtype=np.bool_)

    def may_contain_one(self, key: int) -> bool:
        mixed = scrambled_one(checked_one(key), self._seed)
        held: bool = self._table.contains_int(mixed if mixed < 1 << 63 else mixed - (1 << 64))
        return held

    def _numbers(self, keys: Keys) -> list[int]:
        """The library takes signed numbers."""
        numbers: list[int] = scrambled(keys, self._seed).view(np.int64).tolist()
        return numbers

    @property
    def memory(self) -> int:
        return self._memory

    @property
    def false_positive_rate(self) -> float:
        """All bits that a key asks for are set by chance: the share of set bits, to the number of hash functions."""
        ones = np.bitwise_count(np.frombuffer(self._table.get_bytes(), np.uint8)).sum()
        rate: float = float(ones / (8 * self._memory)) ** self._table.hashes()
        return rate

    def to_bytes(self) -> bytes:
        sizes = (self._table.hashes(), self._items, self._inserted)
        return pack(Packed(self.kind, self._seed, sizes, self._table.get_bytes()))


def _bits(items: int, rate: float, hashes: int) -> float:
    """How many bits give this rate with so many hash functions: (1 - e^(-kn/m))^k = p, solved for m."""
    return -hashes * items / math.log1p(-(rate ** (1 / hashes)))
