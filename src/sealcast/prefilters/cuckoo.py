"""The cuckoo filter (Fan et al. 2014; report, section 2.2) on arrays, in batches.

A key has a fingerprint f, which is never 0, and two buckets: i, by its hash, and (h(f) - i) mod m. That form is its
own inverse for any number m of buckets; the report's i XOR h(f) is one only for powers of two, and points outside the
table for others. So either bucket and the fingerprint give the other bucket, and entries move without their keys.

The report's rule (section 4): a fingerprint is stored once, however many keys ask for it. Keys with the same
fingerprint and the same two buckets are a class. The table is exactly the set of its members' classes, and so

    false-positive rate = 2 * entries / (m * (2^bits - 1)),

which is 1 - (1 - 2^-bits)^(2 * bucket size * load) to first order. Deleting a key is right once no other member of
its class is left: `Members` counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Misuse
from sealcast.prefilters.lanes import Lanes
from sealcast.prefilters.port import (
    MAX_BODY_BYTES,
    MAX_KEY,
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

MIN_BITS: Final = 4
MAX_BITS: Final = 32
MAX_BUCKET_SIZE: Final = 64
#: Up to which share of its entries a filter is planned to be filled, by bucket size; larger buckets have the last.
#: The thresholds of cuckoo hashing are 0.897, 0.959, 0.980 and 0.990 for 2, 3, 4 and 5 entries (Fountoulakis et al.
#: 2013); bounded kicks stay below them.
LOADS: Final = {2: 0.84, 3: 0.91, 4: 0.94}
LARGE_BUCKET_LOAD: Final = 0.95
#: How often a batch that does not fit at once may push entries on to their other bucket.
MAX_ROUNDS: Final = 500
#: So many keys at a time, so that what is computed of them stays in the cache.
_BLOCK: Final = 16_384
_HALF: Final = np.uint64(32)
_LOW_HALF: Final = np.uint64((1 << 32) - 1)
_GOLDEN: Final = 0x9E3779B97F4A7C15

#: Where words are in the table, and what they were.
Places: TypeAlias = NDArray[np.int64]
Change: TypeAlias = tuple[Places, Keys]


def load_of(bucket_size: int) -> float:
    return LOADS.get(bucket_size, LARGE_BUCKET_LOAD)


class CuckooFilter(Prefilter):
    """A table of `buckets` times `bucket_size` fingerprints of `fingerprint_bits` bits each.

    A bucket is a whole number of 64-bit words: with 16-bit fingerprints, its size is a multiple of 4.
    """

    kind: ClassVar[str] = "cuckoo"
    deletes: ClassVar[bool] = True

    def __init__(self, buckets: int, bucket_size: int, fingerprint_bits: int, seed: int) -> None:
        _check_shape(buckets, bucket_size, fingerprint_bits)
        self.buckets = buckets
        self.bucket_size = bucket_size
        self.entries = 0
        self._lanes = Lanes(fingerprint_bits)
        self._words_each = bucket_size // self._lanes.number
        self._seed = seed
        self._random = np.random.default_rng(seed)
        self._table: Keys = np.zeros(buckets * self._words_each, np.uint64)

    @classmethod
    def sized(cls, items: int, rate: float, seed: int) -> CuckooFilter:
        """The smallest table whose buckets are one word each."""
        checked_size(items, rate)
        for bits in range(MIN_BITS, MAX_BITS + 1):
            size = Lanes(bits).number
            if 2 * size * load_of(size) / ((1 << bits) - 1) <= rate:
                return cls(int(np.ceil(items / (size * load_of(size)))), size, bits, seed)
        raise Misuse(f"a cuckoo filter's false-positive rate cannot be as low as {rate}", hint="1e-9 is possible")

    @classmethod
    def unpacked(cls, parts: Packed) -> CuckooFilter:
        buckets, bucket_size, bits = parts.sizes
        try:
            _check_shape(buckets, bucket_size, bits)
        except Misuse as error:
            raise PrefilterRejected(PrefilterReason.SHAPE, error.message) from None
        size = 8 * buckets * (bucket_size // Lanes(bits).number)
        if len(parts.body) != size:
            raise PrefilterRejected(PrefilterReason.SHAPE, f"the table has {len(parts.body):,} bytes, not {size:,}")
        filled = cls(buckets, bucket_size, bits, parts.seed)
        filled._table = np.frombuffer(parts.body, "<u8").astype(np.uint64)
        lanes = filled._lanes
        if np.any(filled._table & ~np.uint64(lanes.ones * lanes.mask)):
            raise PrefilterRejected(PrefilterReason.SHAPE, "the table has bits where there are no entries")
        filled.entries = lanes.count(filled._table)
        return filled

    # --- answers --------------------------------------------------------------------------------

    def may_contain(self, keys: Keys) -> Answers:
        answers = np.empty(len(checked(keys)), np.bool_)
        for start in range(0, len(keys), _BLOCK):
            part = slice(start, start + _BLOCK)
            answers[part] = self._holds(*self._places(keys[part]))
        return answers

    def may_contain_one(self, key: int) -> bool:
        mixed, lanes = scrambled_one(checked_one(key), self._seed), self._lanes
        fingerprint = ((mixed >> 32) * lanes.mask >> 32) + 1
        first = (mixed & int(_LOW_HALF)) * self.buckets >> 32
        second = ((fingerprint * _GOLDEN & MAX_KEY) >> 32) * self.buckets >> 32
        wanted = fingerprint * lanes.ones
        for bucket in (first, (second - first) % self.buckets):
            start = bucket * self._words_each
            for word in self._table[start : start + self._words_each].tolist():
                if lanes.has_zero(word ^ wanted):
                    return True
        return False

    def classes(self, keys: Keys) -> Keys:
        fingerprints, first, second = self._places(checked(keys))
        numbers: Keys = (np.minimum(first, second) << _HALF) | fingerprints
        return numbers

    def _places(self, keys: Keys) -> tuple[Keys, Keys, Keys]:
        """A fingerprint from one half of the hash, a bucket from the other half, and the other bucket."""
        mixed = scrambled(keys, self._seed)
        fingerprints = mixed >> _HALF
        fingerprints *= self._lanes.mask
        fingerprints >>= _HALF
        fingerprints += 1
        mixed &= _LOW_HALF
        mixed *= self.buckets
        mixed >>= _HALF
        return fingerprints, mixed, self._other(fingerprints, mixed)

    def _other(self, fingerprints: Keys, buckets: Keys) -> Keys:
        """Computes (h(f) - i) mod m. Where the subtraction wraps around, adding m wraps it back, and is smaller."""
        other = fingerprints * _GOLDEN
        other >>= _HALF
        other *= self.buckets
        other >>= _HALF
        other -= buckets
        np.minimum(other, other + self.buckets, out=other)
        return other

    def _holds(self, fingerprints: Keys, first: Keys, second: Keys) -> Answers:
        wanted = fingerprints * self._lanes.ones
        found, *others = (self._marked(words, wanted) for words in self._words_of(first, second))
        for marks in others:
            found |= marks
        held: Answers = found != 0
        return held

    def _marked(self, words: Places, wanted: Keys) -> Keys:
        """Marks the lanes of these words that are equal to those of a pattern."""
        entries = self._table.take(words)
        entries ^= wanted
        return self._lanes.zeros(entries)

    def _words_of(self, first: Keys, second: Keys) -> Iterator[Places]:
        """The words of the first buckets, then those of the second."""
        for buckets in (first, second):
            start = buckets.view(np.int64) if self._words_each == 1 else buckets.view(np.int64) * self._words_each
            yield from (start + at if at else start for at in range(self._words_each))

    # --- changes --------------------------------------------------------------------------------

    def insert(self, keys: Keys) -> None:
        fingerprints, first, second = self._distinct(keys)
        new = ~self._holds(fingerprints, first, second)
        self._place(fingerprints[new], first[new], second[new])

    def delete(self, keys: Keys) -> None:
        """Refuses the batch, and deletes nothing, if one of the keys was certainly never inserted."""
        fingerprints, first, second = self._distinct(keys)
        absent = int(np.count_nonzero(~self._holds(fingerprints, first, second)))
        if absent:
            raise Misuse(f"{absent:,} of these keys were never inserted; nothing was deleted")
        self.entries -= len(fingerprints)
        while len(fingerprints):  # each round empties a lane of every word that is concerned
            words, marks = self._find(fingerprints, first, second)
            mine = self._one_a_word(words)
            self._table[words[mine]] -= fingerprints[mine] << self._lanes.lowest(marks[mine])
            fingerprints, first, second = fingerprints[~mine], first[~mine], second[~mine]

    def _distinct(self, keys: Keys) -> tuple[Keys, Keys, Keys]:
        classes = np.unique(self.classes(keys))
        fingerprints, first = classes & _LOW_HALF, classes >> _HALF
        return fingerprints, first, self._other(fingerprints, first)

    def _place(self, fingerprints: Keys, first: Keys, second: Keys) -> None:
        """Stores fingerprints that are not stored yet.

        In each round, every fingerprint is exchanged for what lies in a lane of one of its buckets: for nothing, where
        a lane is empty; else for a victim, which goes on to its own other bucket in the next round.
        """
        added, before = len(fingerprints), list[Change]()
        rounds = MAX_ROUNDS if self.entries + added <= self.buckets * self.bucket_size else 0
        for _ in range(rounds):
            if not len(fingerprints):
                self.entries += added
                return
            words, shifts = self._lanes_for(first, second)
            mine = self._one_a_word(words)
            at, shift = words[mine], shifts[mine]
            old = self._table[at]
            before.append((at, old))
            victims = (old >> shift) & self._lanes.mask
            self._table[at] = old + ((fingerprints[mine] - victims) << shift)
            homeless = victims != 0
            victims, left = victims[homeless], (at[homeless] // self._words_each).view(np.uint64)
            fingerprints = np.concatenate([fingerprints[~mine], victims])
            first = np.concatenate([first[~mine], self._other(victims, left)])
            second = np.concatenate([second[~mine], left])
        self._undo(before)
        raise Full(f"this cuckoo filter has no room for {added:,} more fingerprints", hint="build a larger one")

    def _undo(self, before: list[Change]) -> None:
        """Puts words back as they were: a victim that found no place would be a false negative."""
        for at, old in reversed(before):
            self._table[at] = old

    def _lanes_for(self, first: Keys, second: Keys) -> tuple[Places, Keys]:
        """Chooses the word and lane for each fingerprint: the first empty one, or else any."""
        words, marks = self._find(np.zeros_like(first), first, second)
        shifts = self._lanes.lowest(marks)
        full = np.flatnonzero(marks == 0)
        if len(full):
            choices = np.stack(list(self._words_of(first[full], second[full])))
            words[full] = choices[self._random.integers(0, len(choices), len(full)), np.arange(len(full))]
            shifts[full] = self._random.integers(0, self._lanes.number, len(full), dtype=np.uint64) * self._lanes.bits
        return words, shifts

    def _find(self, wanted: Keys, first: Keys, second: Keys) -> tuple[Places, Keys]:
        """Finds the first word of each pair of buckets that has this number in a lane, and marks the lane."""
        places, pattern = np.zeros(len(first), np.int64), wanted * self._lanes.ones
        found = np.zeros_like(first)
        for words in self._words_of(first, second):
            marks = self._marked(words, pattern)
            here = (found == 0) & (marks != 0)
            places[here], found[here] = words[here], marks[here]
        return places, found

    def _one_a_word(self, words: Places) -> Answers:
        """Picks one of those that want to change the same word: whoever wrote its number last."""
        claims = np.empty(len(self._table), np.int64)
        numbers = np.arange(len(words))
        claims[words] = numbers
        mine: Answers = claims[words] == numbers
        return mine

    # --- what it is -----------------------------------------------------------------------------

    @property
    def load(self) -> float:
        """The share of entries that are taken."""
        return self.entries / (self.buckets * self.bucket_size)

    @property
    def memory(self) -> int:
        return self._table.nbytes

    @property
    def false_positive_rate(self) -> float:
        return min(1.0, 2 * self.entries / (self.buckets * self._lanes.mask))

    def to_bytes(self) -> bytes:
        sizes = (self.buckets, self.bucket_size, self._lanes.bits)
        return pack(Packed(self.kind, self._seed, sizes, self._table.astype("<u8").tobytes()))


def _check_shape(buckets: int, bucket_size: int, fingerprint_bits: int) -> None:
    if not MIN_BITS <= fingerprint_bits <= MAX_BITS:
        raise Misuse(f"fingerprints have {MIN_BITS} to {MAX_BITS} bits, not {fingerprint_bits}")
    lanes = Lanes(fingerprint_bits).number
    if not lanes <= bucket_size <= MAX_BUCKET_SIZE or bucket_size % lanes:
        raise Misuse(f"with fingerprints of {fingerprint_bits} bits, a bucket has a multiple of {lanes} entries")
    if not 1 <= buckets <= MAX_BODY_BYTES // (8 * bucket_size // lanes):
        raise Misuse(f"a cuckoo filter of {buckets:,} buckets takes no bytes, or more than {MAX_BODY_BYTES:,}")
