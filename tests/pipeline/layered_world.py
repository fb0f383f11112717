"""A realm with a layered topic, its publishers and subscribers; what everybody should get; and its brokers run by the
real sources, kernels and sinks, in the way that Spark calls them, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxRows

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.model import Event, Schema
from sealcast.pipeline import sinks
from sealcast.pipeline.sinks import StreamPieces
from sealcast.pipeline.sources import Limits, StepsStream
from sealcast.protections.layered.interests import LayeredInterests
from sealcast.protections.layered.node import HOPS
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from tests.copies import copy_realm
from tests.pipeline.steps import Task

TOPIC = "quotes"
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "price", "type": "int", "min": 0, "max": 255},
            {"name": "symbol", "type": "string"},
        ]
    }
)
FILTERS = {
    "ann": ["price < 80"],
    "bob": ["price >= 64 AND symbol = 'A'", "price = 3"],
    "eve": ["price < 80", "symbol LIKE 'B%'"],
    "joe": ["symbol = 'nobody'"],
}


class LayeredWorld:
    def __init__(self, directory: Path, filters: Mapping[str, list[str]] = FILTERS, **overlay: Any) -> None:
        realm = Realm.create(directory)
        realm.create_topic(TOPIC, SCHEMA, protection="layered", **overlay, access="members")
        realm.enrol_many(["p0", "p1", *filters])
        self._open(realm)
        for name, texts in filters.items():
            for text in texts:
                self.subscribe(name, text)

    def _open(self, realm: Realm) -> None:
        self.realm = realm
        self._publishers = {name: Publisher(realm, TOPIC, name) for name in ("p0", "p1")}
        self._random = Random(7)
        self.filters: dict[str, list[str]] = {}
        #: What each subscriber should have got so far.
        self.due: dict[str, list[bytes]] = {}

    def copy(self, directory: Path) -> LayeredWorld:
        """The same realm once more, elsewhere: making one takes longer than most tests."""
        copy_realm(self.realm.paths.root, directory)
        other = object.__new__(LayeredWorld)
        other._open(Realm(directory))
        other.filters = {name: list(texts) for name, texts in self.filters.items()}
        other.due = {name: [] for name in other.filters}
        return other

    def subscribe(self, name: str, text: str) -> None:
        with LayeredInterests(self.realm, TOPIC, name) as interests:
            interests.add(text)
        self.filters.setdefault(name, []).append(text)
        self.due.setdefault(name, [])

    def publish(self, publisher: str, count: int) -> None:
        """Events of which nobody knows before who gets them; they are what subscribers are due from here on."""
        events = [
            Event(
                {"price": self._random.randrange(256), "symbol": self._random.choice(["A", "B1", "B2", "C"])},
                f"{publisher} {self._random.getrandbits(64):x}".encode(),
            )
            for _ in range(count)
        ]
        self._publishers[publisher].publish(events)
        for name, texts in self.filters.items():
            wanted = [fit(parse(text), SCHEMA) for text in texts]
            hits = [event for event in events if any(evaluate(c, dict(event.attributes)) is True for c in wanted)]
            self.due[name] += [event.payload for event in hits]

    def got(self, name: str) -> list[bytes]:
        with Subscriber(self.realm, TOPIC, name) as reader:
            return [event.payload for event in reader]

    def check(self) -> None:
        for name, due in self.due.items():
            assert sorted(self.got(name)) == sorted(due), name

    # --- its brokers, without Spark -------------------------------------------------------------------------

    @property
    def names(self) -> tuple[StepName, ...]:
        return tuple(
            StepName(str(self.realm.paths.root), TOPIC, n, HOPS) for n in self.realm.state().overlay(TOPIC).downwards()
        )

    def admit(self, *brokers: str) -> None:
        """What waits at the roots, or at these, one batch each."""
        for root in brokers or self.realm.state().overlay(TOPIC).roots:
            name = StepName(str(self.realm.paths.root), TOPIC, root)
            source = StepsStream((name,), Limits(1000, 1 << 30, 2))
            start = source.initialOffset()
            end = source.latestOffset(start, ReadMaxRows(1000))
            if end == start:
                continue
            sink = StreamPieces((name,))
            with a_task():
                staged = [sink.write(source.read(task)) for task in source.partitions(start, end)]
            sink.commit([*staged], name.open().ledger.end())

    def drain(self) -> int:
        """Hops until nothing waits; how many batches that took."""
        loop = HopLoop(self.names)
        while loop.step():
            pass
        return loop.batch


class HopLoop:
    """Spark's driver over the hop query: plan, run the tasks, commit. A new one is a new checkpoint."""

    def __init__(self, names: tuple[StepName, ...], limits: Limits | None = None) -> None:
        self.limits = limits or Limits(1000, 1 << 30, 2)
        self.source, self.sink = StepsStream(names, self.limits), StreamPieces(names)
        self.start = self.source.initialOffset()
        #: Batch numbers are a query's: high enough for those of loops before.
        self.batch = sum(name.open().ledger.end() for name in names)

    def plan(self) -> dict[str, Any] | None:
        end = self.source.latestOffset(self.start, ReadMaxRows(self.limits.number))
        return None if end == self.start else end

    def run(self, end: dict[str, Any]) -> None:
        with a_task():
            staged = [self.sink.write(self.source.read(task)) for task in self.source.partitions(self.start, end)]
        self.sink.commit([*staged], self.batch)
        self.start, self.batch = end, self.batch + 1

    def step(self) -> bool:
        end = self.plan()
        if end is not None:
            self.run(end)
        return end is not None


@contextmanager
def a_task() -> Iterator[None]:
    asked = sinks.TaskContext
    sinks.TaskContext = Task  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        sinks.TaskContext = asked  # type: ignore[misc]
