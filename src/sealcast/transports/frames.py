"""A publisher's lane that ends at a gateway.

A frame counts as published when the gateway's receipt for it has come. When the gateway cannot be reached, frames wait
on this disk (`offline`), and whatever is published later waits behind them: a publisher's events keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from sealcast.errors import Misuse, Unavailable
from sealcast.log.closing import Closing
from sealcast.log.lane_log import DONE, LOST, MAX_ASKED, WAITING, AskStanding, Confirmation, LostFrame
from sealcast.log.port import Record
from sealcast.model.bounded import bounded
from sealcast.transports.https import Connection, path_of
from sealcast.transports.offline import FrameQueue
from sealcast.transports.problems import GatewayRefused, GatewayUnreachable, strange
from sealcast.transports.receipts import KeptReceipts, LaneName, Receipt

#: Of one request.
MAX_FRAMES: Final = 1_024
MAX_BYTES: Final = 24 << 20
#: Receipts that are compared at a time, and frames in one question (control/standings.py).
MAX_CONFIRMED: Final = 4_096
#: How long a gateway is tried before frames wait on disk.
PATIENCE_S: Final = 3.0


class RemoteLaneLog(Closing):
    """One partition of a broker's, behind a gateway."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        name: LaneName,
        home: Path,
        gateway_key: Callable[[], bytes],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`home` is the publisher's directory for this lane; `gateway_key` is what the gateway signs receipts with, by
        the certificate that it showed."""
        self._connection, self._name, self._gateway_key, self._patience_s = connection, name, gateway_key, patience_s
        self._path = path_of("topics", topic, "brokers", name.broker, "frames")
        self._queue = FrameQueue(home / "queue")
        self._receipts = KeptReceipts(home / "receipts")

    @property
    def partition(self) -> int:
        return self._name.partition

    def append(self, frames: Sequence[bytes]) -> Sequence[int] | None:
        """Their offsets, when the gateway has taken them; None when they wait on this disk. Durable on return."""
        with self._queue.sending():
            if len(self._queue) and not self._drain():
                self._queue.put(frames)
                return None
            try:
                return list(chain.from_iterable(map(self._send, bounded(frames, len, MAX_BYTES, MAX_FRAMES))))
            except GatewayUnreachable:
                # Some may have arrived. They are sent once more, and counted once.
                self._queue.put(frames)
                return None

    def flush(self) -> int:
        """Sends what waits; how many frames still do."""
        with self._queue.sending():
            if len(self._queue):
                self._drain()
        return len(self._queue)

    def queued(self) -> int:
        """Frames that wait on this disk."""
        return len(self._queue)

    def waiting(self) -> int:
        """Frames that no pipeline has taken yet, as the gateway says; those on this disk, when it says nothing."""
        if self._connection.is_down:
            return len(self._queue)
        try:
            found = self._connection.get(self._path, {"partition": self.partition}, patience_s=self._patience_s)
        except GatewayUnreachable:
            return len(self._queue)
        return _whole(found, "waiting")

    def confirm(self, standing: AskStanding) -> Confirmation:
        """Compares the gateway's receipts with what the broker says under its own signature."""
        found, settling, settled = Confirmation(), True, None
        for number, receipt in self._receipts.open_ones(MAX_CONFIRMED):
            for some in bounded(receipt.said, lambda _: 1, MAX_ASKED):
                words, statement = standing(receipt.lane.partition, some)
                for (offset, _), word in zip(some, words, strict=True):
                    if word in LOST:
                        evidence = (receipt.to_bytes(), statement)
                        found.lost.append(LostFrame(receipt.lane.partition, offset, word, *evidence))
                    found.committed += word in DONE
                    found.waiting += word == WAITING
                    settling = settling and word in DONE
            # What comes after the first that is not done with is asked for again.
            settled = number + 1 if settling else settled
        if settled is not None:
            self._receipts.settled(settled)
        return found

    def newest(self, most: int, most_bytes: int) -> list[bytes]:
        raise self._elsewhere()

    def end(self) -> int:
        return 0

    def read(self, start: int) -> Iterator[Record]:
        return iter(())

    @property
    def directory(self) -> Path:
        raise self._elsewhere()

    def close(self) -> None:
        self._receipts.close()
        self._queue.close()

    # --- inside -------------------------------------------------------------------------------------

    def _drain(self) -> bool:
        """Whether nothing waits any more."""
        while frames := self._queue.next(MAX_FRAMES, MAX_BYTES):
            try:
                self._send(frames)
            except GatewayUnreachable:
                return False
            except GatewayRefused:
                if len(frames) > 1:
                    self._drain_singly(len(frames))
                    continue
                self._queue.refuse(frames[0])
                raise
            self._queue.arrived(len(frames))
        return True

    def _drain_singly(self, count: int) -> None:
        """One of them is refused, and takes no other with it."""
        for _ in range(count):
            (frame,) = self._queue.next(1, MAX_BYTES)
            try:
                self._send([frame])
            except GatewayRefused:
                self._queue.refuse(frame)
                raise
            self._queue.arrived(1)

    def _send(self, frames: Sequence[bytes]) -> list[int]:
        body = {"partition": self.partition, "frames": list(frames)}
        found = self._connection.send("POST", self._path, body, patience_s=self._patience_s)
        match found:
            case {"offsets": list(offsets), "receipt": bytes(signature)} if _are_offsets(offsets, len(frames)):
                receipt = Receipt.of(self._name, offsets, frames, self._gateway_key(), signature)
                if receipt.is_signed:
                    self._receipts.add(receipt)
                    return offsets
        raise Unavailable(
            f"{self._connection.address} says that it has taken frames, and does not sign for it",
            hint="nothing counts as published: ask whoever runs the gateway",
        )

    def _elsewhere(self) -> Misuse:
        return Misuse(
            f"the log of partition {self.partition} is behind {self._connection.address}, not on this machine",
            hint="publish with sealcast.Publisher, sealcast pub or Spark's sink; the MQTT bridge needs that log",
        )


def _are_offsets(offsets: list[Any], count: int) -> bool:
    return len(offsets) == count and all(type(n) is int and n >= 0 for n in offsets)


def _whole(found: Any, name: str) -> int:
    value = found.get(name) if isinstance(found, dict) else None
    if type(value) is not int or value < 0:
        raise strange()
    return value
