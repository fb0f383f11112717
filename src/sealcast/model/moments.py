"""Moments as whole microseconds since 1970: how a timestamp travels, and the first and the last that there is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The calendar's first and last microsecond: 0001-01-01 and 9999-12-31.
FIRST: Final = -62_135_596_800_000_000
LAST: Final = 253_402_300_799_999_999


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)
