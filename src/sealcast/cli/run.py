"""sealcast run: the pipeline on Spark."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.cli.maintain import upkeep
from sealcast.cli.metrics import PrometheusPort, PrometheusToken, asked_for
from sealcast.cli.tracing import TracesTo, traces_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sealcast.errors import SealcastError
    from sealcast.pipeline.metrics import FinishedBatch
    from sealcast.pipeline.queries import Options
    from sealcast.trust.realm.machine import RealmState

app = talk.Commands()


Once = Annotated[bool, typer.Option("--once", help="Handle everything that is waiting, and stop.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Run only this topic; can be repeated.")
]
Master = Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.")]
Every = Annotated[str | None, typer.Option(metavar="TIME", help='The least time between batches, such as "5 seconds".')]
Node = Annotated[
    str | None, typer.Option(metavar="BROKER", help="Run this broker alone [default: all whose keys are here].")
]


@app.command(daemon=True, epilog="Example: sealcast run --once")
def run(
    once: Once = False,
    topics: Topics = None,
    master: Master = "local[*]",
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

    A broker on a machine of its own runs in the home that it joined from: --realm HOME. Its logs and pieces are there,
    and others reach them through the gateway of that machine (sealcast broker reach).
    """
    here = talk.open_broker_realm()
    alone = node is not None or not here.site.here
    if not alone:
        here = talk.open_realm()
    _exists(here.state(), topics, node)
    from sealcast.pipeline.metrics import Metrics
    from sealcast.pipeline.run import queries_of, refuse_second_run
    from sealcast.pipeline.run import run as run_pipeline

    show = asked_for(prometheus, prometheus_token)
    refuse_second_run(queries_of(here, topics or (), node))
    begin, metrics, shown, spark = time.monotonic(), Metrics(), _Shown(), _Spark(master, once)
    with ExitStack() as held:
        held.enter_context(show(lambda: metrics.registry))
        options: Options = {"once": once, "every": every, "node": node, "metrics": metrics, "spark": spark}
        options |= {"on_batch": shown.batch, "on_failure": shown.failure}
        options["traces"] = held.enter_context(traces_to(traces))
        if not alone:
            held.enter_context(upkeep(talk.open_realm()))
        totals = run_pipeline(here, topics or (), **options)
    shown.end()
    if not spark.started:
        talk.note("nothing was waiting, so Spark was not started")
    _answer(totals, shown.batches, time.monotonic() - begin)


class _Spark:
    """Starts Spark when the pipeline first has something for it, and says so: it takes its time."""

    def __init__(self, master: str, once: bool) -> None:
        self._master, self._once = master, once
        self.started = False

    def __call__(self) -> SparkSession:
        from sealcast.pipeline.session import session

        if not self.started:
            talk.note("starting Spark ...")
        spark = session(self._master, short_lived=self._once, clients=False)
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
            f"batch {batch.number}: {counts.get('admitted', 0):,} events, {counts.get('deliveries', 0):,} deliveries, "
            f"{batch.seconds:.2f} s, backlog {batch.backlog:,} frames"
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
