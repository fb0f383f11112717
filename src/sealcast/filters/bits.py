"""Groups as packed words: row e, bit i (word i // 64, bit i % 64) says that i belongs to e's group.

Matching makes them, grouping and key planning use them as they are; only sealing, which must touch every member
anyway, unpacks them into pairs. Nothing here loops over rows in Python.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Indices = NDArray[np.int64]


def words_for(bits: int) -> int:
    """How many words hold that many bits; at least one, so that a row always has a shape."""
    return max(1, -(-bits // 64))


def pairs(packed: Words) -> tuple[Indices, Indices]:
    """Every (row, bit) that is set, ordered by row, then by bit.

    Cost follows the members, not the width of the table.
    """
    rows = np.arange(packed.shape[0])
    bit, row = set_bits(packed, np.zeros_like(rows), rows)
    return row, bit


def set_bits(words: Words, base: Indices, label: Indices) -> tuple[Indices, Indices]:
    """For every set bit of row r, by row and bit: `base[r]` + the bit's number, and `label[r]`.

    First the bytes that are not zero, then their bits: most bytes are zero, and looking at a byte costs less than
    looking at eight bits. Whatever can be worked out per byte is, for the same reason.
    """
    rows, width = words.shape
    if rows == 0 or width == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    octets = np.ascontiguousarray(words, "<u8").view(np.uint8).reshape(-1)
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


def set_places(words: Words) -> Indices:
    """The number of every set bit, counted through all words: `set_bits` of a handful of words."""
    return np.unpackbits(np.ascontiguousarray(words, "<u8").view(np.uint8).reshape(-1), bitorder="little").nonzero()[0]


def bits_in(word: int) -> Iterator[int]:
    """The numbers of the set bits of one word, ascending."""
    while word:
        lowest = word & -word
        yield lowest.bit_length() - 1
        word ^= lowest


def bit_of(positions: Indices) -> Words:
    """Each position's bit within its word."""
    return np.left_shift(np.uint64(1), (positions & 63).astype(np.uint64))


def pack(rows: Indices, bits: Indices, n_rows: int, n_bits: int) -> Words:
    """The inverse of `pairs`; pairs may repeat and come in any order."""
    width = words_for(n_bits)
    flags = np.zeros((n_rows, width * 8), np.uint8)
    # `at`, not fancy assignment: several bits of one byte may be set by several pairs.
    np.bitwise_or.at(flags, (rows, bits >> 3), np.left_shift(1, bits & 7).astype(np.uint8))
    return flags.view("<u8").astype(np.uint64, copy=False)


def mask(bits: NDArray[np.bool_]) -> Words:
    """One row, or several, from booleans."""
    return from_bytes(np.packbits(bits, axis=-1, bitorder="little"))


def from_bytes(raw: NDArray[np.uint8]) -> Words:
    """One row, or several, from bytes, of which the first has the lowest bits."""
    packed = np.zeros((*raw.shape[:-1], 8 * words_for(8 * raw.shape[-1])), np.uint8)
    packed[..., : raw.shape[-1]] = raw
    return packed.view("<u8").astype(np.uint64, copy=False)


def count(packed: Words) -> Indices:
    """Members per row."""
    members: Indices = np.bitwise_count(packed).sum(axis=1, dtype=np.int64)
    return members


def row_bytes(packed: Words) -> list[bytes]:
    """Every row as bytes: a name by which equal groups are found in dictionaries."""
    raw, step = np.ascontiguousarray(packed).tobytes(), 8 * packed.shape[1]
    return [raw[i : i + step] for i in range(0, len(raw), step)]


def starts(rows: Indices, n_rows: int) -> Indices:
    """Where the entries of each row begin, given the row of each entry, and the end of the last."""
    found = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=found[1:])
    return found


def runs(firsts: Indices, counts: Indices) -> Indices:
    """`firsts[0], firsts[0] + 1, ...` (counts[0] numbers), then those of the next run."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    return np.repeat(firsts - (ends - counts), counts) + np.arange(total)


def unique_rows(packed: Words) -> tuple[Words, Indices]:
    """Distinct rows in order of first appearance, and for every row the number of its distinct one.

    Rows are compared by a random linear hash and then exactly: a collision, even a made one, costs time and never
    merges two groups.
    """
    if packed.shape[0] == 0:
        return packed, np.empty(0, np.int64)
    coefficients = np.frombuffer(_HASH_SEED.bytes(8 * packed.shape[1]), np.uint64) | np.uint64(1)
    with np.errstate(over="ignore"):
        # The high halves of the products carry what the low bits of a linear hash lose.
        mixed = packed * coefficients
        hashes = (mixed ^ (mixed >> np.uint64(32))) @ coefficients[::-1]
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    if not np.array_equal(packed[first[inverse]], packed):
        _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return packed[first[order]], rank[inverse.reshape(-1)]


_HASH_SEED = np.random.default_rng()
