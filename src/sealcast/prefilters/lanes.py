"""Several small numbers in one 64-bit word, compared all at once.

A word is divided into lanes of equal width, from its lowest bit on; bits above the last lane are zero. A bucket of
a cuckoo filter is one word or a few, so that a look-up fetches words instead of entries.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sealcast.prefilters.port import Keys

WORD_BITS: Final = 64


class Lanes:
    """Arithmetic on words whose lanes have this many bits."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.number = WORD_BITS // bits
        self.mask = (1 << bits) - 1
        #: A one in every lane: the lowest bit, and the highest.
        self.ones = sum(1 << bits * lane for lane in range(self.number))
        self._tops = self.ones << bits - 1

    def zeros(self, words: Keys) -> Keys:
        """Marks lanes that are zero, in their highest bits. Overwrites `words`, to need less of the cache.

        The lowest mark is exact, and a word without a zero lane gets none: only a lane above a zero one, which the
        subtraction borrows from, can be marked wrongly.
        """
        marks = words - self.ones
        marks &= np.invert(words, out=words)
        marks &= self._tops
        return marks

    def has_zero(self, word: int) -> bool:
        """Says of one word whether one of its lanes is zero."""
        return (word - self.ones) & ~word & self._tops != 0

    def lowest(self, marks: Keys) -> Keys:
        """Says by how many bits the lowest marked lane is shifted. Without a mark, the answer means nothing."""
        below: Keys = np.bitwise_count(marks ^ (marks - 1)).astype(np.uint64)  # the lowest mark, and all bits below it
        below -= self.bits
        return below

    def count(self, words: Keys) -> int:
        """Counts the lanes that are not zero."""
        shifts = range(0, self.number * self.bits, self.bits)
        return sum(int(np.count_nonzero((words >> shift) & self.mask)) for shift in shifts)
