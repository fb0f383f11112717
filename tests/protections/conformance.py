"""The half of the conformance suite that is a client's: publish, open, acknowledge, lose rights, change epochs, ask.

Whoever runs it says where the clients are, by the fixtures `made`, `delivered` and `world` (a copy that a case may
change): beside the realm (tests/protections/test_conformance.py), or elsewhere, with a gateway's address
(tests/remote/test_conformance.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from sealcast import Event, Right
from sealcast.errors import Misuse, NotFound, SealcastError
from tests.protections.world import FILTERS, SCHEMA, TOPIC, World
from tests.telemetry.recorder import Recorder, files_with, forms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ClientHalf:
    """Cases for the clients of a topic, whatever protects it."""

    # --- publish, deliver, open -----------------------------------------------------------------------

    def test_everyone_opens_exactly_what_it_asked_for(self, delivered: World) -> None:
        delivered.check()
        due = sum(map(len, delivered.due.values()))
        assert (delivered.totals["admitted"], delivered.totals["deliveries"]) == (60, due)

    def test_what_is_opened_is_what_was_published(self, delivered: World) -> None:
        by_payload = {event.payload: event for event in delivered.published.values()}
        with delivered.reader("ann", from_=0) as reader:
            opened = list(reader)
        assert opened
        for event in opened:
            given = by_payload[event.payload]
            assert event.attributes == SCHEMA.parse(given.attributes)
            assert event.publisher == event.payload.decode().split()[0]
            assert delivered.published[event.position].payload == event.payload, "its position is the one publish gave"

    def test_columns_hold_what_events_hold(self, delivered: World) -> None:
        with delivered.reader("eve", from_=0) as reader:
            rows = reader.to_arrow().read_all().column("payload").to_pylist()
        assert sorted(rows) == sorted(delivered.due["eve"])

    def test_a_publishers_events_come_in_its_order(self, delivered: World) -> None:
        for name in FILTERS:
            with delivered.reader(name, from_=0) as reader:
                numbers: dict[str, list[int]] = {}
                for event in reader:
                    numbers.setdefault(event.publisher, []).append(event.sequence)
            assert all(found == sorted(set(found)) for found in numbers.values())

    def test_reading_is_at_least_once_and_acknowledged_for_good(self, world: World) -> None:
        with world.reader("ann") as reader:
            first = reader.poll(max_events=3)
            assert reader.lag() == len(world.due["ann"])
        with world.reader("ann") as reader:
            again = [e.payload for e in reader.poll(max_events=3)]
            assert again == [e.payload for e in first], "nothing was acknowledged"
            reader.ack()
            assert reader.lag() == len(world.due["ann"]) - 3
        with world.reader("ann") as reader:
            rest = [event.payload for event in reader]
        assert sorted([*(e.payload for e in first), *rest]) == sorted(world.due["ann"])

    def test_who_asked_for_nothing_gets_nothing(self, delivered: World) -> None:
        with pytest.raises(NotFound, match="no subscription"):
            delivered.reader("mallory")
        assert delivered.got("joe") == []

    def test_a_filter_that_nobody_could_serve_is_refused(self, delivered: World) -> None:
        for text in ("colour = 'red'", "price <", ""):
            with pytest.raises(SealcastError):
                delivered.subscribe("ann", text)

    # --- revoke, rotate, replay -----------------------------------------------------------------------

    def test_who_may_no_longer_read_gets_nothing_more(self, world: World) -> None:
        world.revoke("ann", Right.SUBSCRIBE)
        world.publish("nyse", 20, without=("ann",))
        world.run()
        with pytest.raises(SealcastError, match="may not subscribe"):
            world.got("ann")
        del world.due["ann"]
        world.check()
        world.judge()

    def test_a_publisher_that_may_no_longer_is_refused(self, world: World) -> None:
        world.member("nyse")  # a client that is not there yet hears of it only within its first second
        world.revoke("nyse", Right.PUBLISH)
        world.settle()
        with pytest.raises(SealcastError, match="may not publish"):
            world.publish("nyse", 1)

    def test_a_new_epoch_loses_nothing(self, world: World) -> None:
        world.publish("nyse", 10)  # sealed in the old epoch, run in the new one
        before = world.realm.state().topic(TOPIC).epoch
        world.rotate()
        assert world.realm.state().topic(TOPIC).epoch == before + 1
        world.publish("xetra", 10)
        world.run()
        world.publish("nyse", 10)
        world.run()
        world.check()
        world.judge()

    def test_what_was_published_before_one_asked_is_replayed_or_refused(self, world: World) -> None:
        """mallory never subscribed. It gets what the reference evaluator says, and reading the past is on record."""
        lacking = world.protection.lacks.get("replay")
        for text in ("price < 80", "price >= 64 AND symbol = 'A'", "symbol = 'nobody'"):
            ask = ("replay", TOPIC, "--as", "mallory", "--from", "2020-01-01", "--filter", text)
            if world.refuses("mallory", *ask):
                return
            if lacking is not None:
                assert lacking in world.ask("mallory", *ask, code=1).err
                continue
            found = [event["payload"] for event in world.ask("mallory", *ask, "--json").document["events"]]
            assert sorted(found) == sorted(world.true_of(text)), text
        if lacking is None:
            rows = world.command("audit", "--received", "--entity", "mallory", "--json").document["received"]
            assert sum(row["replayed"] for row in rows) > 0
            world.judge()
            world.revoke("mallory", Right.SUBSCRIBE)
            assert "may not subscribe" in world.ask("mallory", *ask, code=1).err

    # --- why, explain, status, rejected ---------------------------------------------------------------

    def test_why_says_delivered_of_what_was_and_nothing_else(self, delivered: World) -> None:
        for position, event in list(delivered.published.items())[:6]:
            for name in ("ann", "joe"):
                ask = ("why", f"{TOPIC}/{position}", name)
                if delivered.refuses(name, *ask):
                    return
                found = delivered.ask(name, *ask, "--json").document
                assert (found["verdict"] == "delivered") == (name in delivered.wanting(event)), found
                assert found["because"] and found["publisher"] == event.payload.decode().split()[0]

    def test_explain_says_who_learns_what(self, delivered: World) -> None:
        found = delivered.ask("ann", "explain", TOPIC, "--json").document
        assert found["protection"] == delivered.protection.name
        assert found["trusted"] and found["left"]
        assert all(party["who"] and (party["learns"] or party["cannot"]) for party in found["parties"])

    def test_status_has_everyones_lag(self, delivered: World) -> None:
        topics = delivered.ask("ann", "status", "--json").document["topics"]
        assert {each["protection"] for each in topics} == {delivered.protection.name}
        assert delivered.lags() == {name: len(due) for name, due in delivered.due.items()}

    def test_rejected_lists_what_was_refused(self, delivered: World) -> None:
        ask = ("rejected", "list", "--json")
        if delivered.refuses("nyse", *ask):
            return
        found = delivered.ask("nyse", *ask).document["rejected"]
        assert {each["reason"] for each in found} >= {"replay", "frame"}
        only = delivered.ask("nyse", *ask, "--reason", "replay").document["rejected"]
        assert only and {each["reason"] for each in only} == {"replay"}
        assert sum(each["events"] for each in only) == 60

    # --- traces ---------------------------------------------------------------------------------------

    def test_a_trace_reaches_whoever_opens_and_lies_nowhere(self, world: World) -> None:
        at_publisher, at_reader = Recorder(), Recorder()
        event = Event({"price": 5, "symbol": "A"}, b"traced", "text/plain")
        world.publisher("nyse", traces=at_publisher).publish([event])
        world.run()
        with world.reader("ann", traces=at_reader) as reader:
            (got,) = [event for event in reader if event.payload == b"traced"]
        assert got.content_type == "text/plain" and got.traceparent is not None
        (published,), (opened,) = at_publisher.spans, at_reader.spans
        assert (published.name, opened.name) == ("sealcast publish", "sealcast open")
        assert published.context is not None and opened.context is not None and opened.parent is not None
        assert opened.context.trace_id == published.context.trace_id
        assert opened.parent.span_id == published.context.span_id
        told = published.to_json() + opened.to_json()
        assert not [word for word in ("nyse", "ann", "symbol", 'traced"') if word in told]
        # Whoever has a disk, its own or another's, sees no context: it is sealed wherever it lies.
        assert files_with(world.realm.paths.root.parent, forms(published.context)) == []

    # --- Spark source and sink ------------------------------------------------------------------------

    def test_spark_reads_a_subscribers_events(self, delivered: World, spark: SparkSession) -> None:
        options = {"realm": str(delivered.member("eve").paths.root), "topic": TOPIC, "as": "eve"}
        rows = spark.read.format("sealcast").options(**options).load().select("payload").collect()
        assert sorted(bytes(row.payload) for row in rows) == sorted(delivered.due["eve"])

    def test_spark_publishes_or_says_that_it_cannot(self, world: World, spark: SparkSession) -> None:
        options = {"realm": str(world.member("nyse").paths.root), "topic": TOPIC, "as": "nyse"}
        price, payload = (F.col("id") * 10).alias("price"), F.encode(F.lit("x"), "UTF-8").alias("payload")
        frame = spark.range(8).select(price, F.lit("A").alias("symbol"), payload)
        writer = frame.write.format("sealcast").options(**options).mode("append")
        if "spark-write" in world.protection.lacks:
            with pytest.raises(Exception, match="sealcast pub"):
                writer.save()
            return
        writer.save()
        assert world.run()["admitted"] == 8
        assert len(world.got("ann")) == len(world.due["ann"]) + 8

    # --- what only some have --------------------------------------------------------------------------

    def test_a_second_broker_serves_as_well_as_the_first(
        self, made: World, tmp_path: Path, spark: SparkSession
    ) -> None:
        """Where frames go from broker to broker: whoever is served by the second gets its events there, `check` agrees
        with both, and `why` finds them."""
        if made.protection.overlay:
            return  # a tree of brokers is what every other case runs on
        with made.copy(tmp_path / "realm") as world:
            if "brokers" in made.protection.lacks:
                with pytest.raises(Misuse, match="has no brokers"):
                    world.realm.add_broker("second", [TOPIC])
                with pytest.raises(Misuse, match="has no brokers"):
                    world.reader("ann", broker="second")
                return
            world.add_broker("second")
            with world.reader("ann", broker="second"):
                pass  # it moves there
            positions = world.publish("nyse", 30)
            world.run(spark)
            world.check()
            world.judge()
            for position in positions[:4]:
                event = world.published[position]
                found = world.command("why", f"{TOPIC}/{position}", "ann", "--json").document
                assert (found["verdict"] == "delivered") == ("ann" in world.wanting(event)), found
                assert found["verdict"] != "wrong"
