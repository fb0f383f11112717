"""The steps of brokers as streaming queries.

input --> claims --> ruled --> pieces --> ledger        a step that reads frames; the sink commits
input -----------------------> pieces --> ledger        any other step
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Final, TypedDict

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from sealcast.broker.columns import COUNTS, PIECES, REJECTED, ddl
from sealcast.broker.replay import Windows
from sealcast.log.closing import Closing
from sealcast.overlay.relay import Relay
from sealcast.pipeline import replay
from sealcast.pipeline.checkpoints import drop_foreign, initial_windows
from sealcast.pipeline.failures import explain, explained, living_jvm
from sealcast.pipeline.metrics import OBSERVED, FinishedBatch, Metrics
from sealcast.pipeline.session import cores, is_local
from sealcast.pipeline.sources import FRAME_LIMITS, RECORD_LIMITS
from sealcast.protections.frame_steps import FramesStep, kernel
from sealcast.protections.steps import OpenStep, StepName
from sealcast.trust.layout import FIRST_BROKER

#: How long a stop waits for the micro-batch at hand. What it interrupts is done again at the next start.
STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05


class Options(TypedDict, total=False):
    """How topics are run. All of it may be left out."""

    #: Drains what there is, and ends.
    once: bool
    #: Its session and where that runs; a new one here, without both.
    spark: SparkSession | None
    master: str
    #: The source's options (pipeline/sources.py): what a micro-batch may take.
    limits: Mapping[str, int] | None
    #: Spark's processing-time trigger ("1 second"); as soon as there is something, without one.
    every: str | None
    metrics: Metrics | None
    on_batch: Callable[[FinishedBatch], None] | None
    #: One broker; all whose keys are here, without.
    node: str | None


@dataclass(frozen=True, slots=True)
class Query:
    """The steps that one streaming query runs: one step of one broker that reads frames, or one step of several
    brokers that reads their records."""

    names: tuple[StepName, ...]
    #: It runs one broker, by request; not all that are here.
    alone: bool

    @property
    def reads_frames(self) -> bool:
        return self.names[0].reads_frames

    @property
    def options(self) -> dict[str, str]:
        """What its source and its sink are told."""
        first = self.names[0]
        brokers = ",".join(name.broker for name in self.names)
        return {"realm": first.realm, "topic": first.topic, "step": first.step, "brokers": brokers}

    def title(self, realm_id: bytes) -> str:
        """The query's name in Spark."""
        first = self.names[0]
        by_broker = first.broker != FIRST_BROKER if self.reads_frames else self.alone
        parts = (OBSERVED, first.topic, realm_id.hex()[:8], *(() if self.reads_frames else (first.step,)))
        return ":".join((*parts, first.broker) if by_broker else parts)


# --- the stages -----------------------------------------------------------------------------------


def pieces_of(claims: DataFrame, step: FramesStep, windows: Windows | None, tasks: int) -> DataFrame:
    """Claims -> rulings -> pieces. `windows` are what a new query's replay state begins with."""
    seeds = replay.seeds(claims.sparkSession, step, windows)
    return claims.transform(replay.ruled, step.name, seeds, tasks).mapInArrow(kernel(step.name), ddl(PIECES))


def _counts() -> list[Column]:
    return [F.sum(column).alias(column) for column in (*COUNTS, *REJECTED.values())]


def parallelism(spark: SparkSession) -> dict[str, int]:
    master = spark.sparkContext.master or "local"
    return {"tasks": cores(master) if is_local(master) else spark.sparkContext.defaultParallelism}


