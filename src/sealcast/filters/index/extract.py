"""Bits out of bitmaps, at a cost that follows the bits that are set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Words

Ids = NDArray[np.int64]


def set_bits(words: Words, base: Ids, label: Ids) -> tuple[Ids, Ids]:
    """For every set bit of row r, by row and bit: `base[r]` + the bit's number, and `label[r]`.

    First the bytes that are not zero, then their bits: most bytes are zero, and looking at a byte costs less than
    looking at eight bits. Whatever can be worked out per byte is, for the same reason.
    """
    rows, width = words.shape
    if rows == 0 or width == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(-1)
    found = np.flatnonzero(octets != 0)
    row = found // (8 * width) if width & (width - 1) else found >> ((8 * width).bit_length() - 1)
    bits = np.flatnonzero(np.unpackbits(octets.take(found), bitorder="little").view(np.bool_))
    octet = bits >> 3
    bits &= 7
    # base[row] + 8 * (the byte's place in its row) + the bit's in its byte, with as much as can be done per row
    found <<= 3
    found += (base - np.arange(0, rows * 64 * width, 64 * width)).take(row)
    bits += found.take(octet)
    return bits, label.take(row).take(octet)


def bit_of(positions: Ids) -> Words:
    """Each position's bit within its word."""
    return np.left_shift(np.uint64(1), (positions & 63).astype(np.uint64))
