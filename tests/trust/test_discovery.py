"""Discovery: found by who may, nothing at all for who may not, from any node that is left, as its owner signed it."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Corrupt, FilterRejected, Misuse, NotFound, Rejected, Unavailable
from sealcast.trust.asking import Address
from sealcast.trust.certificates import Role
from sealcast.trust.changes import Right
from sealcast.trust.control import ControlPlane
from sealcast.trust.discovery import advertisements, bootstrap
from sealcast.trust.discovery.advertisements import Advertisement, AdvertisementReason, AdvertisementRejected, What
from sealcast.trust.discovery.bootstrap import NodeAddress
from sealcast.trust.discovery.client import Discovery, Found
from sealcast.trust.discovery.node import FIND, DiscoveryNode
from sealcast.trust.discovery.queries import Matcher, Query
from sealcast.trust.discovery.restrictions import Restrictions
from sealcast.trust.discovery.store import Store
from sealcast.trust.envelopes import Message, Opened, Party, open_reply, seal
from sealcast.trust.service import Answer, Noise, ServiceRefused
from sealcast.wire import cbor
from tests.trust.advertising import HOUR, SCHEMA, bent_advertisements, by_hand, topic
from tests.trust.control_world import NOW, REALM, SECOND, Echo, Nodes
from tests.trust.tampering import Cast

CAST = Cast.make()
WORLD, ALICE, MALLORY, CENTER = CAST.world, CAST.alice, CAST.mallory, CAST.center
BROKER = WORLD.party("edge", Role.BROKER, Role.ENTITY)
BENT = bent_advertisements(CAST)


@pytest.fixture(autouse=True)
def _clock() -> None:
    WORLD.now = NOW


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(WORLD, tmp_path)


@pytest.fixture
def node(tmp_path: Path) -> DiscoveryNode:
    return DiscoveryNode(Store(tmp_path / "one.sqlite"), REALM, WORLD.verify)


def signed(about: Advertisement, owner: Party = ALICE) -> bytes:
    return advertisements.sign(owner, REALM, about)


def paths(found: list[Found]) -> list[str]:
    return [f.about.path for f in found]


def seen(node: DiscoveryNode, text: str, asker: Party) -> list[str]:
    found, _ = node.find(Query(text), WORLD.certificate(asker), WORLD.now)
    return [a.about.path for a in found]


# --- the table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BENT)
def test_every_bent_advertisement_is_refused_for_its_own_reason(name: str, node: DiscoveryNode) -> None:
    data = BENT[name].make(CAST)
    with pytest.raises(AdvertisementRejected) as refused:
        node.keep(data, WORLD.now)
    assert refused.value.reason == BENT[name].reason, refused.value.message
    assert node.find(Query("*"), WORLD.certificate(ALICE), WORLD.now) == ([], False)


def test_the_table_bends_one_thing_at_a_time(node: DiscoveryNode) -> None:
    node.keep(by_hand(CAST), WORLD.now)
    assert seen(node, "*", ALICE) == ["market.nyse"]
    about = advertisements.verify(by_hand(CAST), REALM, WORLD.verify, WORLD.now).about
    assert signed(about) == by_hand(CAST), "and what we sign are the same bytes"


def test_every_reason_is_reached() -> None:
    told = {bent.reason for bent in BENT.values()}
    assert told == set(AdvertisementReason) - {"owner", "sequence", "quota"}, "those three are reached below"
    assert len(BENT) >= 100


@given(st.data())
@settings(max_examples=100)
def test_no_flipped_bit_passes(data: st.DataObject) -> None:
    bent = bytearray(_SIGNED)
    at = data.draw(st.integers(0, len(bent) * 8 - 1))
    bent[at // 8] ^= 1 << at % 8
    with pytest.raises(AdvertisementRejected):
        advertisements.verify(bytes(bent), REALM, WORLD.verify, WORLD.now)


_SIGNED = by_hand(CAST)


@pytest.mark.parametrize(
    "about",
    [
        topic(id=b"short"),
        topic("a/b"),
        topic(expires_us=NOW),
        topic(sequence=-1),
        topic(tags={"": "x"}),
        topic(tags={str(i): "x" for i in range(33)}),
        replace(topic(), what=What.BROKER),
    ],
    ids=range(7),
)
def test_an_owner_cannot_sign_what_nobody_would_take(about: Advertisement) -> None:
    with pytest.raises(Misuse):
        signed(about)


# --- keeping ------------------------------------------------------------------------------------------


def test_the_newest_counts_in_whatever_order_they_come(tmp_path: Path) -> None:
    versions = [signed(topic(sequence=n, tags={"version": str(n)})) for n in (1, 2, 3)]
    for i, order in enumerate(itertools.permutations(versions)):
        node = DiscoveryNode(Store(tmp_path / f"{i}.sqlite"), REALM, WORLD.verify)
        for data in order:
            try:
                node.keep(data, WORLD.now)
            except AdvertisementRejected as refused:
                assert refused.reason is AdvertisementReason.SEQUENCE
        (found,), _ = node.find(Query("*"), WORLD.certificate(ALICE), WORLD.now)
        assert found.about.tags == {"version": "3"}


def test_a_sequence_is_used_once(node: DiscoveryNode) -> None:
    first = node.keep(signed(topic(sequence=5)), WORLD.now)
    assert node.keep(signed(topic(sequence=5)), WORLD.now) == first, "said again, it is no news"
    with pytest.raises(AdvertisementRejected) as refused:
        node.keep(signed(topic(sequence=5, tags={"other": "words"})), WORLD.now)
    assert refused.value.reason is AdvertisementReason.SEQUENCE


def test_the_other_signature_of_the_same_is_no_news(node: DiscoveryNode) -> None:
    """ECDSA: (r, n - s) is as valid as (r, s). Whoever respells one makes nothing new."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    respelt = by_hand(CAST, signature=lambda s: s[:32] + (order - int.from_bytes(s[32:], "big")).to_bytes(32, "big"))
    first = node.keep(by_hand(CAST), WORLD.now)
    assert respelt != by_hand(CAST) and node.keep(respelt, WORLD.now) == first


