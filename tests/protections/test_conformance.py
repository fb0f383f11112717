"""One suite for every protection of the table: what each promises, or declares that it lacks, and then refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from sealcast import Publisher, Realm, Right, Subscriber
from sealcast.errors import Misuse, NotFound, SealcastError
from sealcast.model.protection import PROTECTIONS
from sealcast.protections.attribute.carry import carry
from sealcast.protections.port import broker_side, client_side, witness_side
from tests.protections.world import FILTERS, SCHEMA, TOPIC, World, names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", params=names())
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp(request.param) / "realm", request.param)


@pytest.fixture(scope="module")
def delivered(made: World, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> World:
    """Published by two, with a frame that comes again and one that is none; run to the end."""
    world = made.copy(tmp_path_factory.mktemp("delivered") / "realm")
    for publisher in ("nyse", "xetra"):
        world.publish(publisher, 30)
    world.append_again()
    world.append_rubbish()
    world.totals = world.run(spark)
    return world


@pytest.fixture
def world(delivered: World, tmp_path: Path) -> World:
    """A copy that a case may change."""
    return delivered.copy(tmp_path / "realm")


# --- the table ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_every_protection_has_a_room_with_the_same_files(name: str) -> None:
    room = Path(__file__).parents[2] / "src" / "sealcast" / "protections" / name
    for file in (
        "README.md",
        "__init__.py",
        "client.py",
        "broker.py",
        "witness.py",
        "keys.py",
        "open.py",
        "publish.py",
    ):
        assert (room / file).is_file(), file
    said = (room / "README.md").read_text()
    for heading in ("Paper", "Section map", "Assumption", "Deviations"):
        assert heading in said, heading


@pytest.mark.parametrize("name", names())
def test_every_protection_has_three_sides(name: str) -> None:
    protection = PROTECTIONS[name]()
    assert client_side(protection) and broker_side(protection) and witness_side(protection)


def test_what_each_protection_lacks_is_listed() -> None:
    """Whoever lacks something new says so here, too."""
    assert {name: sorted(kind.lacks) for name, kind in PROTECTIONS.items()} == {
        "endpoint": [],
        "payload": ["readers"],
        "searchable": ["readers", "templates"],
        "layered": ["readers", "replay", "spark-write", "templates"],
        "attribute": ["brokers", "readers", "replay"],
    }


# --- publish, match, deliver, open ---------------------------------------------------------------------


def test_everyone_opens_exactly_what_it_asked_for(delivered: World) -> None:
    delivered.check()
    due = sum(map(len, delivered.due.values()))
    assert (delivered.totals["admitted"], delivered.totals["deliveries"]) == (60, due)


def test_what_is_opened_is_what_was_published(delivered: World) -> None:
    by_payload = {event.payload: event for event in delivered.published.values()}
    with Subscriber(delivered.realm, TOPIC, as_="ann", from_=0) as reader:
        opened = list(reader)
    assert opened
    for event in opened:
        given = by_payload[event.payload]
        assert event.attributes == SCHEMA.parse(given.attributes)
        assert event.publisher == event.payload.decode().split()[0]
        assert delivered.published[event.position].payload == event.payload, "its position is the one publish gave"


def test_a_publishers_events_come_in_its_order(delivered: World) -> None:
    for name in FILTERS:
        with Subscriber(delivered.realm, TOPIC, as_=name, from_=0) as reader:
            numbers: dict[str, list[int]] = {}
            for event in reader:
                numbers.setdefault(event.publisher, []).append(event.sequence)
        assert all(found == sorted(set(found)) for found in numbers.values())


def test_reading_is_at_least_once_and_acknowledged_for_good(world: World) -> None:
    with Subscriber(world.realm, TOPIC, as_="ann") as reader:
        first = reader.poll(max_events=3)
        assert reader.lag() == len(world.due["ann"])
    with Subscriber(world.realm, TOPIC, as_="ann") as reader:
        assert [e.payload for e in reader.poll(max_events=3)] == [e.payload for e in first], "nothing was acknowledged"
        reader.ack()
        assert reader.lag() == len(world.due["ann"]) - 3
    with Subscriber(world.realm, TOPIC, as_="ann") as reader:
        rest = [event.payload for event in reader]
    assert sorted([*(e.payload for e in first), *rest]) == sorted(world.due["ann"])


def test_who_asked_for_nothing_gets_nothing(delivered: World) -> None:
    with pytest.raises(NotFound, match="no subscription"):
        Subscriber(delivered.realm, TOPIC, as_="mallory")
    assert delivered.got("joe") == []


def test_a_filter_that_nobody_could_serve_is_refused(world: World) -> None:
    for text in ("colour = 'red'", "price <", ""):
        with pytest.raises(SealcastError):
            world.realm.subscribe(TOPIC, "ann", text)


# --- revoke, rotate, replay, crash ----------------------------------------------------------------------


def test_who_may_no_longer_read_gets_nothing_more(world: World, spark: SparkSession) -> None:
    world.realm.revoke(TOPIC, "ann", [Right.SUBSCRIBE])
    world.publish("nyse", 20, without=("ann",))
    world.run(spark)
    with pytest.raises(SealcastError, match="may not subscribe"):
        world.got("ann")
    del world.due["ann"]
    world.check()
    assert world.command("check", TOPIC, "--json").document["ok"]


def test_a_publisher_that_may_no_longer_is_refused(world: World) -> None:
    world.realm.revoke(TOPIC, "nyse", [Right.PUBLISH])
    with pytest.raises(SealcastError, match="may not publish"):
        world.publish("nyse", 1)


def test_a_new_epoch_loses_nothing(world: World, spark: SparkSession) -> None:
    world.publish("nyse", 10)  # sealed in the old epoch, run in the new one
    before = world.realm.state().topic(TOPIC).epoch
    world.realm.rotate(TOPIC)
    assert world.realm.state().topic(TOPIC).epoch == before + 1
    world.publish("xetra", 10)
    world.run(spark)
    world.publish("nyse", 10)
    world.run(spark)
    world.check()
    assert world.command("check", TOPIC, "--json").document["ok"]


def test_what_comes_again_is_refused_and_counted(delivered: World) -> None:
    assert delivered.totals["rejected_replay"] == 60, "both publishers' first frames, of 30 events each"
    assert delivered.totals["rejected_frame"] >= 1


def test_a_lost_checkpoint_loses_nothing(world: World, spark: SparkSession) -> None:
    world.drop_checkpoints()
    world.publish("xetra", 10)
    world.append_again()
    totals = world.run(spark)
    assert totals["admitted"] == 10 and totals["rejected_replay"] == 60
    world.check()
    assert world.command("check", TOPIC, "--json").document["ok"]


def test_what_was_published_before_one_asked_is_replayed_or_refused(world: World) -> None:
    """mallory never subscribed. It gets what the reference evaluator says, and reading the past is on record."""
    for text in ("price < 80", "price >= 64 AND symbol = 'A'", "symbol = 'nobody'"):
        ask = ("replay", TOPIC, "--as", "mallory", "--from", "2020-01-01", "--filter", text)
        if "replay" in world.protection.lacks:
            assert world.protection.lacks["replay"] in world.command(*ask, code=1).err
            continue
        found = [event["payload"] for event in world.command(*ask, "--json").document["events"]]
        assert sorted(found) == sorted(world.true_of(text)), text
    if "replay" not in world.protection.lacks:
        rows = world.command("audit", "--received", "--entity", "mallory", "--json").document["received"]
        assert sum(row["replayed"] for row in rows) > 0
        assert world.command("check", TOPIC, "--json").document["ok"]
        world.realm.revoke(TOPIC, "mallory", [Right.SUBSCRIBE])
        assert "may not subscribe" in world.command(*ask, code=1).err


# --- check, why, explain, status, rejected --------------------------------------------------------------


def test_check_has_nothing_to_say_of_an_honest_broker(delivered: World) -> None:
    found = delivered.command("check", TOPIC, "--json").document
    assert found["ok"] and not found["problems"]
    assert found["deliveries"] == sum(map(len, delivered.due.values()))


def test_check_finds_a_piece_that_was_exchanged(world: World) -> None:
    pieces = [
        path for path in world.realm.paths.root.rglob("pieces/*") if path.is_file() and path.stat().st_size > 2000
    ]
    piece = max(pieces, key=lambda path: path.stat().st_size)
    data = bytearray(piece.read_bytes())
    data[len(data) // 2] ^= 1
    piece.chmod(0o600)
    piece.write_bytes(data)
    found = world.command("check", TOPIC, "--json", code=1).document
    assert not found["ok"] and found["problems"]


def test_why_says_delivered_of_what_was_and_nothing_else(delivered: World) -> None:
    for position, event in list(delivered.published.items())[:6]:
        for name in ("ann", "joe"):
            found = delivered.command("why", f"{TOPIC}/{position}", name, "--json").document
            assert (found["verdict"] == "delivered") == (name in delivered.wanting(event)), found
            assert found["because"] and found["publisher"] == event.payload.decode().split()[0]


def test_explain_says_who_learns_what(delivered: World) -> None:
    found = delivered.command("explain", TOPIC, "--json").document
    assert found["protection"] == delivered.protection.name
    assert found["trusted"] and found["left"]
    assert all(party["who"] and (party["learns"] or party["cannot"]) for party in found["parties"])


def test_status_has_the_numbers(delivered: World) -> None:
    found = [t for t in delivered.command("status", "--json").document["topics"] if t["topic"] == TOPIC]
    assert {each["protection"] for each in found} == {delivered.protection.name}
    assert sum(each.get("events", {}).get("admitted", 0) for each in found) == 60
    lag = {name: n for each in found for name, n in each["lag"]["subscribers"].items()}
    assert {name: lag.get(name, 0) for name in FILTERS} == {name: len(due) for name, due in delivered.due.items()}


def test_rejected_lists_what_was_refused(delivered: World) -> None:
    found = delivered.command("rejected", "list", "--json").document["rejected"]
    assert {each["reason"] for each in found} >= {"replay", "frame"}
    only = delivered.command("rejected", "list", "--json", "--reason", "replay").document["rejected"]
    assert only and {each["reason"] for each in only} == {"replay"}
    assert sum(each["events"] for each in only) == 60


# --- Spark source and sink ------------------------------------------------------------------------------


def test_spark_reads_a_subscribers_events(delivered: World, spark: SparkSession) -> None:
    options = {"realm": str(delivered.realm.paths.root), "topic": TOPIC, "as": "eve"}
    rows = spark.read.format("sealcast").options(**options).load().select("payload").collect()
    assert sorted(bytes(row.payload) for row in rows) == sorted(delivered.due["eve"])


def test_spark_publishes_or_says_that_it_cannot(world: World, spark: SparkSession) -> None:
    options = {"realm": str(world.realm.paths.root), "topic": TOPIC, "as": "nyse"}
    frame = spark.range(8).select(
        (F.col("id") * 10).alias("price"), F.lit("A").alias("symbol"), F.encode(F.lit("x"), "UTF-8").alias("payload")
    )
    writer = frame.write.format("sealcast").options(**options).mode("append")
    if "spark-write" in world.protection.lacks:
        with pytest.raises(Exception, match="sealcast pub"):
            writer.save()
        return
    writer.save()
    assert world.run(spark)["admitted"] == 8
    assert len(world.got("ann")) == len(world.due["ann"]) + 8


# --- what only some have --------------------------------------------------------------------------------


def test_a_token_for_some_events_is_judged_or_refused(world: World) -> None:
    """Whoever cannot read cannot tell which events a token is for."""
    if "templates" in world.protection.lacks:
        with pytest.raises(SealcastError):
            world.realm.grant(TOPIC, "nyse", [Right.PUBLISH], template="symbol=A")
    else:
        world.realm.grant(TOPIC, "nyse", [Right.PUBLISH], template="symbol=A")


def test_a_second_broker_serves_as_well_as_the_first(made: World, tmp_path: Path, spark: SparkSession) -> None:
    """Where frames go from broker to broker: whoever is served by the second gets its events there, `check` agrees with
    both, and `why` finds them."""
    if made.protection.overlay:
        return  # a tree of brokers is what every other case runs on
    world = made.copy(tmp_path / "realm")
    if "brokers" in made.protection.lacks:
        with pytest.raises(Misuse, match="has no brokers"):
            world.realm.add_broker("second", [TOPIC])
        with pytest.raises(Misuse, match="has no brokers"):
            Subscriber(world.realm, TOPIC, as_="ann", broker="second")
        return
    world.realm.add_broker("second", [TOPIC])
    with Subscriber(world.realm, TOPIC, as_="ann", broker="second"):
        pass  # it moves there
    positions = world.publish("nyse", 30)
    world.run(spark)
    world.check()
    assert world.command("check", TOPIC, "--json").document["ok"]
    for position in positions[:4]:
        event = world.published[position]
        found = world.command("why", f"{TOPIC}/{position}", "ann", "--json").document
        assert (found["verdict"] == "delivered") == ("ann" in world.wanting(event)), found
        assert found["verdict"] != "wrong"


def test_a_realm_may_have_topics_of_every_protection(tmp_path: Path, spark: SparkSession) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["nyse", "ann"])
    from sealcast import Event, run

    for name in names():
        realm.create_topic(name, SCHEMA, protection=name, access="members")
        realm.subscribe(name, "ann", "price < 10")
        with Publisher(realm, name, as_="nyse") as publisher:
            publisher.publish([Event({"price": p, "symbol": "A"}, name.encode()) for p in (5, 50)])
    run(realm, once=True, spark=spark)
    carry(realm)
    for name in names():
        with Subscriber(realm, name, as_="ann") as reader:
            assert [event.payload for event in reader] == [name.encode()]
    with pytest.raises(Misuse, match="protection is one of"):
        realm.create_topic("other", SCHEMA, protection="rot13", access="members")
