"""Receipts: a gateway's signed word that frames are durable at these offsets of a broker's log.

    Ed25519 over  label | CBOR [realm id, topic id, broker, partition, [[offset, SHA-256 of the frame], ...]]

A receipt does not make frames durable. A publisher takes no other answer for an acknowledgement, and keeps the last of
them: whoever lost a frame that it signed for is convicted by its own word, beside the broker's ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import FrameRejected
from sealcast.log import queue_mark
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedLog
from sealcast.primitives.sign import VerifyKey
from sealcast.wire import cbor

LABEL: Final = b"sealcast/1 gateway receipt\0"
#: What is kept of them.
MAX_KEPT_BYTES: Final = 16 << 20
#: Of CBOR in one: three for each frame of a request that may have some thousands.
MAX_RECEIPT_ITEMS: Final = 1 << 16
_SEGMENT_BYTES: Final = 4 << 20
_TIDY_EVERY: Final = 256


@lru_cache(16)
def _verify_key(gateway: bytes) -> VerifyKey:
    """Making one checks that it is a key, which costs as much as it does to verify with it."""
    return VerifyKey(gateway)


class LaneName(NamedTuple):
    """Where frames go."""

    realm: bytes
    topic: bytes
    broker: str
    partition: int


class Receipt(NamedTuple):
    """What a gateway signed."""

    lane: LaneName
    said: tuple[tuple[int, bytes], ...]
    gateway: bytes
    signature: bytes

    @classmethod
    def of(
        cls, lane: LaneName, offsets: Sequence[int], frames: Sequence[bytes], gateway: bytes, signature: bytes
    ) -> Receipt:
        digests = (hashlib.sha256(frame).digest() for frame in frames)
        return cls(lane, tuple(zip(offsets, digests, strict=True)), gateway, signature)

    @property
    def is_signed(self) -> bool:
        """Whether that gateway, named by its key, signed it."""
        said = [list(each) for each in self.said]
        return _verify_key(self.gateway).verify(LABEL + cbor.encode([*self.lane, said]), self.signature)

    def to_bytes(self) -> bytes:
        return cbor.encode([list(self.lane), [list(each) for each in self.said], self.gateway, self.signature])

    @classmethod
    def from_bytes(cls, raw: bytes) -> Receipt:
        """What was kept; FrameRejected for something else."""
        match cbor.decode(raw, max_bytes=len(raw), max_items=MAX_RECEIPT_ITEMS):
            case [[bytes(realm), bytes(topic), str(broker), int(partition)], list(said), bytes(gateway), bytes(signed)]:
                lane = LaneName(realm, topic, broker, partition)
                return cls(lane, tuple((int(n), bytes(d)) for n, d in said), gateway, signed)
            case _:
                raise FrameRejected("receipt", "this is no receipt")


class KeptReceipts(Closing):
    """The last receipts of one lane, in its publisher's home."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log: EmbeddedLog | None = None
        self._added = 0

    def add(self, receipt: Receipt) -> None:
        if self._log is None:
            self._log = EmbeddedLog(self._directory, segment_bytes=_SEGMENT_BYTES)
        self._log.append([receipt.to_bytes()])
        self._added += 1
        if self._added % _TIDY_EVERY == 0:
            self._log.retain(max_bytes=MAX_KEPT_BYTES)

    def open_ones(self, most: int) -> list[tuple[int, Receipt]]:
        """Those whose frames were not found committed yet, with their numbers, the oldest first."""
        if not self._directory.is_dir():
            return []
        with EmbeddedLog(self._directory, read_only=True) as log:
            first = max(log.start(), queue_mark.read(self._directory))
            end = min(log.end(), first + most)
            return [(r.offset, Receipt.from_bytes(r.data)) for r in log.read(first, end)] if first < end else []

    def settled(self, before: int) -> None:
        """The frames of all receipts before that number were found committed."""
        queue_mark.write(self._directory, before)

    def all(self) -> list[Receipt]:
        """The oldest first."""
        if not self._directory.is_dir():
            return []
        with EmbeddedLog(self._directory, read_only=True) as log:
            return [Receipt.from_bytes(record.data) for record in log.read(log.start())]

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
