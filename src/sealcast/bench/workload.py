"""A realm full of subscriptions and a log full of events, made fast: what the pipeline's benchmarks run on.

Ten thousand desks watch two thousand symbols, each event interests a few of them. The frames are real ones, as
publishers make them, a thousand events each; they are only encoded by columns, so that making them is no benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from sealcast.broker.authenticate import authenticate
from sealcast.broker.path import handle_bounded
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import gathered
from sealcast.lab import market
from sealcast.lab.attacks import Insider
from sealcast.lab.market import Ticks
from sealcast.log.forwarded import publishers_for
from sealcast.log.offsets import PinnedOffset
from sealcast.model.stages import Ruled
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.wire.records import RecordCodec
from sealcast.wire.sealed import SealedPiece

TOPIC: Final = "ticks"
#: One for each partition.
PUBLISHERS: Final = tuple(publishers_for(2))
SYMBOLS: Final = 2_000
EVENTS_PER_FRAME: Final = 1_000
PAYLOAD_BYTES: Final = 256
#: All symbols alike: popular ones would make the benchmark one of wrapping keys, which is another suite's.
POPULARITY: Final = 0.0


def create(realm: Realm, subscriptions: int) -> list[str]:
    """Makes a topic with that many subscribers, one filter each; the filters."""
    names = [f"desk-{i}" for i in range(subscriptions)]
    filters = market.filters(subscriptions, seed=1, n_symbols=SYMBOLS, popularity=POPULARITY)
    realm.create_topic(TOPIC, market.SCHEMA, partitions=len(PUBLISHERS), access="members")
    realm.enrol_many([*PUBLISHERS, *names])
    realm.subscribe_many(TOPIC, [(name, wish, None) for name, wish in zip(names, filters, strict=True)])
    return filters


class Kernels:
    """The kernels without Spark, on the frames that its source would read."""

    def __init__(self, realm: Realm) -> None:
        self._name = StepName(str(realm.paths.root), TOPIC)

    def run(
        self, clock: Callable[[], float] = time.process_time, made: Callable[[SealedPiece], None] = lambda piece: None
    ) -> float:
        """Measures seconds from frames to sealed pieces, without reading the log before and storing pieces after."""
        topic = MatchingStep.of(self._name)
        at = topic.at(topic.version())
        windows, end = Windows(at.gate.bounds), PinnedOffset(topic.available(), at.version, time.time_ns() // 1000)
        start = topic.committed()
        frames = [
            received
            for partition, first, stop in start.ranges(end)
            for received in gathered(partition, topic.frames.partition(partition).read(first, stop), start.arrival(end))
        ]
        began = clock()
        for received in frames:
            claims, _ = authenticate(received, at.gate)
            for piece, *_ in handle_bounded(Ruled(received, windows.decide(claims)), at):
                made(piece)
        return clock() - began


class FramePublisher:
    """Publishes events into a topic's log by columns, evenly over its partitions, of which each has a publisher."""

    def __init__(self, realm: Realm, topic: str, publishers: Sequence[str]) -> None:
        about = realm.state().topic(topic)
        self._codec = RecordCodec(about.schema)
        self._log = realm.frames(topic)
        self._sealers = [Insider.of(realm, topic, name).sealer(about) for name in publishers]

    def append(self, columns: pa.RecordBatch, payloads: Sequence[bytes]) -> None:
        """Publishes events, durable on return."""
        bodies = pa.array(payloads, pa.binary())
        for frame, start in enumerate(range(0, columns.num_rows, EVENTS_PER_FRAME)):
            here = columns.slice(start, EVENTS_PER_FRAME)
            messages = self._codec.encode_columns(here, bodies[start : start + EVENTS_PER_FRAME])
            partition = frame % len(self._sealers)
            data = self._sealers[partition].seal_messages(messages, time.time_ns() // 1000)
            self._log.partition(partition).append([data])

    def close(self) -> None:
        self._log.close()


class TradingSource(FramePublisher):
    """Publishes stretches of trading."""

    def __init__(self, realm: Realm) -> None:
        super().__init__(realm, TOPIC, PUBLISHERS)
        self._seed = 1

    def ticks(self, count: int) -> Ticks:
        """Makes the next stretch without publishing it."""
        self._seed += 1
        return market.ticks(
            count, seed=self._seed, n_symbols=SYMBOLS, payload_bytes=PAYLOAD_BYTES, popularity=POPULARITY
        )

    def publish(self, count: int) -> None:
        """Publishes the next stretch, durable on return."""
        ticks = self.ticks(count)
        self.append(ticks.columns, ticks.payloads)
