"""Timestamps as filters write them: RFC 3339 text, or milliseconds since 1970 where a schema types the attribute."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Final

from sealcast.errors import EventRejected, FilterRejected
from sealcast.model.schema import Attribute, Type

# An attribute without a domain: a filter may ask for moments that no event can have.
_ANY: Final = Attribute("timestamp", Type.TIMESTAMP)


def parse_timestamp(given: str | int | float | Decimal, at: int) -> datetime:
    """The moment, read exactly as events' timestamps are read."""
    try:
        moment = _ANY.parse(given)
    except EventRejected:
        shown = str(given) if len(str(given)) <= 40 else str(given)[:37] + "..."
        raise FilterRejected(
            "type",
            f"{shown!r} is not a timestamp",
            at=at,
            hint="write it as '2024-01-31T12:00:00Z', or as milliseconds since 1970",
        ) from None
    assert isinstance(moment, datetime)
    return moment
