"""Labels against the reference evaluator: every filter that is not refused says the same of every event, and with the
fewest labels."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise, product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import EventRejected, FilterRejected, Misuse
from sealcast.filters.check import check
from sealcast.filters.evaluate import evaluate
from sealcast.filters.labels import LabelFilter, Labeller, StringPlan, label_filter, naming, text
from sealcast.filters.labels.compile import MAX_CONJUNCTIONS
from sealcast.filters.labels.grid import Grid
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.model.schema import Attribute, Schema, Type, Value
from tests.effort import examples
from tests.filters.worlds import Maker, columns_of

SCHEMA = Schema(
    (
        Attribute("n", Type.INT, min=-3, max=9),
        Attribute("price", Type.DECIMAL, min="0", max="1", step=Decimal("0.05")),
        Attribute("ratio", Type.FLOAT, min=0, max=1, step=Decimal("0.1")),
        Attribute("wide", Type.FLOAT),
        Attribute("s", Type.STRING, max_length=8),
        Attribute("open", Type.BOOL),
        Attribute("at", Type.TIMESTAMP, min="2024-01-01", max="2024-01-02", step=Decimal(3_600_000)),
        Attribute("big", Type.INT),
    )
)
TEXTS = ("", "a", "ab", "abc", "b", "ba", "aba", "zz", "é", "aé", "😀", "~", "\x7f", "\x80", "퟿", "\ue000", "a\0", "A")
VALUES: dict[str, tuple[Value, ...]] = {
    "n": tuple(range(-3, 10)),
    "price": tuple(Decimal(i) / 20 for i in range(21)),
    "ratio": tuple(i / 10 for i in range(11)),
    "wide": (-1e308, -2.5, -0.0, 0.0, 5e-324, 0.1, 0.3, 2.0, 1e308),
    "s": TEXTS,
    "open": (True, False),
    "at": tuple(datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in range(24)),
    "big": (-(2**63), -1, 0, 1, 7, 2**62, 2**63 - 1),
}
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


def wanted(filter_text: str, schema: Schema = SCHEMA, plan: StringPlan | None = None) -> tuple[Condition, LabelFilter]:
    condition = check(parse(filter_text), schema).condition
    return condition, label_filter(condition, schema, plan)


def agree_on(filter_text: str, attribute: str, schema: Schema = SCHEMA) -> None:
    """Every value of the attribute, and none."""
    condition, compiled = wanted(filter_text, schema)
    labeller = Labeller(schema)
    for value in (*VALUES[attribute], None):
        event = schema.parse({attribute: value})
        assert compiled.matches(set(labeller.labels(event))) is (evaluate(condition, event) is True), (
            filter_text,
            value,
        )


def literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat()}'"
    return str(value).upper() if isinstance(value, bool) else str(value)


# --- exact ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attribute", VALUES)
def test_every_comparison_with_every_value(attribute: str) -> None:
    comparisons = COMPARISONS[:2] if attribute == "open" else COMPARISONS
    for op, value, negated in product(comparisons, VALUES[attribute], ("", "NOT ")):
        agree_on(f"{negated}{attribute} {op} {literal(value)}", attribute)


@pytest.mark.parametrize(
    "filter_text",
    [
        "price > 0.07 AND price <= 0.31",
        "price BETWEEN 0.01 AND 0.04",
        "price NOT BETWEEN 0.2 AND 0.3",
        "price IN (0, 0.05, 0.1, 7)",
        "price >= 0",
        "price < 0",
        "price IS NOT NULL",
        "NOT (price IS NULL)",
        "price IS NULL OR price IS NOT NULL",
        "(price IS NULL OR price > 0.5) AND price < 0.7",
    ],
)
def test_ranges_of_a_decimal(filter_text: str) -> None:
    agree_on(filter_text, "price")


@pytest.mark.parametrize(
    "filter_text",
    [
        "s LIKE 'a%'", "s LIKE '%a'", "s LIKE '%ba'", "s LIKE 'a%c'", "s LIKE 'ab'", "s LIKE '%'", "s NOT LIKE 'a%'",
        "s BETWEEN 'a' AND 'b'", "s > 'a' AND s < 'b'", "s >= 'ab' AND s <= 'abc'", "s NOT IN ('a', 'ab')",
        "s IN ('', 'é', '😀')", "s <> ''", "s IS NOT NULL", "s LIKE '%a' AND s LIKE '%ba'",
        "s LIKE '%a' OR s LIKE '%b'",
        "s LIKE '%a' AND s > 'b'", "(s IS NULL OR s > 'b') AND s LIKE '%a'", "path:s=a/#", "s < '\x80'", "s >= '\x80'",
        "s LIKE '😀%'", "s LIKE '%a' AND s IS NULL", "s LIKE '%a' AND s LIKE '%b'",
    ],
)  # fmt: skip
def test_texts(filter_text: str) -> None:
    agree_on(filter_text, "s")


@examples(25, soak=300)
@given(st.integers(0, 2**32))
def test_agrees_with_the_reference_in_random_worlds(seed: int) -> None:
    world = Maker(seed).world(conditions=8, events=12)
    labeller = Labeller(world.schema)
    have = [set(labeller.labels(event)) for event in world.events]
    for condition in world.conditions:
        try:
            compiled = label_filter(condition, world.schema)
        except FilterRejected:
            continue
        for event, labels in zip(world.events, have, strict=True):
            assert compiled.matches(labels) is (evaluate(condition, event) is True), (condition, event)


@examples(25, soak=100)
@given(st.integers(0, 2**32))
def test_conjunctions_of_several_attributes(seed: int) -> None:
    random = Random(seed)

    def part() -> str:
        name = random.choice(("n", "price", "s", "open", "ratio"))
        if name == "open":
            return random.choice(("open", "NOT open", "open = FALSE"))
        if name == "s" and random.random() < 0.4:
            return random.choice(("s LIKE 'a%'", "s LIKE '%a'", "s LIKE 'ab%'", "s <> 'a'"))
        return f"{name} {random.choice(COMPARISONS)} {literal(random.choice(VALUES[name]))}"

    filter_text = " OR ".join(
        "(" + " AND ".join(part() for _ in range(random.randint(1, 3))) + ")" for _ in range(random.randint(1, 3))
    )
    condition, compiled = wanted(
        random.choice(("", "NOT ")) + f"({filter_text})" if "%a'" not in filter_text else filter_text
    )
    labeller = Labeller(SCHEMA)
    for _ in range(40):
        given_values = {
            name: random.choice(VALUES[name]) for name in ("n", "price", "s", "open", "ratio") if random.random() < 0.85
        }
        event = SCHEMA.parse(given_values)
        assert compiled.matches(set(labeller.labels(event))) is (evaluate(condition, event) is True)


# --- minimal --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [*range(1, 18), 31, 32, 33])
def test_blocks_are_exact_and_as_few_as_can_be(count: int) -> None:
    """Brute force over every range: the fewest blocks by dynamic programming over the binary tree."""
    grid = Grid("x", 0, 1, count)
    worst = 0
    for first in range(count):
        for last in range(first, count):
            blocks = grid.cover([(first, last)])
            hit = [sum(place >> (grid.bits - b) == p for b, p in blocks) for place in range(count)]
            assert hit == [int(first <= place <= last) for place in range(count)]
            assert len(blocks) == fewest(grid, set(range(first, last + 1)))
            worst = max(worst, len(blocks))
    assert worst <= max(2, 2 * grid.bits - 2)  # not log2 Z, as paper 003 says
    if count == 1 << grid.bits and grid.bits >= 2:
        assert worst == 2 * grid.bits - 2


def fewest(grid: Grid, places: set[int]) -> int:
    def below(bits: int, prefix: int) -> int:
        inside = [p for p in range(grid.count) if p >> (grid.bits - bits) == prefix]
        if not places.intersection(inside):
            return 0
        if bits and places.issuperset(inside):
            return 1
        return below(bits + 1, 2 * prefix) + below(bits + 1, 2 * prefix + 1)

    return below(0, 0)


@examples(25, soak=100)
@given(st.integers(1, 40), st.sets(st.integers(0, 39)))
def test_any_set_of_places(count: int, places: set[int]) -> None:
    grid, places = Grid("x", 0, 1, count), {p for p in places if p < count}
    blocks = grid.cover((p, p) for p in places)
    assert {p for p in range(count) if any(p >> (grid.bits - b) == q for b, q in blocks)} == places
    assert len(blocks) == fewest(grid, places)


@examples(40, soak=200)
@given(st.lists(st.text(st.sampled_from("aoz\x7f\x80é\U0010ffff"), max_size=3), min_size=2, max_size=6), st.data())
def test_subtrees_of_texts_are_as_few_as_can_be(bounds: list[str], data: st.DataObject) -> None:
    cuts = sorted(set(bounds))
    intervals = [
        ((0, a, data.draw(st.sampled_from((0, 1)))), (0, b, data.draw(st.sampled_from((-1, 0)))))
        for a, b in pairwise(cuts)
    ]
    intervals += [((0, a, 0), (0, a, 0)) for a in cuts]
    chosen = [i for i in intervals if i[0] <= i[1] and data.draw(st.booleans())]
    nodes = text.cover([text.stretch(i) for i in chosen])
    samples = {a + b for a in (*cuts, "", "p", "ÿ") for b in ("", "\0", "a", "\x7f", "\x80", "\U0010ffff")}
    for sample in samples:
        digits = (*text.digits(sample), text.END)
        inside = any(low <= (0, sample, 0) <= high for low, high in chosen)
        assert sum(digits[: len(node)] == node for node in nodes) == inside, (sample, chosen)
    # No subtree could stand for several: of no node are all children there.
    kept = set(nodes)
    for node in nodes:
        assert not node or not kept.issuperset(text.children(node[:-1]))


def test_digits_are_ordered_as_texts_are() -> None:
    every = sorted(TEXTS)
    assert [(*text.digits(t), text.END) for t in every] == sorted((*text.digits(t), text.END) for t in every)
    assert [text.spelled(text.digits(t)) for t in every] == every


# --- events ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_batches_are_their_events(seed: int) -> None:
    world = Maker(seed).world(conditions=0, events=15)
    labeller = Labeller(world.schema)
    batch = labeller.batch(world.columns)
    assert len(set(batch.labels)) == len(batch.labels)
    for i, event in enumerate(world.events):
        assert sorted(batch.of(i)) == sorted(labeller.labels(event))


def test_an_empty_batch_and_one_of_nulls() -> None:
    labeller = Labeller(SCHEMA)
    assert labeller.batch(columns_of(SCHEMA, [])).offsets.tolist() == [0]
    batch = labeller.batch(columns_of(SCHEMA, [{}, {}]))
    assert batch.of(1) == [naming.root(a.name) for a in SCHEMA.attributes] == labeller.labels({})


def test_how_many_labels_an_event_has() -> None:
    labeller = Labeller(Schema((Attribute("n", Type.INT, min=0, max=15),)))
    assert len(labeller.labels({"n": 7})) == 5 == labeller.most()  # L + 1, the root among them
    every = [len(Labeller(SCHEMA).labels(SCHEMA.parse({"s": s}))) for s in TEXTS]
    assert max(every) <= Labeller(SCHEMA).most()


def test_a_value_outside_its_domain_has_no_labels() -> None:
    labeller = Labeller(SCHEMA)
    for event in ({"n": 10}, {"n": -4}, {"price": Decimal("0.01")}, {"ratio": 0.15}, {"ratio": 1.1}):
        with pytest.raises(EventRejected, match="domain"):
            labeller.labels(event)
        with pytest.raises(EventRejected, match="domain"):
            labeller.batch(columns_of(SCHEMA, [event]))


def test_names_are_injective() -> None:
    schema = Schema((Attribute("a", Type.STRING), Attribute("aT", Type.STRING), Attribute("b", Type.INT)))
    labels = [
        label
        for event in ({"a": "x"}, {"a": "Tx"}, {"aT": "x"}, {"b": 1}, {"b": 256})
        for label in Labeller(schema).labels(schema.parse(event))
    ]
    assert naming.root("a") in labels and naming.root("aT") in labels
    assert (
        len({naming.exact("a", "Tx"), naming.exact("aT", "x"), naming.suffix("a", "Tx"), naming.subtree("a", b"Tx")})
        == 4
    )
    assert naming.block("b", 3, 1) != naming.block("b", 4, 1)


# --- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filter_text", "kind", "at", "said"),
    [
        ("price IS NULL", "inexpressible", 0, "price IS NULL"),
        ("n > 1 AND (price IS NULL OR price > 0.5)", "inexpressible", 11, "no label of its own"),
        ("n > 1 AND s LIKE '%b%'", "inexpressible", 10, "inside a text"),
        ("s LIKE 'a_c'", "inexpressible", 0, "inside a text"),
        ("s NOT LIKE '%b'", "inexpressible", 0, "ending"),
        ("s LIKE 'ab%ba'", "inexpressible", 0, "overlap"),
        ("n = big", "inexpressible", 0, "two attributes"),
        ("open AND n + 1 > 3", "inexpressible", 9, "computes"),
        ("REGEX('^a', s)", "inexpressible", 0, "regular expression"),
        ("PATH('a/+', s)", "inexpressible", 0, "path with +"),
        ("xpath:/a", "inexpressible", 6, "payload"),
        (f"s > '{'x' * 33}'", "limit", 0, "32 characters"),
        (f"s LIKE '%{'x' * 33}'", "limit", 0, "32 characters"),
    ],
)
def test_what_labels_cannot_say(filter_text: str, kind: str, at: int, said: str) -> None:
    with pytest.raises(FilterRejected, match=said) as raised:
        wanted(filter_text)
    assert (raised.value.kind, raised.value.at) == (kind, at)
    if kind == "inexpressible":
        assert raised.value.hint is not None and "IS NOT NULL" in raised.value.hint


def test_too_many_alternatives() -> None:
    schema = Schema(tuple(Attribute(f"x{i}", Type.INT, min=0, max=3) for i in range(40)))
    pairs = [f"(x{2 * i} > 1 OR x{2 * i + 1} > 1)" for i in range(20)]
    assert wanted(" AND ".join(pairs[:6]), schema)[1].cost.conjunctions == MAX_CONJUNCTIONS
    for count in (7, 20):
        with pytest.raises(FilterRejected, match="more than 64 conjunctions") as raised:
            wanted(" AND ".join(pairs[:count]), schema)
        assert raised.value.kind == "limit"
    dear = Schema((Attribute("s", Type.STRING),))
    with pytest.raises(FilterRejected, match="more than 4096 labels"):
        wanted("s NOT IN (" + ", ".join(f"'{i * 7919 % 100000:05}x{i}'" for i in range(200)) + ")", dear)


def test_a_plan_without_depth() -> None:
    flat = StringPlan(text=0, suffix=0)
    _, compiled = wanted("s = 'ab' OR s = ''", plan=flat)
    labeller = Labeller(SCHEMA, flat)
    assert [compiled.matches(set(labeller.labels(SCHEMA.parse({"s": s})))) for s in ("ab", "", "a")] == [
        True,
        True,
        False,
    ]
    for refused in ("s LIKE 'a%'", "s LIKE '%a'", "s < 'b'", "s <> ''", "s > ''", "NOT (s = '')", "s = 'a' OR s > ''"):
        with pytest.raises(FilterRejected, match="no labels for"):
            wanted(refused, plan=flat)
    with pytest.raises(Misuse):
        StringPlan(text=65)


def test_texts_longer_than_labels_go() -> None:
    plan = StringPlan(text=2, suffix=2)
    labeller = Labeller(SCHEMA, plan)
    for filter_text in (
        "s > 'ab'",
        "s <= 'ab'",
        "s LIKE 'ab%'",
        "s = 'abcdef'",
        "s <> 'ab'",
        "s LIKE '%ef'",
        "s BETWEEN 'ab' AND 'ac'",
    ):
        condition, compiled = wanted(filter_text, plan=plan)
        for s in ("", "a", "ab", "ab\0", "abc", "abcdef", "ac", "aca", "b", "ef", "xef", "ab😀"):
            event = SCHEMA.parse({"s": s})
            assert compiled.matches(set(labeller.labels(event))) is (evaluate(condition, event) is True), (
                filter_text,
                s,
            )


# --- cost -----------------------------------------------------------------------------------------------------------


def test_the_cost_is_said() -> None:
    _, compiled = wanted("n BETWEEN -2 AND 8 AND (s LIKE 'ab%' OR open)")
    assert compiled.cost.conjunctions == 2
    assert compiled.cost.slots == 4
    assert compiled.cost.labels == sum(len(slot) for c in compiled.conjunctions for slot in c.slots)
    _, everything = wanted("TRUE")
    assert everything.cost == (1, 1, 1)
    assert everything.matches(set(Labeller(SCHEMA).labels({})))
    _, nothing = wanted("n > 100 AND open")
    assert nothing.conjunctions == ()


def test_alternatives_are_joined_and_absorbed() -> None:
    assert wanted("n = 1 OR n = 2 OR n BETWEEN 3 AND 5")[1].cost.conjunctions == 1
    assert wanted("open AND n = 1 OR open AND n = 2")[1].cost.conjunctions == 1
    assert wanted("n > 1 OR n > 3 AND open")[1] == wanted("n > 1")[1]
    assert wanted("s LIKE '%a' OR s LIKE '%ba'")[1] == wanted("s LIKE '%a'")[1]
    assert wanted("price IN (0, 0.05, 0.10, 0.15)")[1].cost.labels == 1  # 4 places, one block


def test_equal_filters_have_equal_labels() -> None:
    assert wanted("n > 1 AND open")[1] == wanted("NOT (NOT open OR n < 2)")[1]


def test_the_batch_is_fast_enough_to_be_worth_it() -> None:
    """Each distinct label is made once, whatever the number of events."""
    schema = Schema((Attribute("n", Type.INT, min=0, max=1023),))
    rng = np.random.default_rng(1)
    events = [{"n": int(v)} for v in rng.integers(0, 1024, 5000)]
    batch = Labeller(schema).batch(columns_of(schema, events))
    assert len(batch.ids) == 5000 * 11
    assert len(batch.labels) <= 2 * 1024
