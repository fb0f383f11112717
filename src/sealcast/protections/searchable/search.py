"""A broker's index of sealed filters: which subscriptions an event matches, without opening either.

    trapdoor  --pre-filter over tags-->  dismissed, before any point is looked at
              --memo by its bytes-->     its token (one multiplication if the trapdoor was never seen)
    token     --memo by T-->             the entries of its label (a subtraction and a hash for each entry of the bucket
                                         that no other token has claimed, if T was never seen)
    tokens of an event  --memo-->        subscriptions (conjunctions are counted on arrays, if this set was never seen)

A bucket has the labels of one epoch and tag. This is algorithm A4 of the scheme's description, which reveals nothing
beyond A0, the sequential one (`reference`): T is the same for every trapdoor of a label, so that whoever computes it
could keep lists as well.

The memos are soft state (`tokens`, `combine`). They never decide anything: with or without them the same events match
the same subscriptions, which is what lets a batch be run again elsewhere. A new subscription costs one multiplication
for each label and, when a token of the same tag comes next, one look at what is new in its bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from sealcast.errors import Rejected
from sealcast.filters.bits import Indices, Words, pack
from sealcast.prefilters import Members
from sealcast.primitives.groups import Exponent
from sealcast.protections.searchable import scheme
from sealcast.protections.searchable.blocks import TrapdoorBlocks
from sealcast.protections.searchable.combine import Combined, Met
from sealcast.protections.searchable.entries import Entries
from sealcast.protections.searchable.tokens import Door, SearchToken, SearchTokens
from sealcast.wire.searching import (
    MAX_TAG_BITS,
    TAG_BYTES,
    TRAPDOOR_BYTES,
    SealedFilter,
    SealedReason,
    SealedRejected,
    parse_block,
)

#: The broker's half of a user in an epoch; None for who has none, and so neither matches nor is matched.
Halves = Callable[[int, str], Exponent | None]

#: Trapdoors with the numbers of their events and the keys of their buckets.
Asked = Iterable[tuple[int, int, bytes]]

#: The one whose look-ups over batches cost least, and which can delete.
DEFAULT_PREFILTER: Final = "cuckoo"
#: Events from which on reading blocks on arrays costs less than one by one.
_BATCH: Final = 24
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


@dataclass(frozen=True, eq=False, slots=True)
class FoundSubscriptions:
    """The subscriptions of each event of a batch, in order, and what was refused, by event.

    An event whose block is none, or whose publisher has no half, matches nothing. A trapdoor whose points are none
    matches nothing by itself: only if its tag is in the index is it noticed, so it must not decide about the others.
    """

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

    def __init__(
        self, topic_id: bytes, tag_bits: int, prefilter: str = DEFAULT_PREFILTER, entries: Entries | None = None
    ) -> None:
        self._topic_id = topic_id
        self.tag_bits = tag_bits
        self._prefilter = prefilter
        self._start(Entries() if entries is None else entries)

    def _start(self, entries: Entries) -> None:
        """With entries that nobody has searched yet."""
        self._entries = entries
        self._members = Members(self._prefilter, max(_FIRST_ITEMS, len(entries)), _FALSE_POSITIVES)
        self._tokens = SearchTokens(entries)
        self._combined = Combined(entries)
        self._removed = 0
        self._place(range(len(entries)))

    def _place(self, entries: range) -> None:
        self._members.add(self._entries.keys.values[entries.start : entries.stop])
        self._tokens.place(entries)

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
        bound = scheme.Holder(self._topic_id, row.filter.epoch, row.user).bound
        slots = [
            number
            for conjunction in row.filter.conjunctions
            for number, slot in zip(
                self._entries.add_conjunction(row.subscription, len(conjunction), bound), conjunction, strict=True
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
        self._tokens.drop(key for key in np.unique(keys).tolist() if not self._members.count(key))
        self._combined.clear()
        self._removed += len(keys)
        if self._removed > max(_MIN_REMOVED, len(self._entries) // 2):
            self._start(self._entries.compacted())

    # --- search -----------------------------------------------------------------------------------------------------

    def search(
        self, publishers: Sequence[str], epochs: Sequence[int], blocks: Sequence[bytes], halves: Halves
    ) -> FoundSubscriptions:
        """What the events of a batch match, given who published each, in which epoch, and its block."""
        refused: dict[int, SealedRejected] = {}
        doors = self._doors_of(publishers, epochs, halves)
        met = self._met(self._asked(epochs, blocks, refused), doors, refused)
        for event, door in enumerate(doors):
            if door is None:
                refused.setdefault(event, _no_half(publishers[event]))
        signatures = [tuple([token.number for token in tokens]) for tokens in met]
        fresh = {
            signature: Met([token.anchors for token in tokens], [token.name for token in tokens])
            for signature, tokens in zip(signatures, met, strict=True)
            if signature not in self._combined
        }
        return FoundSubscriptions(self._combined.matches(signatures, fresh), refused)

    def _doors_of(self, publishers: Sequence[str], epochs: Sequence[int], halves: Halves) -> list[Door | None]:
        """The door of each event; None where the broker has no half for its publisher any more."""
        named = list(zip(epochs, publishers, strict=True))
        found = {(epoch, name): self._tokens.door(epoch, name, halves(epoch, name)) for epoch, name in set(named)}
        return [found[each] for each in named]

    def _asked(self, epochs: Sequence[int], blocks: Sequence[bytes], refused: dict[int, SealedRejected]) -> Asked:
        """The trapdoors that somebody may have asked for, with their events and keys; the others are dismissed here.
        TrapdoorBlocks that are none are refused."""
        if len(blocks) < _BATCH:
            return self._asked_one_by_one(epochs, blocks, refused)
        read = TrapdoorBlocks.read(blocks, self.tag_bits)
        refused.update(read.refused)
        keys = np.asarray(epochs, np.uint64)[read.events] << np.uint64(MAX_TAG_BITS) | read.tags
        passed = np.flatnonzero(self._members.filter.may_contain(keys))
        data, offsets = read.data, read.offsets[passed].tolist()
        trapdoors = [data[offset : offset + TRAPDOOR_BYTES] for offset in offsets]
        return zip(read.events[passed].tolist(), keys[passed].tolist(), trapdoors, strict=True)

    def _asked_one_by_one(
        self, epochs: Sequence[int], blocks: Sequence[bytes], refused: dict[int, SealedRejected]
    ) -> Asked:
        for event, (epoch, block) in enumerate(zip(epochs, blocks, strict=True)):
            try:
                trapdoors = parse_block(block, self.tag_bits)
            except SealedRejected as refusal:
                refused[event] = refusal
                continue
            for trapdoor in trapdoors:
                yield event, epoch << MAX_TAG_BITS | int.from_bytes(trapdoor[:TAG_BYTES], "big"), trapdoor

    def _met(
        self, asked: Asked, doors: Sequence[Door | None], refused: dict[int, SealedRejected]
    ) -> list[list[SearchToken]]:
        """The tokens of each event that match something."""
        met: list[list[SearchToken]] = [[] for _ in doors]
        buckets, find = self._tokens.buckets, self._tokens.find
        for event, key, trapdoor in asked:
            # The filter may be wrong; what decides is whether there is a bucket.
            bucket, door = buckets.get(key), doors[event]
            if bucket is None or door is None:
                continue
            try:
                token = find(door, bucket, trapdoor)
            except Rejected as error:
                refused.setdefault(event, SealedRejected(SealedReason.POINT, error.message, hint=error.hint))
                continue
            if token.number:
                met[event].append(token)
        return met


def _no_half(user: str) -> SealedRejected:
    return SealedRejected(
        SealedReason.HALF,
        f"this broker has no half of a key for {user!r}",
        hint="whoever has lost a right has none; anyone else gets one with the topic's key of the epoch",
    )
