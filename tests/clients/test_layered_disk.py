"""A layered topic of a real realm: nothing on its disk is in clear; and its brokers' tables, under keys that they
agreed on themselves, show what `explain` says that they show, and open to whom it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.clients.layered.interests import Interests
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscribing import open_subscriber
from sealcast.filters.check import check
from sealcast.filters.labels import label_filter
from sealcast.filters.parse import parse
from sealcast.model import Event, Schema
from sealcast.overlay.layered.table import NodeTables
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import CachedHashes
from sealcast.schemes.layered.route import Broker
from sealcast.schemes.layered.tree import TreeId
from sealcast.trust.deployment import Realm
from tests.clients.layered_pump import pump

SCHEMA = Schema.from_json(
    {"attributes": [{"name": "symbol", "type": "string"}, {"name": "price", "type": "int", "min": 0, "max": 255}]}
)
CANARIES = {"symbol": "XYZZYQ", "payload": "plugh-plugh-plugh", "other": "QYZZYX"}
#: Two behind one broker, one behind the other, all with the same filter.
PLACES = {"alice": "quotes-node-2", "carol": "quotes-node-2", "bob": "quotes-node-3"}
FILTER = f"symbol = '{CANARIES['symbol']}'"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    """Events that somebody wants, and one that nobody wants, all the way; on an endpoint topic, a filter."""
    made = Realm.create(tmp_path_factory.mktemp("disk") / "realm")
    made.create_topic("quotes", SCHEMA, protection="layered")
    made.enrol_many(["nyse", *PLACES])
    for name, at in PLACES.items():
        made.place_subscriber("quotes", name, at)
        with Interests(made, "quotes", name) as interests:
            interests.add(FILTER)
    with Publisher(made, "quotes", "nyse") as publisher:
        publisher.publish(
            [
                Event({"symbol": CANARIES["symbol"], "price": 7}, CANARIES["payload"].encode()),
                Event({"symbol": CANARIES["other"], "price": 9}, CANARIES["payload"].encode()),
            ]
        )
    pump(made, "quotes")
    return made


def files(root: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield path.relative_to(root), path.read_bytes()


def found(root: Path, canary: str) -> set[str]:
    """Top directories of files in which the canary stands, as text or as the digits and words of numbers."""
    needles = (canary.encode(), canary.encode("utf-16-le"), canary.encode().hex().encode())
    return {path.parts[0] for path, data in files(root) if any(needle in data for needle in needles)}


def test_it_arrives(realm: Realm) -> None:
    for name in PLACES:
        with open_subscriber(realm, "quotes", name) as reader:
            assert [event.payload for event in reader] == [CANARIES["payload"].encode()]


@pytest.mark.parametrize("canary", CANARIES)
def test_nothing_is_in_clear(realm: Realm, canary: str) -> None:
    assert found(realm.paths.root, CANARIES[canary]) == set()


def test_the_search_would_find_it(realm: Realm, tmp_path: Path) -> None:
    """The filter of an endpoint topic is in the registry, for its broker to read."""
    other = Realm.create(tmp_path / "other")
    other.create_topic("open", SCHEMA)
    other.enrol("alice")
    other.subscribe("open", "alice", FILTER)
    assert found(other.paths.root, CANARIES["symbol"])


# --- tables -----------------------------------------------------------------------------------------------------------


def broker(realm: Realm, node: str) -> Broker:
    tables = NodeTables(realm, "quotes", node)
    (found,) = tables.at(tables.version()).values()
    tables.close()
    return found


def test_equal_filters_meet_where_they_should(realm: Realm) -> None:
    leaf = broker(realm, "quotes-node-2")
    one, other = leaf.table.rows()
    assert {path for row in (one, other) for path in row.paths} == {("alice",), ("carol",)}
    assert one.slots != other.slots  # two layers: below, nothing shows that both asked for the same
    rows = {frozenset(row.paths) for row in broker(realm, "quotes-node-1").table.rows()}
    assert rows == {
        frozenset({("quotes-node-2", "alice"), ("quotes-node-2", "carol")}),
        frozenset({("quotes-node-3", "bob")}),
    }


def test_two_brokers_in_a_row_open_a_table_and_one_does_not(realm: Realm) -> None:
    about = realm.state().topic("quotes")
    domain = TreeId("nyse", about.epoch, 0).domain(about.id)
    (label,) = {
        label
        for conjunction in label_filter(check(parse(FILTER), SCHEMA).condition, SCHEMA).conjunctions
        for slot in conjunction.slots
        for label in slot
    }
    hashed = CachedHashes(CURVE, domain)(label)
    leaf, root = broker(realm, "quotes-node-2"), broker(realm, "quotes-node-1")
    held = {token for row in leaf.table.rows() for slot in row.slots for token in slot}
    own = ("alice", "carol", "quotes-node-1", "nyse")
    assert not {CURVE.power(hashed, leaf.layers.key(name)) for name in own} & held
    # The root lends it what it shares with the two subscribers.
    assert {CURVE.power(hashed, root.layers.key(name)) for name in ("alice", "carol")} == held
