"""Layered topics on a carrier: ledgers, pieces, routing tables and filter posts of every broker of the tree are there,
and a carrier that lies about them is found out by name. Brokers are run as Spark runs them, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.bench.carrier_servers import CarrierServer, NatsServer
from sealcast.errors import Corrupt, Locked, Misuse, NotFound
from sealcast.log import layout
from sealcast.log.carried_journal import CarriedJournal
from sealcast.log.carried_pieces import CarriedPieces
from sealcast.log.carriers import Placement, Stored
from sealcast.log.embedded import Moved
from sealcast.log.nats import NatsCarrier
from sealcast.log.nats_partition import stream_of
from sealcast.log.post_log import PostLog
from sealcast.pipeline.retention import Retainer, kept_steps
from sealcast.protections import steps
from sealcast.protections.layered import above
from sealcast.protections.layered.filters.keeper import TableKeeper
from sealcast.protections.layered.node import HOPS, HopStep
from sealcast.protections.steps import StepName
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.changes import CarryJournal
from sealcast.wire import hops
from tests.cli.shell import sealcast
from tests.copies import copy_realm
from tests.soak.small_realm import SCHEMA, TOPIC
from tests.soak.small_realm import carried as run_brokers

READERS = {"alice": "price >= 0", "bob": "price >= 2"}
ROOT, BELOW = f"{TOPIC}-node-1", f"{TOPIC}-node-2"


def publish(realm: Realm, *payloads: bytes) -> None:
    """A payload's last digit is its price."""
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": int(payload[-1:])}, payload) for payload in payloads])


def deliver(realm: Realm) -> None:
    forget_open()
    run_brokers(realm)


def forget_open() -> None:
    """What a new process would know."""
    steps._open.cache_clear()
    steps.realm_of.cache_clear()
    above._reader.cache_clear()


def opened(realm: Realm, name: str) -> list[bytes]:
    with Subscriber(realm, TOPIC, name) as reading:
        found = [event.payload for event in reading]
        reading.ack()
        return sorted(found)


def checked(realm: Realm) -> bool:
    forget_open()
    return bool(sealcast("check", "--json", "--realm", realm.paths.root).document["ok"])


def shared_files(realm: Realm) -> list[str]:
    """Records and pieces in the directories of brokers, and the note on whom they take records from. Whoever opens a
    frame log makes empty partitions of its own."""
    roots = [realm.paths.topic(TOPIC, broker).root for broker in realm.state().overlay(TOPIC).parents]
    patterns = ("*.seg", "pieces/*", "upstreams", "held", "taken")
    found = [path for root in roots for pattern in patterns for path in root.rglob(pattern)]
    return sorted(str(path) for path in found if path.suffix != ".seg" or path.stat().st_size > layout.SEGMENT.size)


def made(directory: Path, *, nodes: int = 3) -> Realm:
    realm = Realm.create(directory / "realm", f"r{directory.name[-12:]}")
    realm.create_topic(TOPIC, SCHEMA, protection="layered", access="members", nodes=nodes)
    realm.enrol_many(["nyse", *READERS])
    return realm


def subscribed(realm: Realm) -> Realm:
    for name, text in READERS.items():
        realm.subscribe(TOPIC, name, text)
    return realm


@pytest.fixture(params=["nats", pytest.param("kafka", marks=pytest.mark.soak)])
def server(request: pytest.FixtureRequest) -> CarrierServer:
    found: CarrierServer = request.getfixturevalue(request.param)
    return found


@pytest.mark.soak
def test_a_layered_topic_on_a_carrier(tmp_path: Path, server: CarrierServer) -> None:
    realm = made(tmp_path)
    realm.add_carrier("away", server.address)
    realm.move_topic(TOPIC, "away")
    subscribed(realm)
    publish(realm, b"a1", b"b2")
    deliver(realm)
    assert opened(realm, "alice") == [b"a1", b"b2"] and opened(realm, "bob") == [b"b2"]
    realm.rotate(TOPIC)
    publish(realm, b"c3")
    deliver(realm)
    assert opened(realm, "alice") == opened(realm, "bob") == [b"c3"]
    assert shared_files(realm) == []
    assert checked(realm)


