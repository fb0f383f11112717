"""A broker inside the overlay of a layered topic is compromised: everything changes that it knew, in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.model import Event, Schema
from sealcast.model.protection import Layered
from sealcast.protections.layered.filters import keeper
from sealcast.protections.layered.filters.table import NodeTables
from sealcast.protections.layered.interests import LayeredInterests
from sealcast.trust.admin import compromise, overlays
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.layer_keys import held, key_file
from tests.cli.shell import sealcast
from tests.clients.layered_pump import pump

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})
STOLEN = "quotes-node-2"


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    """A root with two brokers below it; a reader at each of the two."""
    made = Realm.create(tmp_path / "realm")
    made.create_topic("quotes", SCHEMA, protection=Layered(2), nodes=3, access="members")
    made.enrol_many(["nyse", "alice", "bob"])
    for name, broker in (("alice", STOLEN), ("bob", "quotes-node-3")):
        made.place_subscriber("quotes", name, broker)
        with LayeredInterests(made, "quotes", name) as interests:
            interests.add("price < 100")
    publish(made, 1)
    return made


def publish(realm: Realm, price: int) -> None:
    with Publisher(realm, "quotes", "nyse") as out:
        out.publish_one(Event({"price": price}, str(price).encode()))
    pump(realm, "quotes")


def read(realm: Realm, name: str) -> list[int]:
    with Subscriber(realm, "quotes", name) as reader:
        got = [int(event.payload) for event in reader]
        reader.ack()
        return got


def halves(realm: Realm, name: str) -> list[int]:
    state = realm.state()
    return held(realm, state, state.topic("quotes"), name) if key_file(realm, state, name).exists() else []


def test_it_leaves_and_keys_change_in_one_transaction(realm: Realm) -> None:
    before = realm.state()
    response = compromise.respond(realm, STOLEN)
    whole = realm.state(response.version)
    assert STOLEN not in whole.overlay("quotes").parents and whole.entity(STOLEN).revoked
    assert whole.topic("quotes").epoch == before.topic("quotes").epoch + 1
    assert "alice" not in whole.overlay("quotes").places, "nobody is moved up to the root behind its back"
    assert whole.overlay("quotes").places["bob"] == "quotes-node-3"
    assert compromise.respond(realm, STOLEN).plan.done
    for name in ("quotes-node-1", "quotes-node-3", "nyse"):
        assert halves(realm, name) == [2], "what the stolen keys were agreed on with is gone"
    assert halves(realm, "bob") == [1, 2], "a reader still has to open what was delivered"


def test_readers_go_on_at_brokers_that_are_as_deep(realm: Realm) -> None:
    assert read(realm, "bob") == [1]
    compromise.respond(realm, STOLEN)
    with Subscriber(realm, "quotes", "alice") as reader:
        publish(realm, 2)
        assert [int(event.payload) for event in reader] == [1, 2]
    assert realm.state().overlay("quotes").places["alice"] == "quotes-node-3"
    assert read(realm, "bob") == [2]


def test_where_its_place_is_only_mended_readers_come_nearer_to_the_root(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happened before: the broker is taken out afterwards, and whoever read there stands below the root."""
    monkeypatch.setattr(overlays, "leaving", lambda *given: [])
    compromise.respond(realm, STOLEN)
    assert STOLEN in realm.state().overlay("quotes").parents
    overlays.mend_overlays(realm)
    assert realm.state().overlay("quotes").places["alice"] == "quotes-node-1"


@pytest.mark.parametrize("ending", ["at once", "in time"])
def test_old_tables_end_at_once(realm: Realm, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with an event of the old epoch on its way. Where keepers only go by the time, the tables stay."""
    if ending == "in time":
        monkeypatch.setattr(keeper, "held", lambda *about: [1, 2])
    both = [NodeTables(realm, "quotes", name) for name in ("quotes-node-1", "quotes-node-3")]

    def epochs() -> list[set[int]]:
        return [{tree.epoch for tree in tables.at(tables.version())} for tables in both]

    assert epochs() == [{1}, {1}]
    with Publisher(realm, "quotes", "nyse") as out:
        out.publish_one(Event({"price": 3}, b"3"))
    compromise.respond(realm, STOLEN)
    pump(realm, "quotes")
    assert [1 in found for found in epochs()] == [ending == "in time"] * 2
    publish(realm, 4)
    assert 4 in read(realm, "bob"), "and the new ones route"


def test_who_comes_nearer_to_publishers_is_told(realm: Realm) -> None:
    """A reader below a child of the broker that leaves: the child takes its place."""
    realm.add_broker("leaf", [])
    realm.place_node("quotes", "leaf", under=STOLEN)
    realm.enrol("carol")
    realm.place_subscriber("quotes", "carol", "leaf")
    nearer = {"topic": "quotes", "subscriber": "carol", "hops_before": 4, "hops": 3, "wanted": 2}
    planned = sealcast("compromise", STOLEN, "--realm", realm.paths.root, "--dry-run", "--json")
    assert planned.document["nearer"] == [nearer]
    told = sealcast("compromise", STOLEN, "--realm", realm.paths.root, "--dry-run")
    assert "'carol' comes nearer to publishers, 3 hops instead of 4" in told.out
    assert [each._asdict() for each in compromise.respond(realm, STOLEN).rising] == [nearer]
    assert realm.state().overlay("quotes").depth("carol") == 3
    assert not compromise.respond(realm, STOLEN).rising
