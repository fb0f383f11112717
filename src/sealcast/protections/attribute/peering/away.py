"""Up to when a peer heard everything, over its lives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sealcast.log import files, noted

_MICROSECONDS: Final = 1_000_000


class AwayNote:
    """A small file, written about once a second."""

    def __init__(self, path: Path, clock: Callable[[], int]) -> None:
        self._path, self._clock = path, clock
        self.since_us, heard = clock(), None
        if path.exists():
            try:
                body = noted.decode(path.read_bytes()[:1024])
                self.since_us, heard = int(body["since"]), int(body["heard"])
            except (ValueError, KeyError, TypeError):
                heard = 0  # damaged: it asks for everything, and says that it does not know what it missed
        #: For how long it heard nothing, when it was started; None if it never heard anything before.
        self.seconds = None if heard is None else max(0, clock() - heard) / _MICROSECONDS

    def before(self, first_us: int | None) -> float | None:
        """For how long it heard nothing: since it last did, or else since that time; None if it waits for nothing."""
        if self.seconds is not None or first_us is None:
            return self.seconds
        return max(0, self._clock() - first_us) / _MICROSECONDS

    def heard(self, behind: float) -> None:
        body = {"since": self.since_us, "heard": self._clock() - int(behind * _MICROSECONDS)}
        files.make_directory(self._path.parent)
        noted.write(self._path, body)
