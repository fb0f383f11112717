"""What a running pipeline tells about itself: counters for Prometheus, from Spark's own progress reports.

Reports are fetched from Spark (pipeline/attempts.py). A listener would be told of them sooner, but py4j calls listeners
through a port of this process that obeys whoever connects to it.

Names are stable and follow OpenTelemetry's habits (what is counted, its unit, `total`). Labels are topics, brokers and
reasons. Nothing is ever labelled by entity or by what an event says: a metrics page is read by more people than may
know who talks to whom.
"""

from __future__ import annotations

import json
from collections import Counter as Counts
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress

from sealcast.broker.columns import COUNTED, COUNTS, REJECTED, TRACED, counts_in
from sealcast.broker.lag import LagCollector, Lags
from sealcast.broker.metrics_page import MetricsPage, serve
from sealcast.primitives.secrets import Secret

#: The name under which a query's counts are observed.
OBSERVED: Final = "sealcast"
_HELP: Final = {
    "frames": "Frames taken from the log",
    "admitted": "Events that passed admission",
    "matched": "Events that somebody gets",
    "deliveries": "Events times the subscribers that get them",
    "encryptions": "Encryptions under a group's or a subscriber's key; keys that are handed out included",
    "suspended": "Subscriptions that got nothing of a piece: their filters ask for too much work, or cannot be read",
    "removed_above": "Events that a broker above removed before this one took them",
}
#: Between a broker's name, which cannot have it, and its counts.
_BEHIND_BROKER: Final = " "
#: From a tuned empty micro-batch to a large one.
_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """One finished micro-batch, as Spark reports it."""

    query: str
    number: int
    counts: Mapping[str, int]
    seconds: float
    #: Frames that are in the log and not yet taken.
    backlog: int
    #: Of the registry, in force for the batch.
    version: int
    topic: str = ""
    #: What each of the query's brokers did.
    by_broker: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: Traced frames of its pieces (broker/traced.py), and when the batch was committed, in nanoseconds since 1970.
    traced: str = ""
    ended_ns: int = 0


class Metrics:
    """The metrics of one process. A pipeline feeds them, `serve()` shows them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        place = ["topic", "broker"]
        self._counters = {name: counter(f"sealcast_{name}", _HELP[name], place) for name in COUNTS}
        self._rejected = counter(
            "sealcast_rejected_events", "Events refused at admission, by reason", [*place, "reason"]
        )
        self._batches = counter("sealcast_batches", "Micro-batches finished", ["topic"])
        self._failures = counter("sealcast_failures", "Queries that ended with an error", ["topic"])
        self._duration = Histogram(
            "sealcast_batch_duration_seconds", "A micro-batch, whole", ["topic"], buckets=_SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self._version = gauge("sealcast_registry_version", "Newest version in force")
        self._last = gauge("sealcast_last_batch_timestamp_seconds", "When a micro-batch last finished", ["topic"])
        self._running = gauge("sealcast_queries_running", "Streaming queries running", ["topic"])
        self._lags: Lags = list
        self._newest = 0
        self.registry.register(LagCollector(lambda: self._lags()))

    def watch(self, lags: Lags) -> None:
        """Shows from now on how many frames wait, as it is when somebody looks."""
        self._lags = lags

    def known(self, topic: str, brokers: Iterable[str]) -> None:
        """What never occurred at these brokers is 0 from now on, not absent."""
        for broker in brokers:
            for counter in self._counters.values():
                counter.labels(topic, broker)
            for reason in REJECTED:
                self._rejected.labels(topic, broker, str(reason))

    def record(self, batch: FinishedBatch) -> None:
        for broker, counts in batch.by_broker.items():
            for name, counter in self._counters.items():
                counter.labels(batch.topic, broker).inc(counts.get(name, 0))
            for reason, name in REJECTED.items():
                self._rejected.labels(batch.topic, broker, str(reason)).inc(counts.get(name, 0))
        self._batches.labels(batch.topic).inc()
        self._duration.labels(batch.topic).observe(batch.seconds)
        self._newest = max(batch.version, self._newest)
        self._version.set(self._newest)
        self._last.labels(batch.topic).set_to_current_time()

    def started(self, topic: str) -> None:
        self._failures.labels(topic)
        self._running.labels(topic).inc()

    def ended(self, topic: str, failed: bool) -> None:
        self._running.labels(topic).dec()
        self._failures.labels(topic).inc(failed)

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of that name that have these labels, for tests and `status`."""
        samples = (sample for metric in self.registry.collect() for sample in metric.samples)
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    def serve(self, port: int, token: Secret | None = None) -> MetricsPage:
        return serve(self.registry, port, token)


def finished(progress: StreamingQueryProgress, topic: str, brokers: Sequence[str]) -> FinishedBatch | None:
    """A batch, from Spark's report of it; None where the report is of none."""
    if OBSERVED not in progress.observedMetrics:
        return None
    told = progress.observedMetrics[OBSERVED].asDict()
    by_broker = {broker: counts_in("{}") for broker in brokers} | _by_broker(told.get(COUNTED) or "")
    counts = counts_in("{}")
    for each in by_broker.values():
        counts.update(each)
    source = progress.sources[0]
    end = json.loads(source.endOffset)
    milliseconds = progress.durationMs.get("triggerExecution", 0)
    begun = datetime.fromisoformat(progress.timestamp)
    return FinishedBatch(
        query=str(progress.runId),
        number=progress.batchId,
        counts=counts,
        seconds=milliseconds / 1000,
        backlog=_backlog(end, source.latestOffset),
        version=end.get("version", 0),  # a hop is pinned to tables, not to the registry
        topic=topic,
        by_broker=by_broker,
        traced=told.get(TRACED) or "",
        ended_ns=int(begun.timestamp() * 1000 + milliseconds) * 1_000_000,
    )


def _by_broker(lines: str) -> dict[str, Counts[str]]:
    """Sums of what each broker's pieces count: a line for each piece."""
    found: dict[str, Counts[str]] = {}
    for line in lines.splitlines():
        broker, counted = line.split(_BEHIND_BROKER, 1)
        found.setdefault(broker, Counts()).update(counts_in(counted))
    return found


def observed(traces: bool) -> list[Column]:
    """What Spark gathers of the pieces of a batch: who made each, and what it counts."""
    columns = [_lines(F.concat(F.col("node"), F.lit(_BEHIND_BROKER), F.col(COUNTED))).alias(COUNTED)]
    if traces:
        columns.append(_lines(F.col(TRACED)).alias(TRACED))
    return columns


def _lines(column: Column) -> Column:
    """All values that are not NULL, a line each."""
    return F.array_join(F.collect_list(column), "\n")


def _backlog(end: Mapping[str, Any], latest: str | None) -> int:
    if not latest or latest in ("null", "None"):  # Spark's word for it when a batch is run again
        return 0
    return max(0, _reached(json.loads(latest)) - _reached(end))


def _reached(offset: Mapping[str, Any]) -> int:
    """Frames, or records that hops take: those of all brokers."""
    return sum(sum(part["partitions"]) for part in offset.get("nodes", {"": offset}).values())
