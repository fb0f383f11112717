"""A broker's index of sealed filters: which subscriptions an event matches, without opening either.

    trapdoor  --pre-filter over tags-->  dismissed, before any point is looked at
              --memo by its bytes-->     its token (one multiplication if the trapdoor was never seen)
    token     --memo by T-->             the entries of its label (a subtraction and a hash for each entry of the bucket
                                         that no other token has claimed, if T was never seen)
    tokens of an event  --memo-->        subscriptions (conjunctions are counted on arrays, if this set was never seen)

A bucket has the labels of one epoch and tag. This is algorithm A4 of the scheme's description, which reveals nothing
beyond A0, the sequential one (`reference`): T is the same for every trapdoor of a label, so that whoever computes it
could keep lists as well.

The memos are soft state. They never decide anything: with or without them the same events match the same
subscriptions, which is what lets a batch be run again elsewhere. A token knows up to which entry it has searched, so
that a new subscription costs one multiplication and, when the token comes next, one look at what is new in its bucket.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Rejected
from sealcast.filters.bits import Indices, Words, pack
from sealcast.prefilters import Members
from sealcast.primitives.groups import Element, Exponent
from sealcast.protections.searchable import scheme
from sealcast.protections.searchable.blocks import Blocks
from sealcast.protections.searchable.combine import Combined
from sealcast.protections.searchable.entries import REMOVED, Entries
from sealcast.wire.searching import (
    MAX_TAG_BITS,
    TAG_BYTES,
    TRAPDOOR_BYTES,
    SealedFilter,
    SealedReason,
    SealedRejected,
)

#: The broker's half of a user in an epoch; None for who has none, and so neither matches nor is matched.
Halves = Callable[[int, str], Exponent | None]

#: Trapdoors kept with their tokens, twice: those used lately, and those before them.
MAX_TRAPDOORS: Final = 1 << 18
#: Tokens that match nothing, kept so as not to search their buckets again.
MAX_EMPTY_TOKENS: Final = 1 << 17
#: A guess that is wrong costs half of what a right one saves.
_MAX_GUESSED: Final = 2
#: Removed entries that are not worth building the columns again.
_MIN_REMOVED: Final = 1 << 14
#: Of tags, at which a filter says yes wrongly; the bucket's own key is looked up next.
_FALSE_POSITIVES: Final = 0.01
_FIRST_ITEMS: Final = 1 << 12


class Registered(NamedTuple):
    """A subscription's filter, as the registry has it. A subscription may have several."""

    subscription: int
    user: str
    filter: SealedFilter


@dataclass(eq=False, slots=True)
class _Bucket:
    """The labels of one epoch and tag: entries that no token has claimed, and the tokens that were looked for."""

    unclaimed: list[int] = field(default_factory=list)
    #: One beyond the last entry that was ever put here.
    end: int = 0
    tokens: dict[Element, _Token] = field(default_factory=dict)
    #: The one that matched last: whoever comes next is likely to have it, too.
    recent: Element | None = None


@dataclass(eq=False, slots=True)
class _Token:
    """T, and the slots whose labels it is known to match."""

    element: Element | None
    bucket: _Bucket
    #: Changes with `slots`; 0 while there are none.
    number: int = 0
    slots: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    #: Entries below this one have been searched.
    searched: int = 0


class _Door:
    """A publisher in an epoch: its trapdoors mean nothing under another's half."""

    __slots__ = ("half", "older", "tokens")

    def __init__(self, half: Exponent) -> None:
        self.half = half
        self.tokens: dict[bytes, _Token] = {}
        self.older: dict[bytes, _Token] = {}


@dataclass(frozen=True, eq=False, slots=True)
class Found:
    """The subscriptions of each event of a batch, in order, and the events that were refused and match nothing."""

    matches: list[Indices]
    refused: dict[int, SealedRejected]

    def words(self, width: int) -> Words:
        """A row for each event, a bit for each of `width` subscriptions."""
        events, subscriptions = self.pairs()
        return pack(events, subscriptions, len(self.matches), width)

    def pairs(self) -> tuple[Indices, Indices]:
        """Every (event, subscription), in order."""
        sizes = np.fromiter(map(len, self.matches), np.int64, len(self.matches))
        events = np.repeat(np.arange(len(self.matches)), sizes)
        return events, np.concatenate([*self.matches, np.empty(0, np.int64)])