class Registered:
    """A registry that knows one topic: alice's, on which mallory may publish for half an hour."""

    def owner_of(self, topic_id: bytes, /) -> str | None:
        return "alice" if topic_id == topic().id else None

    def rights_of(self, topic_id: bytes, name: str, at_us: int, /) -> frozenset[Right]:
        granted = topic_id == topic().id and name == "mallory" and at_us < NOW + HOUR // 2
        return frozenset({Right.PUBLISH}) if granted else frozenset()


def test_a_topic_has_one_owner(tmp_path: Path, node: DiscoveryNode) -> None:
    node.keep(signed(topic()), WORLD.now)
    with pytest.raises(AdvertisementRejected) as refused:
        node.keep(signed(topic(sequence=9), MALLORY), WORLD.now)
    assert refused.value.reason is AdvertisementReason.OWNER
    # Where a registry says whose it is, coming first is no help.
    known = DiscoveryNode(Store(tmp_path / "known.sqlite"), REALM, WORLD.verify, known=Registered())
    with pytest.raises(AdvertisementRejected) as refused:
        known.keep(signed(topic(), MALLORY), WORLD.now)
    assert refused.value.reason is AdvertisementReason.OWNER
    known.keep(signed(topic()), WORLD.now)


def test_room_is_bounded_for_each_and_for_all(tmp_path: Path) -> None:
    node = DiscoveryNode(Store(tmp_path / "small.sqlite"), REALM, WORLD.verify, max_each=3, max_all=5)
    for i in range(3):
        node.keep(signed(topic(f"alice.{i}")), WORLD.now)
    with pytest.raises(AdvertisementRejected) as refused:
        node.keep(signed(topic("alice.3")), WORLD.now)
    assert refused.value.reason is AdvertisementReason.QUOTA
    node.keep(signed(topic("alice.0", sequence=2)), WORLD.now)
    for i in range(2):
        node.keep(signed(topic(f"mallory.{i}"), MALLORY), WORLD.now)
    with pytest.raises(AdvertisementRejected):
        node.keep(signed(topic("mallory.2"), MALLORY), WORLD.now)
    # What expires makes room again.
    WORLD.now += 2 * HOUR
    node.keep(signed(topic("mallory.2", issued_us=WORLD.now, expires_us=WORLD.now + HOUR), MALLORY), WORLD.now)


