"""The pipeline as jobs: one streaming query a topic, or one batch. The stages are the same functions in both.

    claims --> ruled --> sealed --> ledger          DataFrame -> DataFrame; the sink commits

The checkpoint is Spark's note of how far it got; the ledger is the truth. A checkpoint that belongs to another query
than the ledger's last record is out of date and is dropped: a new one goes on where the ledger ends, and its replay
state begins with what the ledger's frames leave in the windows. One that belongs to it and disagrees with it was
altered, and is refused.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, Self

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sealcast import errors
from sealcast.broker.columns import COUNTS, PIECES, REJECTED, ddl
from sealcast.broker.replay import Windows
from sealcast.broker.topic import TopicName
from sealcast.errors import HINT, Corrupt, DiskFull, Misuse, Rejected, SealcastError, Unavailable
from sealcast.overlay.relay import Relay, brokers_here
from sealcast.pipeline import replay
from sealcast.pipeline.hops_source import turn_desks
from sealcast.pipeline.metrics import OBSERVED, Batch, Metrics
from sealcast.pipeline.session import cores, is_local, session
from sealcast.pipeline.sources import batch_tasks
from sealcast.protections.endpoint import fused
from sealcast.protections.layered import admit as layered
from sealcast.protections.layered.node import NodeName
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.overlays import Overlay

#: How long a stop waits for the micro-batch at hand. What it interrupts is done again at the next start.
STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
_OUR_ERROR: Final = re.compile(rf"^sealcast\.errors\.(\w+): (.*)$(?:\n{HINT}(.*)$)?", re.MULTILINE)
_WORKER_GONE: Final = re.compile(r"Python worker (exited|failed to connect)|Connection reset|Broken pipe|EOFException")
_KILLED: Final = "was it killed, or short of memory? start again: nothing is lost, it goes on where it was"


# --- the stages -----------------------------------------------------------------------------------


def sealed(rulings: DataFrame, name: TopicName) -> DataFrame:
    """Rulings -> sealed pieces: admit, match, group, seal and deliver, fused; counted on the way. On a layered topic
    they are admitted, and the rest is hops."""
    process = layered.process if name.open().about.protection.overlay else fused.process
    return rulings.mapInArrow(process(name), ddl(PIECES)).observe(OBSERVED, *_counts())


def _counts() -> list[Column]:
    return [F.sum(column).alias(column) for column in (*COUNTS, *REJECTED.values())]


def run_batch(spark: SparkSession, realm: str | Path, topic: str) -> Mapping[str, int]:
    """Everything that the log has beyond the ledger's end, as one batch job; what the ledger then says of it."""
    name = TopicName.from_options({"realm": str(realm), "topic": topic})
    opened = name.open()
    if opened.about.protection.overlay:
        raise Misuse(f"topic {topic!r} is layered: its events go from broker to broker, which no one batch does")
    with opened.ledger.exclusive() as term, _explained():
        opened.prepare()
        before, parallelism = opened.ledger.end(), _parallelism(spark)
        claims = spark.read.format("sealcast-frames").options(**_options(name), **parallelism).load()
        seeds = replay.seeds(spark, name, opened.history().windows(before))
        rulings = claims.transform(replay.ruled, name, seeds, batch_tasks(parallelism["tasks"]))
        writer = rulings.transform(sealed, name).write.format("sealcast-sealed")
        writer.options(**_options(name), term=term).mode("append").save()
        committed = list(opened.ledger.entries(before))
    return dict(committed[0].entry.counts) if committed else {}


