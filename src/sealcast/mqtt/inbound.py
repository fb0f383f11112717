"""From MQTT into the log: a publisher's frames, appended where the publisher itself would have appended them.

A frame at QoS 1 is acknowledged when it is durable in the log, and not before. Before it is appended, its channel must
name a topic that is served here, and the frame must pass the checks of `broker.intake`. What does not pass is counted,
and acknowledged: it would not pass the next time either. What came before is not appended again.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from sealcast.broker.intake import (
    RECENT_BYTES,
    RECENT_FRAMES,
    SOMEWHERE,
    FrameChecks,
    NotAppended,
    RecentFrames,
    digest_of,
)
from sealcast.clients.lanes import Lane
from sealcast.errors import Bug
from sealcast.log.closing import Closing
from sealcast.log.forwarded import partition_of
from sealcast.model.bounded import bounded
from sealcast.mqtt import channels
from sealcast.trust.handles import EntityRealm

#: Of frames in memory, neither appended nor acknowledged. Beyond it, frames at QoS 0 are dropped, and counted; those at
#: QoS 1 are limited by the MQTT broker, which waits for acknowledgements.
MAX_QUEUED_BYTES: Final = 64 << 20
BYTES_PER_APPEND: Final = 32 << 20
FRAMES_PER_APPEND: Final = 4_096

#: A topic, a broker, a partition of its log.
Where = tuple[str, str, int]


class Arrived(NamedTuple):
    """A message as it came."""

    channel: str
    data: bytes
    #: Acknowledges it, if the connection is still the one that it came by.
    acknowledge: Callable[[], None]


class Inbound(Closing):
    """The way in. `put` is called by the network's thread, everything else by one other."""

    def __init__(
        self,
        realm: EntityRealm,
        topics: tuple[str, ...],
        broker: str,
        *,
        max_waiting: int,
        counts: Counter[str],
        told: Callable[[str], None],
    ) -> None:
        self._realm, self._topics, self._broker = realm, frozenset(topics), broker
        self._max_waiting, self._counts, self._told = max_waiting, counts, told
        self._guard = threading.Lock()
        self._queue: deque[Arrived] = deque()
        self._queued_bytes = 0
        self._lanes: dict[Where, Lane] = {}
        self._recent, self._checks = RecentFrames(), FrameChecks()

    def put(self, arrived: Arrived, qos: int) -> None:
        with self._guard:
            if qos == 0 and self._queued_bytes > MAX_QUEUED_BYTES:
                self._counts["dropped"] += 1
                return
            self._queue.append(arrived)
            self._queued_bytes += len(arrived.data)

    def __len__(self) -> int:
        return len(self._queue)

    def turn(self) -> bool:
        """Appends what waits, durably, and acknowledges it; whether there was anything. Unavailable when the log
        cannot be written: then nothing was acknowledged, and the same is tried the next time."""
        with self._guard:
            taken = next(bounded(list(self._queue), lambda a: len(a.data), BYTES_PER_APPEND, FRAMES_PER_APPEND), ())
        if not taken:
            return False
        counts, refusals = Counter[str](), list[str]()
        fresh: dict[bytes, tuple[Where, bytes]] = {}
        for arrived in taken:
            digest = digest_of(arrived.data)
            try:
                where = self._where(arrived)
            except NotAppended as error:
                counts.update(("refused", f"refused_{error.reason}"))
                refusals.append(f"a frame on {arrived.channel} is refused: {error.message}")
                continue
            if self._recent.place(digest) is not None or digest in fresh:
                counts["duplicates"] += 1
            else:
                fresh[digest] = where, arrived.data
        if any(self._full(where) for where in {where for where, _ in fresh.values()}):
            return False
        counts["frames"] += len(fresh)
        self._append(fresh)
        self._done(len(taken))
        self._counts.update(counts)
        for text in refusals:
            self._told(text)
        return True

    def close(self) -> None:
        while self._lanes:
            self._lanes.popitem()[1].close()

    # --- inside -------------------------------------------------------------------------------------

    def _append(self, fresh: Mapping[bytes, tuple[Where, bytes]]) -> None:
        """Partition by partition. Sorting is stable: frames of one partition keep their order."""
        by_place = sorted(fresh.items(), key=lambda item: item[1][0])
        for where, group in groupby(by_place, key=lambda item: item[1][0]):
            batch = {digest: data for digest, (_, data) in group}
            offsets = self._lanes[where].append(list(batch.values()))
            if offsets is None:
                raise Bug("a bridge appends to logs of this machine, and nothing waits to be sent")
            for digest, offset in zip(batch, offsets, strict=True):
                self._recent.remember(digest, offset)

    def _done(self, count: int) -> None:
        with self._guard:
            done = [self._queue.popleft() for _ in range(count)]
            self._queued_bytes -= sum(len(arrived.data) for arrived in done)
        for arrived in done:
            arrived.acknowledge()

    def _where(self, arrived: Arrived) -> Where:
        named, state = channels.frames_for(arrived.channel), self._realm.state()
        if named is None or named[0] not in self._topics:
            raise NotAppended("channel", "no topic that is served here has this channel")
        topic, broker = named[0], named[1] or self._broker
        publisher = self._checks.check(state, topic, broker, arrived.data).publisher
        where = topic, broker, partition_of(publisher, state.topic(topic).partitions)
        self._open(where, publisher)
        return where

    def _open(self, where: Where, publisher: str) -> None:
        if where in self._lanes:
            return
        self._lanes[where] = lane = Lane(self._realm, where[0], where[1], publisher)
        for data in lane.newest(RECENT_FRAMES, RECENT_BYTES):
            self._recent.remember(digest_of(data), SOMEWHERE)

    def _full(self, where: Where) -> bool:
        """Backpressure: what no pipeline takes out must not be put in without end. The MQTT broker waits then."""
        return self._lanes[where].waiting() >= self._max_waiting