def test_one_that_moves_loses_neither_cursors_nor_filters(tmp_path: Path, server: CarrierServer) -> None:
    """Some filters are in tables, one waits to be taken; some events were read, some delivered, some only published."""
    realm = made(tmp_path)
    realm.subscribe(TOPIC, "alice", READERS["alice"])
    publish(realm, b"a1", b"b2")
    deliver(realm)
    assert opened(realm, "alice") == [b"a1", b"b2"]
    publish(realm, b"c3")
    deliver(realm)
    realm.subscribe(TOPIC, "bob", READERS["bob"])
    publish(realm, b"d3", b"e1")
    place = realm.state().overlay(TOPIC).places["bob"]
    with PostLog(realm.paths.topic(TOPIC, place).filter_posts) as before:
        assert before.waiting()
        realm.add_carrier("away", server.address)
        done = realm.move_topic(TOPIC, "away")
        assert done.copied == 3
        with pytest.raises(Moved):
            before.append([b"late"])
    assert shared_files(realm) == []
    deliver(realm)
    assert opened(realm, "alice") == [b"c3", b"d3", b"e1"] and opened(realm, "bob") == [b"d3"]
    publish(realm, b"f2")
    deliver(realm)
    assert opened(realm, "alice") == opened(realm, "bob") == [b"f2"]
    assert checked(realm) and shared_files(realm) == []


@pytest.mark.soak
def test_a_broker_that_comes_gets_its_place_on_the_carrier(tmp_path: Path, nats: NatsServer) -> None:
    realm = made(tmp_path, nodes=1)
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    realm.place_node(TOPIC, "leaf", under=ROOT)
    state = realm.state()
    assert {broker for topic, broker in state.journals if topic == TOPIC} == {ROOT, "leaf"}
    realm.place_subscriber(TOPIC, "alice", "leaf")
    realm.subscribe(TOPIC, "alice", READERS["alice"])
    publish(realm, b"a1")
    deliver(realm)
    assert opened(realm, "alice") == [b"a1"] and shared_files(realm) == [] and checked(realm)


def test_pieces_have_an_end_on_a_carrier_too(tmp_path: Path, nats: NatsServer) -> None:
    """Both rules: nothing goes that the broker below has not taken, and then it is gone from the server."""
    realm = made(tmp_path)
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    subscribed(realm)
    publish(realm, b"a1", b"b2")
    deliver(realm)
    realm.alter_topic(TOPIC, pieces_kept_bytes=0)
    tree = tuple(realm.state().overlay(TOPIC).parents)

    def retain(*brokers: str) -> None:
        forget_open()
        kept = Retainer(BrokerRealm(realm.paths.root), kept_steps(realm, [TOPIC], brokers))
        kept.drained()
        assert not kept._failed

    def events() -> dict[str, int]:
        forget_open()
        found = {}
        for broker in tree:
            step = HopStep.of(StepName(str(realm.paths.root), TOPIC, broker, HOPS))
            refs = [ref for committed in step.ledger.entries() for ref in committed.entry.pieces]
            found[broker] = sum(len(hops.parse(step.pieces.read(ref.name, ref.digest))) for ref in refs)
            assert len(step.pieces.names()) == len(refs), "what took no place is gone"
        return found

    assert events()[ROOT] == 2
    with Subscriber(realm, TOPIC, "alice", peek=True) as reading:
        first = next(iter(reading)).position
    why = ("why", f"{TOPIC}/{first}", "alice", "--realm", realm.paths.root)
    assert "it is in the mailbox of 'alice'" in sealcast(*why).out
    retain(ROOT)
    assert events()[ROOT] == 2, "those below have not said anything"
    retain(*tree)
    assert set(events().values()) == {0}
    assert "removed since" in sealcast(*why).out
    publish(realm, b"c3")
    deliver(realm)
    assert opened(realm, "alice") == opened(realm, "bob") == [b"c3"]
    assert checked(realm) and shared_files(realm) == []


