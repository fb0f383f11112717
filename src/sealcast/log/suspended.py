"""Which subscriptions were suspended, for their owners: a note beside the topic's ledger.

What counts is in the ledger, which says of every batch how many there were; this says whose. The broker writes it when
a batch is committed. It is not synced: what is lost of it is known to `sealcast check` and `sealcast why` all the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from sealcast.log import files

_NAME: Final = "suspended.json"
#: Subscriptions that are named, those last that were suspended first.
MAX_NAMED: Final = 1_024
_MAX_BYTES: Final = 1 << 20


class SuspensionNote(NamedTuple):
    """One subscription: of how many pieces it got nothing, and when that was first and last so."""

    pieces: int
    since_us: int
    last_us: int


def add(topic: Path, pieces: Mapping[str, int], now_us: int, living: Collection[str]) -> None:
    """Notes that these subscriptions were suspended, each in so many pieces, beside those that were before and that
    are there still."""
    known = {id: note for id, note in notes(topic).items() if id in living}
    for id, count in pieces.items():
        before = known.pop(id, SuspensionNote(0, now_us, now_us))
        known[id] = SuspensionNote(before.pieces + count, before.since_us, now_us)
    path = topic / _NAME
    staged = path.with_name(f".{path.name}-{os.getpid()}")
    with files.named(path, "writing"):
        staged.write_text(json.dumps(dict(list(known.items())[-MAX_NAMED:])))
        staged.rename(path)


def notes(topic: Path) -> dict[str, SuspensionNote]:
    """By subscription. What cannot be read says nothing: it is written again."""
    try:
        with (topic / _NAME).open("rb") as file:
            body = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    entries = body.items() if isinstance(body, dict) else ()
    return {id: SuspensionNote(*note) for id, note in entries if _is_note(note)}


def _is_note(found: Any) -> bool:
    return isinstance(found, list) and len(found) == 3 and all(type(number) is int and number >= 0 for number in found)
