"""The index finds exactly the subscriptions whose filters are true: against the reference, one pair at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.filters.evaluate import evaluate
from sealcast.filters.index import ChangedIndex, Index, blocks, boxes, dense, grid, plan, postings, tables
from sealcast.filters.index.boxes import Side
from sealcast.filters.index.changed import NEW
from sealcast.filters.index.normal import normalise
from sealcast.filters.parse import parse
from sealcast.filters.tree import And, Condition, In, Literal, Name
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.model.schema import Attribute, Schema, Type, Value
from tests.effort import examples
from tests.filters.worlds import Maker, World, columns_of, unpacked

#: Every way of finding boxes must find the same: what the plan would never choose for so few is forced on it.
PLANS: dict[str, dict[str, Any]] = {
    "as planned": {},
    "blocks": {"SMALL_WORDS": 0, "DENSE_MATCHES": 1e9, "MAX_LOAD": 0},
    "own blocks": {
        "SMALL_WORDS": 0,
        "DENSE_MATCHES": 1e9,
        "MAX_LOAD": 0,
        "_OWN_BLOCKS": 1,
        "_WIDTHS": ((50, 1), (70, 2)),
    },
    "lists": {"SMALL_WORDS": 0, "DENSE_MATCHES": 1e9, "MAX_LOAD": 10**6, "_OWN_BLOCKS": 1},
    "some dense": {"SMALL_WORDS": 0, "DENSE_MATCHES": 5.0, "_OWN_BLOCKS": 2},
}
SCHEMA = Schema(
    (Attribute("i", Type.INT), Attribute("f", Type.FLOAT), Attribute("s", Type.STRING), Attribute("b", Type.BOOL))
)


def built(chosen: str, conditions: list[Condition], schema: Schema) -> Index:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in PLANS[chosen].items():
            patched.setattr(plan, name, value)
        return Index.build(conditions, schema)


def differences(index: Index, world: World) -> np.ndarray:
    """(event, subscription) pairs on which the index and the reference disagree."""
    found = unpacked(index.match(world.columns, world.payloads), len(world.conditions))
    return np.argwhere(found != world.expected())


@pytest.mark.parametrize("chosen", PLANS)
@examples(5, soak=25)
@given(seed=st.integers(0, 2**40))
def test_agrees_with_the_reference(chosen: str, seed: int) -> None:
    world = Maker(seed).world(conditions=90, events=20)
    index = built(chosen, list(world.conditions), world.schema)
    wrong = differences(index, world)
    assert not wrong.size, (world.events[wrong[0][0]], world.conditions[wrong[0][1]])
    events, subscriptions = index.pairs(world.columns, world.payloads)
    assert np.array_equal(np.stack([events, subscriptions], axis=1), np.argwhere(world.expected()))
    enough = index.few_pairs(world.columns, world.payloads, None, 90 * 90 * 20)
    assert enough is not None and np.array_equal(enough[0], events) and np.array_equal(enough[1], subscriptions)
    assert not events.size or index.few_pairs(world.columns, world.payloads, None, events.size - 1) is None


def one_by_one(index: Index, world: World) -> np.ndarray:
    """(event, subscription) pairs on which the index says something else of events one at a time."""
    each = [
        index.match(world.columns.slice(row, 1), None if world.payloads is None else world.payloads[row : row + 1])
        for row in range(world.columns.num_rows)
    ]
    return np.argwhere(np.concatenate(each) != index.match(world.columns, world.payloads))


@pytest.mark.parametrize("chosen", PLANS)
@examples(5, soak=25)
@given(seed=st.integers(0, 2**40))
def test_one_event_at_a_time_matches_as_it_does_among_others(chosen: str, seed: int) -> None:
    world = Maker(seed).world(conditions=90, events=20)
    index = built(chosen, list(world.conditions), world.schema)
    assert not one_by_one(index, world).size
    events, subscriptions = index.pairs(world.columns, world.payloads)
    for row in range(world.columns.num_rows):
        payloads = None if world.payloads is None else world.payloads[row : row + 1]
        alone, found = index.pairs(world.columns.slice(row, 1), payloads)
        assert not alone.any() and np.array_equal(found, subscriptions[events == row])


@pytest.mark.parametrize("handful", [0, 6])
@pytest.mark.parametrize("whole_words", [0, 4_096])
@pytest.mark.parametrize("chosen", ["blocks", "own blocks", "lists"])
def test_one_event_has_a_shorter_way_that_ends_at_the_same(chosen: str, whole_words: int, handful: int) -> None:
    """Every way of it is taken: few boxes and many, short rows and long ones. Filters are those that it is for."""
    found = 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(blocks, "_WHOLE_WORDS", whole_words)
        patched.setattr(boxes, "_HANDFUL", handful)
        for seed in range(3):
            world = only_plain(Maker(seed).world(conditions=90, events=20))
            index = built(chosen, list(world.conditions), world.schema)
            assert index._plain and not one_by_one(index, world).size and not differences(index, world).size
            found += int(world.expected().sum())
    assert found > 200


def only_plain(world: World) -> World:
    """Of its filters, those that are bounds and nothing else."""
    plain = [c for c in world.conditions if built("blocks", [c], world.schema)._plain]
    return replace(world, conditions=plain)


# --- would the tests notice? --------------------------------------------------------------------


def _open_low(self: Side, boxes: Any, events: Any, places: Any) -> Any:
    at = places.values.take(events)
    inside = (self.low.take(boxes) < at) & (at <= self.high.take(boxes))
    return inside if places.present is None else np.where(places.present.take(events), inside, self.null.take(boxes))


def _open_high(self: Side, boxes: Any, events: Any, places: Any) -> Any:
    at = places.values.take(events)
    inside = (self.low.take(boxes) <= at) & (at < self.high.take(boxes))
    return inside if places.present is None else np.where(places.present.take(events), inside, self.null.take(boxes))


def _null_is_zero(self: Side, boxes: Any, events: Any, places: Any) -> Any:
    at = places.values.take(events)
    return (self.low.take(boxes) <= at) & (at <= self.high.take(boxes))


def _next_bucket(self: grid.BoxGrid, values: Any, real: Any = grid.BoxGrid.bucket) -> Any:
    return np.minimum(real(self, values) + 1, self.count - 1) if values.size < 40 else real(self, values)


MUTATIONS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "low bound left out": (Side, "holds", _open_low),
    "high bound left out": (Side, "holds", _open_high),
    "NULL taken for zero": (Side, "holds", _null_is_zero),
    "events one bucket off": (grid.BoxGrid, "bucket", _next_bucket),
    "every bucket certain": (grid.BoxGrid, "certain", property(lambda self: True)),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_an_error_of_one_step_would_be_noticed(mutation: str) -> None:
    owner, name, wrong = MUTATIONS[mutation]
    worlds = [Maker(seed).world(conditions=90, events=20) for seed in range(6)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, wrong)
        assert any(
            differences(built(chosen, list(world.conditions), world.schema), world).size
            for world in worlds
            for chosen in ("blocks", "lists")
        )


def _bounds_left_out(self: Side, boxes: Any, place: Any, real: Any = Side.holds_one) -> Any:
    return real(self, boxes, place) & (self.low.take(boxes) != place)


def _bound_left_out(self: Side, box: int, place: Any, real: Any = Side.holds_pair) -> Any:
    return real(self, box, place) and self.low[box] != place


MUTATIONS_OF_ONE: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "low bound left out": (Side, "holds_one", _bounds_left_out),
    "low bound left out, of a handful": (Side, "holds_pair", _bound_left_out),
    "NULL taken for nothing": (Side, "holds_one", lambda self, boxes, place: np.zeros(boxes.size, np.bool_)),
    "NULL taken for nothing, of a handful": (Side, "holds_pair", lambda self, box, place: False),
    "an event one bucket off": (
        grid.BoxGrid,
        "bucket_of",
        lambda self, value, real=grid.BoxGrid.bucket_of: min(real(self, value) + 1, self.count - 1),
    ),
    "another list": (postings.Keys, "of_one", lambda self, value, real=postings.Keys.of_one: real(self, value) ^ 1),
}


@pytest.mark.parametrize("mutation", MUTATIONS_OF_ONE)
def test_an_error_of_one_step_for_one_event_would_be_noticed(mutation: str) -> None:
    owner, name, wrong = MUTATIONS_OF_ONE[mutation]
    worlds = [Maker(seed).world(conditions=90, events=20) for seed in range(6)]
    indexes = [
        built(chosen, list(world.conditions), world.schema) for world in worlds for chosen in ("blocks", "lists")
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, wrong)
        assert any(one_by_one(index, worlds[at // 2]).size for at, index in enumerate(indexes))


# --- sizes --------------------------------------------------------------------------------------


def test_nobody_and_nothing() -> None:
    columns = columns_of(SCHEMA, [{"i": 1}, {}])
    assert unpacked(Index.build([], SCHEMA).match(columns), 0).shape == (2, 0)
    assert Index.build([], SCHEMA).pairs(columns)[0].size == 0
    index = Index.build([parse("i = 1"), parse("FALSE"), parse("i > 1 AND i < 1")], SCHEMA)
    assert index.match(columns.slice(0, 0)).shape == (0, 1)
    assert unpacked(index.match(columns), 3).tolist() == [[True, False, False], [False, False, False]]


def test_more_than_one_word_and_repeated_filters() -> None:
    texts = ["i = 1", "TRUE", "s LIKE '%x'", "i = 1 OR s = 'x'", "i IS NULL"]
    index = Index.build([parse(texts[i % 5]) for i in range(331)], SCHEMA)
    found = unpacked(index.match(columns_of(SCHEMA, [{"i": 1}, {"s": "x"}, {"i": 2, "s": "y"}])), 331)
    for row, true in zip(found, [{0, 1, 3}, {1, 2, 3, 4}, {1}], strict=True):
        assert [i % 5 in true for i in range(331)] == row.tolist()


def test_a_list_of_a_hundred_thousand() -> None:
    random = np.random.default_rng(5)
    members = np.unique(random.integers(0, 10**6, 100_000)) * 2
    both = And(
        (
            In(Name("i"), tuple(Literal(int(m)) for m in members)),
            In(Name("s"), tuple(Literal(f"t{j}") for j in range(5))),
        )
    )
    index = Index.build([In(Name("i"), tuple(Literal(int(m)) for m in members)), both], SCHEMA)
    values = random.integers(0, 2 * 10**6, 5_000)
    columns = columns_of(SCHEMA, [{"i": int(v), "s": f"t{v % 7}"} for v in values])
    found = unpacked(index.match(columns), 2)
    listed = np.isin(values, members)
    assert found[:, 0].tolist() == listed.tolist()
    assert found[:, 1].tolist() == (listed & (values % 7 < 5)).tolist()


@pytest.mark.parametrize(("filters", "times"), [(250, 10), pytest.param(1_000, 50, marks=pytest.mark.soak)])
def test_thousands_of_events_against_hundreds_of_filters(filters: int, times: int) -> None:
    """Another oracle, for volume: every filter by itself, vectorised."""
    maker = Maker(11)
    world = maker.world(conditions=filters, events=0)
    some = columns_of(world.schema, [maker.event(world.schema) for _ in range(200)])
    columns = pa.Table.from_batches([some] * times).combine_chunks().to_batches()[0]
    found = unpacked(Index.build(world.conditions, world.schema).match(columns), filters)
    once = Evaluator(some, world.schema)
    for i, condition in enumerate(world.conditions):
        assert found[:, i].tolist() == once.true(condition).tolist() * times, condition


def test_chunks_do_not_show() -> None:
    world = Maker(3).world(conditions=200, events=61)
    expected = Index.build(world.conditions, world.schema).match(world.columns, world.payloads)
    for chosen in PLANS:
        index = built(chosen, list(world.conditions), world.schema)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("sealcast.filters.index.core.CHUNK_EVENTS", 7)
            patched.setattr("sealcast.filters.index.core._DENSE_BYTES", 1)
            patched.setattr(blocks, "_CHUNK_EVENTS", 3)
            patched.setattr(dense, "_CHUNK_BYTES", 1)
            patched.setattr(postings, "_CHUNK_CANDIDATES", 1)
            assert np.array_equal(index.match(world.columns, world.payloads), expected)
            events, subscriptions = index.pairs(world.columns, world.payloads)
            assert np.array_equal(np.stack([events, subscriptions], axis=1), np.argwhere(world.expected()))


def test_many_boxes_make_coarser_buckets_not_larger_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Maker(8).world(conditions=300, events=30)
    monkeypatch.setattr(tables, "MAX_TABLE_BYTES", 1)
    for chosen in ("blocks", "as planned"):
        assert not differences(built(chosen, list(world.conditions), world.schema), world).size


# --- what the plan does with what people write --------------------------------------------------


@pytest.mark.parametrize(
    ("text", "conjuncts", "residuals"),
    [
        ("i > 1 AND i < 9 AND f = 2", 1, 0),
        ("i IN (1, 2, 3) OR i = 4", 1, 0),
        ("NOT (i > 1 OR s = 'x')", 1, 0),
        ("i > 1 OR f > 1", 2, 0),
        ("s LIKE 'ab%'", 1, 0),
        ("s LIKE 'ab%c'", 1, 1),
        ("s LIKE '%c' AND i = 1", 1, 1),
        ("i + 1 > f", 1, 1),
        ("i > 5 AND i < 3", 0, 0),
    ],
)
def test_what_is_left_to_evaluate(text: str, conjuncts: int, residuals: int) -> None:
    normal = normalise(parse(text), SCHEMA)
    assert (len(normal), sum(len(c.residual) for c in normal)) == (conjuncts, residuals)


def test_multiplying_out_is_bounded() -> None:
    text = " AND ".join(f"(i > {k} OR f > {k} OR s > '{k}')" for k in range(12))  # 3**12 conjuncts if it were not
    world = Maker(1)
    events = [{"i": i, "f": float(i % 5), "s": str(i)} for i in range(30)]
    index = Index.build([parse(text)], SCHEMA)
    assert len(normalise(parse(text), SCHEMA)) <= 64
    made = World(SCHEMA, [parse(text)], events, [b""] * 30, columns_of(SCHEMA, events))
    assert world and not differences(index, made).size


def test_a_missing_column_is_the_callers_error() -> None:
    with pytest.raises(Misuse, match="'i'"):
        Index.build([parse("i > 1")], SCHEMA).match(pa.record_batch({"f": pa.array([1.0])}))


# --- changed tables -----------------------------------------------------------------------------


@examples(10, soak=30)
@given(seed=st.integers(0, 2**40))
def test_a_changed_table_answers_as_a_fresh_one(seed: int) -> None:
    maker = Maker(seed)
    world = maker.world(conditions=80, events=15)
    base = Index.build(world.conditions[:60], world.schema)
    kept = maker.random.sample(range(60), 40)
    origin = np.array([NEW] * 20 + kept)
    maker.random.shuffle(origin)
    new = iter(world.conditions[60:])
    table = [next(new) if o == NEW else world.conditions[o] for o in origin]
    changed = ChangedIndex.build(base, origin, world.conditions[60:])
    expected = Index.build(table, world.schema).match(world.columns, world.payloads)
    assert np.array_equal(changed.match(world.columns, world.payloads), expected)
    assert changed.stale


def test_a_changed_index_refuses_what_does_not_fit() -> None:
    base = Index.build([parse("i = 1"), parse("i = 2")], SCHEMA)
    with pytest.raises(Misuse, match="filters are given"):
        ChangedIndex.build(base, np.array([0, NEW]), [])
    with pytest.raises(Misuse, match="twice"):
        ChangedIndex.build(base, np.array([0, 0]), [])
    with pytest.raises(Misuse, match="one of the base's"):
        ChangedIndex.build(base, np.array([2]), [])


@pytest.mark.parametrize("text", ["s IS NULL", "s IS NULL AND i > 0", "s IS NULL OR i IS NULL", "s IS NOT NULL"])
def test_null_is_asked_of_texts_even_if_no_filter_mentions_one(text: str) -> None:
    """Whoever asked for events without a text would get them all."""
    events: list[dict[str, Value]] = [{"s": "x", "i": 1}, {"i": 1}, {"s": ""}, {}]
    condition = parse(text, SCHEMA)
    found = unpacked(Index.build([condition], SCHEMA).match(columns_of(SCHEMA, events)), 1)
    assert found[:, 0].tolist() == [evaluate(condition, event) is True for event in events]