def test_what_has_expired_is_gone(node: DiscoveryNode) -> None:
    node.keep(signed(topic("short", expires_us=NOW + SECOND)), WORLD.now)
    node.keep(signed(topic("long")), WORLD.now)
    assert seen(node, "*", ALICE) == ["long", "short"]
    WORLD.now += SECOND
    assert seen(node, "*", ALICE) == ["long"]
    assert len(node._store.since(0)) == 1, "from the store too"


def test_a_store_remembers_and_two_processes_share_one(tmp_path: Path) -> None:
    first = DiscoveryNode(Store(tmp_path / "one.sqlite"), REALM, WORLD.verify)
    second = DiscoveryNode(Store(tmp_path / "one.sqlite"), REALM, WORLD.verify)
    first.keep(signed(topic("a")), WORLD.now)
    assert seen(second, "*", ALICE) == ["a"]
    second.keep(signed(topic("b")), WORLD.now)
    assert seen(first, "*", ALICE) == ["a", "b"]
    assert seen(DiscoveryNode(Store(tmp_path / "one.sqlite"), REALM, WORLD.verify), "*", ALICE) == ["a", "b"]
    assert (tmp_path / "one.sqlite").stat().st_mode & 0o777 == 0o600


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"not a database at all, whatever its name says" * 100)
    with pytest.raises(Corrupt, match=r"bad\.sqlite"):
        Store(tmp_path / "bad.sqlite")


# --- restrictions -------------------------------------------------------------------------------------


def _holders() -> dict[str, Party]:
    return {p.name: p for p in (ALICE, MALLORY, CENTER, BROKER)}


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("open", {"alice", "mallory", "center", "edge"}),
        ("name=alice", {"alice"}),
        ("name=alice,mallory", {"alice", "mallory"}),
        ("name=al*", {"alice"}),
        ("name=*", {"alice", "mallory", "center", "edge"}),
        ("name=nobody", set()),
        ("role=broker", {"edge"}),
        ("role=entity", {"alice", "mallory", "edge"}),
        ("role=key-center,broker", {"center", "edge"}),
        ("role=entity & role=broker", {"edge"}),
        ("role=entity & name=alice | role=key-center", {"alice", "center"}),
        (f"serial={WORLD.certificate(ALICE).serial}", {"alice"}),
        (f"issuer={WORLD.certificate(ALICE).issuer.hex()}", {"alice", "mallory", "center", "edge"}),
        (f"key={WORLD.certificate(BROKER).identity_key.hex()}", {"edge"}),
    ],
)
def test_restrictions_let_in_whom_they_name(text: str, who: set[str], node: DiscoveryNode) -> None:
    restrictions = Restrictions.parse(text)
    assert {n for n, p in _holders().items() if restrictions.permits(WORLD.certificate(p))} == who
    assert Restrictions.parse(str(restrictions)) == restrictions
    assert Restrictions.from_cbor(cbor.decode(cbor.encode(restrictions.to_cbor()))) == restrictions
    # And so does a node; its owner finds it always.
    owner = WORLD.party("owner")
    node.keep(signed(topic(restrictions=restrictions), owner), WORLD.now)
    assert {n for n, p in _holders().items() if seen(node, "*", p)} == who
    assert seen(node, "*", owner) == ["market.nyse"]


@pytest.mark.parametrize(
    "text", ["", " ", "name", "name=", "name=a b", "role=king", "age=7", "name=a |", "& name=a", "key=xy"]
)
def test_restrictions_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(Misuse):
        Restrictions.parse(text)


def test_rights_are_asked_for_at_the_moment_of_asking(tmp_path: Path) -> None:
    node = DiscoveryNode(Store(tmp_path / "one.sqlite"), REALM, WORLD.verify, known=Registered())
    for about in (topic(restrictions="right=publish"), topic("unknown", restrictions=Restrictions.authorised())):
        node.keep(signed(about), WORLD.now)
    assert seen(node, "*", MALLORY) == ["market.nyse"]
    assert seen(node, "*", CENTER) == []
    assert seen(node, "*", ALICE) == ["market.nyse", "unknown"], "both are hers"
    node.keep(signed(topic(sequence=2, restrictions="right=subscribe | role=broker")), WORLD.now)
    assert seen(node, "*", MALLORY) == []
    assert seen(node, "*", BROKER) == ["market.nyse"]
    node.keep(signed(topic(sequence=3, restrictions="right=publish,subscribe & name=mal*")), WORLD.now)
    assert seen(node, "*", MALLORY) == ["market.nyse"]
    WORLD.now += HOUR // 2
    assert seen(node, "*", MALLORY) == [], "the right has ended, and nobody had to say so to the node"


