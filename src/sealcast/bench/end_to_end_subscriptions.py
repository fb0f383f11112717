"""`subscriptions` and its kin of suite `end-to-end`: a topic with a million subscriptions beside one with a tenth.

    subscriptions         CPU from nothing in memory to a table that is matched by: the registry's state, and filters
                          opened, parsed and compiled
    subscriptions-match   CPU of matching and grouping the same number of events, as many matches each
    subscriptions-add     CPU from one more subscription to a table that has it, in a broker that stands, over loading
    subscriptions-memory  bytes that a loaded subscription takes: state, filter in clear, and index

Subscribers are 1,000; a filter asks for one symbol and a range of volumes. There are ten filters for a symbol, however
many subscriptions there are, so that events match equally many. Everything is as a broker of an `endpoint` topic does
it, without Spark.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from sealcast.bench.report import BenchRow
from sealcast.broker.admit import admit
from sealcast.broker.authenticate import authenticate
from sealcast.broker.context import Context
from sealcast.broker.group import group
from sealcast.broker.match import match
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import received_of
from sealcast.clients.publisher import Publisher
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.log.offsets import PinnedOffset
from sealcast.model import Event, Schema
from sealcast.model.stages import Admitted, Ruled
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm

SIZES: Final = (100_000, 1_000_000)
QUICK: Final = (2_000, 20_000)
SUBSCRIBERS: Final = 1_000
#: Subscriptions that are made in one transaction.
AT_ONCE: Final = 100_000
PER_SYMBOL: Final = 10
VOLUMES: Final = 1_000_000
EVENTS: Final = 8_192
ROUNDS: Final = 7
#: Bytes that a subscription takes on disk, rounded up.
STORED: Final = 3_000
SCHEMA: Final = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 8},
            {"name": "volume", "type": "int", "min": 0, "max": VOLUMES},
        ]
    }
)


def rows(*, quick: bool = False) -> Iterator[BenchRow]:
    small, large = QUICK if quick else SIZES
    with scratch.realm((small + large) * STORED) as realm:
        realm.enrol_many(["publisher", *_names()])
        for count in (small, large):
            fill(realm, count)
        few, many = Loaded(realm, small), Loaded(realm, large)
        beside = f"{small:,} subscriptions"
        yield BenchRow("subscriptions", many.load_s, few.load_s, beside, many.load_s / few.load_s, "CPU s")
        few_us, many_us = _matching(few, many)
        yield BenchRow("subscriptions-match", many_us, few_us, beside, many_us / few_us, "CPU us per event")
        added = many.add()
        yield BenchRow("subscriptions-add", added, many.load_s, "loading all", added / many.load_s, "CPU s")
        ratio = many.bytes_each / few.bytes_each
        yield BenchRow("subscriptions-memory", many.bytes_each, few.bytes_each, beside, ratio, "bytes each")


def _names() -> list[str]:
    return [f"desk-{number}" for number in range(SUBSCRIBERS)]


def topic_of(count: int) -> str:
    return f"of-{count}"


def filter_of(number: int, count: int) -> str:
    """Ten of them ask for a symbol, one after the other for ever larger volumes."""
    symbols = count // PER_SYMBOL
    return f"symbol = 'S{number % symbols}' AND volume > {number // symbols * VOLUMES // PER_SYMBOL}"


def fill(realm: Realm, count: int) -> None:
    """A topic with that many subscriptions, and events that all match a few."""
    topic, names = topic_of(count), _names()
    realm.create_topic(topic, SCHEMA, access="members")
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(count, start + AT_ONCE))
        realm.subscribe_many(topic, [(names[n % SUBSCRIBERS], filter_of(n, count), None) for n in numbers])
    drawn = np.random.default_rng(1)
    symbols, volumes = drawn.integers(0, count // PER_SYMBOL, EVENTS), drawn.integers(1, VOLUMES, EVENTS)
    with Publisher(realm, topic, as_="publisher") as publisher:
        pairs = zip(symbols.tolist(), volumes.tolist(), strict=True)
        publisher.publish(Event({"symbol": f"S{s}", "volume": v}, b".") for s, v in pairs)


class Loaded:
    """A broker that has just started on one of the topics."""

    def __init__(self, realm: Realm, count: int) -> None:
        self._realm, self._count, self._topic = realm, count, topic_of(count)
        before = _resident()
        self._step = MatchingStep.of(StepName(str(realm.paths.root), self._topic))
        self.load_s = _cpu(self._load)
        gc.collect()
        # A few subscriptions may fit into what the process had already: they take a page at least.
        self.bytes_each = max(_resident() - before, os.sysconf("SC_PAGE_SIZE")) / count
        self.admitted = self._admitted()

    def _load(self) -> None:
        self.at = self._step.at(self._step.version(), self._realm.clock())

    def add(self) -> float:
        """CPU until the table has one subscription more."""
        self._realm.subscribe(self._topic, "desk-0", "volume = 7", "one-more")
        spent = _cpu(self._load)
        if len(self.at.table.ids) != self._count + 1:
            raise Bug("the table does not have the subscription that was added")
        return spent

    def _admitted(self) -> list[Admitted]:
        at, found = self.at, list[Admitted]()
        windows, now = Windows(at.gate.bounds), time.time_ns() // 1000
        start = PinnedOffset.initial(1)
        end = PinnedOffset(self._step.available(), at.version, now, now)
        for partition, first, stop in start.ranges(end):
            records = list(self._step.frames.partition(partition).read(first, stop))
            received = received_of(partition, records, start.arrival(end))
            claims, _ = authenticate(received, at.gate)
            found.append(admit(Ruled(received, windows.decide(claims)), at.gate))
        if sum(each.row.size for each in found) != EVENTS:
            raise Bug(f"{sum(each.row.size for each in found)} events were admitted, not {EVENTS}")
        return found

    def match(self) -> int:
        """How many groups it found for how many events."""
        return sum(_grouped(each, self.at) for each in self.admitted)


def _grouped(admitted: Admitted, at: Context) -> int:
    slots = at.gate.state.slots_of(at.topic.name)
    return int(group(match(admitted, at.table), at.table, slots).events.size)


def _matching(few: Loaded, many: Loaded) -> tuple[float, float]:
    if few.match() != EVENTS or many.match() != EVENTS:
        raise Bug("an event matched nothing, and every volume is above the smallest that is asked for")
    spent = [(_cpu(few.match), _cpu(many.match)) for _ in range(ROUNDS)]
    a, b = (statistics.median(times) / EVENTS * 1e6 for times in zip(*spent, strict=True))
    return a, b


def _cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
