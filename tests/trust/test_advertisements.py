"""Advertisements: refused when anything was altered, kept as their owners last said, found by whom they let in."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.control.discovery import advertisements
from sealcast.control.discovery.advertisements import Advertisement, AdvertisementReason, AdvertisementRejected, What
from sealcast.control.discovery.node import DiscoveryNode
from sealcast.control.discovery.queries import DiscoveryQuery, Matcher
from sealcast.control.discovery.restrictions import Restrictions
from sealcast.control.discovery.store import AdvertisementStore
from sealcast.control.envelopes import EnvelopeParty
from sealcast.errors import Corrupt, FilterRejected, Misuse
from sealcast.trust.certificates.certificate import Role
from sealcast.trust.realm.changes import Right
from sealcast.wire import cbor
from tests.effort import examples
from tests.trust.advertising import HOUR, SCHEMA, bent_advertisements, by_hand, topic
from tests.trust.control_world import NOW, REALM, SECOND, Undecided
from tests.trust.tampering import Cast

CAST = Cast.make()
WORLD, ALICE, MALLORY, CENTER = CAST.world, CAST.alice, CAST.mallory, CAST.center
BROKER = WORLD.party("edge", Role.BROKER, Role.ENTITY)
BENT = bent_advertisements(CAST)


@pytest.fixture(autouse=True)
def _clock() -> None:
    WORLD.now = NOW


@pytest.fixture
def node(tmp_path: Path) -> DiscoveryNode:
    return DiscoveryNode(AdvertisementStore(tmp_path / "one.sqlite"), REALM, WORLD.verify, known=Undecided())


def signed(about: Advertisement, owner: EnvelopeParty = ALICE) -> bytes:
    return advertisements.sign(owner, REALM, about)


def seen(node: DiscoveryNode, text: str, asker: EnvelopeParty) -> list[str]:
    found, _ = node.find(DiscoveryQuery(text), WORLD.certificate(asker), WORLD.now)
    return [a.about.path for a in found]


# --- the table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BENT)
def test_every_bent_advertisement_is_refused_for_its_own_reason(name: str, node: DiscoveryNode) -> None:
    data = BENT[name].make(CAST)
    with pytest.raises(AdvertisementRejected) as refused:
        node.keep(data, WORLD.now)
    assert refused.value.reason == BENT[name].reason, refused.value.message
    assert node.find(DiscoveryQuery("*"), WORLD.certificate(ALICE), WORLD.now) == ([], False)


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
@examples(25, soak=100)
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
        node = DiscoveryNode(AdvertisementStore(tmp_path / f"{i}.sqlite"), REALM, WORLD.verify, known=Undecided())
        for data in order:
            try:
                node.keep(data, WORLD.now)
            except AdvertisementRejected as refused:
                assert refused.reason is AdvertisementReason.SEQUENCE
        (found,), _ = node.find(DiscoveryQuery("*"), WORLD.certificate(ALICE), WORLD.now)
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
    known = DiscoveryNode(AdvertisementStore(tmp_path / "known.sqlite"), REALM, WORLD.verify, known=Registered())
    with pytest.raises(AdvertisementRejected) as refused:
        known.keep(signed(topic(), MALLORY), WORLD.now)
    assert refused.value.reason is AdvertisementReason.OWNER
    known.keep(signed(topic()), WORLD.now)


def test_room_is_bounded_for_each_and_for_all(tmp_path: Path) -> None:
    node = DiscoveryNode(
        AdvertisementStore(tmp_path / "small.sqlite"), REALM, WORLD.verify, known=Undecided(), max_each=3, max_all=5
    )
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
    first = DiscoveryNode(AdvertisementStore(tmp_path / "one.sqlite"), REALM, WORLD.verify, known=Undecided())
    second = DiscoveryNode(AdvertisementStore(tmp_path / "one.sqlite"), REALM, WORLD.verify, known=Undecided())
    first.keep(signed(topic("a")), WORLD.now)
    assert seen(second, "*", ALICE) == ["a"]
    second.keep(signed(topic("b")), WORLD.now)
    assert seen(first, "*", ALICE) == ["a", "b"]
    assert seen(
        DiscoveryNode(AdvertisementStore(tmp_path / "one.sqlite"), REALM, WORLD.verify, known=Undecided()), "*", ALICE
    ) == [
        "a",
        "b",
    ]
    assert (tmp_path / "one.sqlite").stat().st_mode & 0o777 == 0o600


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"not a database at all, whatever its name says" * 100)
    with pytest.raises(Corrupt, match=r"bad\.sqlite"):
        AdvertisementStore(tmp_path / "bad.sqlite")


# --- restrictions -------------------------------------------------------------------------------------


def _holders() -> dict[str, EnvelopeParty]:
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
    # The last three are of keys that are new every time: a test's name is not.
    ids=[f"case-{n}" for n in range(14)],
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
    node = DiscoveryNode(AdvertisementStore(tmp_path / "one.sqlite"), REALM, WORLD.verify, known=Registered())
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
    node.keep(signed(topic(restrictions=Restrictions.parse(f"name={','.join(names)}"))), WORLD.now)
    assert seen(node, "*", WORLD.party("subscriber-1023")) == ["market.nyse"]
    assert seen(node, "*", MALLORY) == []


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
    assert DiscoveryQuery.from_bytes(DiscoveryQuery(text).to_bytes()) == DiscoveryQuery(text)


@pytest.mark.parametrize("text", ["", "  ", "x" * 1025, "@", "@price:number", "@price market", "a=b=c;", "@a,", "=x"])
def test_a_query_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FilterRejected):
        DiscoveryQuery(text)


@pytest.mark.parametrize(
    "body", [b"", b"\xff", cbor.encode(["*"]), cbor.encode(["*", "castle", None]), cbor.encode([7, None, None])]
)
def test_a_query_from_the_wire_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(Misuse):
        DiscoveryQuery.from_bytes(body)
