"""Times and spans of time on the command line: 30d, 12h, 2026-08-01T00:00:00Z."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

from sealcast.errors import Misuse

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_SPAN: Final = re.compile(r"(\d{1,12})([smhdwy])", re.ASCII)


def moment(time_us: int) -> str:
    """A time as people and programs read it."""
    return _iso(time_us, "milliseconds")


def exact_moment(time_us: int) -> str:
    """A time to go on from: `microseconds` reads the same time again."""
    return _iso(time_us, "microseconds")


def _iso(time_us: int, precision: str) -> str:
    when = datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000)
    return when.isoformat(timespec=precision).replace("+00:00", "Z")


def seconds(text: str, option: str, forms: str = "90s, 15m, 12h, 30d, 4w or 1y") -> int:
    """A span of time: a number and s, m, h, d, w or y. `forms` are what the option takes."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise Misuse(f"{option} is a span of time, not {text!r}", hint=f"write {forms}")
    return int(found[1]) * _SECONDS[found[2]]


def since(text: str) -> datetime | None:
    """The moment that lies such a span of time (1h, 7d) before now; None where the text is no span."""
    if _SPAN.fullmatch(text.strip()) is None:
        return None
    return datetime.fromtimestamp(max(0, time.time() - seconds(text, "--from")), UTC)


def span(seconds: int) -> str:
    """Some seconds as `seconds` reads them, in the largest unit that fits."""
    unit = next((unit for unit in "dhm" if seconds and seconds % _SECONDS[unit] == 0), "s")
    return f"{seconds // _SECONDS[unit]}{unit}"


def microseconds(text: str, option: str) -> int:
    """A time: ISO 8601, UTC unless it says otherwise."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Misuse(f"{option} is a time, not {text!r}", hint="write 2026-08-01 or 2026-08-01T09:30:00Z") from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1e6)
