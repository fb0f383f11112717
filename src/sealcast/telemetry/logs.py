"""The log of a daemon: one JSON document a line, with nothing in it that should not be in a log.

Only the fields below are written. Of a request it is the route and never the path: an id of a control topic is a
capability, and a piece's name says where its reader is. Bodies, queries, headers and certificates are never written.
What stands in a text and looks like a key, a token, a code or such an id is left out (`redacted`).
"""

from __future__ import annotations

import json
import re
import threading
import time
from datetime import UTC, datetime
from typing import Final, TextIO

from sealcast.model.names import NAME

#: What a line may have, and of which type.
FIELDS: Final[dict[str, type]] = {
    "route": str,
    "status": int,
    "caller": str,
    "address": str,
    "reason": str,
    "milliseconds": float,
    "received": int,
    "sent": int,
    "message": str,
    "version": int,
    "listen": str,
    "topic": str,
    "broker": str,
    "batch": int,
    "admitted": int,
    "rejected": int,
    "deliveries": int,
    "backlog": int,
    "retry_seconds": float,
}
REDACTED: Final = "[redacted]"
_MOST: Final = 512
_SECRETS: Final = re.compile(
    r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|$)"  # PEM
    r"|(?<![0-9A-Za-z])(?:[0-9a-fA-F]{2}){14,}(?![0-9A-Za-z])"  # hexadecimal: keys, digests, ids of control topics
    # base64 and the codes of invitations: long, with digits and letters of both cases
    r"|(?<![0-9A-Za-z+/_=-])(?=[^\s]*[0-9])(?=[^\s]*[a-z])(?=[^\s]*[A-Z])[0-9A-Za-z+/_-]{32,}={0,2}"
    r"|(?<=[Bb]earer )\S+",
    re.DOTALL,
)


def redacted(text: str) -> str:
    """A text without what could be a secret."""
    return _SECRETS.sub(REDACTED, text[: 8 * _MOST])


class JsonLog:
    """Writes lines; None for nowhere. Threads may share it."""

    def __init__(self, stream: TextIO | None, *, requests: bool = False) -> None:
        """With `requests`, each request is a line; without, what went wrong is."""
        self._stream, self.requests = stream, requests
        self._guard = threading.Lock()

    def write(self, event: str, **fields: object) -> None:
        if self._stream is None:
            return
        line: dict[str, object] = {"time": datetime.fromtimestamp(time.time(), UTC).isoformat(), "event": event}
        for name, value in fields.items():
            if name in FIELDS and isinstance(value, FIELDS[name]):
                line[name] = redacted(value)[:_MOST] if isinstance(value, str) else value
        if "caller" in line and not NAME.fullmatch(str(line["caller"])):
            del line["caller"]
        text = json.dumps(line, ensure_ascii=True)
        with self._guard:
            self._stream.write(text + "\n")
            self._stream.flush()
