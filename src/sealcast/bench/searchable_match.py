"""Rows of suite `searchable` about matching ciphertexts.

    match          an event at 20 subscriptions: the paper's sequential algorithm (A0) over ours, with fresh randomness
                   in every trapdoor and topics that were seen before
    match-reused   the same with a publisher that reuses its trapdoor of a topic within an epoch
    dismiss        the same with an event that nobody asked for, over ours, with fresh randomness
    growth         ours at 1,000,000 subscriptions over ours at 1,000: events Zipf 1.1 over 1,000 topics, trapdoors
                   reused, every topic seen and subscribed to in both; writing out the matches excluded

Both use the same library, for the same labels and the same trapdoors. A0 has read the points of subscriptions when they
came, and reads those of a trapdoor once. Ours is measured on batches of 1,000 events, from blocks to packed matches.
What they find is compared before anything is timed. A ratio below the one that is asked for is reported like any other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from sealcast.bench.report import BenchRow, side_by_side
from sealcast.errors import Bug
from sealcast.lab.market import zipf
from sealcast.primitives import points
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Element, Exponent
from sealcast.primitives.halves import MasterKey, broker_half
from sealcast.primitives.secrets import Secret
from sealcast.protections.searchable import reference, scheme
from sealcast.protections.searchable.entries import Entries
from sealcast.protections.searchable.scheme import Holder, UserKeys
from sealcast.protections.searchable.search import FoundSubscriptions, Registered, SearchIndex
from sealcast.wire.searching import BLOCK_HEAD, MAX_TAG_BITS, packed_block

SUBSCRIPTIONS: Final = 20
EVENTS: Final = 1_000
#: A0 takes a millisecond and a half for each.
EVENTS_OF_A0: Final = 40
TAG_BITS: Final = 16
SMALL: Final = 1_000
LARGE: Final = 1_000_000
TOPICS: Final = 1_000
SKEW: Final = 1.1
_TOPIC_ID: Final = bytes(16)
_EPOCH: Final = 1
_PUBLISHER: Final = "publisher"
_ROUNDS: Final = 9


def rows() -> Iterator[BenchRow]:
    yield from match_rows()
    yield growth_row()


class MatchedUsers:
    """A key center, a broker's halves, and users with their keys."""

    def __init__(self, subscribers: int) -> None:
        self.master = MasterKey.derive(Secret(bytes(range(32))), b"bench")
        self.topic_key = Secret(bytes(range(32, 64)))
        self.users = [f"subscriber {i}" for i in range(subscribers)]
        self.halves = {name: broker_half(self.topic_key, name.encode()) for name in (_PUBLISHER, *self.users)}
        self.publisher = self.keys(_PUBLISHER)

    def half(self, epoch: int, user: str) -> Exponent | None:
        return self.halves.get(user)

    def keys(self, user: str) -> UserKeys:
        return UserKeys(self.master.part(self.halves[user]), _holder(user), TAG_BITS)

    def search(self, index: SearchIndex, blocks: Sequence[bytes]) -> FoundSubscriptions:
        return index.search([_PUBLISHER] * len(blocks), [_EPOCH] * len(blocks), blocks, self.half)


def _holder(user: str) -> Holder:
    return Holder(_TOPIC_ID, _EPOCH, user)


# --- 20 subscriptions -------------------------------------------------------------------------------------------------


def match_rows(events: int = EVENTS, events_of_a0: int = EVENTS_OF_A0, rounds: int = _ROUNDS) -> Iterator[BenchRow]:
    """CPU microseconds per event, and how many times faster than A0."""
    world, random = MatchedUsers(SUBSCRIPTIONS), np.random.default_rng(1)
    topics = [f"topic {i}".encode() for i in range(SUBSCRIPTIONS)]
    sealed = [world.keys(user).seal_label(topic) for user, topic in zip(world.users, topics, strict=True)]
    labels = [
        reference.Label.read(_holder(user), world.halves[user], label)
        for user, label in zip(world.users, sealed, strict=True)
    ]
    index = _index_of(world, topics)
    reused = {topic: world.publisher.trapdoor(topic) for topic in topics}
    world.search(index, [packed_block([trapdoor]) for trapdoor in reused.values()])  # topics are seen

    def stream() -> list[bytes]:
        return [topics[i] for i in random.integers(0, len(topics), events).tolist()]

    makers: dict[str, Callable[[], list[bytes]]] = {
        "match": lambda: [world.publisher.block([topic]) for topic in stream()],
        "match-reused": lambda: [packed_block([reused[topic]]) for topic in stream()],
        "dismiss": lambda: [world.publisher.block([b"unasked " + topic]) for topic in stream()],
    }
    for name, make in makers.items():
        batches = iter([make() for _ in range(rounds + 2)])
        first = next(batches)
        _agree(world, index, labels, first[:events_of_a0])
        trapdoors = [block[BLOCK_HEAD:] for block in first[:events_of_a0]]

        def ours(batches: Iterator[list[bytes]] = batches) -> object:
            return world.search(index, next(batches)).words(SUBSCRIPTIONS)

        def sequential(trapdoors: list[bytes] = trapdoors) -> object:
            return [_a0(world, labels, trapdoor) for trapdoor in trapdoors]

        mine, other = side_by_side(ours, sequential, rounds)
        mine, other = mine / events * 1e6, other / len(trapdoors) * 1e6
        told = f"the paper's sequential algorithm, {SUBSCRIPTIONS} subscriptions"
        yield BenchRow(name, mine, other, told, other / mine, "CPU us per event")


