"""sealcast run: the pipeline on Spark."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.cli.maintain import upkeep
from sealcast.cli.metrics import PrometheusPort, PrometheusToken, asked_for
from sealcast.cli.tracing import TracesTo, traces_to
from sealcast.errors import Locked, Misuse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sealcast.errors import SealcastError
    from sealcast.pipeline.metrics import FinishedBatch
    from sealcast.pipeline.queries import Options
    from sealcast.trust.handles import BrokerRealm
    from sealcast.trust.realm.machine import RealmState

app = talk.Commands()


Once = Annotated[bool, typer.Option("--once", help="Handle everything that is waiting, and stop.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Run only this topic; can be repeated.")
]
Master = Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.")]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A setting of Spark's, such as spark.cores.max=8; can be repeated."),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where Spark keeps its state, such as hdfs://HOST/DIR [default: in the realm]."),
]
Standby = Annotated[
    bool, typer.Option("--standby", help="While another process runs these topics, wait; then take over.")
]
Every = Annotated[str | None, typer.Option(metavar="TIME", help='The least time between batches, such as "5 seconds".')]
Node = Annotated[
    str | None, typer.Option(metavar="BROKER", help="Run this broker alone [default: all whose keys are here].")
]


@app.command(daemon=True, epilog="Example: sealcast run --once")
def run(
    once: Once = False,
    topics: Topics = None,
    master: Master = "local[*]",
    conf: Conf = None,
    checkpoint: Checkpoint = None,
    standby: Standby = False,
    every: Every = None,
    node: Node = None,
    prometheus: PrometheusPort = None,
    prometheus_token: PrometheusToken = None,
    traces: TracesTo = None,
) -> None:
    """Run the pipeline: admit, match, group, seal, deliver, until Ctrl-C, or with --once until all is done.

    Subscriptions, rights and revocations that change meanwhile count from the next batch on. A run that was killed
    continues where it stopped: nothing is lost, and nothing is delivered twice. If one of several topics fails, the
    others go on; it is tried again after a while, and `sealcast status` shows why it failed.

    A broker forwards what it admits to the other brokers that have subscribers; an event that two brokers handle counts
    twice. On a layered topic, events go from broker to broker, one hop per batch.

    With --once, Spark is not started if nothing is waiting.

    With --node, only that broker's own keys are opened. Run `sealcast maintain` elsewhere to renew what falls due.

    On a Spark cluster (--master spark://HOST:PORT), your spark-defaults.conf counts, and --conf before it.

    With --standby, a second run waits for as long as another one runs these topics, and takes over when that ends,
    however it ends. The other one can commit nothing any more.

    A broker on a machine of its own runs in the home that it joined from: --realm HOME. Its logs and pieces are there,
    and others reach them through the gateway of that machine (sealcast broker reach).
    """
    here = talk.open_broker_realm()
    alone = node is not None or not here.site.here
    if not alone:
        here = talk.open_realm()
    _exists(here.state(), topics, node)
    from sealcast.pipeline.checkpoints import check_location
    from sealcast.pipeline.metrics import Metrics
    from sealcast.pipeline.run import queries_of, refuse_second_run
    from sealcast.pipeline.run import run as run_pipeline

    show, spark = asked_for(prometheus, prometheus_token), _Spark(master, conf or (), once)
    if checkpoint is not None:
        check_location(checkpoint)
    if standby and once:
        raise Misuse("--once ends when nothing is waiting, so it cannot stand by", hint="leave one of the two out")
    if not standby:
        refuse_second_run(queries_of(here, topics or (), node))
    begin, metrics, shown = time.monotonic(), Metrics(), _Shown()
    totals: Mapping[str, int] = {}
    with ExitStack() as held:
        held.enter_context(show(lambda: metrics.registry))
        options: Options = {"once": once, "every": every, "node": node, "metrics": metrics, "spark": spark}
        options["checkpoint"] = checkpoint
        options |= {"on_batch": shown.batch, "on_failure": shown.failure}
        options["traces"] = held.enter_context(traces_to(traces))
        while not standby or _our_turn(here, topics, node, spark):
            try:
                with nullcontext() if alone else upkeep(talk.open_realm()):
                    totals = run_pipeline(here, topics or (), **options)
                break
            except Locked:  # another one that stood by was quicker, or has taken over since
                if not standby:
                    raise
    shown.end()
    if once and not spark.started:
        talk.note("nothing was waiting, so Spark was not started")
    _answer(totals, shown.batches, time.monotonic() - begin)


def _our_turn(here: BrokerRealm, topics: Sequence[str] | None, node: str | None, spark: _Spark) -> bool:
    """Stands by until nobody else runs these topics; False when it was asked to stop."""
    from sealcast.pipeline.standby import wait_for_turn

    waited = list[str]()

    def tell(other: Locked) -> None:
        talk.note(f"standing by: {other.message}")
        waited.append(other.message)
        spark.warm()

    ours = wait_for_turn(here, tuple(topics or ()), node, tell)
    if ours and waited:
        talk.note("taking over")
    return ours


class _Spark:
    """Starts Spark when the pipeline first has something for it, and says so: it takes its time."""

    def __init__(self, master: str, conf: Sequence[str], once: bool) -> None:
        from sealcast.pipeline import settings

        self._master, self._conf, self._once = master, settings.given(conf), once
        settings.check(master, self._conf)
        self.started = False

    def warm(self) -> None:
        """Starts Spark before it is needed, where that takes nothing from others: on a cluster it would hold cores."""
        from sealcast.pipeline.session import session
        from sealcast.pipeline.settings import is_local

        if is_local(self._master):
            session(self._master, extra=self._conf, short_lived=self._once, clients=False)

    def __call__(self) -> SparkSession:
        from sealcast.pipeline.session import session

        if not self.started:
            talk.note("starting Spark ...")
        spark = session(self._master, extra=self._conf, short_lived=self._once, clients=False)
        if not self.started and not self._once:
            talk.note("running; Ctrl-C stops in good order")
        self.started = True
        return spark


def _exists(state: RealmState, topics: Sequence[str] | None, node: str | None) -> None:
    """What was named exists; and whoever expects a topic here that no broker carries is told so."""
    for name in topics or ():
        state.topic(name)
    if node is not None:
        state.broker_number(node)
    for name in topics or state.topics:
        if state.topic(name).protection.peers:
            talk.note(f"topic {name!r} has no brokers: its peers carry it, with sealcast peer run")


def _answer(totals: Mapping[str, int], batches: int, seconds: float) -> None:
    document = {**totals, "batches": batches, "seconds": round(seconds, 3)}
    refused = sum(n for name, n in totals.items() if name.startswith("rejected"))
    said = (
        f"{totals.get('admitted', 0):,} events admitted, {refused:,} refused, {totals.get('matched', 0):,} matched, "
        f"{totals.get('deliveries', 0):,} deliveries, {totals.get('encryptions', 0):,} encryptions"
    )
    talk.answer(document, said)


def _place(batch: FinishedBatch) -> str:
    """Whose batch it is."""
    at = f" at {', '.join(batch.by_broker)}" if batch.by_broker else ""
    return f"topic {batch.topic!r}{at}"


class _Shown:
    """Batches as they finish: one line that changes, in front of a person; a line each, otherwise."""

    def __init__(self) -> None:
        self.batches = 0
        self._live = sys.stderr.isatty() and talk.given.log is None

    def batch(self, batch: FinishedBatch) -> None:
        self.batches += 1
        counts = batch.counts
        if talk.given.log is not None:
            rejected = sum(n for name, n in counts.items() if name.startswith("rejected"))
            talk.given.log.write(
                "batch",
                topic=batch.topic,
                broker=", ".join(batch.by_broker),
                batch=batch.number,
                admitted=counts.get("admitted", 0),
                rejected=rejected,
                deliveries=counts.get("deliveries", 0),
                backlog=batch.backlog,
                version=batch.version,
                milliseconds=batch.seconds * 1000,
            )
            return
        text = (
            f"{_place(batch)}: batch {batch.number}: {counts.get('admitted', 0):,} events, "
            f"{counts.get('deliveries', 0):,} deliveries, {batch.seconds:.2f} s, backlog {batch.backlog:,} frames"
        )
        if self._live:
            talk.note_live(text)
        else:
            talk.note(text)

    def failure(self, topic: str, error: SealcastError, seconds: float) -> None:
        if talk.given.log is not None:
            talk.given.log.write(
                "failure", topic=topic, reason=error.code, message=error.message, retry_seconds=float(seconds)
            )
            return
        hint = "" if error.hint is None else f" ({error.hint})"
        talk.note(f"topic {topic!r} failed: {error.message}{hint}; trying again in {seconds:,.0f} s")

    def end(self) -> None:
        if self._live and self.batches:
            talk.note("")
