"""A journal that is followed: one endless answer of the gateway's, read by a thread, instead of questions.

A reader that has come to the end of a ledger waits. While it does, each record comes as soon as its broker has signed
it, and before it each piece that it names for this reader: nothing is left to be asked for. The same is verified as
ever by whoever reads, and a stream that says something strange, lags or ends is no worse than none: it is given up, and
the reader asks again, as it did before.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from sealcast.errors import SealcastError
from sealcast.log.port import Record
from sealcast.transports.https import Connection, Streamed
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_PIECE_BYTES

#: A gateway says something every 15 seconds. One that says nothing for so long is asked instead.
SILENCE_S: Final = 45.0
#: Pieces that came and were not read yet. A reader that falls so far behind asks for what it needs.
MAX_KEPT_BYTES: Final = 16 << 20
_MAX_ITEM_BYTES: Final = MAX_PIECE_BYTES + (1 << 16)


class Following:
    """One stream. What comes is handed to `records` and `reseals`; pieces wait here until they are read."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        first: int,
        records: Callable[[Record], None],
        reseals: Callable[[int], None],
    ) -> None:
        self._connection, self._path, self._next = connection, path, first
        self._records, self._reseals = records, reseals
        self._pieces: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._changed = threading.Condition()
        self._stream: Streamed | None = None
        #: Whether everything that there is comes by itself; False before the first word and after the last.
        self.alive = self.was_alive = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="sealcast follower", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return self._ended

    def wait(self, known: int, seconds: float) -> None:
        """Until there is a record at `known`, the time is over, or nothing comes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._next > known or self._ended, seconds)

    def piece(self, name: str) -> bytes | None:
        """A piece that came, once."""
        with self._changed:
            found = self._pieces.pop(name, None)
            self._bytes -= len(found) if found is not None else 0
        return found

    def close(self) -> None:
        """Ends the stream. The thread notices by itself."""
        with self._changed:
            self._ended, self.alive, stream = True, False, self._stream
        if stream is not None:
            stream.close()

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._connection.stream(self._path, {"from": self._next}, SILENCE_S) as stream:
                with self._changed:
                    self._stream = stream
                items = ItemBuffer()
                for part in stream:
                    for item in items.feed(part):
                        self._take(item)
                    if self._ended or self._bytes > MAX_KEPT_BYTES:
                        return
        except SealcastError:
            return  # the next question meets the same trouble, and says so
        finally:
            with self._changed:
                self._ended, self.alive = True, False
                self._changed.notify_all()

    def _take(self, item: Any) -> None:
        with self._changed:
            match item:
                case ["piece", str(name), bytes(data)]:
                    self._pieces[name] = data
                    self._bytes += len(data)
                case ["record", int(offset), int(time_us), bytes(data)] if offset == self._next:
                    self._records(Record(offset, time_us, data))
                    self._next += 1
                case ["reseals", int(end)] if end >= 0:
                    self._reseals(end)
                case ["beat", int()]:
                    pass
                case _:
                    raise cbor.refused("a stream of a ledger has pieces, records in order, and beats")
            self.alive, self.was_alive = not self._ended, True
            self._changed.notify_all()


class ItemBuffer:
    """Bytes of a sequence of CBOR (RFC 8742), until an item is whole."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, part: bytes) -> list[Any]:
        """The items that are whole now; FrameRejected for what is no item, or too large."""
        self._held += part
        found, at = [], 0
        while (end := _item_end(self._held, at)) is not None:
            found.append(cbor.decode(bytes(self._held[at:end]), max_bytes=_MAX_ITEM_BYTES, max_depth=1, max_items=8))
            at = end
        del self._held[:at]
        if len(self._held) > _MAX_ITEM_BYTES:
            raise cbor.refused("an item of a stream is too large")
        return found


def _item_end(data: bytearray, at: int) -> int | None:
    """Where the list of plain values that begins there ends; None while it is not whole."""
    if at >= len(data):
        return None
    if data[at] >> 5 != 4 or data[at] & 31 > 8:
        raise cbor.refused("an item of a stream is a short list")
    count, at = data[at] & 31, at + 1
    for _ in range(count):
        if at >= len(data):
            return None
        major, info = data[at] >> 5, data[at] & 31
        if major not in (0, 2, 3) or info > 27:
            raise cbor.refused("an item of a stream is a list of numbers, texts and bytes")
        size = 0 if info < 24 else 1 << (info - 24)
        if at + 1 + size > len(data):
            return None
        argument = info if info < 24 else int.from_bytes(data[at + 1 : at + 1 + size], "big")
        at += 1 + size + (argument if major else 0)
        if at > len(data):
            if at - len(data) > _MAX_ITEM_BYTES:
                raise cbor.refused("an item of a stream is too large")
            return None
    return at
