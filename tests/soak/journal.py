"""What clients of a campaign write down about themselves, beside the realm, as they live and die.

A publisher writes what it is about to publish, and again when that was acknowledged. A subscriber writes what it was
handed, and again when it has acknowledged that. Each note is one write to a file that is only appended to, so a process
that is killed leaves whole notes. From both, `judge.py` knows what was lost or came twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """The file of one client, for one of its lives."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, kind: str, *about: Any) -> None:
        os.write(self._fd, json.dumps([kind, *about]).encode() + b"\n")


def notes(path: Path) -> Iterator[list[Any]]:
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)


class Published:
    """What a publisher did, over all of its lives."""

    def __init__(self, path: Path) -> None:
        #: Where it goes on: after everything that it tried.
        self.next = 0
        self.acknowledged: list[tuple[int, int]] = []
        #: Begun, and not known to be acknowledged: there as a whole, in part from its beginning, or not at all.
        self.doubtful: list[tuple[int, int]] = []
        self.errors: list[str] = []
        begun: tuple[int, int] | None = None
        for kind, *about in notes(path):
            if kind == "begin":
                if begun is not None:
                    self.doubtful.append(begun)
                begun = about[0], about[1]
                self.next = sum(begun)
            elif kind == "acknowledged":
                assert begun is not None
                self.acknowledged.append(begun)
                begun = None
            else:
                self.errors.append(f"{kind} {about[0]}")
        if begun is not None:
            self.doubtful.append(begun)


class Received:
    """What a subscriber was handed and acknowledged, over all of its lives."""

    def __init__(self, path: Path) -> None:
        self.events: list[tuple[str, int]] = []
        self.errors: list[str] = []
        #: Deliveries that it passed over itself, which nobody should have made.
        self.dropped = 0
        #: How often something was handed out again because its reader had not acknowledged it.
        self.again = 0
        pending: list[tuple[str, int]] = []
        for kind, *about in notes(path):
            if kind == "got":
                handed = [(publisher, number) for publisher, number in about[0]]
                if pending and handed[0] == pending[0]:
                    self.again += 1
                else:
                    # Death came between the acknowledgement and the note of it.
                    self.events += pending
                pending = handed
            elif kind == "acknowledged":
                self.events += pending
                pending = []
            elif kind == "dropped":
                self.dropped += about[0]
            else:
                self.errors.append(f"{kind} {about[0]}")
        self.events += pending
