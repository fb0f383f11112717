"""A ledger, its reseals and its pieces on a carrier (`journal.KeptJournal`). Nothing of it is in a directory.

    NAME.ledger     the broker's signed records, one writer at a time (`numbered`)
    NAME.reseals    its signed notes on pieces that took the place of others, the same
    NAME.replays    its notes on what was replayed to whom, the same; the pieces of replays are among the others
    NAME.pieces     sealed pieces, in parts
    NAME.places     where they are (`carried_pieces`)

The records are the same bytes as in a directory. Whoever reads them verifies them in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final
from weakref import WeakSet

from sealcast.log.carried import CarriedLog
from sealcast.log.carried_pieces import CarriedPieces
from sealcast.log.carriers import Carrier, Placement
from sealcast.log.journal import JournalLog, Turn
from sealcast.log.numbered import NumberedLog
from sealcast.primitives.secrets import Unpicklable

_ONE_WRITER: Final[tuple[JournalLog, ...]] = ("ledger", "reseals", "replays")
_PIECES: Final = "pieces"
_PLACES: Final = "places"


class CarriedJournal(Unpicklable):
    """The journal of a topic at one broker, on a carrier. A child process opens its own."""

    #: Raises Moved when all of this is being moved elsewhere: for who waits for more.
    still_here: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, carrier: Carrier, name: str, partitions: int, turn: Turn | None = None) -> None:
        """Pieces have so many partitions, in which tasks stage them side by side. `turn` is for who runs the topic."""
        self._carrier, self._name, self._partitions = carrier, name, partitions
        self.turn = turn or Turn()
        #: Ledgers that are read here: they are told what comes.
        self._read = WeakSet[NumberedLog]()

    @property
    def shown(self) -> str:
        return f"{self._carrier.shown}/{self._name}"

    @property
    def key(self) -> str:
        return self.shown

    def create(self, placement: Placement) -> None:
        """Makes what is missing of it on the carrier; Misuse where something that is there cannot keep it."""
        for suffix in (*_ONE_WRITER, _PIECES, _PLACES):
            called, partitions = f"{self._name}.{suffix}", self._partitions if suffix == _PIECES else 1
            found = self._carrier.partitions(called)
            if found is None:
                self._carrier.create(called, placement._replace(partitions=partitions))
            self._carrier.check(called)

    def remove(self) -> None:
        """Removes all of it from the carrier. Done twice, it does nothing more."""
        for suffix in (*_ONE_WRITER, _PIECES, _PLACES):
            self._carrier.remove(f"{self._name}.{suffix}")

    def log(self, which: JournalLog) -> NumberedLog:
        made = self.writer(which)
        if which == "ledger":
            self._read.add(made)
        return made

    def writer(self, which: JournalLog) -> NumberedLog:
        return NumberedLog(self._carrier.partition(f"{self._name}.{which}", 0), lambda: self.still_here())

    @cached_property
    def pieces(self) -> CarriedPieces:
        parts = [self._carrier.partition(f"{self._name}.{_PIECES}", n) for n in range(self._partitions)]
        return CarriedPieces(parts, CarriedLog(self._carrier.partition(f"{self._name}.{_PLACES}", 0)))

    def piece(self, name: str) -> bytes:
        return self.pieces.bytes_of(name)

    def pinned(self, version: int, chain: bytes, /) -> None:
        """Whoever reaches the carrier reaches the registry."""

    @cached_property
    def _followed(self) -> NumberedLog:
        return self.writer("ledger")

    def wait(self, known: int, seconds: float) -> int:
        self.still_here()
        self.pieces.hear()
        came = self._followed.wait(known, seconds)
        for log in self._read:
            log.came(came)
        self.pieces.hear()
        return self._followed.known_end
