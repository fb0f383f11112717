"""The pipeline as jobs: topics run as streaming queries, or one topic as one batch.

Which steps a topic has, and which brokers run them, is for its protection to say (`protections.port.BrokerSide`).
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, Unpack

from pyspark.sql import SparkSession

from sealcast.broker.lag import lags_at
from sealcast.errors import Locked, Misuse, SealcastError
from sealcast.log.driver_lock import runs_already
from sealcast.overlay.relay import Relay, brokers_here
from sealcast.pipeline.failures import explained
from sealcast.pipeline.metrics import Metrics
from sealcast.pipeline.queries import Options, Pipeline, Query, parallelism
from sealcast.pipeline.retention import Retainer, kept_steps
from sealcast.pipeline.session import session
from sealcast.pipeline.settings import through_connect
from sealcast.protections.frame_steps import FramesStep, MatchingStep
from sealcast.protections.port import broker_side
from sealcast.protections.steps import OpenStep, StepName
from sealcast.trust.handles import BrokerRealm

_CONNECT: Final = "pyspark.sql.connect."


def start(realm: str | Path | BrokerRealm, topics: Sequence[str] = (), **options: Unpack[Options]) -> Pipeline:
    """Runs the topics (all, without names) until stopped. Of the brokers, all whose keys are here, or one (`node`).

    Frames go between the brokers meanwhile, but not `once`. Then a step begins when those before it have ended, and
    only if there is something to take. Spark is not started for nothing.
    """
    opened, once = realm if isinstance(realm, BrokerRealm) else BrokerRealm(realm), options.get("once", False)
    queries = queries_of(opened, topics, options.get("node"))
    pipeline = Pipeline(partial(_session, options), options)
    try:
        for query in queries:
            pipeline.add(query)
        pipeline.begin()
        if not once:
            # Also where there is one broker: others may come while this runs.
            admitting = dict.fromkeys(query.names[0].broker for query in queries if query.reads_frames)
            pipeline.beside(relay := Relay(opened, list(admitting), topics))
            pipeline.relay = relay
        places = dict.fromkeys((name.topic, name.broker) for q in queries if q.reads_frames for name in q.names)
        pipeline.metrics.watch(lags_at(opened, list(places)))
        if not once:
            pipeline.beside(Retainer(opened, [name for query in queries for name in query.names]))
        pipeline.watch()
    except BaseException:
        pipeline.stop()
        raise
    return pipeline


def run(realm: str | Path | BrokerRealm, topics: Sequence[str] = (), **options: Unpack[Options]) -> dict[str, int]:
    """`start`, and wait: until everything is drained (`once`), or until SIGINT or SIGTERM. What was done, in counts.

    Several brokers are drained when what each of them admitted was forwarded, and is drained there.
    """
    opened, totals, again = realm if isinstance(realm, BrokerRealm) else BrokerRealm(realm), Counter[str](), True
    options["metrics"] = options.get("metrics") or Metrics()
    while again:
        with start(opened, topics, **options) as pipeline:
            if threading.current_thread() is threading.main_thread():
                pipeline.wait_for_signal()
            else:
                pipeline.wait()
        totals.update(pipeline.totals)
        go_on = options.get("once", False) and not pipeline.interrupted
        again = go_on and _relayed(opened, topics, options.get("node"))
    if options.get("once", False):
        with closing(_retainer(opened, topics, options.get("node"))) as retainer:
            retainer.drained()
    return dict(totals)


def run_batch(spark: SparkSession, realm: str | Path, topic: str) -> Mapping[str, int]:
    """Everything that the log has beyond the ledger's end, as one batch job; what the ledger then says of it. For
    topics whose brokers run one step."""
    name = StepName(str(Path(realm).absolute()), topic)
    if len(broker_side(FramesStep.of(name).about.protection).steps) > 1:
        raise Misuse(
            f"events of topic {topic!r} go from broker to broker, which no one batch does",
            hint="drain it: sealcast run --once",
        )
    step, query, tasks = MatchingStep.of(name), Query((name,), alone=True), parallelism(spark)
    with step.ledger.exclusive() as term, explained(), step.going_on() as continues:
        step.prepare()
        before = step.ledger.end()
        reading = spark.read.format("sealcast-input").options(**query.options, **tasks)
        pieces = reading.option("continues", continues.hex()).load()
        writer = pieces.write.format("sealcast-pieces").options(**query.options)
        writer.option("terms", json.dumps({step.name.broker: term})).mode("append").save()
        committed = list(step.ledger.entries(before))
    return dict(committed[0].entry.counts) if committed else {}


def _session(options: Options) -> SparkSession:
    given = options.get("spark")
    if given is None:
        return session(options.get("master", "local[*]"), short_lived=options.get("once", False), clients=False)
    if type(given).__module__.startswith(_CONNECT):
        raise through_connect()
    return given if isinstance(given, SparkSession) else given()


# --- what there is to run ---------------------------------------------------------------------------


def queries_of(realm: BrokerRealm, topics: Sequence[str], node: str | None = None) -> list[Query]:
    """The queries that run these topics, later steps first: what they need must be there before events come."""
    state = realm.state()
    wanted = topics or sorted(state.topics)
    if not wanted:
        raise Misuse(
            f"the realm {realm.name!r} has no topics to run", hint="make one: sealcast topic create NAME --schema FILE"
        )
    here, found = brokers_here(realm, state, node), list[Query]()
    for topic in wanted:
        for kind in reversed(broker_side(state.topic(topic).protection).steps):
            brokers = kind.brokers(realm, state, topic, here)
            names = tuple(StepName(str(realm.paths.root), topic, broker, kind.step) for broker in brokers)
            together = [names] if names and not names[0].reads_frames else [(name,) for name in names]
            found += [Query(each, node is not None) for each in together]
    if not found and all(state.topic(topic).protection.peers for topic in wanted):
        raise Misuse(
            f"no broker runs {', '.join(map(repr, wanted))}: publishers and subscribers carry it themselves",
            hint=broker_side(state.topic(wanted[0]).protection).joining,
        )
    if not found:
        joining = broker_side(state.topic(wanted[0]).protection).joining
        raise Misuse(
            f"broker {node!r} serves none of these topics" if node else "no broker of these topics has its keys here",
            hint=f"let it: {joining.format(topic=wanted[0], broker=node or 'BROKER')}",
        )
    return found


def refuse_second_run(queries: Sequence[Query]) -> None:
    """Raises Locked where other processes run all of these queries already, as `start` would, without Spark."""
    others = taken(queries)
    if others and others[-1] is not None and None not in others:
        raise others[-1]


def taken(queries: Sequence[Query]) -> list[Locked | None]:
    """Who else runs each of these queries, if anybody does. Whatever is wrong is left for `start` to say."""
    try:
        steps = [[name.open() for name in query.names] for query in queries]
        return [next(filter(None, map(_taken, each)), None) for each in steps]
    except SealcastError:
        return []


def _taken(step: OpenStep) -> Locked | None:
    return runs_already(step.paths.ledger) or step.journal.turn.taken()


def _retainer(realm: BrokerRealm, topics: Sequence[str], node: str | None) -> Retainer:
    state = realm.state()
    return Retainer(realm, kept_steps(realm, topics or state.topics, brokers_here(realm, state, node)))


def _relayed(realm: BrokerRealm, topics: Sequence[str], node: str | None) -> bool:
    """Forwards what there is; whether any of it went to a broker that runs here."""
    state = realm.state()
    if len(state.brokers()) < 2:
        return False
    here = brokers_here(realm, state, node)
    with closing(Relay(realm, here, topics)) as relay:
        return any(frames and link.destination in here for link, frames in relay.once().items())
