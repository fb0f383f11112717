"""The vectorised domain check decides as `Attribute.parse` does, on every value a column can hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import EventRejected, Misuse
from sealcast.model.schema import Attribute, Schema, Type
from sealcast.wire import domain
from sealcast.wire.records import arrow_schema, check_domain
from tests.effort import examples
from tests.wire.schemas import physical, schemas


def by_parse(schema: Schema, rows: list[dict[str, Any]]) -> dict[int, str]:
    """The oracle: each value alone, the first refusal in schema order."""
    refused: dict[int, str] = {}
    for i, row in enumerate(rows):
        for attribute in schema.attributes:
            try:
                attribute.parse(attribute.from_physical(row[attribute.name]))
            except (EventRejected, OverflowError):
                refused[i] = attribute.name
                break
    return refused


def by_columns(schema: Schema, rows: list[dict[str, Any]]) -> dict[int, str]:
    columns = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))
    return {row: name for row, (name, _) in check_domain(schema, columns).items()}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    schema = draw(schemas)
    row = st.fixed_dictionaries({a.name: physical(a) for a in schema.attributes})
    return schema, draw(st.lists(row, min_size=1, max_size=12))


@given(cases())
@examples(60, soak=300)
def test_decides_as_parse_does(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    assert by_columns(schema, rows) == by_parse(schema, rows)


STEPS = ["1", "0.1", "0.01", "0.3", "0.25", "2.5", "1E-7", "1E+3", "0.1000", "3", "1E-22", "1E-23", "123456789012345"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("low", [None, 0.0, 0.1, -7.3, 1e-9, 1e15])
def test_float_grids(step: str, low: float | None) -> None:
    """Grid points, the doubles beside them, sums that only look like grid points, and large multiples."""
    attribute = Attribute("x", Type.FLOAT, min=low, step=Decimal(step))
    origin = Decimal(repr(low)) if low is not None else Decimal(0)
    on = [float(origin + n * Decimal(step)) for n in (0, 1, 2, 3, 7, 10, 99, 12345, 10**9, 10**14, 10**17)]
    beside = [float(np.nextafter(x, np.inf)) for x in on] + [float(np.nextafter(x, 0)) for x in on]
    sums = [0.1 + 0.2, 0.1 * 3, 1.1 * 1.1, 4.35 * 100, 1e22, 1e23, 2.0**53, 2.0**53 + 2, 5e-324, 1.7e308]
    rows = [{"x": x + 0.0} for x in on + beside + sums]
    schema = Schema((attribute,))
    assert by_columns(schema, rows) == by_parse(schema, rows)


@pytest.mark.parametrize(
    "attribute",
    [
        Attribute("x", Type.INT, min=-(2**63), step=Decimal(10)),
        Attribute("x", Type.INT, min=2**63 - 1, step=Decimal(2**62)),
        Attribute("x", Type.INT, step=Decimal(2**70)),
        Attribute("x", Type.DECIMAL, step=Decimal("0.005")),
        Attribute("x", Type.DECIMAL, min="-9000000000000", max="9000000000000", step=Decimal("0.000001")),
        Attribute("x", Type.TIMESTAMP, step=Decimal("0.0005")),
        Attribute("x", Type.TIMESTAMP, step=Decimal("0.0015")),
        Attribute("x", Type.TIMESTAMP, min="1969-12-31T23:59:59.999Z", step=Decimal(86_400_000)),
    ],
    ids=lambda a: f"{a.type} {a.min} {a.step}",
)
def test_whole_grids_at_the_edges(attribute: Attribute) -> None:
    edges = [-(2**63), 1 - 2**63, -1001, -1000, -999, -3, -1, 0, 1, 2, 3, 5, 10, 1500, 2**62, 2**63 - 2, 2**63 - 1]
    edges += [-62_135_596_800_000_001, -62_135_596_800_000_000, 253_402_300_799_999_999, 253_402_300_800_000_000]
    # Differences to the least integer that do not fit 64 bits, one of every remainder.
    edges += range(2**62, 2**62 + 10)
    rows = [{"x": v} for v in edges]
    schema = Schema((attribute,))
    assert by_columns(schema, rows) == by_parse(schema, rows)


def test_strings_are_measured_in_characters_and_in_bytes() -> None:
    schema = Schema((Attribute("x", Type.STRING, max_length=3), Attribute("y", Type.STRING)))
    rows = [
        {"x": "äöü", "y": "x" * 65_535},
        {"x": "abcd", "y": ""},
        {"x": "", "y": "x" * 65_536},
        {"x": "€€€", "y": "ä" * 40_000},
    ]
    assert by_columns(schema, rows) == by_parse(schema, rows) == {1: "x", 2: "y", 3: "y"}


def test_refusals_are_in_the_words_of_parse() -> None:
    schema = Schema((Attribute("price", Type.DECIMAL, min=0, step=Decimal("0.01")), Attribute("size", Type.INT, max=9)))
    columns = pa.RecordBatch.from_pylist(
        [{"price": 5, "size": 10}, {"price": -5, "size": 10}], schema=arrow_schema(schema)
    )
    assert check_domain(schema, columns) == {
        0: ("size", "attribute 'size': 10 is above the maximum 9"),
        1: ("price", "attribute 'price': -0.05 is below the minimum 0.00"),
    }


def test_a_clean_batch_never_asks_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The point of it all: what is admissible is decided vectorised."""
    schema = Schema(
        (
            Attribute("f", Type.FLOAT, min=0.0, max=10.0, step=Decimal("0.1")),
            Attribute("d", Type.DECIMAL, min=0, step=Decimal("0.25")),
            Attribute("i", Type.INT, min=-5, max=5),
            Attribute("t", Type.TIMESTAMP, step=Decimal(1)),
            Attribute("s", Type.STRING, max_length=3),
            Attribute("b", Type.BOOL),
        )
    )
    rows = [{"f": n / 10, "d": 25 * n, "i": n % 5, "t": 1000 * n, "s": "abc", "b": True} for n in range(101)]
    rows.append(dict.fromkeys(schema.names))  # type: ignore[arg-type]
    monkeypatch.setattr(domain, "_refusal", lambda *_: pytest.fail("asked parse about an admissible value"))
    assert by_columns(schema, rows) == {}


def test_columns_of_another_schema_are_misuse() -> None:
    schema = Schema((Attribute("x", Type.INT),))
    for columns in (pa.record_batch({"y": pa.array([1])}), pa.record_batch({"x": pa.array([1.0])})):
        with pytest.raises(Misuse):
            check_domain(schema, columns)