def test_one_that_is_deleted_is_gone_from_the_carrier(tmp_path: Path, nats: NatsServer) -> None:
    realm = made(tmp_path, nodes=2)
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    there, names = carrier(realm), [at.name for at in realm.state().journals.values()]
    suffixes = ("ledger", "hops.ledger", "hops.pieces", "posts", "taken", "table", "notes")
    everything = [f"{name}.{suffix}" for name in names for suffix in suffixes]
    assert None not in map(there.partitions, everything)
    done = sealcast("topic", "delete", TOPIC, "--yes", "--json", "--realm", realm.paths.root)
    assert done.code == 0, done.err
    assert set(map(there.partitions, [*names, *everything])) == {None}


def test_what_peers_carry_has_no_place_on_a_carrier(tmp_path: Path, nats: NatsServer) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection="attribute", access="members")
    realm.add_carrier("away", nats.address)
    with pytest.raises(Misuse, match="no broker has anything of topic 'quotes' that a carrier could keep"):
        realm.move_topic(TOPIC, "away")


# --- two who mean to be the broker ----------------------------------------------------------------


def test_of_two_keepers_on_two_machines_one_writes(carried: Realm, tmp_path: Path) -> None:
    """Neither has the other's lock. The second turns with a table that is not the newest: nothing of it counts."""
    where = carried.state().overlay(TOPIC).places["alice"]
    copy_realm(carried.paths.root, tmp_path / "other")
    one, other = (BrokerRealm(root) for root in (carried.paths.root, tmp_path / "other"))
    with TableKeeper(one, TOPIC, where) as first, TableKeeper(other, TOPIC, where) as second:
        first.turn(), second.turn()
        carried.subscribe(TOPIC, "alice", "price = 3")
        stale, version = second._current(), second.version()
        assert first.turn()
        second._current = lambda: stale  # type: ignore[method-assign]
        with pytest.raises(Locked, match="another one writes it"):
            second.turn()
        assert first.version() == second.version() == version + 1


# --- a carrier that lies ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, nats: NatsServer) -> Realm:
    """Delivered over two brokers, one below the other: making it takes longer than most cases."""
    realm = made(tmp_path_factory.mktemp("layered"), nodes=2)
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    for payload, (name, text) in zip((b"a1", b"b2", b"c3"), [*READERS.items(), ("bob", "price = 1")], strict=True):
        realm.subscribe(TOPIC, name, text)
        publish(realm, payload)
        deliver(realm)
    return realm


LOGS = ("ledger", "reseals", "replays", "pieces", "places")
SUFFIXES = (
    *(f".{log}" for log in LOGS),
    *(f".hops.{log}" for log in LOGS),
    *(f".{log}" for log in ("posts", "taken", "table", "notes")),
)


@pytest.fixture
def carried(template: Realm, tmp_path: Path) -> Iterator[Realm]:
    """A copy, on the carrier under other names, that a case may change. Frames are shared: nobody publishes."""
    copy_realm(template.paths.root, tmp_path / "realm")
    realm = Realm(tmp_path / "realm")
    there = carrier(realm)
    for (_, broker), at in list(realm.state().journals.items()):
        name = token_hex(6)
        for suffix in SUFFIXES:
            copied(there, at.name + suffix, name + suffix)
        realm.registry.apply(CarryJournal(TOPIC, broker, "away", name))
    yield realm
    forget_open()


def carrier(realm: Realm) -> NatsCarrier:
    found = realm.carriers.carrier(realm.state(), "away")
    assert isinstance(found, NatsCarrier)
    return found