def start(
    realm: str | Path | BrokerRealm,
    topics: Sequence[str] = (),
    *,
    once: bool = False,
    spark: SparkSession | None = None,
    master: str = "local[*]",
    limits: Mapping[str, int] | None = None,
    every: str | None = None,
    metrics: Metrics | None = None,
    on_batch: Callable[[Batch], None] | None = None,
    node: str | None = None,
) -> Pipeline:
    """Runs the topics (all, without names), each as one streaming query, until stopped; `once` drains and ends. Of the
    brokers, all whose keys are here, a query each, or one (`node`); frames go between them meanwhile, but not `once`.
    Of a layered topic, the roots among them admit, and one query more does the hops of all of them.

    `limits` are the source's options, `every` is Spark's processing-time trigger ("1 second"; as soon as there is
    something, without one).
    """
    opened = realm if isinstance(realm, BrokerRealm) else BrokerRealm(realm)
    names = _names(opened, topics, node)
    spark = session(master, clients=False) if spark is None else spark
    pipeline = Pipeline(spark, metrics or Metrics(), on_batch)
    try:
        for nodes in _hops(opened, topics, node):
            pipeline.add_hops(nodes, once=once, limits=limits or {}, every=every, alone=node is not None)
        for name in names:
            pipeline.add(name, once=once, limits=limits or {}, every=every)
        if not once and len(opened.state().brokers()) > 1:
            pipeline.relay(Relay(opened, list(dict.fromkeys(name.broker for name in names)), topics))
    except BaseException:
        pipeline.stop()
        raise
    return pipeline


def run(
    realm: str | Path | BrokerRealm,
    topics: Sequence[str] = (),
    *,
    once: bool = False,
    spark: SparkSession | None = None,
    master: str = "local[*]",
    limits: Mapping[str, int] | None = None,
    every: str | None = None,
    metrics: Metrics | None = None,
    on_batch: Callable[[Batch], None] | None = None,
    node: str | None = None,
) -> dict[str, int]:
    """`start`, and wait: until everything is drained (`once`), or until SIGINT or SIGTERM. What was done, in counts.

    Several brokers are drained when what each of them admitted was forwarded, and is drained there.
    """
    opened = realm if isinstance(realm, BrokerRealm) else BrokerRealm(realm)
    metrics, totals = metrics or Metrics(), Counter[str]()
    again = True
    while again:
        pipeline = start(
            opened,
            topics,
            once=once,
            spark=spark,
            master=master,
            limits=limits,
            every=every,
            metrics=metrics,
            on_batch=on_batch,
            node=node,
        )
        with pipeline:
            if threading.current_thread() is threading.main_thread():
                pipeline.wait_for_signal()
            else:
                pipeline.wait()
        totals.update(pipeline.totals)
        again = once and not pipeline.interrupted and _relayed(opened, topics, node)
    return dict(totals)


def _relayed(realm: BrokerRealm, topics: Sequence[str], node: str | None) -> bool:
    """Forwards what there is; whether any of it went to a broker that runs here."""
    state = realm.state()
    if len(state.brokers()) < 2:
        return False
    here = brokers_here(realm, state, node)
    relay = Relay(realm, here, topics)
    try:
        return any(frames and link.destination in here for link, frames in relay.once().items())
    finally:
        relay.close()


def _names(realm: BrokerRealm, topics: Sequence[str], node: str | None = None) -> list[TopicName]:
    state = realm.state()
    wanted = topics or sorted(state.topics)
    if not wanted:
        raise Misuse(
            f"the realm {realm.name!r} has no topics to run", hint="make one: sealcast topic create NAME --schema FILE"
        )
    here = brokers_here(realm, state, node)
    names = [
        TopicName(str(realm.paths.root), topic, broker)
        for topic in wanted
        for broker in here
        if (
            _admits(realm, topic, broker, state.overlay(topic))
            if state.topic(topic).protection.overlay
            else broker == FIRST_BROKER or broker in state.serving(topic)
        )
    ]
    if not names and not _hops(realm, wanted, node):
        raise Misuse(
            f"broker {node!r} serves none of these topics" if node else "no broker of these topics has its keys here",
            hint=f"let it: sealcast topic serve {wanted[0]} {node or 'BROKER'}; or, if that is a layered topic, "
            f"sealcast overlay add {wanted[0]} {node or 'BROKER'}",
        )
    return names


def _admits(realm: BrokerRealm, topic: str, broker: str, overlay: Overlay) -> bool:
    """A root of a layered topic; or one that was a root, and has frames from then."""
    if broker in overlay.roots or broker not in overlay.parents:
        return broker in overlay.roots
    if not realm.paths.topic(topic, broker).frames_root.exists():
        return False
    opened = TopicName(str(realm.paths.root), topic, broker).open()
    return any(end > done for end, done in zip_longest(opened.available(), opened.committed().partitions, fillvalue=0))


