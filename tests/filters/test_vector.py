"""The vectorised evaluator says of every event what the reference says."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.tree import Compare, Comparison, Condition, In, Literal, Name
from sealcast.filters.vector.evaluator import FEW_ROWS, Evaluator
from sealcast.model.schema import Attribute, Schema, Type, Value
from tests.effort import examples
from tests.filters.worlds import Maker, columns_of

SCHEMA = Schema(
    (
        Attribute("i", Type.INT),
        Attribute("f", Type.FLOAT),
        Attribute("d", Type.DECIMAL, step=Decimal("0.01")),
        Attribute("s", Type.STRING),
        Attribute("b", Type.BOOL),
        Attribute("t", Type.TIMESTAMP),
    )
)


def true_of(condition: Condition | str, event: dict[str, Value], payload: bytes = b"") -> bool:
    """By the vectorised evaluator, checked against the reference on the way."""
    tree = parse(condition) if isinstance(condition, str) else condition
    found = bool(Evaluator(columns_of(SCHEMA, [event]), SCHEMA, [payload]).true(tree)[0])
    assert found == (evaluate(tree, event, payload) is True), condition
    return found


@examples(37, soak=150)
@given(st.integers(0, 2**40))
def test_agrees_with_the_reference_on_all_rows_and_on_some(seed: int) -> None:
    maker = Maker(seed)
    world = maker.world(conditions=10, events=25)
    expected = world.expected()
    some = np.array(sorted(maker.random.sample(range(25), 11)))
    few = some[:FEW_ROWS]
    for i, condition in enumerate(world.conditions):
        whole = Evaluator(world.columns, world.schema, world.payloads).true(condition)
        assert whole.tolist() == expected[:, i].tolist(), condition
        part = Evaluator(world.columns, world.schema, world.payloads).true(condition, some)
        assert part.tolist() == expected[some, i].tolist(), condition
        asked = Evaluator(world.columns, world.schema, world.payloads).true(condition, few)
        assert asked.tolist() == expected[few, i].tolist(), condition


@pytest.mark.parametrize(
    ("attribute", "value", "op", "constant", "true"),
    [
        # Whole numbers beside doubles: 2**53 + 1 has no double of its own.
        ("i", 2**53 + 1, Comparison.EQ, float(2**53), False),
        ("i", 2**53 + 1, Comparison.GT, float(2**53), True),
        ("f", float(2**53), Comparison.LT, 2**53 + 1, True),
        ("f", float(2**53), Comparison.EQ, 2**53 + 1, False),
        ("i", 2**63 - 1, Comparison.LT, 1e300, True),
        ("i", -(2**63), Comparison.LE, -(2**63), True),
        ("i", -(2**63), Comparison.LT, -(2**63), False),
        # A tenth is not the double nearest to it.
        ("f", 0.1, Comparison.EQ, Decimal("0.1"), False),
        ("f", 0.1, Comparison.GT, Decimal("0.1"), True),
        ("f", 0.1, Comparison.EQ, 0.1, True),
        ("f", 5e-324, Comparison.GT, 0, True),
        ("f", 5e-324, Comparison.GT, Decimal("1e-400"), True),
        # Ticks beside constants that fall between them.
        ("d", Decimal("1.00"), Comparison.LT, Decimal("1.005"), True),
        ("d", Decimal("1.01"), Comparison.LT, Decimal("1.005"), False),
        ("d", Decimal("1.01"), Comparison.GE, Decimal("1.005"), True),
        ("d", Decimal("1.00"), Comparison.NE, Decimal("1.005"), True),
        ("d", Decimal("1.00"), Comparison.EQ, 1, True),
        # Strings by code point, not by UTF-16 unit.
        ("s", "\uffff", Comparison.LT, "\U00010000", True),
        ("s", "a", Comparison.LT, "a\0", True),
        ("s", "", Comparison.LE, "", True),
        # Unlike kinds compare to false, <> included; booleans are not ordered.
        ("s", "1", Comparison.NE, 1, False),
        ("b", True, Comparison.EQ, 1, False),
        ("b", True, Comparison.GE, True, False),
        ("b", True, Comparison.NE, False, True),
        ("t", datetime(2024, 1, 1, tzinfo=UTC), Comparison.LT, datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC), True),
    ],
)
def test_comparisons_at_the_edge(attribute: str, value: Value, op: Comparison, constant: Value, true: bool) -> None:
    assert true_of(Compare(op, Name(attribute), Literal(constant)), {attribute: value}) is true
    assert true_of(Compare(op, Name(attribute), Literal(constant)), {}) is False


@pytest.mark.parametrize(
    ("text", "event", "true"),
    [
        ("i + 1 > i", {"i": 2**63 - 1}, True),  # beyond 64 bits, as integers have it
        ("i * i = 85070591730234615847396907784232501249", {"i": 2**63 - 1}, True),
        ("-i > 0", {"i": -(2**63)}, True),
        ("i % -1 = 0", {"i": -(2**63)}, True),
        ("i % 3 = -1", {"i": -7}, True),  # the sign of the dividend
        ("i / 2 = 2.5", {"i": 5}, True),
        ("i / 0 IS NULL", {"i": 5}, True),
        ("f * 10 IS NULL", {"f": 1e308}, True),  # leaves the numbers
        ("d + d = 2.02", {"d": Decimal("1.01")}, False),  # 2.02 is a double here, and no decimal equals it
        ("d * 100 = 101", {"d": Decimal("1.01")}, True),
        ("d / 3 < d", {"d": Decimal("1.01")}, True),
        ("d > f", {"d": Decimal("0.10"), "f": 0.1}, False),  # the double 0.1 is a little more than a tenth
        ("s + 1 IS NULL", {"s": "a"}, True),
        ("s = s", {"s": "a"}, True),
        ("NOT (i > 1 AND f > 1)", {"i": 0}, True),  # false AND unknown is false
        ("NOT (i > 1 AND f > 1)", {"i": 2}, False),
        ("s NOT LIKE 'a%'", {}, False),
    ],
)
def test_arithmetic_and_unknown(text: str, event: dict[str, Value], true: bool) -> None:
    assert true_of(text, event) is true


def test_long_lists_are_searched() -> None:
    condition = In(Name("i"), tuple(Literal(i * 3) for i in range(100_000)))
    columns = columns_of(SCHEMA, [{"i": i} for i in (-3, 0, 1, 3, 299_997, 299_998, 300_000)])
    assert Evaluator(columns, SCHEMA).true(condition).tolist() == [False, True, False, True, True, False, False]


def test_slices_and_no_events() -> None:
    columns = columns_of(SCHEMA, [{"i": i, "s": f"t{i % 3}", "b": i % 2 == 0} for i in range(9)])
    condition = parse("s LIKE '%1' AND b AND i >= 4")
    assert Evaluator(columns.slice(3, 5), SCHEMA).true(condition).tolist() == [False, True, False, False, False]
    assert Evaluator(columns.slice(0, 0), SCHEMA).true(condition).size == 0


def test_what_is_no_number_is_refused() -> None:
    columns = columns_of(SCHEMA, [{"f": 1.0}])
    broken = columns.set_column(1, "f", pa.array([float("nan")]))
    with pytest.raises(Misuse, match="not finite"):
        Evaluator(broken, SCHEMA).true(parse("f > 1"))
    with pytest.raises(Misuse, match="payloads"):
        Evaluator(columns, SCHEMA, []).true(parse("f > 1"))
