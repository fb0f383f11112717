"""Two brokers on Spark: `run` drives both, and what is between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sealcast.pipeline.run import run, start
from sealcast.protections.endpoint.audit import EndpointAudit
from tests.overlay.world import TOPIC, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_two_brokers_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path / "realm")
    world.subscribe("alice", 0)
    world.subscribe("bob", 10, broker="b1")
    world.publish("p0", "broker", [5, 15])
    world.publish("p1", "b1", [20, 3])
    totals = run(world.realm, once=True, spark=spark)
    assert (totals["admitted"], totals["deliveries"]) == (8, 6), "each broker admits all four"
    for name in ("alice", "bob"):
        world.read(name)
    world.judge()
    # Live, with a move: events go on while alice is on her way.
    world.move("alice", "b1")
    with start(world.realm, spark=spark) as pipeline:
        world.publish("p0", "broker", [7, 8])
        world.publish("p1", "b1", [9])
        pipeline.wait(lambda: world.realm.state().stays_of(TOPIC, "alice")[0].until is not None)
        world.publish("p0", "broker", [11])
        pipeline.wait(lambda: _all_read(world))
    world.judge()
    for broker in world.brokers:
        report = EndpointAudit(world.realm, TOPIC, broker=broker).run()
        assert report.ok, report.problems
    world.close()


def _all_read(world: World) -> bool:
    for name in world.due:
        world.read(name)
    return all(len(world.got[name]) >= len(due) for name, due in world.due.items())
