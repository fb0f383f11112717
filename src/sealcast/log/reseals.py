"""Pieces that took the place of others: what the ledger delivered, sealed again under the keys of a later epoch.

    TOPIC/reseals/    notes: which record of the ledger, and its pieces from now on; the newest note on a record counts

**Exactly once, by keeping every place.** A piece is replaced by one piece, for the same frames, at the same place in
its record; and whoever still gets something from it gets the same events in the same order. A cursor names record,
piece and rank. So it means the same event before and after, and a reader in the middle of a piece goes on with the next
event, whenever the pieces were exchanged. Resealed pieces as new records at the ledger's end would have come after
later events, and every cursor between would have had to be moved, in other people's files.

The ledger itself is not touched: it says what was delivered then. The pieces it named are garbage from the moment of
the note on, and are removed (`Ledger.superseded`); that is what takes them away from keys that leaked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from sealcast.errors import Corrupt, Misuse
from sealcast.log.annals import Annals, VerifiedBy
from sealcast.log.entry import PieceRef, piece_from_cbor, piece_to_cbor
from sealcast.log.journal import LogPlace
from sealcast.model.dataclass import dataclass
from sealcast.primitives.secrets import Unpicklable

FORMAT: Final = 1
_CONTEXT: Final = b"sealcast reseal 1"
_NUMBERS: Final = ("record", "version", "epoch", "time")


class Removal(StrEnum):
    """Why the events of a record were removed: its pieces are empty from then on."""

    #: They were older than the topic keeps pieces, or there were too many.
    RETENTION = "retention"
    #: They were to be forgotten for good.
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Resealed:
    """What became of the pieces of one record of the ledger."""

    record: int
    #: Of that record: notes on another ledger are none on this one.
    tag: bytes
    #: The realm whose keys and rights the new pieces go by: its version, and the time of the rights.
    version: int
    time_us: int
    epoch: int
    #: All of them, those that stayed too.
    pieces: tuple[PieceRef, ...]
    why: str
    #: Who got how many deliveries from the pieces before, and gets none of them any more: (slot, deliveries).
    withdrawn: tuple[tuple[int, int], ...] = ()
    #: Why there is nothing in them; None where they were sealed again.
    removal: Removal | None = None
    #: Brokers below that so many of the removed events were on their way through: (number of the broker, events). One
    #: that had not taken them misses them, and so may everyone below it.
    on_the_way: tuple[tuple[int, int], ...] = ()

    def withdrawn_from(self, slot: int) -> int:
        """How many deliveries a subscriber had in this record, and has no more."""
        return sum(count for who, count in self.withdrawn if who == slot)

    def unrouted_by(self, broker: int) -> int:
        """How many events a broker below gets no more, to hand them on."""
        return sum(count for who, count in self.on_the_way if who == broker)

    def to_note(self) -> dict[str, Any]:
        return {
            "v": FORMAT,
            "record": self.record,
            "tag": self.tag,
            "version": self.version,
            "time": self.time_us,
            "epoch": self.epoch,
            "pieces": [piece_to_cbor(ref) for ref in self.pieces],
            "why": self.why,
            "withdrawn": [list(each) for each in self.withdrawn],
            **({} if self.removal is None else {"removal": str(self.removal)}),
            **({"on_the_way": [list(each) for each in self.on_the_way]} if self.on_the_way else {}),
        }

    @classmethod
    def from_note(cls, body: dict[str, Any]) -> Resealed:
        try:
            record, version, epoch, time_us = (body[name] for name in _NUMBERS)
            pieces = tuple(map(piece_from_cbor, body["pieces"]))
            if body["v"] != FORMAT or not all(isinstance(n, int) and n >= 0 for n in (record, version, epoch, time_us)):
                raise Misuse("numbers")
            withdrawn, passing = map(_counts, (body["withdrawn"], body.get("on_the_way", ())))
            removal = Removal(body["removal"]) if "removal" in body else None
            about = pieces, str(body["why"]), withdrawn, removal, passing
            return cls(record, bytes(body["tag"]), version, time_us, epoch, *about)
        except (KeyError, TypeError, ValueError, Misuse):
            raise Corrupt("a note on resealed pieces is not one this release wrote") from None


def _counts(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(who), int(count)) for who, count in pairs)


class Reseals(Unpicklable):
    """The reseals of one topic, by record of its ledger; those of others are seen as they come."""

    def __init__(self, place: Path | LogPlace, key: VerifiedBy | None = None) -> None:
        self._annals = Annals(place, _CONTEXT, key)
        self._known: dict[int, Resealed] = {}
        #: Every piece that ever took a place.
        self._names: set[str] = set()
        self._seen = 0
        self._still = 0

    @contextmanager
    def at_once(self) -> Iterator[int]:
        """Looks for new notes now, and not again in this block: for whoever reads several records in a row. How many
        notes there are: another number, and what was remembered of a record may be out of date."""
        self._catch_up()
        with self.as_seen():
            yield self._seen

    @contextmanager
    def as_seen(self) -> Iterator[None]:
        """Looks for no new notes in this block."""
        self._still += 1
        try:
            yield
        finally:
            self._still -= 1

    def of(self, record: int) -> Resealed | None:
        self._catch_up()
        return self._known.get(record)

    def newest(self) -> dict[int, Resealed]:
        """All that count, by record."""
        self._catch_up()
        return dict(self._known)

    def superseded(self) -> set[str]:
        """Pieces that took a place and have lost it since."""
        self._catch_up()
        return self._names.difference(ref.name for each in self._known.values() for ref in each.pieces)

    def add(self, resealed: Resealed) -> None:
        self._annals.append([resealed.to_note()])

    def close(self) -> None:
        self._annals.close()

    def _catch_up(self) -> None:
        if not self._still and self._annals.end() > self._seen:
            for note in self._annals.read(self._seen):
                found = Resealed.from_note(note.body)
                self._known[found.record] = found
                self._names.update(ref.name for ref in found.pieces)
                self._seen = note.index + 1
