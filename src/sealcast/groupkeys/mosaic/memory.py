"""What the broker remembers: which groups' keys have reached their members. Fingerprints, never groups and never keys.

    an entry, 16 bytes: 96 bits of fingerprint | savings u8 | uses u8 | credit u8 | tag u8

A group's fingerprint is a sum of secret random numbers, so that two groups meet with probability 2^-96 or less and
nobody can make them meet. Were it to happen, members would be told to use a key that they never got and would have
to ask for it; nobody would learn a key.

The tag is that of the plan that handed the key out, until its delivery is committed: no other plan relies on it before
(`groupkeys.handed`).

Who goes when it is full: entries live in sets of sixteen, and in each set the one with the least credit goes, whose
credit is taken from the others, so that what is not used grows old (GreedyDual). Credit is what an entry saves each
time, in encryptions, times how often it did.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Indices
from sealcast.groupkeys.handed import DELIVERED

WAYS: Final = 16
ENTRY_BYTES: Final = 16
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
        self._tag = np.zeros(shape, np.uint8)
        self._open: set[int] = set()

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self._head, self._tail, self._savings, self._uses, self._credit, self._tag))

    def __len__(self) -> int:
        return int(np.count_nonzero(self._uses))

    def ask(self, head: U64, tail: U64, tag: int = DELIVERED) -> tuple[Flags, Indices]:
        """Which a plan of this tag may rely on; and of those that are remembered at all, what each saves.

        Being asked for counts as a use.
        """
        if not self._sets or not head.size:
            return np.zeros(head.size, np.bool_), np.zeros(head.size, np.int64)
        at = self._set_of(tail)
        same = self._same(at, head, tail)
        there: Flags = np.asarray(same.any(axis=1))
        rows, ways = at[there], same[there].argmax(axis=1)
        savings = np.zeros(head.size, np.int64)
        savings[there] = self._savings[rows, ways]
        uses = np.minimum(self._uses[rows, ways].astype(np.int64) + 1, _MOST)
        self._uses[rows, ways] = uses
        self._credit[rows, ways] = np.minimum(savings[there] * uses, _MOST)
        if self._open:
            since = self._tag[rows, ways]
            there[there] = (since == DELIVERED) | (since == tag)
        return there, savings

    def tell(self, head: U64, tail: U64, savings: Indices, tag: int = DELIVERED) -> None:
        """Remember these, which a plan of this tag could not rely on yet and which are all different."""
        if not self._sets:
            return
        worth = np.clip(savings, 1, _MOST).astype(np.uint8)
        left = self._not_waiting(head, tail, tag) if self._open else np.arange(head.size)
        if tag != DELIVERED:
            self._open.add(tag)
        while left.size:
            # One a set at a time: two newcomers in one set must not take the same place.
            at = self._set_of(tail[left])
            _, first = np.unique(at, return_index=True)
            self._enter(at[first], head[left[first]], tail[left[first]], worth[left[first]], tag)
            left = np.delete(left, first)

    def settle(self, tag: int, delivered: bool) -> None:
        """What became of a plan: its entries are relied on from now on, or gone."""
        if tag not in self._open:
            return
        self._open.discard(tag)
        entries = self._tag == tag
        self._tag[entries] = DELIVERED
        if not delivered:
            self._uses[entries] = self._credit[entries] = 0

    def _same(self, at: Indices, head: U64, tail: U64) -> Flags:
        same: Flags = (self._head[at] == head[:, None]) & (self._tail[at] == tail.astype(np.uint32)[:, None])
        same &= self._uses[at] > 0
        return same

    def _not_waiting(self, head: U64, tail: U64, tag: int) -> Indices:
        """Those without an entry. Entries of other plans that wait become this plan's."""
        at = self._set_of(tail)
        same = self._same(at, head, tail)
        there = same.any(axis=1)
        self._tag[at[there], same[there].argmax(axis=1)] = tag
        return np.flatnonzero(~there)

    def _enter(self, at: Indices, head: U64, tail: U64, worth: NDArray[np.uint8], tag: int) -> None:
        credit = self._credit[at]
        way = credit.argmin(axis=1)
        credit -= credit.min(axis=1, keepdims=True)
        self._credit[at] = credit
        self._head[at, way] = head
        self._tail[at, way] = tail.astype(np.uint32)
        self._savings[at, way] = self._credit[at, way] = worth
        self._uses[at, way] = 1
        self._tag[at, way] = tag

    def resized(self, budget_bytes: int) -> Memory:
        """Returns the same memory in another number of bytes; uses are counted anew."""
        other = Memory(budget_bytes)
        used = (self._uses > 0) & (self._tag == DELIVERED)
        other.tell(self._head[used], self._tail[used].astype(np.uint64), self._savings[used].astype(np.int64))
        return other

    def _set_of(self, tail: U64) -> Indices:
        low = tail & np.uint64(0xFFFFFFFF)
        return (low * np.uint64(self._sets) >> np.uint64(32)).astype(np.int64)
