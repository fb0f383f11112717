"""sealcast explain on layered topics: every broker by name and place, every coalition with the topic's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sealcast.model.protection import Layered
from sealcast.model.schema import Attribute, Schema, Type
from sealcast.protections.layered.exposure import CLAIMS
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right
from tests.cli.shell import sealcast

SCHEMA = Schema((Attribute("price", Type.INT, min=0, max=63),))


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers over a root and two leaves; three layers built by hand; nothing built; and a topic of another kind."""
    root = tmp_path_factory.mktemp("realms") / "market"
    made = Realm.create(root)
    made.create_topic("quotes", SCHEMA, protection="layered", access="members")
    made.create_topic("deep", SCHEMA, protection=Layered(3), nodes=0, access="members")
    made.create_topic("padded", SCHEMA, protection=Layered(padded=True), nodes=1, access="members")
    made.create_topic("empty", SCHEMA, protection="layered", nodes=0, access="members")
    made.create_topic("plain", SCHEMA, access="members")
    for name in ("alice", "bob", "carol"):
        made.enrol(name)
    for name in ("alice", "bob"):
        made.place_subscriber("quotes", name)
    made.place_subscriber("quotes", "carol", "quotes-node-1")
    for broker, under in (("top", None), ("middle", "top"), ("low", "middle"), ("lowest", "low")):
        made.place_node("deep", broker, under=under)
    made.place_subscriber("deep", "alice", "lowest")
    made.grant("deep", "low", [Right.SUBSCRIBE])
    made.place_subscriber("deep", "low", "middle")
    return root


def told(realm: Path, topic: str) -> Any:
    result = sealcast("explain", topic, "--realm", realm, "--json")
    assert result.code == 0, result.err
    return result.document


def coalition(document: Any, start: str) -> Any:
    (found,) = [one for one in document["coalitions"] if one["who"].startswith(start)]
    return found


def test_every_broker_has_its_name_and_its_place(realm: Path) -> None:
    who = [party["who"] for party in told(realm, "deep")["parties"]]
    assert "top (a root, 1 hop below publishers)" in who
    assert "middle (inside, 2 hops below publishers)" in who
    assert "low (inside, 3 hops below publishers, subscribes itself)" in who
    assert "lowest (a leaf, 4 hops below publishers)" in who


def test_what_brokers_see_depends_on_where_they_stand(realm: Path) -> None:
    seen = {party["who"].split()[0]: " ".join(party["learns"]) for party in told(realm, "deep")["parties"]}
    assert "how many labels it has" in seen["top"] and "how many labels it has" not in seen["middle"]
    (root,) = [party for party in told(realm, "padded")["parties"] if "padded-node-1" in party["who"]]
    assert "labels it has" not in " ".join(root["learns"]) and "padded to the same number" in " ".join(root["cannot"])
    # With three layers, alice is on the paths of three brokers, and not on the root's.
    assert all("alice" in seen[name] for name in ("lowest", "low", "middle")) and "alice" not in seen["top"]
    # Her filters may meet others' at the broker three hops above her, not before.
    assert "are equal, of those" in seen["middle"] and "are equal, of those" not in seen["low"]
    assert "what it subscribed to itself" in seen["low"] and "what it subscribed to itself" not in seen["lowest"]


def test_every_coalition_is_told_with_the_topics_numbers(realm: Path) -> None:
    quotes, deep = told(realm, "quotes"), told(realm, "deep")
    # Publishers and eavesdroppers alone are parties.
    assert len(quotes["coalitions"]) == len(deep["coalitions"]) == len(CLAIMS) - 2
    assert "2 layers in secp256k1, 3 nodes" in quotes["trusted"] and "3 layers in secp256k1" in deep["trusted"]
    assert coalition(quotes, "2 brokers in a row")["here"].startswith("2 rows of them, such as quotes-node-2")
    assert coalition(deep, "3 brokers in a row")["here"].startswith("2 rows of them, such as low, middle and top")
    assert coalition(quotes, "a publisher and a root")["here"] == "quotes-node-1"
    assert coalition(quotes, "a broker and a subscriber")["here"] == "right below a root: carol"
    assert coalition(deep, "a broker and a subscriber")["here"] == "nobody is right below a root"
    assert coalition(deep, "a broker that subscribes")["here"] == "low"
    assert coalition(quotes, "all brokers from a root")["here"] == "carol"
    assert coalition(quotes, "all brokers together")["here"] == "2 of 3 subscribers stand that far down"
    assert "{" not in str([one["who"] for one in deep["coalitions"]]) and "{" not in str(
        deep["coalitions"][4]["learns"]
    )


def test_whoever_may_publish_counts(realm: Path) -> None:
    """Filters go into the tree of every publisher: a root needs the help of any one of them."""
    assert told(realm, "quotes")["left"][0].startswith("3 may publish")
    Realm(realm).create_topic("closed", SCHEMA, protection="layered", access="granted")
    Realm(realm).grant("closed", "bob", [Right.PUBLISH])
    assert told(realm, "closed")["left"][0].startswith("1 may publish")


def test_as_text(realm: Path) -> None:
    result = sealcast("explain", "quotes", "--realm", realm)
    assert result.code == 0
    for line in (
        "topic 'quotes' is protected by `layered`, which trusts nobody with filters or events",
        "quotes-node-1 (a root, 1 hop below publishers)",
        "a broker alone",
        "    here     2 rows of them, such as quotes-node-2 and quotes-node-1",
        "What is left, knowingly",
    ):
        assert line in result.out


def test_nothing_stands_yet(realm: Path) -> None:
    document = told(realm, "empty")
    assert len(document["parties"]) == 4 and "0 nodes" in document["trusted"]
    assert coalition(document, "2 brokers in a row")["here"] == "none: nowhere are 2 brokers in a row"


def test_other_protections_are_told_as_before(realm: Path) -> None:
    document = told(realm, "plain")
    assert document["protection"] == "endpoint" and "coalitions" not in document
    assert sealcast("explain", "nothing", "--realm", realm).code == 1
