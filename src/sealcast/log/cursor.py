"""A durable cursor: how far a subscriber has acknowledged its mailbox.

It names a place in the ledger, and the tag of the record before that place. So a ledger that lost its newest records,
or another topic's ledger, is noticed by every subscriber that had read further. With it goes what the subscriber has
had of late (`had.py`): a broker that delivers an event again, at whatever place, is noticed by that. And with it goes
the head of the registry that the subscriber saw: an old registry is noticed by that, however many rows were added.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Misuse
from sealcast.log import files
from sealcast.log.had import Had
from sealcast.log.ledger import GENESIS
from sealcast.model.dataclass import dataclass

FORMAT: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
#: With all that is remembered of what was had.
_MAX_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """The next delivery of a mailbox: in which record of the ledger, which of its pieces, which of the slot's there."""

    entry: int = 0
    piece: int = 0
    rank: int = 0

    def __str__(self) -> str:
        return f"{self.entry}:{self.piece}:{self.rank}"


@dataclass(frozen=True, slots=True)
class Saved:
    """A cursor as it was saved."""

    cursor: Cursor
    #: Of the ledger's record before `cursor.entry`.
    tag: bytes
    #: Of what was acknowledged, all that is remembered.
    had: Had = field(default_factory=Had)
    #: The newest version of the registry that the reader had seen, and the chain up to it. None in cursors of releases
    #: that did not write it.
    head: tuple[int, bytes] | None = None


class CursorFile:
    """One subscriber's cursor. Saving is atomic and durable; a damaged file is refused, never taken for a new one."""

    def __init__(self, directory: Path, name: str, slot: int) -> None:
        if not _NAME.fullmatch(name):
            raise Misuse(f"{name!r} cannot name a cursor: letters, digits, dot, dash and underscore, at most 64")
        self.path = directory / f"{name}.cursor"
        self._slot = slot

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else of this name moves the cursor meanwhile."""
        files.make_directory(self.path.parent)
        with files.locked(self.path.with_suffix(".lock")):
            yield

    def load(self) -> Saved:
        """What was saved last; the very beginning when nothing was."""
        try:
            raw = self.path.read_bytes()[: _MAX_BYTES + 1]
        except FileNotFoundError:
            return Saved(Cursor(), GENESIS)
        except OSError as error:
            raise files.trouble(error, self.path, "reading") from error
        damaged = Corrupt(
            f"{self.path} is not the cursor that was saved", hint="remove it and choose where to start with --from"
        )
        try:
            body = json.loads(raw)
            place, slot, tag, check = body["cursor"], body["slot"], body["tag"], body.pop("check")
            version, chain = body.get("head") or (None, "")
            head = None if version is None else (int(version), bytes.fromhex(chain))
            saved = Saved(Cursor(*place), bytes.fromhex(tag), Had.from_json(body.get("had", ())), head)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise damaged from None
        if _check(body) != check or body.get("format") != FORMAT:
            raise damaged
        if slot != self._slot:
            raise Corrupt(f"{self.path} is the cursor of subscriber slot {slot}, not {self._slot}")
        return saved

    def save(self, saved: Saved) -> None:
        place = [saved.cursor.entry, saved.cursor.piece, saved.cursor.rank]
        tag, had = saved.tag.hex(), saved.had.to_json()
        head = {} if saved.head is None else {"head": [saved.head[0], saved.head[1].hex()]}
        body = {"format": FORMAT, "slot": self._slot, "cursor": place, "tag": tag, "had": had, **head}
        files.make_directory(self.path.parent)
        files.replace_file(self.path, json.dumps({**body, "check": _check(body)}).encode())


def _check(body: object) -> str:
    """Finds accidents, not attacks: the file is its reader's own."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
