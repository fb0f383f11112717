"""Whether what lies on a disk is whole: logs, ledgers and the pieces that they name, read from end to end.

No key is needed: chains and digests find what was damaged, cut out of the middle or lost. Who wrote it, and whether it
is right, is for `sealcast check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, NotFound
from sealcast.log.ledger import LedgerReader
from sealcast.log.pieces import Pieces
from sealcast.log.reader import LogReader

#: Where below a topic's directory ledgers lie: a broker's, a router's, and a publisher's peer's.
_JOURNALS: Final = ("", "hops", "sent")


@dataclass(frozen=True, slots=True)
class WholeFiles:
    """What was read and found to be whole."""

    topics: int = 0
    records: int = 0
    pieces: int = 0
    frames: int = 0

    def __add__(self, other: WholeFiles) -> WholeFiles:
        return WholeFiles(
            self.topics + other.topics,
            self.records + other.records,
            self.pieces + other.pieces,
            self.frames + other.frames,
        )


def topics_in(root: Path) -> Iterator[Path]:
    """The directories of topics of a realm's or a home's directory: of every broker and peer that is there."""
    for pattern in ("topics/*", "brokers/*/topics/*"):
        yield from sorted(path for path in root.glob(pattern) if path.is_dir())


def verify(root: Path) -> WholeFiles:
    """Reads all of a realm's or a home's directory. Corrupt names the first thing that is not whole."""
    return sum(map(_topic, topics_in(root)), WholeFiles())


def _topic(root: Path) -> WholeFiles:
    found = WholeFiles(topics=1)
    for part in _JOURNALS:
        if (root / part / "ledger").is_dir():
            found += _journal(root / part)
    for log in sorted(path for path in (root / "frames").glob("*") if path.is_dir()):
        with closing(LogReader(log, ordered=False)) as reader:
            there = reader.verify()
        found += WholeFiles(frames=there.end - there.start)
    return found


def _journal(root: Path) -> WholeFiles:
    pieces, count = Pieces(root / "pieces"), 0
    with closing(LedgerReader(root / "ledger")) as ledger:
        records = ledger.verify()
        for committed in ledger.entries():
            for ref in committed.entry.pieces:
                try:
                    pieces.read(ref.name, ref.digest)
                except NotFound:
                    raise Corrupt(
                        f"{pieces.path(ref.name)} is gone; record {committed.index} of the ledger names it",
                        hint="restore it from a copy",
                    ) from None
                count += 1
    return WholeFiles(records=records, pieces=count)
