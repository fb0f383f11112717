"""What went wrong, as HTTP says it: `application/problem+json` (RFC 9457), with our words for machines.

    {"type": "sealcast:CODE", "title", "status", "detail", "hint"?, "reason"?}

CODE is the `code` of the error (errors.py). Nothing that was sent is repeated, and nothing of our own inside is shown.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final

from sealcast.errors import (
    Busy,
    CertificateRejected,
    DiskFull,
    Misuse,
    NotFound,
    Rejected,
    SealcastError,
    Unavailable,
)
from sealcast.trust.statements import StatementRejected

MEDIA_TYPE: Final = "application/problem+json"
#: How soon whoever is told to come back should, in seconds.
RETRY_S: Final = 1


class Refusal(SealcastError):
    """An answer that is no success, by its number."""

    def __init__(
        self, status: int, code: str, message: str, *, hint: str | None = None, reason: str | None = None, **extra: int
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.code, self.reason, self.extra = status, code, reason, extra


def forbidden(message: str, *, hint: str | None = None) -> Refusal:
    """It is not the caller's to have."""
    return Refusal(403, "forbidden", message, hint=hint)


def status_of(error: SealcastError) -> int:
    """The number that HTTP has for it."""
    match error:
        case Refusal():
            return error.status
        case CertificateRejected():
            return 401
        case StatementRejected():
            return 422
        case NotFound():
            return 404
        case Misuse():
            return 400
        case Rejected():
            return 422
        case DiskFull():
            return 507
        case Unavailable():
            return 503
        case _:
            return 500


def described(error: SealcastError) -> tuple[int, bytes]:
    """Number and body."""
    status = status_of(error)
    if status == 500:
        error = SealcastError("the gateway could not answer this", hint="its operator finds the reason in its log")
    elif isinstance(error, Unavailable):
        # Its message may name files of this machine.
        busy = isinstance(error, Busy)
        what = "too much waits here already" if busy else "something that the gateway needs is not available"
        error = Refusal(status, error.code, f"{what}; nothing was done", hint="try again later")
    body: dict[str, object] = {
        "type": f"sealcast:{error.code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
    }
    known = error.as_json()
    body |= {name: known[name] for name in ("hint", "reason") if name in known}
    if isinstance(error, Refusal):
        body |= error.extra | ({} if error.reason is None else {"reason": error.reason})
    return status, json.dumps(body).encode()