def test_a_thousand_names_fit(node: DiscoveryNode) -> None:
    names = tuple(f"subscriber-{i:04}" for i in range(1_024))
    node.keep(signed(topic(restrictions=Restrictions.names(*names))), WORLD.now)
    assert seen(node, "*", WORLD.party("subscriber-1023")) == ["market.nyse"]
    assert seen(node, "*", MALLORY) == []


# --- not even existence -------------------------------------------------------------------------------


def answer_to(nodes: Nodes, asker: Party, text: str) -> tuple[bytes, bytes]:
    """(the envelope as it travels, the body inside) of one node's answer."""
    plane = ControlPlane(nodes.directory, origin="watcher")
    replies = plane.create(reply=True)
    request = Message.request(FIND, Query(text).to_bytes(), replies, WORLD.now)
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
    node = DiscoveryNode(Store(tmp_path / "one.sqlite"), REALM, WORLD.verify)
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
        assert node.find(Query(text), WORLD.certificate(MALLORY), WORLD.now) == ([], False)
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
        request = Message.request(FIND, Query("*").to_bytes(), replies, WORLD.now)
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


# --- queries ------------------------------------------------------------------------------------------

_OFFERS = {
    "market.nyse": topic("market.nyse", schema=SCHEMA, tags={"venue": "NYSE"}),
    "market.lse": topic("market.lse", schema=SCHEMA, tags={"venue": "LSE", "ccy": "GBP"}),
    "sports.nba": topic("sports.nba", tags={"Sports": "NBA", "Team": "NYK"}),
    "sports.nhl": topic("sports.nhl", tags={"Sports": "NHL"}),
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("*", ["market.lse", "market.nyse", "sports.nba", "sports.nhl"]),
        ("market.*", ["market.lse", "market.nyse"]),
        ("/market/*", ["market.lse", "market.nyse"]),
        ("/sports/nba", ["sports.nba"]),
        ("market.nyse", ["market.nyse"]),
        ("market.*; venue=NYSE", ["market.nyse"]),
        ("/market/*; ccy=*", ["market.lse"]),
        ("Sports=NBA, Team=*", ["sports.nba"]),
        ("Sports=*", ["sports.nba", "sports.nhl"]),
        ("Sports=nba", []),
        ("@price", ["market.lse", "market.nyse"]),
        ("@price:decimal, @symbol:string", ["market.lse", "market.nyse"]),
        ("@price:int", []),
        ("@volume", []),
        ("@price; *; ccy=GBP", ["market.lse"]),
        ("@price; market.n*", ["market.nyse"]),
        ("PRIC", ["market.lse", "market.nyse"]),
        ("nb", ["sports.nba"]),
        ("zzz", []),
    ],
)
def test_queries_by_path_tag_schema_and_word(text: str, found: list[str]) -> None:
    matcher = Matcher.parse(text)
    assert sorted(path for path, about in _OFFERS.items() if matcher.matches(about)) == found
    assert Query.from_bytes(Query(text).to_bytes()) == Query(text)


@pytest.mark.parametrize("text", ["", "  ", "x" * 1025, "@", "@price:number", "@price market", "a=b=c;", "@a,", "=x"])
def test_a_query_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FilterRejected):
        Query(text)


@pytest.mark.parametrize(
    "body", [b"", b"\xff", cbor.encode(["*"]), cbor.encode(["*", "castle", None]), cbor.encode([7, None, None])]
)
def test_a_query_from_the_wire_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(Misuse):
        Query.from_bytes(body)


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

    def lying(self: DiscoveryNode, request: Opened, now_us: int) -> Any:
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
                restrictions=Restrictions.names("alice"),
            )
        )

    center = WORLD.service(nodes.directory, CENTER, Echo(), announce=announce, noise=Noise(posts=30, stay_us=SECOND))
    old = center.topic
    where = nodes.client(ALICE).service(What.KEY_CENTER, "center")
    assert where() == Address(old, WORLD.recipient(CENTER))
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
        with pytest.raises(Unavailable, match="lists no discovery nodes"):
            call()
