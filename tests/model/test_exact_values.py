"""A value that cannot be represented exactly is refused by name, never rounded: also past the 28th digit."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sealcast.errors import EventRejected, SchemaRejected
from sealcast.model.schema import Attribute, Type

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
