"""Discovery: found by who may, nothing at all for who may not, from any node that is left, as its owner signed it."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from sealcast.control.asking import ServiceAddress
from sealcast.control.discovery import advertisements, bootstrap
from sealcast.control.discovery.advertisements import Advertisement, What
from sealcast.control.discovery.bootstrap import NodeAddress
from sealcast.control.discovery.client import Discovery, FoundOffer
from sealcast.control.discovery.node import FIND, DiscoveryNode
from sealcast.control.discovery.queries import DiscoveryQuery, Matcher
from sealcast.control.discovery.restrictions import Restrictions
from sealcast.control.discovery.store import AdvertisementStore
from sealcast.control.envelopes import ControlMessage, EnvelopeParty, ProvenMessage, open_reply, seal
from sealcast.control.service import Answer, Noise, ServiceRefused
from sealcast.errors import Corrupt, Misuse, NotFound, Rejected, Unavailable
from sealcast.log.control_topics import ControlPlane
from sealcast.wire import cbor
from tests.trust.advertising import HOUR, bent_advertisements, topic
from tests.trust.control_world import NOW, REALM, SECOND, Echo, Nodes, Undecided
from tests.trust.tampering import Cast

CAST = Cast.make()
WORLD, ALICE, MALLORY, CENTER = CAST.world, CAST.alice, CAST.mallory, CAST.center
BENT = bent_advertisements(CAST)


@pytest.fixture(autouse=True)
def _clock() -> None:
    WORLD.now = NOW


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(WORLD, tmp_path)


def signed(about: Advertisement, owner: EnvelopeParty = ALICE) -> bytes:
    return advertisements.sign(owner, REALM, about)


def paths(found: list[FoundOffer]) -> list[str]:
    return [f.about.path for f in found]


def seen(node: DiscoveryNode, text: str, asker: EnvelopeParty) -> list[str]:
    found, _ = node.find(DiscoveryQuery(text), WORLD.certificate(asker), WORLD.now)
    return [a.about.path for a in found]


# --- not even existence -------------------------------------------------------------------------------


def answer_to(nodes: Nodes, asker: EnvelopeParty, text: str) -> tuple[bytes, bytes]:
    """(the envelope as it travels, the body inside) of one node's answer."""
    plane = ControlPlane(nodes.directory, origin="watcher")
    replies = plane.create(reply=True)
    request = ControlMessage.request(FIND, DiscoveryQuery(text).to_bytes(), replies, WORLD.now)
    service = nodes.services["node-1"]
    plane.post(service.topic, seal(asker, REALM, WORLD.recipient(nodes.parties["node-1"]), request))
    service.serve_once(WORLD.now)
    (post,) = plane.read(replies, 0)
    plane.drop(replies)
    return post.data, open_reply(post.data, asker, REALM, WORLD.verify, WORLD.now, request, "node-1").message.body


def test_unauthorised_and_not_there_are_one_answer(nodes: Nodes) -> None:
    nodes.client(ALICE).advertise(topic("secret.plan", restrictions="name=alice"))
    sizes: dict[str, set[int]] = {"hidden": set(), "absent": set()}
    bodies: dict[str, set[bytes]] = {"hidden": set(), "absent": set()}
    for _ in range(6):
        for about, text in (("hidden", "secret.plan"), ("absent", "secret.plax")):
            envelope, body = answer_to(nodes, MALLORY, text)
            sizes[about].add(len(envelope))
            bodies[about].add(body)
        WORLD.now += SECOND
    assert bodies["hidden"] == bodies["absent"] and len(bodies["absent"]) == 1, "the same bytes"
    assert sizes["hidden"] == sizes["absent"] and len(sizes["absent"]) == 1, "in an envelope of one size"
    assert b"secret" not in next(iter(bodies["hidden"]))
    envelope, body = answer_to(nodes, ALICE, "secret.plan")
    assert b"secret.plan" in body, "it is there, for alice"


