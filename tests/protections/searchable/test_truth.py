"""Every broker algorithm against plaintext truth: 100,000 random pairs of an event and a subscription each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random

import numpy as np
import pytest

from sealcast.filters.bits import pairs
from sealcast.filters.check import check
from sealcast.filters.evaluate import evaluate
from sealcast.filters.labels import Labeller, label_filter
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.model.schema import Attribute, Schema, Type, Value
from sealcast.primitives.groups import Element
from sealcast.protections.searchable import reference
from sealcast.protections.searchable.reference import Label, Trapdoor
from sealcast.protections.searchable.scheme import Holder, UserKeys
from sealcast.protections.searchable.search import Registered, SearchIndex
from sealcast.wire.searching import parse_block
from tests.effort import seeds
from tests.protections.searchable.world import TOPIC_ID, World

EVENTS, SUBSCRIPTIONS = 250, 400
USERS = ("ana", "bo", "cy", "di", "ed")
Event = dict[str, Value]


class Content:
    """Random events and filters of a schema, sealed."""

    def __init__(self, schema: Schema, events: list[Event], filters: list[str], tag_bits: int = 16) -> None:
        self.world, self.labeller = World(USERS, tag_bits), Labeller(schema)
        self.keys: dict[str, UserKeys] = {user: self.world.keys(user) for user in USERS}
        self.events = [schema.parse(event) for event in events]
        self.conditions: list[Condition] = [check(parse(text), schema).condition for text in filters]
        self.publishers = [USERS[number % len(USERS)] for number in range(len(events))]
        self.blocks = [
            self.keys[publisher].block(self.labeller.labels(event))
            for publisher, event in zip(self.publishers, self.events, strict=True)
        ]
        self.rows = [
            Registered(number, user, self.keys[user].seal_filter(self.slots(condition)))
            for number, condition in enumerate(self.conditions)
            for user in [USERS[number * 7 % len(USERS)]]
        ]

    def slots(self, condition: Condition) -> list[tuple[tuple[bytes, ...], ...]]:
        return [each.slots for each in label_filter(condition, self.labeller.schema).conjunctions]

    def truth(self) -> set[tuple[int, int]]:
        assert len(self.events) * len(self.conditions) >= 100_000
        return {
            (e, s)
            for e, event in enumerate(self.events)
            for s, condition in enumerate(self.conditions)
            if evaluate(condition, event) is True
        }


# --- A0 to A3, as they are written down -------------------------------------------------------------------------------


@cache
def small() -> Content:
    """Few labels an event: the sequential algorithms take a tenth of a millisecond for each pair of labels."""
    random = Random(1)
    schema = Schema((Attribute("level", Type.INT, min=0, max=3),))
    filters = [f"level {random.choice(('=', '<>', '<', '<=', '>', '>='))} {random.randint(0, 3)}" for _ in range(400)]
    filters[::20] = ["level IS NULL OR level IS NOT NULL"] * 20
    events: list[Event] = [{"level": random.choice((0, 1, 2, 3, None))} for _ in range(EVENTS)]
    return Content(schema, events, filters)


def found_by(
    match: Callable[[Sequence[Label], Sequence[Element], str, bytes], list[int]], events: int | None = None
) -> set[tuple[int, int]]:
    """The pairs that an algorithm finds which gives the labels that a trapdoor matches; of the first so many events."""
    content, half = small(), small().world.known_half
    labels = [
        (row.subscription, place, Label.read(Holder(TOPIC_ID, 1, row.user), half(row.user), label))
        for row in content.rows
        for place, slots in enumerate(row.filter.conjunctions)
        for slot in slots
        for label in slot
    ]
    assert all(len(slots) == 1 for row in content.rows for slots in row.filter.conjunctions)
    sealed, encrypted = [label for _, _, label in labels], [label.encrypted() for _, _, label in labels]
    return {
        (event, labels[number][0])
        for event, (publisher, block) in enumerate(list(zip(content.publishers, content.blocks, strict=True))[:events])
        for trapdoor in parse_block(block, 16)
        for number in match(sealed, encrypted, publisher, trapdoor)
    }


def _trapdoor(user: str, trapdoor: bytes) -> Trapdoor:
    return Trapdoor.read(small().world.known_half(user), trapdoor)


def truth_of(events: int | None) -> set[tuple[int, int]]:
    return {pair for pair in small().truth() if events is None or pair[0] < events}


#: The slow ones: 10,000 pairs always, all 100,000 in the long tests.
slow = pytest.mark.parametrize("events", [25, pytest.param(None, marks=pytest.mark.soak)])


@slow
def test_a0_sequential(events: int | None) -> None:
    assert found_by(lambda labels, _, who, it: reference.a0(labels, _trapdoor(who, it)), events) == truth_of(events)


@slow
def test_a1_re_encrypted_once(events: int | None) -> None:
    assert found_by(lambda labels, c, who, it: reference.a1(labels, c, _trapdoor(who, it)), events) == truth_of(events)


def test_a2_a_trapdoor_for_each_recipient() -> None:
    """The paper's own: the publisher would need everybody's key."""
    content = small()
    by_token = {
        _trapdoor("ana", content.keys["ana"].trapdoor(label)).token(): label
        for event in content.events
        for label in content.labeller.labels(event)
    }

    def match(labels: Sequence[Label], c: Sequence[Element], who: str, trapdoor: bytes) -> list[int]:
        label = by_token[_trapdoor(who, trapdoor).token()]
        each = {user: _trapdoor(user, content.keys[user].trapdoor(label)) for user in USERS}
        return reference.a2(labels, c, each)

    assert found_by(match) == content.truth()


def test_a3_one_trapdoor() -> None:
    assert found_by(lambda labels, c, who, it: reference.a3(labels, c, _trapdoor(who, it))) == small().truth()


# --- A4 ---------------------------------------------------------------------------------------------------------------


def large(tag_bits: int) -> Content:
    """Ranges, prefixes, suffixes, equalities and alternatives over several attributes, some of them absent."""
    random = Random(2)
    schema = Schema(
        (
            Attribute("price", Type.INT, min=0, max=31),
            Attribute("symbol", Type.STRING, max_length=3),
            Attribute("open", Type.BOOL),
        )
    )
    symbols = ("AC", "ACE", "B", "BA", "ABC")

    def part() -> str:
        low = random.randint(0, 31)
        return random.choice(
            (
                f"price BETWEEN {low} AND {min(31, low + random.randint(0, 12))}",
                f"price <> {low}",
                f"symbol = '{random.choice(symbols)}'",
                f"symbol LIKE '{random.choice('AB')}%'",
                f"symbol LIKE '%{random.choice('CE')}'",
                "open",
                "NOT open",
                "price IS NOT NULL",
            )
        )

    def filter_text() -> str:
        return " OR ".join(
            " AND ".join(part() for _ in range(random.randint(1, 3))) for _ in range(random.randint(1, 2))
        )

    filters = [filter_text() for _ in range(SUBSCRIPTIONS)]
    filters[3] = "price > 5 AND price < 3"  # matches nothing
    filters[4] = "price IS NULL OR price IS NOT NULL"  # matches everything
    events: list[Event] = [
        {
            "price": random.choice((None, *range(32))),
            "symbol": random.choice((None, *symbols)),
            "open": random.choice((None, True, False)),
        }
        for _ in range(EVENTS)
    ]
    return Content(schema, events, filters, tag_bits)


@pytest.mark.parametrize(
    ("tag_bits", "prefilter"), seeds([(0, "none"), (16, "cuckoo"), (2, "cuckoo"), (32, "bloom")], daily=2)
)
def test_a4_the_index(tag_bits: int, prefilter: str) -> None:
    """Half of the subscriptions come after the publications, which are then searched once more."""
    content = large(tag_bits)
    index, half, middle = SearchIndex(TOPIC_ID, tag_bits, prefilter), content.world.half, SUBSCRIPTIONS // 2

    def found() -> set[tuple[int, int]]:
        epochs = [1] * len(content.blocks)
        batch = index.search(content.publishers, epochs, content.blocks, half)
        assert not batch.refused
        events, subscriptions = pairs(batch.words(SUBSCRIPTIONS))
        listed = batch.pairs()
        assert np.array_equal(listed[0], events) and np.array_equal(listed[1], subscriptions)
        return set(zip(events.tolist(), subscriptions.tolist(), strict=True))

    truth = content.truth()
    assert index.add(content.rows[:middle], half) == {}
    assert found() == {(e, s) for e, s in truth if s < middle}
    assert index.add(content.rows[middle:], half) == {}
    assert found() == truth
    gone = set(range(0, SUBSCRIPTIONS, 3))
    index.remove(sorted(gone))
    assert found() == {(e, s) for e, s in truth if s not in gone}
    assert index.add([row for row in content.rows if row.subscription in gone], half) == {}
    assert found() == truth