def _hops(realm: BrokerRealm, topics: Sequence[str], node: str | None) -> list[tuple[NodeName, ...]]:
    """The brokers of each layered topic that run here, those above first."""
    state = realm.state()
    here = frozenset(brokers_here(realm, state, node))
    wanted = [topic for topic in topics or sorted(state.topics) if state.topic(topic).protection.overlay]
    found = [
        tuple(NodeName(str(realm.paths.root), topic, b) for b in state.overlay(topic).downwards() if b in here)
        for topic in wanted
    ]
    return [nodes for nodes in found if nodes]


class Pipeline:
    """Running queries. Leaving its block stops them in good order."""

    def __init__(self, spark: SparkSession, metrics: Metrics, on_batch: Callable[[Batch], None] | None) -> None:
        self.metrics = metrics
        #: Sums over the batches so far; whole when the pipeline has stopped.
        self.totals: Counter[str] = Counter()
        self._spark = spark
        self._held = ExitStack()
        self._queries: list[StreamingQuery] = []
        #: What begins when these have ended.
        self._later: list[Callable[[], None]] = []
        self._relay: Relay | None = None
        #: Whether a signal ended the wait.
        self.interrupted = False
        self._on_batch = on_batch
        listener = metrics.listener(self._count)
        spark.streams.addListener(listener)
        self._held.callback(spark.streams.removeListener, listener)

    def add(self, name: TopicName, *, once: bool, limits: Mapping[str, int], every: str | None) -> None:
        """One more topic, which nobody else may run meanwhile."""
        topic = name.open()
        term = self._held.enter_context(topic.ledger.exclusive())
        topic.prepare()
        _drop_foreign_checkpoint(topic.paths.checkpoint, _last_query(name))
        options: dict[str, str | int] = {**_options(name), **_parallelism(self._spark), **limits}
        if topic.about.protection.overlay:
            options.setdefault("max_bytes_per_trigger", layered.MAX_BYTES_PER_TRIGGER)
        with _explained():
            claims = self._spark.readStream.format("sealcast-frames").options(**options).load()
            seeds = replay.seeds(self._spark, name, initial_windows(name))
            writer = (
                claims.transform(replay.ruled, name, seeds, int(options["tasks"]))
                .transform(sealed, name)
                .writeStream.format("sealcast-sealed")
                .options(**_options(name), term=term, checkpointLocation=str(topic.paths.checkpoint))
                .queryName(":".join((OBSERVED, name.topic, topic.realm.id.hex()[:8], *_other(name.broker))))
            )
            self._start(writer, once, every)

    def add_hops(
        self, names: tuple[NodeName, ...], *, once: bool, limits: Mapping[str, int], every: str | None, alone: bool
    ) -> None:
        """The brokers of one layered topic, which nobody else may run meanwhile. `once` they begin when all is
        admitted."""
        nodes = [name.open() for name in names]
        terms = {node.name.node: self._held.enter_context(node.ledger.exclusive()) for node in nodes}
        for node in nodes:
            node.prepare()
        # All the way up: what was asked for before now counts for what is there now. A post may wait for another's key.
        for _ in nodes:
            if not turn_desks(names):
                break
        first = nodes[0]
        paths = first.paths if alone else first.realm.paths.topic(first.name.topic).hops
        _drop_foreign_checkpoint(paths.checkpoint, *(last.query for n in nodes if (last := n.ledger.last_span())))
        realm, topic = first.name.realm, first.name.topic
        options = {"realm": realm, "topic": topic, "nodes": ",".join(terms)}
        name = ":".join((OBSERVED, topic, first.realm.id.hex()[:8], "hops", *((first.name.node,) if alone else ())))

        def begin() -> None:
            with _explained():
                source = self._spark.readStream.format("sealcast-hops")
                pieces = source.options(**options, **_parallelism(self._spark), **limits).load()
                writer = pieces.observe(OBSERVED, *_counts()).writeStream.format("sealcast-hop-ledgers")
                writer = writer.options(**options, terms=json.dumps(terms), checkpointLocation=str(paths.checkpoint))
                self._start(writer.queryName(name), once, every)

        if once:
            self._later.append(begin)
        else:
            begin()

    def _start(self, writer: DataStreamWriter, once: bool, every: str | None) -> None:
        if once:
            writer = writer.trigger(availableNow=True)
        elif every is not None:
            writer = writer.trigger(processingTime=every)
        self._queries.append(writer.start())

    def relay(self, relay: Relay) -> None:
        """Has frames forwarded for as long as this runs."""
        self._relay = self._held.enter_context(relay)

    def _count(self, batch: Batch) -> None:
        self.totals.update(batch.counts)
        if self._on_batch is not None:
            self._on_batch(batch)

    @property
    def running(self) -> bool:
        return any(query.isActive for query in self._queries)

    def wait(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Until every query has ended (`once`), one has failed, or `stop` says so; raises what went wrong."""
        with _living_jvm():
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
        with _living_jvm(), self._held:  # locks are released whatever happens
            for query in self._queries:
                _let_finish(query)
                with _explained():
                    query.stop()
            self._hear_out()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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


def explain(failure: PySparkException) -> SealcastError:
    """Our own error again, out of Spark's report of it; else Unavailable, with the first line of the report."""
    text = str(failure)
    if told := _OUR_ERROR.search(text):
        kind = getattr(errors, told.group(1), Unavailable)
        simple = issubclass(kind, SealcastError) and kind.__init__ is SealcastError.__init__
        return (kind if simple else Rejected)(told.group(2), hint=told.group(3))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    cause = next((line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)), lines[0] if lines else "")
    if "No space left on device" in cause:
        return DiskFull("Spark has no space left for its checkpoint or its files", hint="free some space, then go on")
    if _WORKER_GONE.search(text):
        return Unavailable("one of Spark's Python processes has ended unexpectedly", hint=_KILLED)
    return Unavailable(f"the pipeline failed: {cause[:500]}")


