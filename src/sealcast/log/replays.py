"""Replays: what was sealed once more for one reader, out of the past. Beside the ledger, and as hard to rewrite.

    TOPIC/replays/notes     who asked for what, when, by which version of the realm; and the pieces made for it
    TOPIC/replays/pieces    those pieces; on a carrier they are among the others

A ledger says what became of a batch; a replay is not part of any. It is kept because reading the past is something that
one should be able to ask about later: who did, when, and what.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sealcast.errors import Corrupt, Misuse
from sealcast.log.annals import Annals
from sealcast.log.entry import PieceRef, piece_from_cbor, piece_to_cbor
from sealcast.log.journal import DirectoryJournal, KeptJournal, LogPlace
from sealcast.log.pieces import Pieces, PieceStore
from sealcast.model.dataclass import dataclass
from sealcast.primitives.secrets import Secret

#: In pieces that are one reader's alone, it has this slot.
READER_SLOT: Final = 0
FORMAT: Final = 1
_CONTEXT: Final = b"sealcast replay 1"


@dataclass(frozen=True, slots=True)
class Replayed:
    """One replay."""

    reader: str
    #: Sealed, for the broker and the reader; notes of earlier releases have its text. Where brokers do not read
    #: filters: a digest of what the reader sealed.
    filter: str
    #: Of the reader's right, when it asked: nothing else was given to it.
    template: str
    #: Batches committed from then until before then were looked through.
    from_us: int
    to_us: int
    #: Whose rights and keys it went by, and when.
    version: int
    epoch: int
    at_us: int
    events: int
    pieces: tuple[PieceRef, ...]

    def to_note(self) -> dict[str, Any]:
        return {
            "v": FORMAT,
            "reader": self.reader,
            "filter": self.filter,
            "template": self.template,
            "span": [self.from_us, self.to_us],
            "at": [self.version, self.epoch, self.at_us],
            "events": self.events,
            "pieces": [piece_to_cbor(ref) for ref in self.pieces],
        }

    @classmethod
    def from_note(cls, body: dict[str, Any]) -> Replayed:
        try:
            if body["v"] != FORMAT:
                raise Misuse("format")
            pieces = tuple(map(piece_from_cbor, body["pieces"]))
            asked = str(body["reader"]), str(body["filter"]), str(body["template"])
            (first, last), (version, epoch, at_us) = map(int, body["span"]), map(int, body["at"])
            return cls(*asked, first, last, version, epoch, at_us, int(body["events"]), pieces)
        except (KeyError, TypeError, ValueError, Misuse):
            raise Corrupt("a note on a replay is not one this release wrote") from None


class Replays:
    """The replays of one topic at one broker."""

    def __init__(self, journal: Path | KeptJournal, key: Secret | None = None) -> None:
        """Of the journal of the topic, or of the directory that it is in."""
        self.pieces: PieceStore
        if isinstance(journal, DirectoryJournal | Path):
            root = (journal if isinstance(journal, Path) else journal.root) / "replays"
            self._annals, self.pieces = Annals(root / "notes", _CONTEXT, key), Pieces(root / "pieces")
        else:
            self._annals = Annals(LogPlace.kept(journal, "replays"), _CONTEXT, key)
            self.pieces = journal.pieces

    def all(self) -> Iterator[Replayed]:
        return (Replayed.from_note(note.body) for note in self._annals.read())

    def add(self, replayed: Replayed) -> None:
        self._annals.append([replayed.to_note()])

    def close(self) -> None:
        self._annals.close()
