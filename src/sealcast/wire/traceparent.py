"""The context of a trace on its way with an event: W3C Trace Context's `traceparent`, without its version.

    context = trace id (16 bytes) | span id (8) | flags (1)

It travels twice, each time sealed. In the body of a frame, for the broker that opens the frame; and in the content type
of each event, as a parameter, for whoever opens the event:

    application/json; traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01

Publishers that do not trace write neither, and their bytes are those of a release that knows nothing of traces.
"""

from __future__ import annotations

import re
from typing import Final

from sealcast.model.event import MAX_CONTENT_TYPE_LENGTH

CONTEXT_BYTES: Final = 25
_TRACE, _SPAN = slice(0, 16), slice(16, 24)
_PARAMETER: Final = "; traceparent="
_TEXT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
#: What the parameter takes of a content type.
PARAMETER_LENGTH: Final = len(_PARAMETER) + 55


def is_context(data: bytes) -> bool:
    """Whether these bytes are a context: the right length, and no id of zeros only."""
    return len(data) == CONTEXT_BYTES and any(data[_TRACE]) and any(data[_SPAN])


def sampled(context: bytes) -> bool:
    """Whether its author records this trace."""
    return bool(context[-1] & 1)


def text(context: bytes) -> str:
    """The value of a `traceparent` header."""
    return f"00-{context[_TRACE].hex()}-{context[_SPAN].hex()}-{context[-1:].hex()}"


def parse(value: str) -> bytes:
    """The context that a `traceparent` says; empty if it is none."""
    found = _TEXT.fullmatch(value)
    context = bytes.fromhex("".join(found.groups())) if found is not None else b""
    return context if is_context(context) else b""


def parameter(context: bytes) -> str:
    """What a content type gets appended to it."""
    return _PARAMETER + text(context)


def with_context(content_type: str, context: bytes) -> str:
    """A content type with the context behind it. One that is too long for that stays as it is."""
    fits = len(content_type) + PARAMETER_LENGTH <= MAX_CONTENT_TYPE_LENGTH
    return content_type + parameter(context) if fits else content_type


def split(content_type: str) -> tuple[str, bytes]:
    """A content type without the context, and the context; empty if there is none."""
    if _PARAMETER not in content_type:
        return content_type, b""
    kind, _, value = content_type.rpartition(_PARAMETER)
    context = parse(value)
    return (kind, context) if context and kind else (content_type, b"")