def test_a_query_costs_the_same_whatever_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted: how many advertisements are looked at, for permission and for a match."""
    node = DiscoveryNode(AdvertisementStore(tmp_path / "one.sqlite"), REALM, WORLD.verify, known=Undecided())
    for i in range(20):
        restrictions = "open" if i % 4 == 0 else "name=alice"
        node.keep(signed(topic(f"place.{i}", restrictions=restrictions)), WORLD.now)
    asked, matched = 0, 0
    permits, matches = Restrictions.permits, Matcher.matches

    def counted_permits(self: Restrictions, holder: Any, rights: Any = frozenset()) -> bool:
        nonlocal asked
        asked += 1
        return permits(self, holder, rights)

    def counted_matches(self: Matcher, about: Advertisement) -> bool:
        nonlocal matched
        matched += 1
        return matches(self, about)

    monkeypatch.setattr(Restrictions, "permits", counted_permits)
    monkeypatch.setattr(Matcher, "matches", counted_matches)
    costs = set()
    for text in ("place.1", "place.2", "place.99", "nowhere.*", "Sports=NBA"):
        node._views.clear()
        asked = matched = 0
        assert node.find(DiscoveryQuery(text), WORLD.certificate(MALLORY), WORLD.now) == ([], False)
        costs.add((asked, matched))
    assert costs == {(20, 5)}, "all are looked at for permission; only what it may find for a match"
    # A weakened node, which matches first and asks for permission then, gives the hidden away by what it does.
    weakened = dict[str, int]()
    for text in ("place.1", "place.99"):
        asked, matcher = 0, Matcher.parse(text)
        matching = [a for a in node._known.values() if matcher.matches(a.about)]
        assert not [a for a in matching if a.about.restrictions.permits(WORLD.certificate(MALLORY))]
        weakened[text] = asked
    assert weakened == {"place.1": 1, "place.99": 0}


def test_a_stranger_is_not_answered_at_all(nodes: Nodes) -> None:
    nodes.client(ALICE).advertise(topic())
    plane = ControlPlane(nodes.directory, origin="stranger")
    replies, service = plane.create(reply=True), nodes.services["node-1"]
    for party in (CAST.stranger, CAST.revoked, CAST.expired):
        request = ControlMessage.request(FIND, DiscoveryQuery("*").to_bytes(), replies, WORLD.now)
        plane.post(service.topic, seal(party, REALM, WORLD.recipient(nodes.parties["node-1"]), request))
        WORLD.now += 60 * SECOND
        assert service.serve_once(WORLD.now).counts == {"certificate": 1}
    assert plane.read(replies, 0) == []


def test_an_entity_that_was_revoked_finds_nothing_more(nodes: Nodes) -> None:
    nodes.client(ALICE).advertise(topic())
    leaver = WORLD.party("leaver")
    assert paths(nodes.client(leaver).find("*")) == ["market.nyse"]
    WORLD.revoke(leaver)
    with pytest.raises(Unavailable):
        nodes.client(leaver).find("*")


def test_only_nodes_pull(nodes: Nodes) -> None:
    nodes.client(ALICE).advertise(topic(restrictions="name=alice"))
    node = nodes.nodes["node-1"]
    ask = cbor.encode(0)
    assert node.pull(ask, WORLD.certificate(MALLORY)) == [[], 0]
    page, last = node.pull(ask, WORLD.certificate(nodes.parties["node-2"]))
    assert page == [signed(topic(restrictions="name=alice"))] and last == 1
    for bad in (b"", b"\xff", cbor.encode(-1), cbor.encode("0"), cbor.encode(True)):
        with pytest.raises(Misuse):
            node.pull(bad, WORLD.certificate(nodes.parties["node-2"]))


# --- several nodes ------------------------------------------------------------------------------------


def test_one_node_that_is_left_is_enough(nodes: Nodes) -> None:
    spread = nodes.client(ALICE).advertise(topic(restrictions="name=alice,mallory"))
    assert spread.done == ("node-1", "node-2", "node-3") and not spread.failed
    (found,) = nodes.client(MALLORY).find("*")
    assert found.owner == "alice" and found.nodes == ("node-1", "node-2", "node-3")
    # Two of the three are lost, stores and all; which two does not matter.
    for lost in ("node-1", "node-3"):
        nodes.down.add(lost)
        nodes.stores[lost].close()
        shutil.rmtree(nodes.directory / "stores" / lost)
    (found,) = nodes.client(MALLORY).find("*")
    assert found.nodes == ("node-2",) and found.about == topic(restrictions="name=alice,mallory")
    spread = nodes.client(ALICE).advertise(topic("later"))
    assert spread.done == ("node-2",) and set(spread.failed) == {"node-1", "node-3"}
    nodes.down.add("node-2")
    with pytest.raises(Unavailable):
        nodes.client(MALLORY).find("*")


def test_a_node_that_lost_everything_heals_from_the_others(nodes: Nodes) -> None:
    for i in range(70):
        data = signed(topic(f"place.{i}", restrictions="name=alice"))
        for node in nodes.nodes.values():
            node.keep(data, WORLD.now)
    nodes.stores["node-2"].close()
    shutil.rmtree(nodes.directory / "stores" / "node-2")
    nodes.open("node-2")
    assert seen(nodes.nodes["node-2"], "*", ALICE) == []
    assert nodes.client(nodes.parties["node-2"]).heal(nodes.nodes["node-2"]) >= 70
    assert len(nodes.nodes["node-2"]._known) == 70, "more than one page of it"


def test_answers_in_any_order_make_one(nodes: Nodes) -> None:
    """Nodes that are out of date, each in another way: the newest word of each owner is what is found."""
    old, new = topic("a", sequence=1), topic("a", sequence=2, tags={"new": "yes"})
    gone = topic("b", sequence=1)
    for name, known in {
        "node-1": [old, gone],
        "node-2": [new, gone.withdrawal(WORLD.now)],
        "node-3": [topic("c")],
    }.items():
        for about in known:
            nodes.nodes[name].keep(signed(about), WORLD.now)
    expected = [("a", 2, ("node-2",)), ("c", 1, ("node-3",))]
    for order in itertools.permutations(nodes.services):
        nodes.services = {name: nodes.services[name] for name in order}
        found = nodes.client(MALLORY).find("*")
        assert [(f.about.path, f.about.sequence, f.nodes) for f in found] == expected


def test_withdrawn_is_gone(nodes: Nodes) -> None:
    owner = nodes.client(ALICE)
    owner.advertise(topic())
    nodes.down.add("node-3")
    owner.withdraw(topic())
    nodes.down.clear()
    assert nodes.client(MALLORY).find("*") == [], "though one node has not heard of it"
    with pytest.raises(ServiceRefused) as refused:
        nodes.down.update({"node-3"})
        owner.advertise(topic())
    assert refused.value.reason == "sequence", "an old word does not bring it back"
    owner.advertise(topic(sequence=WORLD.now + 1))
    assert paths(nodes.client(MALLORY).find("*")) == ["market.nyse"]


def test_a_node_that_lies_is_not_believed(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hands out forgeries, what has expired, another realm's, and what was not asked for."""
    lies = [bent.make(CAST) for bent in itertools.islice(BENT.values(), 0, None, 9)]
    wrong = signed(topic("not.asked"))

    def lying(self: DiscoveryNode, request: ProvenMessage, now_us: int) -> Any:
        return Answer("discovery/found", cbor.encode([[*lies, wrong, signed(topic("market.a"))], False]))

    monkeypatch.setattr(DiscoveryNode, "handle", lying)
    found = nodes.client(MALLORY).find("market.*")
    assert paths(found) == ["market.a"]


