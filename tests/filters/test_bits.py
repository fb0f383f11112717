"""Packed groups against sets of Python integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.filters import bits

WIDTH = 200
groups = st.lists(st.frozensets(st.integers(0, WIDTH - 1), max_size=40), max_size=30)


def packed(rows: list[frozenset[int]]) -> bits.Words:
    words = np.zeros((len(rows), bits.words_for(WIDTH)), np.uint64)
    for r, row in enumerate(rows):
        for bit in row:
            words[r, bit // 64] |= np.uint64(1 << bit % 64)
    return words


@given(groups)
@settings(deadline=None)
def test_pairs_and_pack_are_inverse_and_agree_with_sets(rows: list[frozenset[int]]) -> None:
    words = packed(rows)
    row, bit = bits.pairs(words)
    assert list(zip(row.tolist(), bit.tolist(), strict=True)) == [(r, b) for r, s in enumerate(rows) for b in sorted(s)]
    assert np.array_equal(bits.pack(row, bit, len(rows), WIDTH), words)
    assert bits.count(words).tolist() == [len(s) for s in rows]


@given(st.integers(0, 2**64 - 1))
def test_the_bits_of_one_word_are_those_of_its_binary_digits(word: int) -> None:
    assert list(bits.bits_in(word)) == [at for at, digit in enumerate(reversed(f"{word:b}")) if digit == "1"]


@given(groups)
@settings(deadline=None)
def test_unique_rows_keep_first_appearance(rows: list[frozenset[int]]) -> None:
    distinct, which = bits.unique_rows(packed(rows))
    seen = list(dict.fromkeys(rows))
    assert np.array_equal(distinct, packed(seen))
    assert which.tolist() == [seen.index(row) for row in rows]


def test_colliding_hashes_never_merge_groups(monkeypatch: object) -> None:
    """With every coefficient equal the linear hash collides at once; the answer must still be exact."""

    class Constant:
        def bytes(self, n: int) -> bytes:
            return bytes(n)

    rows = packed([frozenset({0}), frozenset({64}), frozenset({128}), frozenset({0})])
    before, bits._HASH_SEED = bits._HASH_SEED, Constant()  # type: ignore[assignment]
    try:
        distinct, which = bits.unique_rows(rows)
    finally:
        bits._HASH_SEED = before
    assert np.array_equal(distinct[which], rows)
    assert distinct.shape[0] == 3


@given(st.lists(st.booleans(), max_size=200))
def test_mask(flags: list[bool]) -> None:
    words = bits.mask(np.array(flags, np.bool_))
    _, bit = bits.pairs(words[None, :])
    assert bit.tolist() == [i for i, flag in enumerate(flags) if flag]
