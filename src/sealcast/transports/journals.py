"""A broker's journal as a gateway serves it: its ledger and reseals page by page, its pieces whole.

The last pages are kept, since readers go through a ledger record by record. How far a log goes is asked for at most
every FRESH_S. Whoever waits for more follows the journal (`following`): then it comes by itself. All of it is verified
by whoever reads: a record by its broker's signature, a piece by its digest.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from sealcast.errors import Misuse, NotFound
from sealcast.log.journal import JournalLog, JournalPart, NotYours
from sealcast.log.port import PartitionLog, Record
from sealcast.transports.following import Following
from sealcast.transports.https import Connection, path_of
from sealcast.transports.problems import GatewayRefused, strange
from sealcast.wire.limits import MAX_PIECE_BYTES

#: How old the answer to "how far does it go?" may be: what a reader of a local log sleeps between two looks.
FRESH_S: Final = 0.05
#: A long-poll at the most; then it is asked again.
LONGEST_S: Final = 30.0
PAGE_BYTES: Final = 1 << 20
#: Whoever waits so long follows the journal: a shorter look is one question.
FOLLOWED_S: Final = 0.5
#: Waits that are questions after a stream that gave nothing.
_QUESTIONS: Final = 20
#: What the interface calls the journals of a topic.
PARTS: Final[dict[JournalPart, str]] = {"": "mail", "hops": "hops", "replays": "replays"}
#: Records that are kept, of those read last.
_KEPT_BYTES: Final = 8 << 20


class RemoteLog:
    """One log, to read."""

    def __init__(self, connection: Connection, path: str, patience_s: float | None = None) -> None:
        self._connection, self._path, self._patience_s = connection, path, patience_s
        self._lock = threading.Lock()
        self._start = self._end = 0
        self._asked = float("-inf")
        self._records: OrderedDict[int, Record] = OrderedDict()
        self._bytes = 0
        #: The stream that tells what is new, while one does; and what to do when nobody reads any more.
        self.followed: Callable[[], bool] = lambda: False
        self.closing: Callable[[], None] = lambda: None

    def append(self, records: Sequence[bytes]) -> range:
        raise Misuse(f"{self._path} is its broker's: nobody else writes there")

    def read(self, start: int, end: int | None = None, max_bytes: int | None = None) -> Iterator[Record]:
        last, given = self.end() if end is None else end, 0
        while start < last:
            record = self._record(start)
            given += len(record.data)
            if max_bytes is not None and given > max_bytes and given > len(record.data):
                return
            yield record
            start += 1

    @property
    def known_end(self) -> int:
        """How far it goes as far as is known, without a question."""
        return self._end

    def start(self) -> int:
        self.end()
        return self._start

    def end(self) -> int:
        if time.monotonic() - self._asked > FRESH_S and not self.followed():
            self._page(self._end, 0.0)
        return self._end

    def offset_at(self, time_us: int) -> int:
        found = self._connection.get(f"{self._path}/at", {"time_us": time_us})
        return _number(found, "offset")

    def wait(self, known: int, seconds: float) -> None:
        """Until there may be a record at `known`."""
        if self._end <= known:
            # A gateway counts whole seconds: whoever waits for most of one waits for one.
            self._page(known, min(max(seconds, 1.0) if seconds >= 0.5 else seconds, LONGEST_S))

    def grown(self, end: int, record: Record | None = None) -> None:
        """Somebody says that it goes so far now, and shows the last record."""
        with self._lock:
            self._end, self._asked = max(self._end, end), time.monotonic()
            if record is not None:
                self._keep(record)

    def forget(self) -> None:
        """What was read may have changed: ask again."""
        self._asked = float("-inf")

    def close(self) -> None:
        self.closing()
        with self._lock:
            self._records.clear()
            self._bytes = 0

    # --- inside -------------------------------------------------------------------------------------

    def _record(self, offset: int) -> Record:
        with self._lock:
            known = self._records.get(offset)
        if known is None:
            found = self._page(offset, 0.0)
            if not found or found[0].offset != offset:
                raise NotFound(f"{self._path} has no record {offset}: it goes from {self._start} to {self._end}")
            known = found[0]
        return known

    def _page(self, first: int, wait_s: float) -> list[Record]:
        query = {"from": first, "max_bytes": PAGE_BYTES}
        started = time.monotonic()
        found = self._connection.get(self._path, query, wait_s=wait_s, patience_s=self._patience_s)
        if 0 < wait_s < 1 and not found.get("records"):
            # Shorter than a gateway counts: the rest of it is slept, so that nobody asks without pause.
            time.sleep(max(0.0, min(FRESH_S, wait_s - (time.monotonic() - started))))
        records = _records(found, first)
        with self._lock:
            self._start, self._end, self._asked = _number(found, "start"), _number(found, "end"), time.monotonic()
            for record in records:
                self._keep(record)
        return records

    def _keep(self, record: Record) -> None:
        if record.offset not in self._records:
            self._records[record.offset] = record
            self._bytes += len(record.data)
        while len(self._records) > 1 and self._bytes > _KEPT_BYTES:
            self._bytes -= len(self._records.popitem(last=False)[1].data)


class RemoteJournal:
    """What one broker delivered, handed on or replayed, on one topic."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        broker: str,
        part: JournalPart,
        pinned: Callable[[int, bytes], None],
        patience_s: float | None = None,
    ) -> None:
        """`pinned` is told under which version of the registry, and which chain, a record was made. A gateway that
        cannot be reached is tried for `patience_s`, else for as long as any."""
        self._connection, self.pinned, self._patience_s = connection, pinned, patience_s
        self._path = path_of("topics", topic, "brokers", broker, PARTS[part])
        self.shown = f"{connection.address}{self._path}"
        self._logs: dict[JournalLog, RemoteLog] = {}
        self._part = part
        self._following: tuple[int, Following] | None = None
        #: Streams that were tried and gave nothing: before the next, so many waits are questions.
        self._questions = 0

    def log(self, which: JournalLog) -> PartitionLog | None:
        return self._log(which)

    def piece(self, name: str) -> bytes:
        if self._following is not None and (came := self._following[1].piece(name)) is not None:
            return came
        try:
            return self._connection.get_bytes(f"{self._path}/pieces/{name}", MAX_PIECE_BYTES)
        except GatewayRefused as error:
            raise NotYours(error.message) from None
        except NotFound:
            # Perhaps another took its place a moment ago: whoever asked looks at the reseals again.
            for log in self._logs.values():
                log.forget()
            raise

    def wait(self, known: int, seconds: float) -> int:
        ledger = self._log("ledger")
        following = self._stream(known) if seconds >= FOLLOWED_S and ledger.known_end <= known else None
        if following is None:
            ledger.wait(known, seconds)
            return ledger.known_end
        following.wait(known, seconds)
        if following.ended and not following.was_alive:
            self._questions = _QUESTIONS
        return ledger.known_end

    def _stream(self, known: int) -> Following | None:
        """The stream that is open, or a new one from `known` on; None where this gateway gives none."""
        if self._part == "replays" or self._questions:
            self._questions = max(0, self._questions - 1)
            return None
        if self._following is None or self._following[0] != os.getpid() or self._following[1].ended:
            ledger, reseals = self._log("ledger"), self._log("reseals")
            made = Following(
                self._connection,
                f"{self._path}/follow",
                known,
                lambda record: ledger.grown(record.offset + 1, record),
                reseals.grown,
            )
            process = os.getpid()
            self._following = process, made
            # A child process has the stream's last word, and nobody who reads on.
            ledger.followed = reseals.followed = lambda: made.alive and os.getpid() == process
            ledger.closing = made.close
        return self._following[1]

    def _log(self, which: JournalLog) -> RemoteLog:
        if which not in self._logs:
            self._logs[which] = RemoteLog(self._connection, f"{self._path}/{which}", self._patience_s)
        return self._logs[which]


def _records(found: Any, first: int) -> list[Record]:
    """The records of a page, if they are numbered as they have to be."""
    match found:
        case {"records": list(rows)}:
            records = [Record(*row) for row in rows if _is_record(row)]
            if len(records) == len(rows) and all(r.offset == first + n for n, r in enumerate(records)):
                return records
    raise strange()


def _is_record(row: object) -> bool:
    match row:
        case [int(), int(), bytes()]:
            return True
        case _:
            return False


def _number(found: Any, name: str) -> int:
    value = found.get(name) if isinstance(found, dict) else None
    if type(value) is not int or value < 0:
        raise strange()
    return value
