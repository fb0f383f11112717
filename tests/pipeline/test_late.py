"""Filters that come after the events, through Spark: drained, streaming, and from a checkpoint that was lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from sealcast.log.ledger import LedgerReader
from sealcast.pipeline.run import start
from tests.protections.world import TOPIC, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long a running pipeline may take to look at a new filter on a machine that is busy with other things.
PATIENCE = 120.0


def test_a_new_filter_brings_what_is_retained_with_the_next_run_and_never_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = World(tmp_path / "realm", "searchable")
    for publisher in ("nyse", "xetra"):
        world.publish(publisher, 20)
    world.append_rubbish()
    world.run(spark)
    world.realm.subscribe(TOPIC, "mallory", "price < 100")
    due = [payload.encode() for payload in world.true_of("price < 100")]
    totals = world.run(spark)
    assert (totals.get("admitted", 0), totals["deliveries"]) == (0, len(due)) and due
    assert world.got("mallory") == due, "in the order in which it was published"
    assert not world.run(spark).get("deliveries"), "there is nothing more to do"
    options = {"realm": str(world.realm.paths.root), "topic": TOPIC, "as": "mallory"}
    rows = spark.read.format("sealcast").options(**options).load().select("payload").collect()
    assert sorted(bytes(row.payload) for row in rows) == sorted(due)
    world.drop_checkpoints()
    world.publish("nyse", 10)
    world.run(spark)
    due = [payload.encode() for payload in world.true_of("price < 100")]
    assert world.got("mallory") == due
    world.check()
    found = world.command("check", TOPIC, "--json").document
    assert found["ok"], found["problems"]


def test_a_running_pipeline_looks_at_a_new_filter_although_nothing_is_published(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = World(tmp_path / "realm", "searchable")
    world.publish("nyse", 20)
    with start(world.realm, [TOPIC], spark=spark, limits={"max_frames_per_trigger": 4}) as pipeline:
        _until(lambda: sum(map(len, world.due.values())) == _delivered(world))
        world.realm.subscribe(TOPIC, "mallory", "price < 100")
        due = [payload.encode() for payload in world.true_of("price < 100")]
        _until(lambda: len(world.got("mallory")) == len(due))
        assert pipeline.running
    assert world.got("mallory") == due
    world.check()
    assert world.command("check", TOPIC, "--json").document["ok"]


def _delivered(world: World) -> int:
    with LedgerReader(world.realm.paths.topic(TOPIC).ledger) as ledger:
        return sum(each.entry.counts.get("deliveries", 0) for each in ledger.entries())


def _until(true: object) -> None:
    assert callable(true)
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.2)
