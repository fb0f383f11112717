"""How far brokers below have taken what a broker hands on. Retention asks it: nothing is removed that one still needs.

    below   something above is due to be removed, and was taken --> a signed statement, posted where filters are posted
    above   its keeper verifies it, and holds it to the ledger --> a note: this broker has taken so many records

A statement speaks for its sender alone. It counts if it names the tag of the last record taken, so that it is about
this ledger, and only if it says more than the one before. It is made when something is due, and stands for all that was
taken by then: so there is about one in each span of time that pieces are kept. Should it be lost, it is said again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sealcast.log.hop_notes import HopNotes, TakenRecords, read_taken, write_taken
from sealcast.log.ledger import LedgerReader
from sealcast.log.piece_reader import PieceReader
from sealcast.protections.due import first_left, size_of
from sealcast.protections.layered.filters.checks import PostReason, refuse
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.parameters import NO_LIMIT
from sealcast.trust.realm.topics import Topic
from sealcast.wire import taken
from sealcast.wire.hops import HopPiece
from sealcast.wire.taken import TakenHeader

#: After which a broker above is told again what it was told, if it has not removed what is due.
AGAIN_US: Final = 3_600_000_000


class TakenBelow:
    """What a broker knows of how far those below it are."""

    def __init__(self, root: Path, notes: HopNotes | None) -> None:
        """In the directory of its hops, or among its notes on a carrier."""
        self._root, self._notes = root, notes

    def note(self, said: TakenHeader, ledger: LedgerReader) -> None:
        """Keeps what a broker below is proven to have stated; PostRefused where it is not about this ledger, or says
        less than that broker said before."""
        if said.records > ledger.end() or ledger.at(said.records - 1).tag != said.tag:
            refuse(PostReason.LEDGER, f"{said.sender!r} states that it took {said.records} records of another ledger")
        known, now = self._noted(), TakenRecords(said.records, said.tag)
        before = known.get(said.sender)
        if before == now:
            return
        if before is not None and _is_of(before, ledger) and before.records > now.records:
            refuse(PostReason.SEEN, f"{said.sender!r} has taken {before.records} records, and not only {now.records}")
        if self._notes is None:
            write_taken(self._root, {**known, said.sender: now})
        else:
            self._notes.note_taken(said.sender, now)

    def records(self, ledger: LedgerReader) -> dict[str, int]:
        """By broker, how many records of the ledger it has taken. What was said of another ledger does not count: this
        one may have been put back from a copy."""
        return {name: each.records for name, each in self._noted().items() if _is_of(each, ledger)}

    def _noted(self) -> Mapping[str, TakenRecords]:
        return read_taken(self._root) if self._notes is None else self._notes.taken()


def _is_of(known: TakenRecords, ledger: LedgerReader) -> bool:
    return 0 < known.records <= ledger.end() and ledger.at(known.records - 1).tag == known.tag


class TellingAbove:
    """Whether a broker is to tell one above it how far it is. It goes by `due.records_due`, and looks at each record
    once: the ledger may be on another machine."""

    def __init__(self, above: PieceReader[HopPiece]) -> None:
        self._above = above
        self._due = first_left(above.ledger)
        #: Of the records from there on: their bytes, where the topic has a limit to these.
        self._sizes: deque[int] = deque()
        self._told, self._told_us = 0, 0

    def is_due(self, topic: Topic, records: int, now_us: int) -> bool:
        """Whether one of the first so many records, which were taken, is due to be removed and still there."""
        self._look(topic, now_us)
        last = min(self._due, records) - 1
        if last < 0 or self._above.record(last).is_emptied:
            return False
        return last >= self._told or now_us - self._told_us >= AGAIN_US

    def told(self, records: int, now_us: int) -> None:
        """It was told that so many were taken."""
        self._told, self._told_us = records, now_us

    def _look(self, topic: Topic, now_us: int) -> None:
        kept_us, most, end = topic.pieces_kept_us, topic.parameters.pieces_kept_bytes, self._above.end()
        if most < NO_LIMIT:
            known = range(self._due + len(self._sizes), end)
            self._sizes.extend(size_of(self._above.ledger, index) for index in known)
        while self._due < end and (
            (most < NO_LIMIT and sum(self._sizes) > most)
            or (kept_us is not None and self._above.record(self._due).entry.end.time_us <= now_us - kept_us)
        ):
            self._due += 1
            if self._sizes:
                self._sizes.popleft()


def statement(topic: bytes, sender: Identity, receiver: str, said: TakenRecords) -> bytes:
    """Signed by the broker that took."""
    header = TakenHeader(topic, receiver, sender.name, said.records, said.tag)
    return taken.encode(header, sender.signer.sign(taken.to_be_signed(header)))
