"""The tokens that a broker has computed, and what it remembers of them, so as not to compute them again.

    door      a publisher in an epoch: its trapdoors by their bytes, each with its token
    bucket    the labels of one epoch and tag: entries that no token has claimed, and its tokens by T
    token     T, and the entries that it is known to match

An entry is of one label, so that one token claims it, and no other has to try it again. A token knows up to which entry
it has searched. Everything here is bounded, and soft: a token that was forgotten is computed again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import numpy as np

from sealcast.filters.bits import Indices
from sealcast.primitives.groups import Element, Exponent
from sealcast.protections.searchable import scheme
from sealcast.protections.searchable.entries import REMOVED, Entries

#: Trapdoors kept with their tokens, twice: those used lately, and those before them.
MAX_TRAPDOORS: Final = 1 << 18
#: Tokens that match nothing, kept so as not to search their buckets again.
MAX_EMPTY_TOKENS: Final = 1 << 17
#: A guess that is wrong costs half of what a right one saves.
_MAX_GUESSED: Final = 2


@dataclass(eq=False, slots=True)
class Bucket:
    """The labels of one epoch and tag: entries that no token has claimed, and the tokens that were looked for."""

    unclaimed: list[int] = field(default_factory=list)
    #: One beyond the last entry that was ever put here.
    end: int = 0
    tokens: dict[Element, SearchToken] = field(default_factory=dict)
    #: The one that matched last: whoever comes next is likely to have it, too.
    recent: Element | None = None


@dataclass(eq=False, slots=True)
class SearchToken:
    """T, and what it is known to match."""

    element: Element | None
    bucket: Bucket
    #: By which entries name it.
    name: int
    #: Changes whenever it matches more; 0 while it matches nothing.
    number: int = 0
    #: The anchors that it matches (`entries`).
    anchors: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    #: Entries below this one have been searched.
    searched: int = 0


class Door:
    """A publisher in an epoch: its trapdoors mean nothing under another's half."""

    __slots__ = ("half", "older", "tokens")

    def __init__(self, half: Exponent) -> None:
        self.half = half
        self.tokens: dict[bytes, SearchToken] = {}
        self.older: dict[bytes, SearchToken] = {}


class SearchTokens:
    """Buckets of the entries of one index, doors of its publishers, and the tokens between them."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._numbers = count(1)
        self._doors: dict[tuple[int, str], Door] = {}
        self._trapdoors = self._empty = 0
        #: By epoch and tag; a bucket without any entry that lives is not here.
        self.buckets: dict[int, Bucket] = {}

    def place(self, entries: range) -> None:
        """Puts new entries into their buckets, where tokens find them when they come next."""
        buckets = self.buckets
        for entry, key in zip(entries, self._entries.keys.values[entries.start : entries.stop].tolist(), strict=True):
            bucket = buckets.get(key)
            if bucket is None:
                bucket = buckets[key] = Bucket()
            bucket.unclaimed.append(entry)
            bucket.end = entry + 1

    def drop(self, keys: Iterable[int]) -> None:
        """Forgets buckets whose entries were all removed."""
        for key in keys:
            del self.buckets[key]

    def door(self, epoch: int, publisher: str, half: Exponent | None) -> Door | None:
        """The door of a publisher with this half; none without one, whatever was remembered of it."""
        if half is None:
            self._doors.pop((epoch, publisher), None)
            return None
        door = self._doors.get((epoch, publisher))
        if door is None or door.half.packed != half.packed:
            door = self._doors[epoch, publisher] = Door(half)
        return door

    def find(self, door: Door, bucket: Bucket, trapdoor: bytes) -> SearchToken:
        """The token of a trapdoor, up to date with its bucket. Rejected for a trapdoor whose points are none."""
        token = door.tokens.get(trapdoor)
        if token is None or token.bucket is not bucket:
            token = self._token(door, bucket, trapdoor)
        if token.searched < bucket.end:
            token = door.tokens[trapdoor] = self._search(token)
        return token

    def _token(self, door: Door, bucket: Bucket, trapdoor: bytes) -> SearchToken:
        """The token of a trapdoor that was not used lately."""
        token = door.older.get(trapdoor)
        if token is None or token.bucket is not bucket:
            guess = bucket.recent if len(bucket.tokens) <= _MAX_GUESSED else None
            element = scheme.token(trapdoor, door.half, guess)
            known = bucket.tokens.get(element) if element is not None else None
            token = SearchToken(element, bucket, next(self._numbers)) if known is None else known
        bucket.recent = token.element if token.number else bucket.recent
        self._trapdoors += 1
        if self._trapdoors > MAX_TRAPDOORS:
            self._age()
        door.tokens[trapdoor] = token
        return token

    def _age(self) -> None:
        """Forgets trapdoors that were not used since it was called last, and publishers that sent none."""
        self._doors = {name: door for name, door in self._doors.items() if door.tokens}
        for door in self._doors.values():
            door.older, door.tokens = door.tokens, {}
        self._trapdoors = 0

    def _search(self, token: SearchToken) -> SearchToken:
        """Looks for the token among the entries of its bucket that are new to it; gives the token that counts."""
        bucket, element = token.bucket, token.element
        if element is None:  # infinity
            token.searched = bucket.end
            return token
        # A token that was forgotten may come back beside the one that took its place, and that has its entries.
        token = bucket.tokens.setdefault(element, token)
        new = bucket.unclaimed[bisect_left(bucket.unclaimed, token.searched) :]
        token.searched = bucket.end
        living = (self._entries.subscription_of(new) != REMOVED).tolist() if new else []
        new = [entry for entry, lives in zip(new, living, strict=True) if lives]
        claimed = [new[number] for number in scheme.matching(*self._entries.sealed(new), element)] if new else []
        if claimed:
            bucket.recent = element
            taken = set(claimed)
            bucket.unclaimed = [entry for entry in bucket.unclaimed if entry not in taken]
            token.anchors = np.concatenate([token.anchors, self._entries.claim(claimed, token.name)])
            token.number = next(self._numbers)
        elif not token.number:
            self._empty += 1
            if self._empty > MAX_EMPTY_TOKENS:
                self._forget_empty()
        return token

    def _forget_empty(self) -> None:
        for bucket in self.buckets.values():
            bucket.tokens = {element: token for element, token in bucket.tokens.items() if token.number}
        self._empty = 0
