"""What a running pipeline tells about itself: counters for Prometheus, from Spark's own progress reports.

Reports are fetched from Spark (pipeline/attempts.py). A listener would be told of them sooner, but py4j calls listeners
through a port of this process that obeys whoever connects to it.

Names follow OpenTelemetry's habits (what is counted, its unit, `total`). Nothing is ever labelled by topic, entity or
subscriber: a metrics page is read by more people than may know who talks to whom.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pyspark.sql.streaming.listener import StreamingQueryProgress

from sealcast.broker.columns import COUNTS, REJECTED
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
}
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


class Metrics:
    """The metrics of one process. A pipeline feeds them, `serve()` shows them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        self._counters = {name: counter(f"sealcast_{name}", _HELP[name]) for name in COUNTS}
        self._rejected = counter("sealcast_rejected_events", "Events refused at admission, by reason", ["reason"])
        for reason in REJECTED:
            self._rejected.labels(str(reason))  # a reason that never occurred is 0, not absent
        self._batches = counter("sealcast_batches", "Micro-batches finished")
        self._failures = counter("sealcast_failures", "Queries that ended with an error")
        self._duration = Histogram(
            "sealcast_batch_duration_seconds", "A micro-batch, whole", buckets=_SECONDS, registry=self.registry
        )
        self._backlog = gauge("sealcast_backlog_frames", "Frames in the log, not yet taken")
        self._version = gauge("sealcast_registry_version", "Newest version in force")
        self._last = gauge("sealcast_last_batch_timestamp_seconds", "When a micro-batch last finished")
        self._running = gauge("sealcast_queries_running", "Streaming queries running")
        self._backlogs: dict[str, int] = {}
        self._lock = threading.Lock()

    def record(self, batch: FinishedBatch) -> None:
        for name, counter in self._counters.items():
            counter.inc(batch.counts.get(name, 0))
        for reason, name in REJECTED.items():
            self._rejected.labels(str(reason)).inc(batch.counts.get(name, 0))
        self._batches.inc()
        self._duration.observe(batch.seconds)
        self._version.set(max(batch.version, self.value("sealcast_registry_version")))
        self._last.set_to_current_time()
        with self._lock:
            self._backlogs[batch.query] = batch.backlog
            self._backlog.set(sum(self._backlogs.values()))

    def started(self) -> None:
        self._running.inc()

    def ended(self, query: str, failed: bool) -> None:
        self._running.dec()
        self._failures.inc(failed)
        with self._lock:
            self._backlogs.pop(query, None)
            self._backlog.set(sum(self._backlogs.values()))

    def value(self, name: str, **labels: str) -> float:
        """A sample, for tests and `status`."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def serve(self, port: int, token: Secret | None = None) -> MetricsPage:
        return serve(self.registry, port, token)


def finished(progress: StreamingQueryProgress) -> FinishedBatch | None:
    """A batch, from Spark's report of it; None where the report is of none."""
    if OBSERVED not in progress.observedMetrics:
        return None
    counted = progress.observedMetrics[OBSERVED].asDict()
    source = progress.sources[0]
    end = json.loads(source.endOffset)
    return FinishedBatch(
        query=str(progress.runId),
        number=progress.batchId,
        counts={name: int(value or 0) for name, value in counted.items()},
        seconds=progress.durationMs.get("triggerExecution", 0) / 1000,
        backlog=_backlog(end, source.latestOffset),
        version=end.get("version", 0),  # a hop is pinned to tables, not to the registry
    )


def _backlog(end: Mapping[str, Any], latest: str | None) -> int:
    if not latest or latest in ("null", "None"):  # Spark's word for it when a batch is run again
        return 0
    return max(0, _reached(json.loads(latest)) - _reached(end))


def _reached(offset: Mapping[str, Any]) -> int:
    """Frames, or records that hops take: those of all brokers."""
    return sum(sum(part["partitions"]) for part in offset.get("nodes", {"": offset}).values())
