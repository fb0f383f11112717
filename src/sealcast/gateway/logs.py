"""The log of a gateway: one JSON document a line, with nothing in it that should not be in a log.

Only the fields below are written. Of a request it is the route and never the path: an id of a control topic is a
capability, and a piece's name says where its reader is. Bodies, queries, headers and certificates are never written.
"""

from __future__ import annotations

import json
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
}
_MOST: Final = 512


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
                line[name] = value[:_MOST] if isinstance(value, str) else value
        if "caller" in line and not NAME.fullmatch(str(line["caller"])):
            del line["caller"]
        text = json.dumps(line, ensure_ascii=True)
        with self._guard:
            self._stream.write(text + "\n")
            self._stream.flush()
