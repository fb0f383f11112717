"""The replay windows of a topic, kept from batch to batch where its pipeline is driven.

    TOPIC/windows = MAC (32) | records u64 | size u32 | where the last of them ended, CBOR | windows, packed

They are a function of the frames that the ledger took (broker/replay.py), so the file only saves time: what is not
there, was altered, or is of another history than the ledger's is worked out again (`History`). What is there for fewer
records than the ledger has, because whoever committed the others died too early, is brought up to date. Windows have
hashes of publishers and numbers, and no keys.

Where several machines share the registry, a copy that is some seconds old is beside it (`trust.shared_windows`), for a
driver on another machine.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from sealcast.broker.history import History
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import unpack_taken
from sealcast.errors import Corrupt, Unavailable
from sealcast.log import files
from sealcast.log.entry import Entry
from sealcast.log.ledger import Committed
from sealcast.primitives import mac
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.wire import cbor

_CONTEXT: Final = b"sealcast replay windows 2"
_HEAD: Final = struct.Struct("<QI")
#: How often the copy elsewhere is made.
COPIED_SECONDS: Final = 15.0
#: So many records are read from the log sooner than a copy is asked for.
NEAR_RECORDS: Final = 16

#: Where the last of so many records ended, as it stands in the file, and the windows after it.
_Kept = tuple[int, bytes, Windows]


class WindowsElsewhere(Protocol):
    """A copy that other machines find."""

    def load(self) -> bytes | None: ...
    def save(self, data: bytes) -> None: ...


class KeptWindows(Unpicklable):
    """Of one topic at one broker. Several processes may have it, of which one commits."""

    def __init__(self, path: Path, key: Secret, elsewhere: WindowsElsewhere | None = None) -> None:
        self._path, self._key, self._elsewhere = path, key, elsewhere
        #: When the copy elsewhere was made.
        self._copied = -COPIED_SECONDS
        self._known: _Kept | None = None

    def after(self, last: Committed | None, history: History) -> Windows:
        """The windows after a record of the ledger, or before the first, for whoever changes nothing of them. They are
        kept if they had to be worked out."""
        if last is None:
            return history.windows(0)
        if (known := self._at_most(last, history)) is not None and known[0] == last.index + 1:
            return known[1]
        windows = history.windows(last.index + 1, known)
        self._keep(last.index + 1, last.entry, windows)
        return windows

    def took(self, last: Committed | None, entry: Entry, taken: Iterable[bytes], history: History) -> None:
        """After that record the ledger has another one, and this is what replay took of it (`pack_taken`)."""
        windows = self.after(last, history).copy()
        for part in taken:
            windows.take(*unpack_taken(part))
        windows.forget(entry.end.settled_us)
        data = self._keep(1 if last is None else last.index + 2, entry, windows)
        if self._elsewhere is not None and time.monotonic() - self._copied >= COPIED_SECONDS:
            self._copied = time.monotonic()
            self._elsewhere.save(data)

    def _at_most(self, last: Committed, history: History) -> tuple[int, Windows] | None:
        """The newest windows that are known after that record, or after an earlier one of the same ledger."""
        best: _Kept | None = None
        for known, enough in self._told(history):
            if known is not None and (best is None or known[0] > best[0]) and _is_of(known, last, history):
                best = known
            if best is not None and last.index + 1 - best[0] <= enough:
                break
        if best is None:
            return None
        self._known = best
        return best[0], best[2]

    def _told(self, history: History) -> Iterator[tuple[_Kept | None, int]]:
        """What is known, and how many records it may be behind so that nobody looks further. Each look costs more than
        the one before it."""
        yield self._known, 0
        yield self._opened(self._file(), history), NEAR_RECORDS
        if self._elsewhere is not None:
            yield self._opened(self._elsewhere.load(), history), NEAR_RECORDS

    def _file(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except OSError:
            return None

    def _opened(self, data: bytes | None, history: History) -> _Kept | None:
        """What was kept; None where nothing is to be believed."""
        if data is None:
            return None
        tag, body = data[: mac.TAG_BYTES], data[mac.TAG_BYTES :]
        if len(body) < _HEAD.size or not mac.verify(self._key, tag, _CONTEXT, body):
            return None
        records, size = _HEAD.unpack_from(body)
        packed = _HEAD.size + size
        with suppress(Corrupt):  # windows of other bounds: the topic's parameters were other ones
            return records, body[_HEAD.size : packed], Windows.unpack(body[packed:], history.bounds)
        return None

    def _keep(self, records: int, entry: Entry, windows: Windows) -> bytes:
        ended = _ended(entry)
        self._known = records, ended, windows
        body = _HEAD.pack(records, len(ended)) + ended + windows.pack()
        data = mac.tag(self._key, _CONTEXT, body) + body
        # Not synced: after a power failure it is worked out again. Nor is a full disk a reason to stop.
        with suppress(Unavailable):
            files.replace_file(self._path, data, durable=False)
        return data


def _is_of(found: _Kept, last: Committed, history: History) -> bool:
    """Whether windows are those after a record of this ledger, that one or an earlier one, and of these bounds."""
    number, ended, windows = found
    if not 0 < number <= last.index + 1 or windows.bounds != history.bounds:
        return False
    return ended == _ended(last.entry if number == last.index + 1 else history.entry(number - 1))


def _ended(entry: Entry) -> bytes:
    """What tells one history from another: where its record ended, under which version, and when that was planned."""
    return cbor.encode(entry.end.to_cbor())
