"""What a publisher is given becomes physical columns: what `Attribute.parse` says of each value, for all at once."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import EventRejected
from sealcast.model.schema import Attribute, Type
from sealcast.wire.given import physical_column, physical_values
from sealcast.wire.layout import ARROW_TYPES
from tests.effort import examples
from tests.wire.schemas import EPOCH, attributes, physical

Said = list[object]


def one_by_one(attribute: Attribute, values: list[Any]) -> Said:
    """The physical value of each, or why it has none."""
    said: Said = []
    for value in values:
        try:
            said.append(attribute.to_physical(attribute.parse(value)))
        except EventRejected as error:
            said.append((error.message, error.attribute))
    return said


def together(found: tuple[pa.Array, dict[int, EventRejected]]) -> Said:
    column, refused = found
    column.validate(full=True)
    said: Said = column.to_pylist()
    for row, error in refused.items():
        said[row] = (error.message, error.attribute)
    return said


numbers = st.integers(-60, 60)
moments = st.datetimes(
    timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=9))])
)
anything = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    numbers.map(lambda n: n * 10**6),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1]),
    numbers.map(lambda n: n / 10),
    st.floats(),
    st.decimals(),
    numbers.map(lambda n: Decimal(n) / 100),
    st.sampled_from([Decimal("1E+17"), Decimal("-0"), Decimal("1.0050"), Decimal("1E-30")]),
    st.text(max_size=8),
    st.sampled_from(["1.25", "2026-01-01T00:00:00Z", "2026-01-01", "\ud800", "nan", ""]),
    moments,
    st.sampled_from([datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), date(2026, 1, 1), b"bytes"]),
)


def near(attribute: Attribute) -> st.SearchStrategy[Any]:
    """Values of the attribute's own type, in its domain or around it; and a few of any other."""

    def shown(cell: Any) -> Any:
        if attribute.type is Type.TIMESTAMP and cell is not None:
            cell = max(min(cell, 253_402_300_799_999_999), -62_135_596_800_000_000)
        return attribute.from_physical(cell)

    return physical(attribute).map(shown)


@given(attributes("a").flatmap(lambda a: st.tuples(st.just(a), st.lists(near(a) | anything, max_size=6))))
@examples(50, soak=250)
def test_values_of_any_type(case: tuple[Attribute, list[Any]]) -> None:
    attribute, values = case
    assert together(physical_values(attribute, values)) == one_by_one(attribute, values)


@given(attributes("a").flatmap(lambda a: st.tuples(st.just(a), st.lists(near(a), max_size=12))))
@examples(37, soak=150)
def test_values_of_the_attributes_own_type(case: tuple[Attribute, list[Any]]) -> None:
    attribute, values = case
    assert together(physical_values(attribute, values)) == one_by_one(attribute, values)


wide = st.integers(-(2**63), 2**63 - 1)
floats = numbers.map(lambda n: n / 10) | numbers.map(float) | st.floats(width=32) | st.just(2.0**63)
#: Columns of Arrow's types, with values that they hold.
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), numbers | wide),
    (pa.uint16(), st.integers(0, 65_535)),
    (pa.uint64(), st.integers(0, 100) | st.integers(0, 2**64 - 1)),
    (pa.float32(), floats),
    (pa.float64(), floats | st.floats()),
    (pa.decimal128(10, 2), numbers.map(lambda n: Decimal(n) / 100)),
    (pa.decimal128(38, 10), numbers.map(lambda n: Decimal(n) / 10**3) | wide.map(lambda n: Decimal(n) / 10**10)),
    (pa.decimal128(38, 0), st.integers(-(10**37), 10**37).map(Decimal) | numbers.map(Decimal)),
    (pa.decimal256(50, 3), numbers.map(lambda n: Decimal(n) / 8)),
    (pa.bool_(), st.booleans()),
    (pa.utf8(), st.text(max_size=8) | st.just("2026-01-01T00:00Z")),
    (pa.large_utf8(), st.text(max_size=8)),
    (pa.dictionary(pa.int8(), pa.utf8()), st.sampled_from(["one", "two", "three hundred"])),
    (pa.binary(), st.binary(max_size=4)),
    (pa.timestamp("s"), numbers | st.integers(-(2**62), 2**62)),
    (pa.timestamp("ms", "Europe/Berlin"), numbers | wide),
    (pa.timestamp("us", "UTC"), numbers.map(lambda n: n * 1000) | wide),
    (pa.timestamp("ns"), numbers.map(lambda n: n * 1000) | numbers | wide),
    (pa.date32(), numbers),
    (pa.null(), st.none()),
]


def columns(kind: pa.DataType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[pa.Array]:
    def made(cells: list[Any]) -> pa.Array:
        if pa.types.is_timestamp(kind):
            return pa.array(cells, pa.int64()).cast(kind)
        return pa.array(cells, kind)

    return st.lists(st.none() | values, max_size=8).map(made)


def expected(column: pa.Array, row: int) -> object:
    """What a cell is in Python, or the text of a refusal where Python has no such value."""
    cell = column[row]
    if not pa.types.is_timestamp(column.type) or not cell.is_valid:
        return cell.as_py()
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
    us, finer = divmod(cell.value * 10**6, per_second)
    if finer:
        return "is finer than a microsecond"
    try:
        return EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return "is outside the calendar's years 1 to 9999"


@pytest.mark.parametrize("at", range(len(COLUMNS)), ids=[str(kind) for kind, _ in COLUMNS])
def test_columns_of_arrows_types(at: int) -> None:
    cases = st.tuples(attributes("a"), columns(*COLUMNS[at]), st.integers(0, 2))

    @given(cases)
    @settings(max_examples=50)
    def agree(case: tuple[Attribute, pa.Array, int]) -> None:
        attribute, column, skipped = case
        column = column.slice(skipped)  # a part of a column has its own place in the buffers
        said = together(physical_column(attribute, column))
        for row, found in enumerate(said):
            value = expected(column, row)
            wanted: object
            if isinstance(value, str) and value.startswith("is "):
                wanted = (f"attribute 'a': {value}", "a")
            else:
                (wanted,) = one_by_one(attribute, [value])
            assert found == wanted

    agree()


def test_a_text_that_is_none_costs_its_own_row() -> None:
    attribute = Attribute("a", Type.STRING, max_length=3)
    raw = pa.array([b"ok", b"\xff\xfe", None, b"long"], pa.binary())
    given = pa.Array.from_buffers(pa.utf8(), 4, raw.buffers())
    column, refused = physical_column(attribute, given)
    assert {row: error.message for row, error in refused.items()} == {
        1: "attribute 'a': is not UTF-8",
        3: "attribute 'a': has 4 characters, 3 are allowed",
    }
    assert column[0].as_py() == "ok" and column[2].as_py() is None


@pytest.mark.parametrize("kind", list(Type))
def test_nothing_is_a_column_too(kind: Type) -> None:
    attribute = Attribute("a", kind)
    assert physical_column(attribute, pa.nulls(2))[0] == pa.nulls(2, ARROW_TYPES[kind])
    assert physical_values(attribute, [])[0] == pa.array([], ARROW_TYPES[kind])


def test_pandas_timestamps_are_finer_than_ours() -> None:
    pandas = pytest.importorskip("pandas")
    attribute = Attribute("a", Type.TIMESTAMP)
    fine, coarse = pandas.Timestamp("2026-01-01T00:00:00.000000001"), pandas.Timestamp("2026-01-01T00:00:00.000001")
    _, refused = physical_values(attribute, [fine, coarse])
    assert {row: error.message for row, error in refused.items()} == {0: "attribute 'a': is finer than a microsecond"}
