"""What the broker remembers: which groups' keys have reached their members. Fingerprints, never groups and never keys.

    an entry, 15 bytes: 96 bits of fingerprint | savings u8 | uses u8 | credit u8

A group's fingerprint is a sum of secret random numbers, so that two groups meet with probability 2^-96 or less and
nobody can make them meet. Were it to happen, members would be told to use a key that they never got and would have
to ask for it; nobody would learn a key.

Who goes when it is full: entries live in sets of sixteen, and in each set the one with the least credit goes, whose
credit is taken from the others, so that what is not used grows old (GreedyDual). Credit is what an entry saves each
time, in encryptions, times how often it did.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Indices

WAYS: Final = 16
ENTRY_BYTES: Final = 15
_MOST: Final = 255

U64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]


class Memory:
    """A bounded set of fingerprints (two 64-bit halves each), asked for and told in batches."""

    def __init__(self, budget_bytes: int) -> None:
        self._sets = max(0, budget_bytes // (WAYS * ENTRY_BYTES))
        shape = (self._sets, WAYS)
        self._head = np.zeros(shape, np.uint64)
        self._tail = np.zeros(shape, np.uint32)
        self._savings = np.zeros(shape, np.uint8)
        self._uses = np.zeros(shape, np.uint8)
        self._credit = np.zeros(shape, np.uint8)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self._head, self._tail, self._savings, self._uses, self._credit))

    def __len__(self) -> int:
        return int(np.count_nonzero(self._uses))

    def ask(self, head: U64, tail: U64) -> tuple[Flags, Indices]:
        """Which are remembered, and what each of those saves. Being asked for counts as a use."""
        if not self._sets or not head.size:
            return np.zeros(head.size, np.bool_), np.zeros(head.size, np.int64)
        at = self._set_of(tail)
        same = (self._head[at] == head[:, None]) & (self._tail[at] == tail.astype(np.uint32)[:, None])
        same &= self._uses[at] > 0
        held = same.any(axis=1)
        rows, ways = at[held], same[held].argmax(axis=1)
        savings = np.zeros(head.size, np.int64)
        savings[held] = self._savings[rows, ways]
        uses = np.minimum(self._uses[rows, ways].astype(np.int64) + 1, _MOST)
        self._uses[rows, ways] = uses
        self._credit[rows, ways] = np.minimum(savings[held] * uses, _MOST)
        return held, savings

    def tell(self, head: U64, tail: U64, savings: Indices) -> None:
        """Remember these, which are not remembered yet and all different."""
        if not self._sets:
            return
        worth = np.clip(savings, 1, _MOST).astype(np.uint8)
        left = np.arange(head.size)
        while left.size:
            # One a set at a time: two newcomers in one set must not take the same place.
            at = self._set_of(tail[left])
            _, first = np.unique(at, return_index=True)
            self._enter(at[first], head[left[first]], tail[left[first]], worth[left[first]])
            left = np.delete(left, first)

    def _enter(self, at: Indices, head: U64, tail: U64, worth: NDArray[np.uint8]) -> None:
        credit = self._credit[at]
        way = credit.argmin(axis=1)
        credit -= credit.min(axis=1, keepdims=True)
        self._credit[at] = credit
        self._head[at, way] = head
        self._tail[at, way] = tail.astype(np.uint32)
        self._savings[at, way] = self._credit[at, way] = worth
        self._uses[at, way] = 1

    def resized(self, budget_bytes: int) -> Memory:
        """The same in another number of bytes; uses are counted anew."""
        other = Memory(budget_bytes)
        used = self._uses > 0
        other.tell(self._head[used], self._tail[used].astype(np.uint64), self._savings[used].astype(np.int64))
        return other

    def _set_of(self, tail: U64) -> Indices:
        low = tail & np.uint64(0xFFFFFFFF)
        return (low * np.uint64(self._sets) >> np.uint64(32)).astype(np.int64)