class SearchIndex:
    """Sealed filters of one topic, of all epochs that are in use."""

    def __init__(self, tag_bits: int, prefilter: str = "cuckoo") -> None:
        self.tag_bits = tag_bits
        self._prefilter = prefilter
        self._numbers = count(1)
        self._start(Entries())

    def _start(self, entries: Entries) -> None:
        """With entries that nobody has searched yet."""
        self._entries = entries
        self._members = Members(self._prefilter, max(_FIRST_ITEMS, len(entries)), _FALSE_POSITIVES)
        self._buckets: dict[int, _Bucket] = {}
        self._doors: dict[tuple[int, str], _Door] = {}
        self._combined = Combined(entries)
        self._trapdoors = self._empty = self._removed = 0
        self._place(range(len(entries)))

    # --- the table --------------------------------------------------------------------------------------------------

    def add(self, rows: Iterable[Registered], halves: Halves) -> dict[int, SealedRejected]:
        """Takes filters in; those that are refused, by their place in `rows`, match nothing."""
        refused: dict[int, SealedRejected] = {}
        first = len(self._entries)
        for place, row in enumerate(rows):
            try:
                self._register(row, halves(row.filter.epoch, row.user))
            except SealedRejected as refusal:
                refused[place] = refusal
        self._place(range(first, len(self._entries)))
        return refused

    def _register(self, row: Registered, half: Exponent | None) -> None:
        if half is None:
            raise _no_half(row.user)
        labels = row.filter.labels
        try:
            encrypted = scheme.re_encrypt(labels, half)
        except Rejected as error:
            raise SealedRejected(SealedReason.POINT, error.message, hint=error.hint) from None
        slots = [
            number
            for conjunction in row.filter.conjunctions
            for number, slot in zip(
                self._entries.add_conjunction(row.subscription, len(conjunction)), conjunction, strict=True
            )
            for _ in slot
        ]
        # An infinity matches nothing, so that it need not be kept; its slot stays, and is never met.
        kept = [(label, slot, c) for label, slot, c in zip(labels, slots, encrypted, strict=True) if c is not None]
        self._entries.add(
            [row.filter.epoch << MAX_TAG_BITS | int.from_bytes(label[:TAG_BYTES], "big") for label, _, _ in kept],
            b"".join([c for _, _, c in kept]),
            b"".join([scheme.check_of(label) for label, _, _ in kept]),
            [slot for _, slot, _ in kept],
        )

    def remove(self, subscriptions: Sequence[int]) -> None:
        """Takes all filters of these subscriptions out."""
        keys = self._entries.remove(subscriptions)
        self._members.remove(keys)
        for key in np.unique(keys).tolist():
            if not self._members.count(key):
                del self._buckets[key]
        self._combined.clear()
        self._removed += len(keys)
        if self._removed > max(_MIN_REMOVED, len(self._entries) // 2):
            self._start(self._entries.compacted())

    def _place(self, entries: range) -> None:
        """Puts new entries into their buckets, where tokens find them when they come next."""
        keys = self._entries.keys.values[entries.start : entries.stop]
        self._members.add(keys)
        buckets = self._buckets
        for entry, key in zip(entries, keys.tolist(), strict=True):
            bucket = buckets.get(key)
            if bucket is None:
                bucket = buckets[key] = _Bucket()
            bucket.unclaimed.append(entry)
            bucket.end = entry + 1

    # --- search -----------------------------------------------------------------------------------------------------

    def search(
        self, publishers: Sequence[str], epochs: Sequence[int], blocks: Sequence[bytes], halves: Halves
    ) -> Found:
        """What the events of a batch match, given who published each, in which epoch, and its block."""
        read = Blocks.read(blocks, self.tag_bits)
        refused = dict(read.refused)
        doors = self._doors_of(publishers, epochs, halves)
        for event, door in enumerate(doors):
            if door is None:
                refused.setdefault(event, _no_half(publishers[event]))
        met = self._met(read, np.asarray(epochs, np.uint64), doors, refused)
        signatures = [tuple([token.number for token in tokens]) for tokens in met]
        fresh = {
            signature: [token.slots for token in tokens]
            for signature, tokens in zip(signatures, met, strict=True)
            if signature not in self._combined
        }
        return Found(self._combined.matches(signatures, fresh), refused)

    def _doors_of(self, publishers: Sequence[str], epochs: Sequence[int], halves: Halves) -> list[_Door | None]:
        """The door of each event; None where the broker has no half for its publisher any more."""
        named = list(zip(epochs, publishers, strict=True))
        found = {(epoch, name): self._door(epoch, name, halves(epoch, name)) for epoch, name in set(named)}
        return [found[each] for each in named]

    def _door(self, epoch: int, publisher: str, half: Exponent | None) -> _Door | None:
        if half is None:
            self._doors.pop((epoch, publisher), None)
            return None
        door = self._doors.get((epoch, publisher))
        if door is None or door.half.packed != half.packed:
            door = self._doors[epoch, publisher] = _Door(half)
        return door

    def _met(
        self,
        read: Blocks,
        epochs: NDArray[np.uint64],
        doors: Sequence[_Door | None],
        refused: dict[int, SealedRejected],
    ) -> list[list[_Token]]:
        """The tokens of each event that match something. An event with a refused trapdoor has none."""
        keys = epochs[read.events] << np.uint64(MAX_TAG_BITS) | read.tags
        passed = np.flatnonzero(self._members.filter.may_contain(keys))
        met: list[list[_Token]] = [[] for _ in doors]
        data, buckets = read.data, self._buckets
        asked = zip(read.events[passed].tolist(), keys[passed].tolist(), read.offsets[passed].tolist(), strict=True)
        for event, key, offset in asked:
            bucket, door = buckets.get(key), doors[event]
            if bucket is None or door is None:
                continue
            trapdoor = data[offset : offset + TRAPDOOR_BYTES]
            token = door.tokens.get(trapdoor)
            if token is None or token.bucket is not bucket:
                try:
                    token = self._token(door, bucket, trapdoor)
                except Rejected as error:
                    refused.setdefault(event, SealedRejected(SealedReason.POINT, error.message, hint=error.hint))
                    continue
            if token.searched < bucket.end:
                token = door.tokens[trapdoor] = self._search(token)
            if token.number:
                met[event].append(token)
        for event in refused:
            met[event] = []
        return met

    def _token(self, door: _Door, bucket: _Bucket, trapdoor: bytes) -> _Token:
        """The token of a trapdoor that was not used lately."""
        token = door.older.get(trapdoor)
        if token is None or token.bucket is not bucket:
            guess = bucket.recent if len(bucket.tokens) <= _MAX_GUESSED else None
            element = scheme.token(trapdoor, door.half, guess)
            known = bucket.tokens.get(element) if element is not None else None
            token = _Token(element, bucket) if known is None else known
        bucket.recent = token.element if token.number else bucket.recent
        self._trapdoors += 1
        if self._trapdoors > MAX_TRAPDOORS:
            self._age()
        door.tokens[trapdoor] = token
        return token

    def _age(self) -> None:
        """Forgets trapdoors that were not used since it was called last."""
        for each in self._doors.values():
            each.older, each.tokens = each.tokens, {}
        self._trapdoors = 0

    def _search(self, token: _Token) -> _Token:
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
            token.slots = np.concatenate([token.slots, self._entries.slots.values[claimed]])
            token.number = next(self._numbers)
        elif not token.number:
            self._empty += 1
            if self._empty > MAX_EMPTY_TOKENS:
                self._forget_empty()
        return token

    def _forget_empty(self) -> None:
        for bucket in self._buckets.values():
            bucket.tokens = {element: token for element, token in bucket.tokens.items() if token.number}
        self._empty = 0


def _no_half(user: str) -> SealedRejected:
    return SealedRejected(
        SealedReason.HALF,
        f"this broker has no half of a key for {user!r}",
        hint="whoever has lost a right has none; anyone else gets one with the topic's key of the epoch",
    )
