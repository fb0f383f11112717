"""A layered topic of a real realm: nothing on its disk is in clear; and its brokers' tables, under keys that they
agreed on themselves, show what `explain` says that they show, and open to whom it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.filters.check import check
from sealcast.filters.labels import label_filter
from sealcast.filters.parse import parse
from sealcast.model import Event, Schema
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import CachedHashes, Element
from sealcast.protections.layered.agreement import exponents_for
from sealcast.protections.layered.filters.table import NodeTables
from sealcast.protections.layered.interests import LayeredInterests
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.tree import Tree, TreeId
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.layer_keys import agreement_keys, own_identity
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
    made.create_topic("quotes", SCHEMA, protection="layered", access="members")
    made.enrol_many(["nyse", *PLACES])
    for name, at in PLACES.items():
        made.place_subscriber("quotes", name, at)
        with LayeredInterests(made, "quotes", name) as interests:
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
        with Subscriber(realm, "quotes", name) as reader:
            assert [event.payload for event in reader] == [CANARIES["payload"].encode()]


@pytest.mark.parametrize("canary", CANARIES)
def test_nothing_is_in_clear(realm: Realm, canary: str) -> None:
    assert found(realm.paths.root, CANARIES[canary]) == set()


def test_the_search_would_find_it(realm: Realm, tmp_path: Path) -> None:
    """What the registry shows everybody, as a subscription's id is."""
    other = Realm.create(tmp_path / "other")
    other.create_topic("open", SCHEMA, access="members")
    other.enrol("alice")
    other.subscribe("open", "alice", FILTER, CANARIES["symbol"])
    assert found(other.paths.root, CANARIES["symbol"])


# --- tables -----------------------------------------------------------------------------------------------------------


def broker(realm: Realm, node: str, publisher: str = "nyse") -> RoutingNode:
    tables = NodeTables(realm, "quotes", node)
    (found,) = [table for tree, table in tables.at(tables.version()).items() if tree.publisher == publisher]
    tables.close()
    return found


def hashed(realm: Realm, publisher: str = "nyse") -> Element:
    """The filter's one label, as everyone can compute it."""
    about = realm.state().topic("quotes")
    compiled = label_filter(check(parse(FILTER), SCHEMA).condition, SCHEMA)
    (label,) = {label for conjunction in compiled.conjunctions for slot in conjunction.slots for label in slot}
    return CachedHashes(CURVE, TreeId(publisher, about.epoch, 0).domain(about.id))(label)


def tokens(found: RoutingNode) -> set[Element]:
    return {token for row in found.table.rows() for slot in row.slots for token in slot}


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
    label = hashed(realm)
    leaf, root = broker(realm, "quotes-node-2"), broker(realm, "quotes-node-1")
    own = ("alice", "carol", "quotes-node-1", "nyse")
    assert not {CURVE.power(label, leaf.layers.key(name)) for name in own} & tokens(leaf)
    # The root lends it what it shares with the two subscribers.
    assert {CURVE.power(label, root.layers.key(name)) for name in ("alice", "carol")} == tokens(leaf)


def test_whoever_may_publish_is_a_publisher_for_a_root_to_ask(realm: Realm) -> None:
    """Mallory has published nothing that anyone wanted. Everyone's filters are in its tree all the same, and every
    layer on them at the root ends at Mallory."""
    realm.enrol("mallory")
    with Publisher(realm, "quotes", "mallory") as publisher:
        publisher.publish([Event({"symbol": "none", "price": 1}, b"")])
    pump(realm, "quotes")
    label, root = hashed(realm, "mallory"), broker(realm, "quotes-node-1", "mallory")
    assert len(root.table) == 2
    assert not {CURVE.power(label, root.layers.key(name)) for name in PLACES.keys() | set(PLACES.values())} & tokens(
        root
    )
    state = realm.state()
    tree = Tree("mallory", state.overlay("quotes").parents_for("mallory"), 2)
    agreed = agreement_keys(realm, own_identity(realm, state, "mallory"), state, "quotes")
    keys = exponents_for(agreed, tree, TreeId("mallory", state.topic("quotes").epoch, 0), CURVE)
    assert {CURVE.power(label, keys[node]) for node in PLACES.values()} == tokens(root)
