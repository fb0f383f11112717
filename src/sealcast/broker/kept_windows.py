"""The replay windows of a topic, kept from batch to batch where its pipeline is driven.

    TOPIC/windows = MAC (32) | records u64 | size u32 | where the last of them ended, CBOR | windows, packed

They are a function of the frames that the ledger took (broker/replay.py), so the file only saves time: what is not
there, was altered, or is of another history than the ledger's is worked out again (`History`). What is there for fewer
records than the ledger has, because whoever committed the others died too early, is brought up to date. Windows have
hashes of publishers and numbers, and no keys.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

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


class KeptWindows(Unpicklable):
    """Of one topic at one broker. Several processes may have it, of which one commits."""

    def __init__(self, path: Path, key: Secret) -> None:
        self._path, self._key = path, key
        #: Where the last of so many records ended, as it stands in the file, and the windows after it.
        self._known: tuple[int, bytes, Windows] | None = None

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
        self._keep(1 if last is None else last.index + 2, entry, windows)

    def _at_most(self, last: Committed, history: History) -> tuple[int, Windows] | None:
        """The newest windows that are known after that record, or after an earlier one of the same ledger."""
        mine, records = self._known, last.index + 1
        told = [mine] if mine is not None and mine[0] == records else [mine, self._read(history)]
        for known in sorted(filter(None, told), key=lambda known: known[0], reverse=True):
            number, ended, windows = known
            if not 0 < number <= records or windows.bounds != history.bounds:
                continue
            if ended == _ended(last.entry if number == records else history.entry(number - 1)):
                self._known = known
                return number, windows
        return None

    def _read(self, history: History) -> tuple[int, bytes, Windows] | None:
        """What the file has; None where nothing is to be believed."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return None
        tag, body = data[: mac.TAG_BYTES], data[mac.TAG_BYTES :]
        if len(body) < _HEAD.size or not mac.verify(self._key, tag, _CONTEXT, body):
            return None
        records, size = _HEAD.unpack_from(body)
        packed = _HEAD.size + size
        with suppress(Corrupt):  # windows of other bounds: the topic's parameters were other ones
            return records, body[_HEAD.size : packed], Windows.unpack(body[packed:], history.bounds)
        return None

    def _keep(self, records: int, entry: Entry, windows: Windows) -> None:
        ended = _ended(entry)
        self._known = records, ended, windows
        body = _HEAD.pack(records, len(ended)) + ended + windows.pack()
        # Not synced: after a power failure it is worked out again. Nor is a full disk a reason to stop.
        with suppress(Unavailable):
            files.replace_file(self._path, mac.tag(self._key, _CONTEXT, body) + body, durable=False)


def _ended(entry: Entry) -> bytes:
    """What tells one history from another: where its record ended, under which version, and when that was planned."""
    return cbor.encode(entry.end.to_cbor())
