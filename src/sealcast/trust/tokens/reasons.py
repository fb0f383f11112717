"""Why a token gives no right: every check has its own word, and every refusal says what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from sealcast.errors import TokenRejected


class TokenReason(StrEnum):
    """Why a token gives no right, in the order of the checks; the first that fails is the reason."""

    # What can be seen without a key: `parse`.
    ABSENT = "absent"
    SIZE = "size"
    ENCODING = "encoding"
    FORM = "form"
    HEADER = "header"
    ALGORITHM = "algorithm"
    KEY_ID = "key-id"
    CLAIM_MISSING = "claim-missing"
    CLAIM_UNKNOWN = "claim-unknown"
    CLAIM_VALUE = "claim-value"
    # For this realm and topic: `TokenGate.verify`, from here on.
    REALM = "realm"
    AUDIENCE = "audience"
    HASH = "hash"
    # The key center.
    CENTER_UNKNOWN = "center-unknown"
    CENTER_UNTRUSTED = "center-untrusted"
    CENTER_REVOKED = "center-revoked"
    CENTER_ROLE = "center-role"
    CENTER_NOT_YET_VALID = "center-not-yet-valid"
    CENTER_EXPIRED = "center-expired"
    ISSUER = "issuer"
    CENTER_OTHER = "center-other"
    SIGNATURE = "signature"
    # Time.
    NOT_YET_VALID = "not-yet-valid"
    EXPIRED = "expired"
    LIFETIME = "lifetime"
    # What it is for, and whose it is.
    TEMPLATE = "template"
    TEMPLATE_SCHEMA = "template-schema"
    RIGHT = "right"
    HOLDER = "holder"
    SUBJECT = "subject"
    REVOKED = "revoked"
    EPOCH_ENDED = "epoch-ended"
    EPOCH_AHEAD = "epoch-ahead"

    @property
    def step(self) -> str:
        """Which of the broker's numbered checks this is part of."""
        return _STEPS[self]


#: The broker's checks that tokens have a part in, each with the first reason of its part; the others follow in order.
_FIRST: Final = {
    TokenReason.ABSENT: "token",
    TokenReason.CENTER_UNKNOWN: "center",
    TokenReason.SIGNATURE: "token-signature",
    TokenReason.NOT_YET_VALID: "token-time",
    TokenReason.TEMPLATE: "template",
    TokenReason.RIGHT: "right",
    TokenReason.HOLDER: "publisher",
    TokenReason.REVOKED: "revoked",
    TokenReason.EPOCH_ENDED: "epoch",
}


def _in_order() -> Iterator[tuple[TokenReason, str]]:
    step = ""
    for reason in TokenReason:
        step = _FIRST.get(reason, step)
        yield reason, step


_STEPS: Final = dict(_in_order())


def refused(reason: TokenReason, why: str, hint: str | None = None) -> TokenRejected:
    if hint is None:
        hint = "it was damaged or made by something else: ask the key center for another, sealcast token request"
    return TokenRejected(reason, f"the token is refused: {why}", hint=hint)
