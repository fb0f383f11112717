"""Was the ledger cut short? It cannot tell by itself: a ledger without its newest records is a good ledger.

But others remember how far it went: every subscriber's cursor names a record and its tag, and Spark's checkpoint names
the offset of the last batch that it saw committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from sealcast.errors import Corrupt
from sealcast.log.cursor import CursorFile
from sealcast.log.ledger import LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.primitives.secrets import Secret


def cursors(directory: Path, ledger: LedgerReader, end: int, slots: Mapping[str, int]) -> Iterator[str]:
    """What subscribers' cursors remember of the ledger, its first `end` records, that is not so."""
    for path in sorted(directory.glob("*.cursor")) if directory.is_dir() else ():
        if path.stem in slots:
            yield from _cursor(CursorFile(directory, path.stem, slots[path.stem]), path.stem, ledger, end)


def _cursor(file: CursorFile, name: str, ledger: LedgerReader, end: int) -> Iterator[str]:
    try:
        saved = file.load()
        at = saved.cursor.entry
        # Read after the audit began: perhaps of a batch that was committed meanwhile.
        if at > max(end, ledger.end()):
            yield f"{name} has read {at} records, and the ledger has {end}: its newest were removed"
        elif 0 < at <= end and ledger.at(at - 1).tag != saved.tag:
            yield f"record {at - 1} is not the one that {name} has read"
    except Corrupt as error:
        yield error.message


def checkpoint(directory: Path, reached: PinnedOffset, key: Secret) -> Iterator[str]:
    """What Spark's checkpoint remembers of a ledger that goes this far, and that is not so."""
    committed = [int(path.name) for path in (directory / "commits").glob("*") if path.name.isdigit()]
    if not committed:
        return
    path = directory / "offsets" / str(max(committed))
    try:
        seen = PinnedOffset.from_json(json.loads(path.read_text().splitlines()[-1]), key)
    except FileNotFoundError:
        return  # Spark removes the oldest, and a checkpoint may be dropped at any time
    except (ValueError, IndexError, Corrupt):
        yield f"{path} is not an offset of this topic: it was altered"
        return
    if not reached.reaches(seen):
        yield f"Spark has seen a batch committed that goes to {seen}, and the ledger ends at {reached}"
