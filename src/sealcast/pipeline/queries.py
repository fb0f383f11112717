"""The steps of brokers as streaming queries.

input --> pieces --> ledger        one stage: a task makes pieces of its part and stages them; the sink commits
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sealcast.broker.traced import read as read_traced
from sealcast.errors import Bug, SealcastError
from sealcast.log.closing import Closing
from sealcast.overlay.relay import Relay
from sealcast.pipeline.attempts import Attempts
from sealcast.pipeline.checkpoints import checkpoint_of, drop_foreign
from sealcast.pipeline.failures import living_jvm
from sealcast.pipeline.metrics import OBSERVED, FinishedBatch, Metrics, observed
from sealcast.pipeline.retention import Retainer
from sealcast.pipeline.session import use_here
from sealcast.pipeline.settings import cores, is_local
from sealcast.pipeline.sources import FRAME_LIMITS, RECORD_LIMITS
from sealcast.protections.steps import OpenStep, StepName
from sealcast.trust.layout import FIRST_BROKER

if TYPE_CHECKING:
    from sealcast.telemetry.traces import Traces

_POLL_SECONDS: Final = 0.05


class Options(TypedDict, total=False):
    """How topics are run. All of it may be left out."""

    #: Drains what there is, and ends.
    once: bool
    #: Its session, or what starts one once it is needed, and where that runs; a new one here, without both.
    spark: SparkSession | Callable[[], SparkSession] | None
    master: str
    #: The source's options (pipeline/sources.py): what a micro-batch may take.
    limits: Mapping[str, int] | None
    #: Spark's processing-time trigger ("1 second"); as soon as there is something, without one.
    every: str | None
    #: Below which URL Spark's checkpoints are; beside the ledgers, without.
    checkpoint: str | None
    metrics: Metrics | None
    on_batch: Callable[[FinishedBatch], None] | None
    #: Told of a topic that failed, why, and in how many seconds it is tried again.
    on_failure: Callable[[str, SealcastError, float], None] | None
    #: One broker; all whose keys are here, without.
    node: str | None
    #: Where spans of traced frames go; nobody notes them, without.
    traces: Traces | None


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


def parallelism(spark: SparkSession) -> dict[str, int]:
    master = spark.sparkContext.master or "local"
    return {"tasks": cores(master) if is_local(master) else spark.sparkContext.defaultParallelism}


class Pipeline(Closing):
    """Running queries. Leaving its block stops them in good order.

    A thread watches them. In a run of several topics a query that fails is tried again, and the others go on; a run of
    one topic ends with its failure, unless it is another machine that cannot be reached now: that may be back at any
    moment. With `once` the others are drained, nothing is tried again, and a query that has nothing to take is not
    begun. Spark is started for the first query that is begun, so not at all without one.
    """

    def __init__(self, spark: Callable[[], SparkSession], options: Options) -> None:
        self.metrics = options.get("metrics") or Metrics()
        #: Sums over the batches so far; whole when the pipeline has stopped.
        self.totals: Counter[str] = Counter()
        self._start_spark, self._options = spark, options
        self._started: SparkSession | None = None
        self._held = ExitStack()
        self._attempts: list[Attempts] = []
        #: Those of them that are begun at once, and those that are begun when the others have ended.
        self._first: list[Attempts] = []
        self._later: list[Attempts] = []
        #: What forwards frames meanwhile: a run of one topic ends with its failure.
        self.relay: Relay | None = None
        #: What ended the thread before it was asked to.
        self._trouble: SealcastError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sealcast queries", daemon=True)
        #: Whether a signal ended the wait.
        self.interrupted = False

    def add(self, query: Query) -> None:
        """One more query, whose steps nobody else may run from now on. `begin` begins it; `once`, a later step is begun
        when those before it in the path have ended."""
        attempts = Attempts(query.names, partial(self._begin, query), self.metrics)
        self.metrics.known(query.names[0].topic, [name.broker for name in query.names])
        self._attempts.append(attempts)
        self._held.callback(attempts.release)
        if attempts.hold():
            if self._options.get("once") and not query.reads_frames:
                self._later.insert(0, attempts)  # later steps are added first
            else:
                self._first.append(attempts)

    def begin(self) -> None:
        """Begins what was added and could be held. Starts Spark, unless there is nothing to do for it."""
        once = self._options.get("once", False)
        if once:
            waiting = {attempts for attempts in (*self._first, *self._later) if attempts.waits()}
            self._first = [attempts for attempts in self._first if attempts in waiting]
            if not waiting:
                self._later.clear()
        # What could not be begun now is tried again, if it is only away. What another run holds is not ours: on a
        # cluster, a Spark that waits for its turn would hold the cores that the other one needs.
        if self._first or self._later or (self._alone and self._tries_again):
            self._started = self._start_spark()
        for attempts in self._first:
            attempts.begin()

    @property
    def _spark(self) -> SparkSession:
        if self._started is None:
            raise Bug("Spark was not started")
        return self._started

    def _begin(self, query: Query, step: OpenStep, terms: Mapping[str, str]) -> StreamingQuery:
        (_, (max_bytes, _)), limits = FRAME_LIMITS if query.reads_frames else RECORD_LIMITS, self._options.get("limits")
        options: dict[str, Any] = {max_bytes: step.max_bytes, **parallelism(self._spark), **(limits or {})}
        rows = self._spark.readStream.format("sealcast-input").options(**query.options, **options).load()
        checkpoint = checkpoint_of(self._spark, step, query.alone, self._options.get("checkpoint"))
        drop_foreign(checkpoint, [name.open() for name in query.names])
        step.warm()
        traced = self._options.get("traces") is not None
        counted = rows.observe(OBSERVED, *observed(traced))
        writer = counted.writeStream.format("sealcast-pieces")
        writer = writer.options(**query.options, terms=json.dumps(terms)).queryName(query.title(step.realm.id))
        writer = writer.option("checkpointLocation", checkpoint.location)
        if self._options.get("once"):
            writer = writer.trigger(availableNow=True)
        elif (every := self._options.get("every")) is not None:
            writer = writer.trigger(processingTime=every)
        # Spark finds our sink in the session of the thread that starts a query, and later ones are started by another.
        session_class = self._spark._get_j_spark_session_class(self._spark._jvm)
        session_class.setActiveSession(self._spark._jsparkSession)
        return writer.start()

    def beside(self, other: Relay | Retainer) -> None:
        """Has frames forwarded, or removed, for as long as this runs."""
        self._held.enter_context(other)

    def watch(self) -> None:
        """Watches the queries that were added. Raises what went wrong when none of them could be begun."""
        if not self._later and not self.running:
            self._raise_failure()
        for attempts in self._attempts:
            self._tell(attempts)
        if self._started is None:
            self._stopping.set()
        else:
            self._thread.start()

    @property
    def running(self) -> bool:
        return any(attempts.active for attempts in self._attempts)

    def wait(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Until every query has ended (`once`), or a run of one topic has failed, or `stop` says so; raises what went
        wrong."""
        while not stop() and (self.running or self._later or self._tries_again):
            self._check_watched()
            if self._alone:
                self._raise_failure()
            time.sleep(_POLL_SECONDS)
        self._check_watched()
        if not self._tries_again:
            self._raise_failure()

    def wait_for_signal(self) -> None:
        """`wait`, until SIGINT or SIGTERM; then stops in good order."""
        with signals() as asked:
            self.wait(asked)
            self.interrupted = asked()
        self.stop()

    def stop(self) -> None:
        """Lets the micro-batch at hand finish, if it does so soon, and ends every query."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        with living_jvm(), self._held:  # locks are released whatever happens
            for attempts in self._attempts:
                self._count(attempts.stop())

    def close(self) -> None:
        self.stop()

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _alone(self) -> bool:
        """Whether it runs one topic: then a failure stops nothing else."""
        return len({attempts.names[0].topic for attempts in self._attempts}) == 1

    @property
    def _tries_again(self) -> bool:
        """Whether there may be something to do though nothing runs."""
        return any(map(self._is_retried, self._attempts))

    def _is_retried(self, attempts: Attempts) -> bool:
        """Whether a query is begun again after it has failed as it did."""
        return not self._options.get("once") and (not self._alone or attempts.is_away)

    def _watch(self) -> None:
        try:
            with living_jvm():
                use_here(self._spark)
                while not self._stopping.wait(_POLL_SECONDS):
                    self._turn()
        except SealcastError as error:
            self._trouble = error

    def _turn(self) -> None:
        for attempts in self._attempts:
            failed_before = attempts.failure
            self._count(attempts.look())
            if attempts.failure is not failed_before:
                self._tell(attempts)
            if self._is_retried(attempts) and attempts.due():
                if attempts.hold():
                    attempts.begin()
                self._tell(attempts)
        if self._later and not self.running:
            if self._later[0].waits():
                self._later[0].begin()
            del self._later[0]

    def _tell(self, attempts: Attempts) -> None:
        """Says that a query failed, if it did, and that it is tried again, if it is."""
        on_failure, retried = self._options.get("on_failure"), self._is_retried(attempts)
        if attempts.failure is not None and on_failure is not None and not attempts.active and retried:
            on_failure(attempts.names[0].topic, attempts.failure, attempts.delay)

    def _count(self, batches: Sequence[FinishedBatch]) -> None:
        for batch in batches:
            self.metrics.record(batch)
            self.totals.update(batch.counts)
            if batch.traced and (traces := self._options.get("traces")) is not None:
                _trace(traces, batch)
            if (on_batch := self._options.get("on_batch")) is not None:
                on_batch(batch)

    def _check_watched(self) -> None:
        if self._trouble is not None:
            raise self._trouble
        if not self._thread.is_alive() and not self._stopping.is_set():
            raise Bug("the thread that watches the queries has ended")
        if self._alone and self.relay is not None and self.relay.failure is not None:
            raise self.relay.failure

    def _raise_failure(self) -> None:
        """What went wrong with a run that is to end by it."""
        for attempts in self._attempts:
            if attempts.failure is not None and not (self._alone and self._is_retried(attempts)):
                raise attempts.failure


def _trace(traces: Traces, batch: FinishedBatch) -> None:
    """Spans of the batch's traced frames: what workers noted, and from then on until it was committed."""
    from sealcast.telemetry.traces import Stage

    broker = next(iter(batch.by_broker), "")
    for piece in read_traced(batch.traced):
        last = piece.stages[-1][2]
        stages = [*(Stage(*each) for each in piece.stages), Stage("deliver", last, max(last, batch.ended_ns))]
        traces.handled(batch.topic, broker, piece.contexts, stages)


@contextmanager
def signals() -> Iterator[Callable[[], bool]]:
    """Says whether SIGINT or SIGTERM came, instead of ending by it."""
    asked = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
