"""Events that a peer has passed on, kept for a while for those below it who were away, also when the peer itself was.

A record is an event as it came; the log knows when that was. The oldest go first, when there are too many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sealcast.errors import NotFound
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.port import Record

SEGMENT_BYTES: Final = 4 << 20
#: The segment that is written to is always kept, so that a log has up to one more than its bound.
DEFAULT_RELAYED_BYTES: Final = 64 << 20


class RelayedLog(Closing):
    """One peer's relayed events of one topic. One process at a time writes it."""

    def __init__(self, directory: Path, max_bytes: int = DEFAULT_RELAYED_BYTES) -> None:
        self._log = EmbeddedLog(directory, segment_bytes=SEGMENT_BYTES)
        self._max_bytes = max_bytes

    def keep(self, events: Sequence[bytes]) -> None:
        """Keeps events, durably on return."""
        if events:
            self._log.append(events)
            self._log.retain(max_bytes=self._max_bytes)

    def since(self, time_us: int) -> Iterator[Record]:
        """What came at that time or later, oldest first, as far as it is kept."""
        try:
            start = max(self._log.offset_at(time_us), self._log.start())
        except NotFound:
            start = self._log.start()
        return self._log.read(start)

    @property
    def let_go(self) -> int:
        """How many were kept once and are not any more."""
        return self._log.start()

    def close(self) -> None:
        self._log.close()