def copied(there: NatsCarrier, source: str, target: str, cut: int | None = None) -> list[Stored]:
    """What one stream has, in another, up to a place."""
    there.create(target, Placement(1))
    first, second = there.partition(source, 0), there.partition(target, 0)
    stored = list(first.fetch(*first.bounds()))[:cut]
    if stored:
        second.append([(each.head, each.data) for each in stored])
    return stored


def name_of(realm: Realm, broker: str) -> str:
    return realm.state().journals[TOPIC, broker].name


def loses(realm: Realm, name: str, position: int) -> None:
    """NATS itself deletes a message."""
    there = carrier(realm)

    async def delete() -> bool:
        return await (await there.streams()).delete_msg(stream_of(name, 0), position + 1)

    assert there.ask(delete())


def cuts(realm: Realm, broker: str, suffix: str, left: int) -> None:
    """From now on one log of a broker is as long as it was once."""
    there, before, name = carrier(realm), name_of(realm, broker), token_hex(6)
    for each in SUFFIXES:
        copied(there, before + each, name + each, left if each == suffix else None)
    realm.registry.apply(CarryJournal(TOPIC, broker, "away", name))
    forget_open()


def records_of(realm: Realm, name: str) -> list[int]:
    """The positions of records that are no marks."""
    part = carrier(realm).partition(name, 0)
    return [each.position for each in part.fetch(*part.bounds()) if each.head[3:4] == b"\x01"]


def step(realm: Realm, broker: str) -> HopStep:
    forget_open()
    return HopStep.of(StepName(str(realm.paths.root), TOPIC, broker, HOPS))


def test_an_honest_one(carried: Realm) -> None:
    for broker in (ROOT, BELOW):
        step(carried, broker).prepare()
    assert checked(carried)


@pytest.mark.parametrize("log", ["ledger", "hops.ledger"])
def test_a_lost_record_of_a_ledger_is_named(carried: Realm, log: str) -> None:
    """The one in the middle. If the last is lost, the ledger seems to be cut off: see below."""
    name = f"{name_of(carried, ROOT)}.{log}"
    loses(carried, name, records_of(carried, name)[1])
    forget_open()
    found = sealcast("check", "--json", "--realm", carried.paths.root)
    assert found.code != 0 and stream_of(name, 0) in found.out and "record 1" in found.out, found.out


def test_a_ledger_that_is_cut_off_is_found_out_by_the_broker_below(carried: Realm) -> None:
    cuts(carried, ROOT, ".hops.ledger", records_of(carried, f"{name_of(carried, ROOT)}.hops.ledger")[-1])
    with pytest.raises(Corrupt, match=rf"hops.*has \d records, but broker '{BELOW}' took 3"):
        step(carried, BELOW).prepare()


def test_a_ledger_that_is_cut_off_is_found_out_by_its_readers(carried: Realm) -> None:
    assert opened(carried, "alice") == [b"a1", b"b2", b"c3"]
    home = carried.state().overlay(TOPIC).places["alice"]
    cuts(carried, home, ".hops.ledger", records_of(carried, f"{name_of(carried, home)}.hops.ledger")[-1])
    with pytest.raises((Corrupt, NotFound), match="ledger|record"), Subscriber(carried, TOPIC, "alice") as reading:
        list(reading)


def test_a_withheld_piece_is_named(carried: Realm, in_parts: Callable[[CarriedPieces], None]) -> None:
    home = carried.state().overlay(TOPIC).places["alice"]
    in_parts(CarriedJournal(carrier(carried), f"{name_of(carried, home)}.hops", 1).pieces)
    loses(carried, f"{name_of(carried, home)}.hops.pieces", 1)
    with pytest.raises((Corrupt, NotFound), match="piece"), Subscriber(carried, TOPIC, "alice", from_=0) as reading:
        list(reading)
    assert sealcast("check", "--realm", carried.paths.root).code != 0