@contextmanager
def _living_jvm() -> Iterator[None]:
    """Says what happened when the JVM is no longer there to answer."""
    try:
        yield
    except (Py4JNetworkError, ConnectionError):
        raise Unavailable("Spark's JVM has ended unexpectedly", hint=_KILLED) from None


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except PySparkException as failure:
        raise explain(failure) from failure


def _options(name: TopicName) -> dict[str, str]:
    return {"realm": name.realm, "topic": name.topic, "broker": name.broker}


def _other(broker: str) -> tuple[str, ...]:
    return () if broker == FIRST_BROKER else (broker,)


def _parallelism(spark: SparkSession) -> dict[str, int]:
    master = spark.sparkContext.master or "local"
    return {"tasks": cores(master) if is_local(master) else spark.sparkContext.defaultParallelism}


def _last_query(name: TopicName) -> str | None:
    last = name.open().ledger.last_span()
    return last.query if last is not None else None


def _drop_foreign_checkpoint(checkpoint: Path, *last_queries: str | None) -> None:
    """One that is not of the query that a ledger's last record is of."""
    known = {query for query in last_queries if query is not None}
    if known and (query := _query_of(checkpoint)) is not None and known != {query}:
        shutil.rmtree(checkpoint)


def _query_of(checkpoint: Path) -> str | None:
    metadata = checkpoint / "metadata"
    if not metadata.exists():
        return None
    try:
        return str(json.loads(metadata.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        raise Corrupt(
            f"{metadata} cannot be read", hint="remove the checkpoint; a new one goes on where the ledger ends"
        ) from None


def initial_windows(name: TopicName) -> Windows | None:
    """The replay windows that a checkpoint's first batch begins with; None when that batch is done, and Spark has its
    own. A first batch that is run again begins as it did before."""
    topic = name.open()
    if any(path.name.isdigit() for path in (topic.paths.checkpoint / "commits").glob("*")):
        return None
    last, before = topic.ledger.last_span(), topic.ledger.end()
    if last is not None and last.query == _query_of(topic.paths.checkpoint):
        before -= 1
    return topic.history().windows(before)


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
