"""What a gateway's refusals mean: `application/problem+json` (RFC 9457) as the errors that a local realm would raise.

A refusal's words are the gateway's. They are shown, cut to a length, and decide nothing: what a client believes is
signed by others.
"""

from __future__ import annotations

import json
from typing import Any, Final

from sealcast.errors import (
    Busy,
    DiskFull,
    Misuse,
    NotFound,
    ReasonedRejection,
    Rejected,
    SealcastError,
    Unavailable,
)

MEDIA_TYPE: Final = "application/problem+json"
_MOST_CHARACTERS: Final = 500


class GatewayRefused(ReasonedRejection[str]):
    """A gateway does not let this caller do this; the reason is the gateway's word."""

    code = "gateway-refused"


class MirrorBehind(Unavailable):
    """What was sent was made from an older state than the gateway has: take in what is new, and make it again."""

    code = "behind"


class GatewayUnreachable(Unavailable):
    """Nobody answers at the gateway's address, or not in time. Whether a request had an effect is not known."""

    code = "gateway-unreachable"


def strange() -> Unavailable:
    """For an answer that the gateway's interface does not have."""
    return Unavailable("the gateway's answer is not what its interface says", hint="is it of a newer release?")


def error_of(status: int, body: bytes, where: str) -> SealcastError:
    """The error that an answer stands for."""
    told = _told(body)
    code = _text(told.get("type")).removeprefix("sealcast:")
    detail = _text(told.get("detail")) or f"it answers {status}"
    message, hint = f"{where}: {detail}", _text(told.get("hint")) or None
    reason = _text(told.get("reason")) or code or str(status)
    match status:
        case 401 | 403:
            return GatewayRefused(reason, message, hint=hint)
        case 404:
            return NotFound(message, hint=hint)
        case 409 | 421:
            # Made from an older state, or asked where a broker was before: what is new says so.
            return MirrorBehind(message, hint=hint)
        case 422:
            return GatewayRefused(reason, message, hint=hint)
        case 429:
            return Busy(message, hint=hint)
        case 503 if code == Busy.code:
            return Busy(message, hint=hint)
        case 507:
            return DiskFull(message, hint=hint)
        case _ if 400 <= status < 500:
            return Misuse(message, hint=hint)
        case _ if status >= 500:
            return Unavailable(message, hint=hint or "try again a little later")
        case _:
            return Rejected(f"{where}: it answers {status}, which nobody asked for")


def _told(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str:
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else ""
