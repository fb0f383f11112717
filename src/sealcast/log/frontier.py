"""The log's shared state: how far it is written, and how far it is durable. One small file that all processes share.

Four slots of 512 bytes: `written` twice, `durable` twice. A new state goes to the older of its two slots, so that a
reader, who takes no lock, always finds one that is whole; each carries a sequence number and a CRC.

    durable  is moved after a sync and before the acknowledgement, and not synced itself: after a loss of power it may
             lag, it never leads. Whoever opens the log for appending walks on from it.
    written  is where the next record goes, and is believed only within the boot of the machine that wrote it: after
             a loss of power it might lead.

`generation` counts failed syncs. What was written but not durable when a sync failed is in doubt (the kernel may
have dropped those pages and will not say so twice), so it is thrown away: the two generations differ until that has
happened, and a writer whose bytes belong to an older generation is never acknowledged.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import Corrupt
from sealcast.log import files
from sealcast.log.layout import MARK, Mark, intact, seal
from sealcast.model.dataclass import dataclass

NAME: Final = "frontier"
_SLOT_BYTES: Final = 512
_SLOTS: Final = 4
_SLOT: Final = struct.Struct(f"<4sQQ16s{MARK.size}sI")
_MAGIC: Final = b"SCF1"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Slot:
    sequence: int
    generation: int
    boot: bytes
    mark: Mark


@dataclass(frozen=True, slots=True)
class State:
    """What the file said at one moment."""

    written: Slot | None
    durable: Slot | None
    #: A slot was neither empty nor whole: someone damaged the file. A crash does not do that.
    damaged: bool


@cache
def boot() -> bytes:
    """Names this boot of the machine; a random value, which no one will recognise, where the system does not say."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return secrets.token_bytes(16)


class Frontier(files.OpenFile):
    """The file. Reading needs no lock; `write` is for whoever holds the append lock, `advance` the sync lock."""

    def __init__(self, directory: Path, *, writable: bool) -> None:
        self.path = directory / NAME
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        self._fd = os.open(self.path, flags, files.FILE_MODE)

    def read(self) -> State:
        raw = os.pread(self._fd, _SLOTS * _SLOT_BYTES, 0)
        slots = [_parse(raw[i * _SLOT_BYTES : (i + 1) * _SLOT_BYTES]) for i in range(_SLOTS)]
        written, durable = _newest(slots[:2]), _newest(slots[2:])
        return State(written, durable, damaged=any(slot.damaged for slot in slots))

    def durable(self) -> Mark | None:
        """The frontier readers go by; None for a log in which nothing was ever written."""
        raw = os.pread(self._fd, 2 * _SLOT_BYTES, 2 * _SLOT_BYTES)
        slots = [_parse(raw[:_SLOT_BYTES]), _parse(raw[_SLOT_BYTES:])]
        newest = _newest(slots)
        if newest is not None:
            return newest.mark
        # A writer that dies in the middle of its very first copy leaves half of it, and nothing where the second would
        # be. Nothing was said to be durable then: both copies are written before that (`rewrite`).
        if all(slot.damaged for slot in slots):
            raise Corrupt(
                f"{self.path}: neither copy of the durable frontier is what was written",
                hint="open the log for appending: if its records are whole, the frontier is made again",
            )
        return None

    def write(self, mark: Mark, generation: int) -> None:
        self._publish(0, self.read().written, mark, generation)

    def advance(self, mark: Mark, generation: int) -> None:
        self._publish(2, self.read().durable, mark, generation)

    def sync(self) -> None:
        files.sync_data(self._fd)

    def rewrite(self, mark: Mark, generation: int) -> None:
        """Set all four slots, whatever they held, and sync: for new segments and after repairs, under both locks."""
        for _ in range(2):
            self.write(mark, generation)
            self.advance(mark, generation)
        self.sync()

    def _publish(self, first: int, before: Slot | None, mark: Mark, generation: int) -> None:
        sequence = before.sequence + 1 if before else 1
        raw = seal(_SLOT.pack(_MAGIC, sequence, generation, boot(), mark.pack(), 0)).ljust(_SLOT_BYTES, b"\0")
        files.write_all(self._fd, raw, (first + sequence % 2) * _SLOT_BYTES)


class _Parsed(NamedTuple):
    slot: Slot | None
    damaged: bool = False


def _newest(slots: Sequence[_Parsed]) -> Slot | None:
    return max((parsed.slot for parsed in slots if parsed.slot), key=lambda slot: slot.sequence, default=None)


def _parse(raw: bytes) -> _Parsed:
    if not any(raw):
        return _Parsed(None)  # never written
    body = raw[: _SLOT.size]
    if len(raw) < _SLOT_BYTES or any(raw[_SLOT.size :]) or not intact(body):
        return _Parsed(None, damaged=True)
    magic, sequence, generation, boot_id, packed, _ = _SLOT.unpack(body)
    mark = Mark.unpack(packed)
    if magic != _MAGIC or mark is None:
        return _Parsed(None, damaged=True)
    return _Parsed(Slot(sequence, generation, boot_id, mark))
