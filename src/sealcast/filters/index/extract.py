"""Bits out of bitmaps and back, at a cost that follows the bits that are set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Words

Ids = NDArray[np.int64]


def set_bits(words: Words) -> tuple[Ids, Ids]:
    """(row, bit) of every set bit, by row, then by bit.

    First the bytes that are not zero, then their bits: most bytes are zero, and looking at a byte is cheaper than
    looking at eight bits.
    """
    rows, width = words.shape
    if width == 0 or rows == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(-1)
    found = np.flatnonzero(octets != 0)
    bits = np.flatnonzero(np.unpackbits(octets.take(found), bitorder="little").view(np.bool_))
    at = (found.take(bits >> 3) << 3) + (bits & 7)
    if width & (width - 1) == 0:  # a shift costs a third of a division, and this is the hottest line of matching
        return at >> (64 * width).bit_length() - 1, at & (64 * width - 1)
    row = at // (64 * width)
    return row, at - row * (64 * width)


def bit_of(positions: Ids) -> Words:
    """Each position's bit within its word."""
    return np.left_shift(np.uint64(1), (positions & 63).astype(np.uint64))


def runs(starts: Ids, counts: Ids) -> Ids:
    """`starts[0], starts[0] + 1, ...` (counts[0] numbers), then those of the next run."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    return np.arange(total) + np.repeat(starts - (ends - counts), counts)
