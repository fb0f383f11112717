"""The ledger: one record per committed batch. It is offset journal, commit point and proof in one (ADR 4).

    record = CBOR {1: body, 2: tag, 3: signature}
    body   = CBOR {version, query, batch, start, end, pieces, counts, previous: the tag of the record before}
    tag    = HMAC(the topic's journal key, body); the signature is the broker's, on body and tag (`annals.py`)

Chained twice. The log's own chain is public: anyone finds damage, and records moved or removed. The tags are chained
through `previous` under a key that only the broker has, and the broker signs each link. So who can write the files can
destroy the ledger, but can neither rewrite it nor repeat a record of it without being noticed by broker and subscriber.
What remains is cutting off its newest records, which the ledger alone cannot show; Spark's checkpoint and every
subscriber's cursor remember how far it was, and both refuse a ledger that is shorter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, FrameRejected, Misuse, NotFound, Unavailable
from sealcast.log import driver_lock, files
from sealcast.log.annals import GENESIS as GENESIS
from sealcast.log.annals import TaggedLog, TaggedRecord, VerifiedBy
from sealcast.log.carriers import Fenced
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.journal import Journal, KeptJournal, LogPlace, Turn
from sealcast.log.numbered import TRIES
from sealcast.log.offsets import PinnedOffset, check_continuity
from sealcast.log.pieces import PieceStore
from sealcast.log.port import Record, TermedLog
from sealcast.log.reseals import Removal, Resealed, Reseals
from sealcast.model.dataclass import dataclass
from sealcast.primitives.secrets import Secret

_CONTEXT: Final = b"sealcast ledger record 1"


@dataclass(frozen=True, slots=True)
class Committed(TaggedRecord):
    """A record of the ledger."""

    #: With the pieces that are there to be read: those committed, or those that took their place.
    entry: Entry
    #: How its pieces were exchanged, if they were, and which they were before.
    resealed: Resealed | None = None
    committed_pieces: tuple[PieceRef, ...] = ()

    @property
    def as_committed(self) -> Entry:
        """The entry as it was committed, which is what the tag covers."""
        return self.entry if self.resealed is None else replace(self.entry, pieces=self.committed_pieces)

    @property
    def is_emptied(self) -> bool:
        """Whether its events were removed, all of them."""
        if self.resealed is None or self.resealed.removal is None:
            return False
        return self.resealed.removal is Removal.RETENTION or not any(
            ref.events or ref in self.committed_pieces for ref in self.entry.pieces
        )


class LedgerReader(TaggedLog[Committed]):
    """Reads a ledger. With the journal key every tag is verified, or every signature with the broker's public key;
    without either, that records are whole and follow each other."""

    def __init__(self, place: Path | str | Journal, key: VerifiedBy | None = None) -> None:
        """In a directory, with its reseals beside it; or as the one of a journal."""
        if isinstance(place, Path | str):
            super().__init__(Path(place), _CONTEXT, key)
            self.reseals = Reseals(self.directory.with_name("reseals"), key)
        else:
            super().__init__(LogPlace.of(place, "ledger"), _CONTEXT, key)
            self.reseals = Reseals(LogPlace.of(place, "reseals"), key)

    def entries(self, start: int = 0, end: int | None = None) -> Iterator[Committed]:
        """Committed batches from `start` on, each verified to follow the one before."""
        return self._entries(start, end, self._parse)

    def as_committed(self, start: int, end: int) -> Iterator[Committed]:
        """The same, and nobody asks what became of their pieces since."""
        return self._entries(start, end, self._committed)

    def _entries(self, start: int, end: int | None, parse: Callable[[Record], Committed]) -> Iterator[Committed]:
        log = self._reading()
        if log is None:
            if start:
                raise NotFound(f"{self.shown} has no records; record {start} was asked for")
            return
        yield from self._chained(log, start, end, parse)

    def at(self, index: int) -> Committed:
        """One record, by its number."""
        return self._found(index, self._parse)

    def committed(self, index: int) -> Committed:
        """The same as it was committed. Nobody asks what became of its pieces since."""
        return self._found(index, self._committed)

    def _found(self, index: int, parse: Callable[[Record], Committed]) -> Committed:
        log = self._reading()
        if log is None:
            raise NotFound(f"{self.shown} has no records; record {index} was asked for")
        return self._at(log, index, parse)

    def tag_before(self, index: int) -> bytes:
        """The tag that a record has to follow."""
        return self.at(index - 1).tag if index else GENESIS

    def last(self) -> Committed | None:
        """The newest record."""
        end = self.end()
        return self.at(end - 1) if end else None

    def newest(self) -> Committed | None:
        """The newest record as it was committed."""
        end = self.end()
        return self.committed(end - 1) if end else None

    def last_span(self) -> Entry | None:
        """What the newest record says, as it was committed."""
        newest = self.newest()
        return newest.entry if newest is not None else None

    def index_at(self, time_us: int) -> int:
        """The first record committed at that time or later."""
        log = self._reading()
        return log.offset_at(time_us) if log is not None else 0

    def verify(self) -> int:
        """Walk the whole ledger; how many records it has. Every batch starts where the one before ended."""
        before: Entry | None = None
        count = 0
        for committed in self.entries():
            entry = committed.entry
            expected = before.end if before else PinnedOffset.initial(len(entry.start.partitions))
            if entry.start != expected:
                raise Corrupt(f"{self.shown}: record {committed.index} starts at {entry.start}, not at {expected}")
            before, count = entry, count + 1
        return count

    def close(self) -> None:
        self.reseals.close()
        super().close()

    def _parse(self, record: Record) -> Committed:
        committed, resealed = self._committed(record), self.reseals.of(record.offset)
        return committed if resealed is None else _exchanged(committed, resealed, self._where(record))

    def _committed(self, record: Record) -> Committed:
        body, tag = self._unsealed(record, "ledger record")
        try:
            entry, previous = Entry.decode(body)
        except (FrameRejected, Misuse) as problem:
            raise Corrupt(f"{self._where(record)} is not a ledger record: {problem.message}") from None
        return Committed(record.offset, record.time_us, previous, tag, entry)


class Ledger(LedgerReader):
    """The broker's ledger, to commit to. Its locks are in a directory, its records there or on a carrier."""

    def __init__(self, directory: Path | str, key: Secret, journal: KeptJournal | None = None) -> None:
        self._locks, self._turn = Path(directory), Turn() if journal is None else journal.turn
        #: Where a carrier keeps the records: who its writer is, the carrier knows (`port.TermedLog`).
        self._fenced = None if journal is None else journal.writer("ledger")
        self._writable: EmbeddedLog | TermedLog
        if journal is None or self._fenced is None:
            super().__init__(self._locks, key)
            self._log = self._writable = EmbeddedLog(self._locks)
        else:
            super().__init__(journal, key)
            self.reseals = Reseals(LogPlace.kept(journal, "reseals"), key)
            self._log = self._writable = self._fenced
            files.make_directory(self._locks)
        self._commit_lock = files.FileLock(self._locks / "commit.lock")

    def newest(self) -> Committed | None:
        if self._fenced is None or not self._fenced.writes:
            return super().newest()
        # Nobody is asked where it ends: if anybody had appended since this became the writer, it would be refused.
        end = self._fenced.known_end
        return self.committed(end - 1) if end else None

    def commit(self, entry: Entry, term: str | None = None, after: Committed | None = None) -> bool:
        """Append the batch: when this returns, it is committed. False when the very same was committed before.

        With the term of the pipeline that commits (`exclusive`), Locked when another one has begun since. `after` is
        the newest record as far as the caller knows, and saves a question to a carrier.
        """
        with self._commit_lock:
            self._check_term(term)
            if self._fenced is None or term is None:
                return self._commit(entry, term)
            for _ in range(TRIES):
                try:
                    return self._commit(entry, term, after)
                except Fenced:
                    # Another process of the same pipeline was the writer meanwhile, or this one was by a request that
                    # it had given up: then the term is the same. `_hold` looks, and `_find` whether it is committed.
                    after = None
            raise self._fenced.unsettled()

    def _commit(self, entry: Entry, term: str | None, after: Committed | None = None) -> bool:
        # A writer that was one before knows: if anybody had appended since, it would be refused.
        last = super().newest() if self._hold(term) or after is None else after
        known = self._find(entry, last)
        if known is not None:
            return self._same(entry, known)
        check_continuity(last.entry if last is not None else None, entry.start, entry.end)
        body = entry.encode(last.tag if last else GENESIS)
        self._writable.append([self._sealed(body)[0]])
        return True

    def _find(self, entry: Entry, last: Committed | None) -> Committed | None:
        """The record of the same batch of the same query. A query's batch numbers only grow: the search is short."""
        index = last.index if last else -1
        while last is not None and last.entry.query == entry.query and last.entry.batch > entry.batch:
            index -= 1
            last = self.at(index) if index >= 0 else None
        if last is not None and (last.entry.query, last.entry.batch) == (entry.query, entry.batch):
            return last
        return None

    def _same(self, entry: Entry, known: Committed) -> bool:
        if known.as_committed != entry:
            raise Corrupt(
                f"batch {entry.batch} was committed before with other content (record {known.index} of the ledger): "
                "a batch that is run again gives the same bytes, so its input, the registry or the code has changed",
                hint="nothing was committed; check the topic's files, then start with the code that ran before",
            )
        return False

    def _hold(self, term: str | None) -> bool:
        """Becomes the writer of a log on a carrier, in a term that has begun, or in one of its own; False where it was
        already."""
        if self._fenced is None or self._fenced.writes:
            return False
        if term is None:
            self._fenced.fence(os.urandom(8).hex().encode())
        else:
            self._fenced.resume(term.encode())
        return True

    def collect(
        self,
        pieces: PieceStore,
        batch_began_us: int,
        term: str | None = None,
        named: Callable[[], set[str]] = set,
    ) -> list[str]:
        """Delete staged pieces that no record names; their names. The driver calls it, with no other batch under way.

        What the running batch stages is younger than the moment it began, and stays; and so does what is `named`
        elsewhere.
        """
        with self._commit_lock:
            self._check_term(term)
            garbage = set(pieces.untouched_since(batch_began_us))
            if garbage:
                for committed in self.entries():
                    garbage.difference_update(piece.name for piece in committed.entry.pieces)
                garbage -= named() if garbage else set()
                pieces.remove(garbage)
        return sorted(garbage)

    def reseal(self, resealed: Resealed, pieces: PieceStore) -> bool:
        """Let pieces that are staged take the place of a record's: when this returns, they have. False when they, or
        others of a later epoch, had.

        Unavailable when one of them is gone: whoever collects garbage does not know it yet. Then stage them again.
        """
        with self._commit_lock:
            known = self.at(resealed.record)
            _exchanged(replace(known, entry=known.as_committed), resealed, f"{self.shown}: record {known.index}")
            newer = known.resealed is not None and known.resealed.epoch > resealed.epoch
            if newer or known.entry.pieces == resealed.pieces:
                return False
            for ref in set(resealed.pieces).difference(known.entry.pieces):
                if not pieces.has(ref.name):
                    raise Unavailable(f"{ref.name} was collected before it was named", hint="try again")
            self.reseals.add(resealed)
            return True

    def superseded(self) -> set[str]:
        """The names of all pieces whose places others have taken: nothing reads them any more."""
        names = self.reseals.superseded()
        for record in self.reseals.newest():
            known = self.at(record)
            names.update({ref.name for ref in known.committed_pieces}.difference(r.name for r in known.entry.pieces))
        return names

    @contextmanager
    def exclusive(self) -> Iterator[str]:
        """Hold the topic for one running pipeline: its term. Locked, naming the holder, when there is another.

        The lock goes with the driver, but what a killed driver leaves behind, its JVM and workers, may live for seconds
        and go on committing or cleaning up. The next holder begins a new term, after which theirs is over.
        """
        with driver_lock.held(self._locks, self._commit_lock) as term, self._turn.held():
            if self._fenced is not None:
                self._fenced.fence(term.encode())
            yield term

    def _check_term(self, term: str | None) -> None:
        if term is not None:
            driver_lock.check_term(self._locks, term)

    def close(self) -> None:
        self._commit_lock.close()
        super().close()


def _exchanged(committed: Committed, resealed: Resealed, where: str) -> Committed:
    """The record with the pieces that took the place of its own: as many, for the same frames, in the same order."""
    before = committed.entry.pieces
    places = [(ref.partition, ref.first, ref.end) for ref in before]
    if resealed.tag != committed.tag or places != [(ref.partition, ref.first, ref.end) for ref in resealed.pieces]:
        raise Corrupt(f"{where} and the note on its resealed pieces do not belong together")
    entry = replace(committed.entry, pieces=resealed.pieces)
    return replace(committed, entry=entry, resealed=resealed, committed_pieces=before)
