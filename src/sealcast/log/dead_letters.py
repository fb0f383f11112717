"""Dead letters: deliveries that a reader could not open, or could not process, and put aside to go on.

A letter names the event and says why. It holds nothing of the event, which stays sealed where it lies. Whoever replays
a letter opens the event again, under the rights of then. The file is its reader's own, one JSON object a line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Final

from sealcast.errors import Busy, Corrupt, FrameRejected, Misuse
from sealcast.log import files
from sealcast.model.dataclass import dataclass
from sealcast.model.event import Position

FORMAT: Final = 1
#: Letters of one reader on one topic. One that has more of them has a problem that putting aside does not solve.
MAX_LETTERS: Final = 100_000
MAX_WHY: Final = 500
_MAX_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One event that was put aside."""

    position: str
    #: When it was put aside, in microseconds since 1970.
    at_us: int
    #: A word for machines: `rejected` when the reader's program gave it up, else the code of the error.
    code: str
    why: str
    #: As far as it is known without opening it.
    publisher: str | None = None
    boot: str | None = None
    sequence: int | None = None


class DeadLetters:
    """The letters of one reader on one topic. Processes may share them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, letter: DeadLetter) -> None:
        """Durable on return. One that was put aside before is put aside again: the newest word counts."""
        line = json.dumps({"v": FORMAT, **asdict(letter), "why": letter.why[:MAX_WHY]}, ensure_ascii=True) + "\n"
        files.make_directory(self.path.parent)
        with files.locked(self._lock), files.named(self.path, "writing"):
            if len(self._read()) >= MAX_LETTERS:
                raise Busy(
                    f"{self.path} has {MAX_LETTERS:,} dead letters, and takes no more",
                    hint="look at them (sealcast dead-letters list), then replay or remove them",
                )
            with files.opened(self.path, os.O_RDWR | os.O_CREAT) as fd:
                end = _whole(fd)
                files.write_all(fd, line.encode(), end)
                os.ftruncate(fd, end + len(line))
                files.sync_data(fd)

    def all(self) -> list[DeadLetter]:
        """The oldest first, each event once."""
        return list(self._read().values())

    def remove(self, positions: Collection[str]) -> int:
        """Forgets letters; how many there were."""
        if not self.path.exists():
            return 0
        with files.locked(self._lock):
            known = self._read()
            left = [letter for position, letter in known.items() if position not in positions]
            lines = [json.dumps({"v": FORMAT, **asdict(letter)}) + "\n" for letter in left]
            files.replace_file(self.path, "".join(lines).encode())
        return len(known) - len(left)

    @property
    def _lock(self) -> Path:
        return self.path.with_suffix(".lock")

    def _read(self) -> dict[str, DeadLetter]:
        try:
            raw = self.path.read_bytes()[: _MAX_BYTES + 1]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise files.trouble(error, self.path, "reading") from error
        found: dict[str, DeadLetter] = {}
        # What follows the last line was being written when its writer died: it was not acknowledged.
        for number, line in enumerate(raw[: raw.rfind(b"\n") + 1].splitlines(), 1):
            try:
                body = json.loads(line)
                if body.pop("v") != FORMAT:
                    raise ValueError(body)
                letter = DeadLetter(**body)
                Position.parse(letter.position)
            except (ValueError, TypeError, KeyError, AttributeError, Misuse, FrameRejected):
                raise Corrupt(f"{self.path}: line {number} is no dead letter", hint="remove the line") from None
            found.pop(letter.position, None)
            found[letter.position] = letter
        return found


def _whole(fd: int) -> int:
    """Where the last whole line of a file ends."""
    size = os.fstat(fd).st_size
    tail = os.pread(fd, min(size, 1 << 16), max(0, size - (1 << 16)))
    return size - len(tail) + tail.rfind(b"\n") + 1 if tail else 0
