"""An embedded log with one writer at a time: a new writer writes its term down, and only that term appends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sealcast.errors import Locked
from sealcast.log import files
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.layout import DEFAULT_SEGMENT_BYTES

_TERM: Final = "writer"
_TERM_BYTES: Final = 16


class FencedEmbeddedLog(EmbeddedLog):
    """`port.FencedLog` in a directory. The term is read and written under the append lock, so no append of the writer
    before comes after it."""

    def __init__(
        self, directory: Path | str, *, segment_bytes: int = DEFAULT_SEGMENT_BYTES, read_only: bool = False
    ) -> None:
        super().__init__(directory, segment_bytes=segment_bytes, read_only=read_only)
        self._term = b""

    def fence(self) -> None:
        lock, _ = self._writable()
        term = os.urandom(_TERM_BYTES)
        with lock:
            files.replace_file(self.directory / _TERM, term)
        self._term = term

    def _check_writer(self) -> None:
        try:
            current = (self.directory / _TERM).read_bytes()
        except FileNotFoundError:
            current = b""
        if not self._term or current != self._term:
            raise Locked(f"{self.directory} has another writer, or none", hint="become its writer first")