def test_a_node_must_be_one(nodes: Nodes) -> None:
    """The list of nodes is public and proves nothing: who is listed must have the authority's word for it."""
    fake = WORLD.service(nodes.directory, MALLORY, nodes.nodes["node-1"])
    for address in (
        NodeAddress("mallory", fake.topic, MALLORY.certificate),
        NodeAddress("node-1", fake.topic, MALLORY.certificate),
        NodeAddress("node-1", fake.topic, CAST.stranger.certificate),
    ):
        asker = WORLD.asker(nodes.directory, ALICE)
        client = Discovery(asker, lambda a=address: [a], lambda _: lambda: fake.serve_once(WORLD.now))
        with pytest.raises(Rejected, match="certificate"):
            client.find("*")


def test_a_refusal_of_all_nodes_is_told(nodes: Nodes) -> None:
    nodes.client(ALICE).advertise(topic())
    with pytest.raises(ServiceRefused) as refused:
        nodes.client(MALLORY).advertise(topic(sequence=9))
    assert refused.value.service_code == "advertisement" and refused.value.reason == "owner"


def test_many_answers_come_in_parts(nodes: Nodes) -> None:
    for i in range(150):
        nodes.nodes["node-1"].keep(signed(topic(f"place.{i:03}")), WORLD.now)
    found = nodes.client(MALLORY).find("*")
    assert paths(found) == [f"place.{i:03}" for i in range(150)]


