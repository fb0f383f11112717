"""A value that cannot be represented exactly is refused by name, never rounded: also past the 28th digit."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sealcast.errors import EventRejected, SchemaRejected
from sealcast.model.schema import Attribute, Schema, Type

TINY = "1." + "0" * 34 + "1"


@pytest.mark.parametrize("kind", [Type.DECIMAL, Type.TIMESTAMP, Type.INT])
def test_a_digit_far_behind_the_point_is_not_dropped(kind: Type) -> None:
    with pytest.raises(EventRejected, match="'x'"):
        Attribute("x", kind).parse(Decimal(TINY))


def test_nor_in_a_bound_or_a_step() -> None:
    with pytest.raises(SchemaRejected):
        Attribute("x", Type.DECIMAL, min=TINY)
    with pytest.raises(SchemaRejected):
        Attribute("x", Type.DECIMAL, step=Decimal(TINY))


def test_what_fits_still_does() -> None:
    assert Attribute("x", Type.DECIMAL).parse("1.500000000000000000000000000000000000") == Decimal("1.5")
    assert Attribute("x", Type.DECIMAL, step=Decimal("0.10")).scale == 1


@pytest.mark.parametrize("kind", [Type.FLOAT, Type.DECIMAL, Type.TIMESTAMP])
@pytest.mark.parametrize("step", ["1e-390", "1e-61", "1e61", "1e390"])
def test_a_step_beyond_all_values_is_refused(kind: Type, step: str) -> None:
    with pytest.raises(SchemaRejected, match="a step is between"):
        Attribute("x", kind, step=Decimal(step))


@pytest.mark.parametrize("value", [1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 0.3, 0.0])
@pytest.mark.parametrize("step", ["1e-60", "0.1", "7e59"])
@pytest.mark.parametrize("start", [None, -1.5e308, 5e-324])
def test_every_float_is_judged_at_every_step(value: float, step: str, start: float | None) -> None:
    attribute = Attribute("x", Type.FLOAT, min=start, step=Decimal(step))
    try:
        assert attribute.parse(value) == value
    except EventRejected as error:
        assert "off the grid" in error.message or "below the minimum" in error.message


@pytest.mark.parametrize("kind", ["decimal", "int", "float", "timestamp"])
def test_a_truth_value_is_no_bound(kind: str) -> None:
    with pytest.raises(SchemaRejected, match="True"):
        Attribute.from_json({"name": "x", "type": kind, "min": True})


LONG = 10**5_000  # Python refuses to write it out


@pytest.mark.parametrize("kind", Type)
def test_an_integer_of_thousands_of_digits_is_refused_by_name(kind: Type) -> None:
    with pytest.raises(EventRejected, match="attribute 'x'") as refused:
        Attribute("x", kind).parse(LONG)
    assert len(refused.value.message) < 200


def test_names_of_megabytes_are_not_echoed_whole() -> None:
    long = "x" * 1_000_000
    with pytest.raises(SchemaRejected, match="1 to 128 characters") as schema:
        Attribute(long, Type.INT)
    with pytest.raises(EventRejected, match="is not in the schema") as event:
        Schema((Attribute("x", Type.INT),)).parse({long: 1})
    assert max(len(schema.value.message), len(event.value.message)) < 300