def test_a_routing_table_that_is_cut_off_is_found_out_by_the_last_batch(carried: Realm) -> None:
    cuts(carried, ROOT, ".table", 1)
    with pytest.raises(Corrupt, match=f"the table of broker '{ROOT}' is at version 0"):
        step(carried, ROOT).prepare()


def test_a_lost_turn_of_a_routing_table_is_named(carried: Realm) -> None:
    """The first one. If the last is lost, the log seems to be cut off, and the case above finds that out."""
    name = f"{name_of(carried, ROOT)}.table"
    turns = records_of(carried, name)
    assert len(turns) > 1
    loses(carried, name, turns[0])
    with pytest.raises((Corrupt, NotFound), match=rf"{stream_of(name, 0)}.*record"):
        step(carried, ROOT).tables.at(step(carried, ROOT).version())


def test_filter_posts_that_are_gone_are_named(carried: Realm) -> None:
    home = carried.state().overlay(TOPIC).places["alice"]
    cuts(carried, home, ".posts", 0)
    with pytest.raises(Corrupt, match=r"has 0 filter posts, but \d were taken: posts 0 to \d"):
        step(carried, home).keeper.turn()


def test_a_lost_filter_post_that_was_not_taken_is_named(carried: Realm) -> None:
    home = carried.state().overlay(TOPIC).places["bob"]
    name = f"{name_of(carried, home)}.posts"
    lost = carrier(carried).partition(name, 0).bounds()[1]
    for text in ("price = 1", "price = 3"):
        carried.subscribe(TOPIC, "bob", text)
    loses(carried, name, lost)
    with pytest.raises(Corrupt, match=f"record {lost} is missing"):
        step(carried, home).keeper.turn()


def test_a_note_on_the_brokers_above_that_is_gone_is_found_out(carried: Realm) -> None:
    cuts(carried, BELOW, ".notes", 0)
    with pytest.raises(Corrupt, match="took records from 1 ledgers above it, and its note names 0"):
        step(carried, BELOW).prepare()


def test_notes_of_another_broker_are_refused(carried: Realm) -> None:
    """Both notes are real, and each is the other's."""
    there, name = carrier(carried), token_hex(6)
    for suffix in SUFFIXES:
        source = name_of(carried, ROOT if suffix == ".notes" else BELOW)
        copied(there, source + suffix, name + suffix)
    carried.registry.apply(CarryJournal(TOPIC, BELOW, "away", name))
    with pytest.raises(Corrupt, match="its tag does not verify"):
        step(carried, BELOW).upstreams()


def test_records_that_are_repeated_are_named(carried: Realm) -> None:
    there, name, before = carrier(carried), token_hex(6), name_of(carried, ROOT)
    for suffix in SUFFIXES:
        stored = copied(there, before + suffix, name + suffix)
        if suffix == ".hops.ledger":
            again = [each for each in stored if each.head[3:4] == b"\x01"][-1]
            there.partition(name + suffix, 0).append([(again.head, again.data)])
    carried.registry.apply(CarryJournal(TOPIC, ROOT, "away", name))
    with pytest.raises(Corrupt, match=rf"{name}.hops.ledger.*record 2 is where record 3 should be"):
        step(carried, BELOW).ends()


def test_marks_are_hints_and_no_more(carried: Realm) -> None:
    """Whoever may write them can make a queue seem longer or shorter, and nothing else."""
    home = carried.state().overlay(TOPIC).places["bob"]
    there = carrier(carried).partition(f"{name_of(carried, home)}.taken", 0)
    for mark in (b"rubbish", b"[]", b'{"taken": "1", "held": 3}', b'{"taken": 99, "held": {"bob": "x"}, "at": 1e300}'):
        there.append([(b"", mark)])
        carried.subscribe(TOPIC, "bob", f"price = {len(mark) % 4}")
    with suppress(Locked):
        assert step(carried, home).keeper.turn()
    with carried.carriers.posts(carried.state(), TOPIC, home) as posts:
        assert posts.waiting() == 0
