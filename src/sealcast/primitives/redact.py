"""A structlog processor that lets no key and no payload into a log line, whoever wrote the call."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from sealcast.primitives.secrets import Secret, Unpicklable

REDACTED: Final = "<redacted>"

#: Names under which key material or content tends to travel. `key_id` and `public_key` stay readable.
_SUSPICIOUS: Final = re.compile(
    r"secret|passw|passphrase|private|seed|token|credential|payload|plaintext|master|(?<!public_)(?<!verify_)keys?$",
    re.IGNORECASE,
)
_MAX_DEPTH: Final = 6


def redact(logger: object, method: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop secrets by type, suspicious fields by name, and raw bytes always: a log says how many, never which."""
    return {key: _clean(key, value, 0) for key, value in event_dict.items()}


def _clean(key: object, value: object, depth: int) -> object:
    if isinstance(value, Secret | Unpicklable) or (isinstance(key, str) and _SUSPICIOUS.search(key)):
        return REDACTED
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if depth >= _MAX_DEPTH:
        return REDACTED
    if isinstance(value, Mapping):
        return {k: _clean(k, v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(None, v, depth + 1) for v in value]
    return value
