"""Topics that leave a carrier, for the directory or for another carrier; over real servers. Nothing is lost that was
acknowledged, whenever somebody publishes or the move is cut short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.bench.carrier_servers import CarrierServer, NatsServer
from sealcast.errors import Misuse, Unavailable
from sealcast.log.carried import CarriedLog
from sealcast.log.embedded import Moved
from sealcast.log.ledger import LedgerReader
from sealcast.log.numbered import NumberedLog
from sealcast.protections.steps import StepName
from sealcast.trust.admin import leaving
from sealcast.trust.carrying import Carriers
from sealcast.trust.realm.changes import LeaveCarrier
from sealcast.trust.realm.rules.carriers import EMBEDDED
from tests.cli.shell import sealcast
from tests.log.test_carried_layered import made as layered
from tests.log.test_carried_layered import opened as opened_by
from tests.log.test_carried_layered import subscribed
from tests.log.test_carried_topics import TOPIC, deliver, in_directory, opened, publish, realm, server

__all__ = ["realm", "server"]


@pytest.fixture
def carried(realm: Realm, nats: NatsServer) -> Realm:
    """One event was read, one delivered, and one only published."""
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    publish(realm, 11)
    deliver(realm)
    assert opened(realm) == [11]
    publish(realm, 12)
    deliver(realm)
    publish(realm, 13, by="lse")
    return realm


def price(number: int) -> list[Event]:
    return [Event({"price": number}, b"%d" % number)]


def is_whole(realm: Realm) -> bool:
    return bool(sealcast("check", "--json", "--realm", realm.paths.root).document["ok"])


def on_carrier(realm: Realm, carrier: str = "away") -> list[str]:
    """What a carrier still has of the topic."""
    there, name = realm.carriers.carrier(realm.state(), carrier), f"{realm.name}.{TOPIC}"
    suffixes = ("", ".ledger", ".reseals", ".replays", ".pieces", ".places")
    return [name + each for each in suffixes if there.partitions(name + each) is not None]


def test_a_topic_comes_back_and_loses_no_cursor(realm: Realm, server: CarrierServer) -> None:
    realm.add_carrier("away", server.address)
    realm.move_topic(TOPIC, "away")
    with Publisher(realm, TOPIC, "nyse") as running:
        running.publish(price(11))
        deliver(realm)
        assert opened(realm) == [11]
        running.publish(price(12))
        deliver(realm)
        running.publish(price(13))
        with LedgerReader(realm.journal(TOPIC)) as ledger:
            before = [(each.index, each.time_us, each.tag) for each in ledger.entries()]
        done = sealcast("topic", "move", TOPIC, "--to", EMBEDDED, "--yes", "--json", "--realm", realm.paths.root)
        assert (done.code, done.document["copied"], done.document["left"]) == (0, 3, []), done.err
        assert in_directory(realm) == 3 and on_carrier(realm) == []
        with LedgerReader(realm.paths.topic(TOPIC).ledger) as ledger:
            assert [(each.index, each.time_us, each.tag) for each in ledger.entries()] == before
        running.publish(price(14))  # by a handle of the carrier
    deliver(realm)
    assert opened(realm) == [12, 13, 14]
    assert is_whole(realm)
    with pytest.raises(Misuse, match="in the realm's directory already"):
        realm.move_topic(TOPIC, EMBEDDED)
    realm.move_topic(TOPIC, "away")  # under the name that it had
    publish(realm, 15)
    deliver(realm)
    assert opened(realm) == [15] and in_directory(realm) == 0
    assert is_whole(realm)


def test_a_topic_moves_from_one_carrier_to_another(carried: Realm, kafka: CarrierServer) -> None:
    carried.add_carrier("farther", kafka.address)
    with Publisher(carried, TOPIC, "nyse") as running:
        running.publish(price(14))
        done = carried.move_topic(TOPIC, "farther")
        assert done.copied == 4
        running.publish(price(15))
    assert on_carrier(carried) == [] and len(on_carrier(carried, "farther")) == 6
    deliver(carried)
    assert sorted(opened(carried)) == [12, 13, 14, 15]
    assert is_whole(carried) and in_directory(carried) == 0


def test_a_layered_topic_comes_back_with_its_filters(tmp_path: Path, nats: NatsServer) -> None:
    from tests.log.test_carried_layered import READERS, checked
    from tests.log.test_carried_layered import deliver as run_brokers
    from tests.log.test_carried_layered import publish as publish_payloads

    realm = layered(tmp_path)
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    realm.subscribe(TOPIC, "alice", READERS["alice"])
    publish_payloads(realm, b"a1", b"b2")
    run_brokers(realm)
    assert opened_by(realm, "alice") == [b"a1", b"b2"]
    publish_payloads(realm, b"c3")
    run_brokers(realm)
    realm.subscribe(TOPIC, "bob", READERS["bob"])  # waits at its broker
    publish_payloads(realm, b"d3", b"e1")
    names = [at.name for at in realm.state().journals.values()]
    assert realm.move_topic(TOPIC, EMBEDDED).copied == 3
    there = realm.carriers.carrier(realm.state(), "away")
    assert {there.partitions(f"{name}.{each}") for name in names for each in ("ledger", "posts", "table")} == {None}
    run_brokers(realm)
    assert opened_by(realm, "alice") == [b"c3", b"d3", b"e1"] and opened_by(realm, "bob") == [b"d3"]
    subscribed(realm)
    publish_payloads(realm, b"f3")
    run_brokers(realm)
    assert opened_by(realm, "bob") and checked(realm)


# --- somebody publishes while it leaves ------------------------------------------------------------


def leaves_while_appending(realm: Realm, monkeypatch: pytest.MonkeyPatch, *, before: bool) -> None:
    """The next append to a carrier happens while the whole topic leaves it: just after that, or just before. What is
    there stays for a moment, as on a carrier that is slow to remove."""
    copy: Callable[[CarriedLog, Sequence[tuple[int, bytes]]], list[int]] = CarriedLog.copy
    monkeypatch.setattr(Carriers, "remove", lambda *_: [])

    def append(log: CarriedLog, records: Sequence[tuple[int, bytes]]) -> list[int]:
        monkeypatch.setattr(CarriedLog, "copy", copy)
        if before:
            return copy(log, records), realm.reopen().move_topic(TOPIC, EMBEDDED)  # type: ignore[return-value]
        realm.reopen().move_topic(TOPIC, EMBEDDED)
        return copy(log, records)

    monkeypatch.setattr(CarriedLog, "copy", append)


@pytest.mark.parametrize("before", [True, False])
def test_what_is_published_while_it_leaves_arrives_once(
    carried: Realm, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Publisher(carried, TOPIC, "nyse") as running:
        leaves_while_appending(carried, monkeypatch, before=before)
        running.publish(price(14))
    deliver(carried)
    assert sorted(opened(carried)) == [12, 13, 14]
    assert is_whole(carried)


def test_without_looking_again_it_would_be_lost(carried: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Carriers, "_still_here", lambda *_: lambda: None)
    with Publisher(carried, TOPIC, "nyse") as running:
        leaves_while_appending(carried, monkeypatch, before=False)
        running.publish(price(14))
    deliver(carried)
    assert sorted(opened(carried)) == [12, 13], "and its publisher was told that it is durable"


def test_whoever_follows_is_told_to_open_it_again(carried: Realm) -> None:
    with Subscriber(carried, TOPIC, "alice") as reading:
        assert [int(event.payload) for event in reading.poll()] == [12]
        reading.ack()
        carried.reopen().move_topic(TOPIC, EMBEDDED)
        with pytest.raises(Moved, match="is being moved"):
            reading.poll(timeout=5)
    deliver(carried)
    assert opened(carried) == [13]


# --- cut short -------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["_land", "_put_in_place", "remove", "ReturnTopic", "_take_appends"])
def test_a_return_that_is_cut_short_is_done_again(carried: Realm, before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise Unavailable("cut short")

    with monkeypatch.context() as patched:
        patched.setattr(Carriers if before == "remove" else leaving, before, fails)
        with pytest.raises(Unavailable, match="cut short"):
            carried.move_topic(TOPIC, EMBEDDED)
    with pytest.raises(Moved):
        publish(carried, 14)
    if before != "_take_appends":
        with pytest.raises(Unavailable, match="is on its way"):
            StepName(str(carried.paths.root), TOPIC).open().prepare()
    carried.move_topic(TOPIC, EMBEDDED)
    publish(carried, 15)
    deliver(carried)
    assert sorted(opened(carried)) == [12, 13, 15]
    assert is_whole(carried) and on_carrier(carried) == []
    assert not list(carried.paths.root.rglob(".landing"))


def test_a_run_that_hung_commits_nothing_to_a_carrier_that_is_being_left(carried: Realm) -> None:
    """Another machine's, which holds no lock here."""
    term = b"0123456789abcdef"
    place = carried.state().journals[TOPIC, "broker"]
    with NumberedLog(carried.carriers.carrier(carried.state(), "away").partition(f"{place.name}.ledger", 0)) as hung:
        hung.fence(term)
        carried.registry.apply(LeaveCarrier(TOPIC, "broker"))
        leaving._end_terms(carried, TOPIC, "broker", "")
        with pytest.raises(Unavailable):
            hung.append([b"late"])
        with pytest.raises(Unavailable, match="has taken over"):
            hung.resume(term)