def _index_of(world: MatchedUsers, topics: Sequence[bytes]) -> SearchIndex:
    index = SearchIndex(_TOPIC_ID, TAG_BITS)
    index.add(
        [
            Registered(number, user, world.keys(user).seal_filter([[[topic]]]))
            for number, (user, topic) in enumerate(zip(world.users, topics, strict=True))
        ],
        world.half,
    )
    return index


def _a0(world: MatchedUsers, labels: Sequence[reference.Label], trapdoor: bytes) -> list[int]:
    return reference.a0(labels, reference.Trapdoor.read(world.halves[_PUBLISHER], trapdoor))


def _agree(world: MatchedUsers, index: SearchIndex, labels: Sequence[reference.Label], blocks: Sequence[bytes]) -> None:
    """A way that finds something else is not measured."""
    ours = [found.tolist() for found in world.search(index, blocks).matches]
    if ours != [_a0(world, labels, block[BLOCK_HEAD:]) for block in blocks]:
        raise Bug("the index and the sequential algorithm disagree")


# --- 1,000,000 subscriptions ------------------------------------------------------------------------------------------


def growth_row(small: int = SMALL, large: int = LARGE, events: int = 10_000, rounds: int = _ROUNDS) -> BenchRow:
    """CPU microseconds per event with many subscriptions, and how many times as much as with few."""
    world, random = MatchedUsers(1), np.random.default_rng(1)
    topics = [f"topic {i}".encode() for i in range(TOPICS)]
    reused = [packed_block([world.publisher.trapdoor(topic)]) for topic in topics]
    stream = [reused[i] for i in zipf(random, TOPICS, events, SKEW).tolist()]
    indexes = []
    for size in (large, small):
        # Every topic once, the rest as popular as its events.
        which = np.concatenate([np.arange(TOPICS), zipf(random, TOPICS, size - TOPICS, SKEW)])
        index = SearchIndex(_TOPIC_ID, TAG_BITS, entries=entries(world, topics, which.tolist()))
        found = world.search(index, reused)
        if [len(each) for each in found.matches] != np.bincount(which, minlength=TOPICS).tolist():
            raise Bug(f"{size} subscriptions do not get what they asked for")
        indexes.append(index)
    gc.collect()
    many, few = indexes
    mine, other = side_by_side(lambda: world.search(many, stream), lambda: world.search(few, stream), rounds)
    mine, other = mine / events * 1e6, other / events * 1e6
    return BenchRow(
        "growth", mine, other, f"the same events at {small:,} subscriptions", mine / other, "CPU us per event"
    )


def entries(world: MatchedUsers, topics: Sequence[bytes], which: Sequence[int]) -> Entries:
    """A subscription to one topic each, re-encrypted: the points that `SearchIndex.add` would compute, made by two
    additions each instead of four multiplications. Their r follow one another, which no subscriber's would."""
    public = world.master.public
    tokens = [CURVE.power(public, world.publisher.sigma(topic)) for topic in topics]
    keys = [_EPOCH << MAX_TAG_BITS | int.from_bytes(world.publisher.tag(topic), "big") for topic in topics]
    made, elements, checks = Entries(), list[Element](), list[bytes]()
    hidden, bound = CURVE.power(public, points.random_exponent()), _holder(world.users[0]).bound
    for topic in which:
        hidden = _sum(hidden, public)
        elements.append(_sum(hidden, tokens[topic]))
        checks.append(scheme.check(bound, CURVE.encode(hidden)))
    for subscription in range(len(which)):
        made.add_conjunction(subscription, 1, bound)
    made.add([keys[topic] for topic in which], b"".join(elements), b"".join(checks), range(len(which)))
    return made


def _sum(one: Element, other: Element) -> Element:
    found = points.add(one, other)
    if found is None:
        raise Bug("a sum of points is infinity")
    return found