class Pipeline(Closing):
    """Running queries. Leaving its block stops them in good order."""

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self.metrics = options.get("metrics") or Metrics()
        #: Sums over the batches so far; whole when the pipeline has stopped.
        self.totals: Counter[str] = Counter()
        self._spark, self._options = spark, options
        self._held = ExitStack()
        self._queries: list[StreamingQuery] = []
        #: What begins when these have ended.
        self._later: list[Callable[[], None]] = []
        self._relay: Relay | None = None
        #: Whether a signal ended the wait.
        self.interrupted = False
        listener = self.metrics.listener(self._count)
        spark.streams.addListener(listener)
        self._held.callback(spark.streams.removeListener, listener)

    def add(self, query: Query) -> None:
        """One more query, whose steps nobody else may run meanwhile. `once` it begins when those before it in the path
        have ended."""
        steps = [name.open() for name in query.names]
        terms = {step.name.broker: self._held.enter_context(step.ledger.exclusive()) for step in steps}
        for step in steps:
            step.prepare()
        # All the way up: what was asked for before now counts for what is there now. A post may wait for another's key.
        for _ in steps:
            if not steps[0].turn(query.names):
                break
        drop_foreign(steps[0].checkpoint(query.alone), steps)

        begin = partial(self._begin, query, steps[0], terms)
        if self._options.get("once") and not query.reads_frames:
            self._later.insert(0, begin)  # later steps are added first
        else:
            begin()

    def _begin(self, query: Query, step: OpenStep, terms: Mapping[str, str]) -> None:
        (_, (max_bytes, _)), limits = FRAME_LIMITS if query.reads_frames else RECORD_LIMITS, self._options.get("limits")
        options: dict[str, Any] = {max_bytes: step.max_bytes, **parallelism(self._spark), **(limits or {})}
        with explained():
            rows = self._spark.readStream.format("sealcast-input").options(**query.options, **options).load()
        if isinstance(step, FramesStep):
            rows = pieces_of(rows, step, initial_windows(step), int(options["tasks"]))
        writer = rows.observe(OBSERVED, *_counts()).writeStream.format("sealcast-pieces")
        writer = writer.options(**query.options, terms=json.dumps(terms)).queryName(query.title(step.realm.id))
        writer = writer.option("checkpointLocation", str(step.checkpoint(query.alone)))
        if self._options.get("once"):
            writer = writer.trigger(availableNow=True)
        elif (every := self._options.get("every")) is not None:
            writer = writer.trigger(processingTime=every)
        with explained():
            self._queries.append(writer.start())

    def relay(self, relay: Relay) -> None:
        """Has frames forwarded for as long as this runs."""
        self._relay = self._held.enter_context(relay)

    def _count(self, batch: FinishedBatch) -> None:
        self.totals.update(batch.counts)
        if (on_batch := self._options.get("on_batch")) is not None:
            on_batch(batch)

    @property
    def running(self) -> bool:
        return any(query.isActive for query in self._queries)

    def wait(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Until every query has ended (`once`), one has failed, or `stop` says so; raises what went wrong."""
        with living_jvm():
            while (self.running or self._go_on()) and not stop():
                self._raise_failure()
                time.sleep(_POLL_SECONDS)
            self._raise_failure()

    def _go_on(self) -> bool:
        """What was to wait until the queries have ended begins."""
        self._raise_failure()
        if not self._later:
            return False
        self._later.pop(0)()
        return True

    def wait_for_signal(self) -> None:
        """`wait`, until SIGINT or SIGTERM; then stops in good order."""
        with _signals() as asked:
            self.wait(asked)
            self.interrupted = asked()
        self.stop()

    def stop(self) -> None:
        """Lets the micro-batch at hand finish, if it does so soon, and ends every query."""
        with living_jvm(), self._held:  # locks are released whatever happens
            for query in self._queries:
                _let_finish(query)
                with explained():
                    query.stop()
            self._hear_out()

    def close(self) -> None:
        self.stop()

    def _raise_failure(self) -> None:
        if self._relay is not None and self._relay.failure is not None:
            raise self._relay.failure
        for query in self._queries:
            failure = query.exception() if not query.isActive else None
            if failure is not None:
                raise explain(failure) from None

    def _hear_out(self) -> None:
        """Progress reports arrive late: wait for the last ones, so that counts are whole when this returns."""
        context = self._spark.sparkContext._jsc
        if context is not None:
            context.sc().listenerBus().waitUntilEmpty(10_000)


def _let_finish(query: StreamingQuery) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    before = _batch_of(query)
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        if _batch_of(query) != before:
            return  # the next one has hardly begun: stopping it costs nothing
        time.sleep(_POLL_SECONDS)


def _batch_of(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    return progress.batchId if progress is not None else None


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    asked = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