# --- services that move ------------------------------------------------------------------------------


def test_a_key_center_under_flood_is_found_where_it_went(nodes: Nodes) -> None:
    """The whole of section 5.1: found through discovery by who may, flooded, moved, found again by who may."""
    announced = 0

    def announce(control_topic: bytes, now_us: int) -> None:
        nonlocal announced
        announced += 1
        nodes.client(CENTER).advertise(
            Advertisement(
                b"center's offer..",
                What.KEY_CENTER,
                "center",
                announced,
                now_us,
                now_us + HOUR,
                control_topic=control_topic,
                restrictions=Restrictions.parse("name=alice"),
            )
        )

    center = WORLD.service(nodes.directory, CENTER, Echo(), announce=announce, noise=Noise(posts=30, stay_us=SECOND))
    old = center.topic
    where = nodes.client(ALICE).service(What.KEY_CENTER, "center")
    assert where() == ServiceAddress(old, WORLD.recipient(CENTER))
    with pytest.raises(NotFound):
        nodes.client(MALLORY).service(What.KEY_CENTER, "center")()

    eve = ControlPlane(nodes.directory, origin="eve")
    WORLD.now += 2 * SECOND
    for _ in range(50):
        eve.post(old, b"noise")
    center.serve_once(WORLD.now)

    def turn() -> None:
        if center.wants_to_move(WORLD.now):
            center.move(WORLD.now)
        center.serve_once(WORLD.now)

    reply = WORLD.asker(nodes.directory, ALICE).ask(where, "echo", b"abc", turn=turn)
    assert reply.message.body == b"cba" and center.topic != old and announced == 2
    with pytest.raises(NotFound):
        eve.post(old, b"noise")


# --- where the nodes are ------------------------------------------------------------------------------


def test_the_list_of_nodes_is_in_the_realms_mark(tmp_path: Path) -> None:
    mark = tmp_path / "realm.json"
    with pytest.raises(NotFound):
        bootstrap.read(mark)
    mark.write_text('{"format": 1, "name": "market", "id": "00"}')
    assert bootstrap.read(mark) == ()
    nodes = [NodeAddress(f"node-{i}", bytes([i]) * 16, b"certificate") for i in range(3)]
    bootstrap.write(mark, nodes)
    moved = NodeAddress("node-1", bytes(16), b"certificate")
    bootstrap.write(mark, [moved])
    assert bootstrap.read(mark) == (nodes[0], moved, nodes[2])
    assert '"name": "market"' in mark.read_text(), "and what else it says, it still says"
    for bad in (
        '{"discovery": 7}',
        '{"discovery": [{}]}',
        "[",
        '{"discovery": [{"name": 1, "topic": "x", "certificate": ""}]}',
    ):
        mark.write_text(bad)
        with pytest.raises(Corrupt):
            bootstrap.read(mark)


def test_no_nodes_no_discovery(tmp_path: Path) -> None:
    client = Discovery(WORLD.asker(tmp_path, ALICE), list)
    for call in (lambda: client.find("*"), lambda: client.advertise(topic())):
        with pytest.raises(Unavailable, match="lists no discovery nodes") as refused:
            call()
        assert refused.value.hint is not None and "sealcast serve" in refused.value.hint
