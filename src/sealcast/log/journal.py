"""Where a ledger, its reseals and its pieces are read from: a directory here, or whoever serves them.

A reader believes nothing of a journal. It verifies each record by its broker's signature, that records follow each
other, and each piece by the digest that its record names (`annals.py`, `piece_reader.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from sealcast.errors import Locked, Rejected
from sealcast.log import frontier
from sealcast.log.embedded import EmbeddedLog, Moved
from sealcast.log.notices import Notices
from sealcast.log.pieces import Pieces, PieceStore
from sealcast.log.port import PartitionLog, TermedLog

#: The logs of a journal. Notes on replays are read by their broker, and by whoever is where it is.
JournalLog = Literal["ledger", "reseals", "replays"]
#: In a journal's directory, when a carrier has it.
MOVED: Final = "moved"
#: Which journal of a topic at a broker: what was delivered, what a broker of a tree hands on, what was replayed.
JournalPart = Literal["", "hops", "replays"]


class NotYours(Rejected):
    """Whoever serves a piece says that nothing in it is for whoever asks."""

    code = "not-yours"


class Journal(Protocol):
    """A ledger, its reseals and its pieces."""

    @property
    def shown(self) -> str:
        """As messages call it."""

    def log(self, which: JournalLog) -> PartitionLog | None:
        """One of its logs, to read; None while nobody ever wrote to it."""

    def piece(self, name: str) -> bytes:
        """The bytes of a piece, whatever they are; NotFound if there is none of that name, NotYours if it is kept."""

    def pinned(self, version: int, chain: bytes, /) -> None:
        """A record was made under that version of the registry, with that chain if it names one: Corrupt where this is
        proven to be withheld, or another history is shown."""

    def wait(self, known: int, seconds: float) -> int:
        """Returns when the ledger may have more than `known` records, and in any case when the time is over. How many
        it has as far as that was told; no more than `known` where whoever waits has to look."""


class Turn:
    """Who of several machines may do something. Here: whoever is on this one, where locks keep others out."""

    def taken(self) -> Locked | None:
        """What `held` would raise now, if anything."""
        return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Locked while another machine has it."""
        yield


class KeptJournal(Journal, Protocol):
    """A journal as its broker reaches it, and whoever is where its broker is."""

    @property
    def pieces(self) -> PieceStore: ...

    @property
    def key(self) -> Hashable:
        """The same for the same journal."""

    @property
    def turn(self) -> Turn:
        """Who of all machines may run its topic."""

    def writer(self, which: JournalLog) -> TermedLog | None:
        """One of its logs, to append to; None where it is a directory's, which has locks."""


class DirectoryJournal:
    """A journal in a directory of this machine: `ledger/`, `reseals/` and `pieces/`."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._notices = Notices(self.root / "ledger" / frontier.NAME)

    @property
    def shown(self) -> str:
        return str(self.root)

    @property
    def key(self) -> Path:
        return self.root

    @property
    def turn(self) -> Turn:
        return Turn()

    @property
    def pieces(self) -> Pieces:
        return Pieces(self.root / "pieces")

    def log(self, which: JournalLog) -> PartitionLog | None:
        return open_log(self.root / which)

    def writer(self, which: JournalLog) -> None:
        return None

    def piece(self, name: str) -> bytes:
        return self.pieces.bytes_of(name)

    def pinned(self, version: int, chain: bytes, /) -> None:
        """The registry is as near as the ledger."""

    def wait(self, known: int, seconds: float) -> int:
        if (self.root / MOVED).exists():
            raise Moved(f"{self.root} has no ledger any more: the topic was moved", hint="open the topic again")
        self._notices.wait(seconds)
        return known


class LogPlace(NamedTuple):
    """A log that is read elsewhere than in a directory, and how."""

    shown: str
    open: Callable[[], PartitionLog | None]
    #: Where its broker appends to it; None where it does not, or not in this way.
    writer: Callable[[], TermedLog | None] = lambda: None

    @classmethod
    def of(cls, journal: Journal, which: JournalLog) -> LogPlace:
        return cls(f"{journal.shown}/{which}", lambda: journal.log(which))

    @classmethod
    def kept(cls, journal: KeptJournal, which: JournalLog) -> LogPlace:
        """To be appended to, too."""
        return cls.of(journal, which)._replace(writer=lambda: journal.writer(which))


def open_log(directory: Path) -> EmbeddedLog | None:
    """To read. What was never written to has no directory yet: it is an empty log, and a follower waits for it."""
    return EmbeddedLog(directory, read_only=True) if directory.is_dir() else None
