"""Logs of a carrier in a directory, as the embedded log has them: the same bytes, under the same numbers and times."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from sealcast.log import files, recovery
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.layout import CHAIN_BYTES, Mark
from sealcast.log.port import PartitionLog

#: What is copied at a time.
_BYTES_AT_ONCE: Final = 4 << 20


def land(source: PartitionLog, end: int, directory: Path) -> None:
    """Writes what a log has up to a number into a new directory. It begins there with the number that it begins with
    on the carrier."""
    first = source.start()
    files.make_directory(directory)
    if first:
        recovery.begin_segment(directory, Mark(0, first, 0, 0, secrets.token_bytes(CHAIN_BYTES)))
    with EmbeddedLog(directory) as log:
        while (at := log.end()) < end:
            log.copy([(record.time_us, record.data) for record in source.read(at, end, _BYTES_AT_ONCE)])
