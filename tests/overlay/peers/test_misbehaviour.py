"""Peers that break rules: what they send is refused and counted, and after a few times they are cut off."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from sealcast.errors import Misuse
from sealcast.lab.tariq.ideal import IdealCredentials, ideal_advertisement, ideal_event
from sealcast.overlay.peers.conduct import MAX_PEERS, Conduct
from sealcast.overlay.peers.core import ACCEPT, OFFER, proof
from sealcast.overlay.peers.node import PeerNode
from sealcast.overlay.peers.port import Closed, Deliver, Dissemination, PeerEffect, PeerSettings, SeatAddress, Send
from sealcast.primitives.secrets import Secret
from sealcast.wire import peers
from sealcast.wire.peers import PeerBody, PeerMessage
from tests.overlay.peers.world import one_tree

TOPIC = bytes(16)
SETTINGS = PeerSettings(strikes=3, root_patience_seconds=0)
ANOTHER_KEY = Secret(bytes(31) + b"\x01")


def root(settings: PeerSettings = SETTINGS) -> PeerNode:
    credentials = IdealCredentials("root")
    credentials.add_roots(["a"])
    node = PeerNode(TOPIC, "root", credentials, ["root"], settings=settings, rng=random.Random(1))
    node.join([], 0.0)
    return node


def searching_peer() -> tuple[PeerNode, IdealCredentials, peers.Search]:
    credentials = IdealCredentials("peer")
    credentials.subscribe({"a": ("01",)})
    node = PeerNode(TOPIC, "peer", credentials, ["root"], settings=SETTINGS, rng=random.Random(2))
    (search,) = sent(node.join([], 0.0), peers.Search)
    return node, credentials, search


def message(body: PeerBody, source: int | None = 0, target: int | None = 0) -> PeerMessage:
    return PeerMessage(TOPIC, source, target, body)


def sent(effects: list[PeerEffect], kind: type) -> list:
    return [each.message.body for each in effects if isinstance(each, Send) and isinstance(each.message.body, kind)]


def closed(effects: list[PeerEffect]) -> list[str]:
    return [each.peer for each in effects if isinstance(each, Closed)]


def request(name: str, label: str = "01") -> bytes:
    credentials = IdealCredentials(name)
    credentials.subscribe({"a": (label,)})
    return credentials.ask(0).request


def search(name: str, made: bytes, number: int = 0) -> peers.Search:
    return peers.Search(number.to_bytes(16, "big"), name, 0, "a", made, 0, (), 0)


def linked_child(node: PeerNode, name: str = "child", now: float = 0.0) -> None:
    credentials = IdealCredentials(name)
    credentials.subscribe({"a": ("01",)})
    ask = credentials.ask(0)
    node.receive(name, message(search(name, ask.request), None, None), now)
    accept = peers.Accept(bytes(16), proof(ask.key, ACCEPT, bytes(16), SeatAddress("root", 0), b""), b"", 0)
    assert sent(node.receive(name, message(accept), now), peers.Pulse)


BROKEN: dict[str, Callable[[int], PeerMessage]] = {
    "a forged request": lambda n: message(search("mallory", request("mallory") + b"x", n), None, None),
    "another peer's request": lambda n: message(search("mallory", request("victim"), n), None, None),
    "a request that is none": lambda n: message(search("mallory", b"noise", n), None, None),
    "an event as a request": lambda n: message(search("mallory", ideal_event("p", 1, {"a": "0"}), n), None, None),
    "a forged advertisement": lambda n: message(peers.Announce(b"noise"), None, None),
    "another's advertisement": lambda n: message(peers.Announce(ideal_advertisement("victim")), None, None),
    "an offer to nobody's seat": lambda n: message(peers.Offer(bytes(16), False, bytes(32)), None, 0),
    "a pulse from no seat": lambda n: message(peers.Pulse("x", 1, 1), None, None),
}


@pytest.mark.parametrize("what", BROKEN)
def test_three_broken_rules_and_a_peer_is_cut_off(what: str) -> None:
    node, make = root(), BROKEN[what]
    assert not closed(node.receive("mallory", make(1), 1.0))
    assert not closed(node.receive("mallory", make(2), 1.0))
    effects = node.receive("mallory", make(3), 1.0)
    assert closed(effects) == ["mallory"]
    assert node.counts["broken rules"] == 3
    assert not sent(effects, peers.Offer)
    # Then nothing of it is looked at, until it may come again.
    assert node.receive("mallory", message(search("mallory", request("mallory"), 9), None, None), 2.0) == []
    later = 1.0 + SETTINGS.ban_seconds
    again = node.receive("mallory", message(search("mallory", request("mallory"), 10), None, None), later)
    assert sent(again, peers.Offer)


def test_bytes_that_are_no_message_count_too() -> None:
    node = root()
    assert [bool(closed(node.refused("mallory", 1.0))) for _ in range(3)] == [False, False, True]


def test_a_child_that_is_cut_off_is_a_child_no_more() -> None:
    node = root()
    linked_child(node, "mallory")
    assert len(node.seats()[0].children) == 1
    for _ in range(3):
        node.refused("mallory", 1.0)
    assert not node.seats()[0].children


def test_an_unannounced_publisher_is_told_to_announce_itself_and_nothing_is_passed_on() -> None:
    node = root()
    linked_child(node)
    event = ideal_event("stranger", 1, {"a": "0101"})
    effects = node.receive("stranger", message(peers.Inject(event), None, None), 1.0)
    assert sent(effects, peers.Unknown)
    assert not sent(effects, peers.Carry)
    node.receive("stranger", message(peers.Announce(ideal_advertisement("stranger")), None, None), 1.0)
    effects = node.receive("stranger", message(peers.Inject(event), None, None), 1.0)
    assert sent(effects, peers.Carry) == [peers.Carry(event)]
    assert sent(effects, peers.Taken) == [peers.Taken(peers.event_id(event))]


def test_a_forged_event_goes_nowhere_and_does_not_hide_the_honest_one() -> None:
    node = root()
    linked_child(node)
    node.receive("p", message(peers.Announce(ideal_advertisement("p")), None, None), 1.0)
    honest = ideal_event("p", 1, {"a": "0101"})
    effects = node.receive("p", message(peers.Inject(honest[:-1] + b"x"), None, None), 1.0)
    assert not sent(effects, peers.Carry)
    assert not sent(effects, peers.Taken)
    assert sent(node.receive("p", message(peers.Inject(honest), None, None), 1.0), peers.Carry) == [peers.Carry(honest)]


def test_events_come_from_parents_only() -> None:
    node, _, _ = searching_peer()
    event = ideal_event("p", 1, {"a": "0101"})
    effects = node.receive("stranger", message(peers.Carry(event)), 1.0)
    assert not [each for each in effects if isinstance(each, Deliver)]
    assert sent(effects, peers.Unlink)


def test_an_offer_must_prove_the_connection_key() -> None:
    node, _, asked = searching_peer()
    acceptor = SeatAddress("mallory", 4)
    bad = peers.Offer(asked.search, False, proof(ANOTHER_KEY, OFFER, asked.search, acceptor))
    effects = node.receive("mallory", message(bad, 4, 0), 1.0)
    assert not sent(effects, peers.Accept)
    assert node.counts["broken rules"] == 1


def test_an_offer_that_was_made_by_another_acceptor_is_refused() -> None:
    """Everybody who covers a newcomer knows its key; an offer still speaks for its sender alone."""
    node, credentials, asked = searching_peer()
    key = IdealCredentials("honest", places=credentials.places).open_request(0, asked.request, "peer")
    assert key is not None
    honest = peers.Offer(asked.search, False, proof(key, OFFER, asked.search, SeatAddress("honest", 4)))
    assert not sent(node.receive("mallory", message(honest, 4, 0), 1.0), peers.Accept)
    assert sent(node.receive("honest", message(honest, 4, 0), 1.0), peers.Accept)


@pytest.mark.parametrize(
    ("key", "token"), [(ANOTHER_KEY, b""), (None, b"no token at all")], ids=["another key", "no token"]
)
def test_a_place_is_given_to_who_proves_it_alone(key: Secret | None, token: bytes) -> None:
    node, credentials = root(PeerSettings(dissemination=Dissemination.ROUTING)), IdealCredentials("child")
    credentials.subscribe({"a": ("01",)})
    ask = credentials.ask(0)
    node.receive("child", message(search("child", ask.request), None, None), 0.0)
    given = proof(key or ask.key, ACCEPT, bytes(16), SeatAddress("root", 0), token)
    effects = node.receive("child", message(peers.Accept(bytes(16), given, token, 0)), 0.0)
    assert not node.seats()[0].children
    assert sent(effects, peers.Unlink)
    assert node.counts["broken rules"] == 1


def test_a_place_that_was_offered_to_one_is_not_anothers() -> None:
    node, credentials = root(), IdealCredentials("child")
    credentials.subscribe({"a": ("01",)})
    ask = credentials.ask(0)
    node.receive("child", message(search("child", ask.request), None, None), 0.0)
    accept = peers.Accept(bytes(16), proof(ask.key, ACCEPT, bytes(16), SeatAddress("root", 0), b""), b"", 0)
    node.receive("mallory", message(accept), 0.0)
    assert not node.seats()[0].children
    # Nor can another give it back for it.
    node.receive("mallory", message(peers.Decline(bytes(16))), 0.0)
    node.receive("child", message(accept), 0.0)
    assert [each.peer for each in node.seats()[0].children] == ["child"]


def test_a_place_is_held_for_a_while_only() -> None:
    settings = PeerSettings(root_children=1, root_overflow=0, root_patience_seconds=0)
    node = root(settings)
    assert sent(node.receive("a", message(search("a", request("a"), 1), None, None), 0.0), peers.Offer)
    assert not sent(node.receive("b", message(search("b", request("b"), 2), None, None), 0.0), peers.Offer)
    node.tick(settings.offer_seconds + 0.1)
    assert sent(node.receive("b", message(search("b", request("b"), 3), None, None), 7.0), peers.Offer)


@pytest.mark.parametrize("limit", [{"searches_per_window": 5}, {"own_searches_per_window": 5}])
def test_nobody_searches_without_end(limit: dict[str, int]) -> None:
    node = root(PeerSettings(**limit))  # type: ignore[arg-type]
    made = request("child")
    offers = [
        bool(sent(node.receive("child", message(search("child", made, n), None, None), 1.0), peers.Offer))
        for n in range(8)
    ]
    assert offers == [True] * 5 + [False] * 3
    assert node.counts["searches over the limit"] == 3
    assert sent(node.receive("child", message(search("child", made, 9), None, None), 12.0), peers.Offer)


def test_one_origin_cannot_use_up_what_others_may_search_through_a_neighbour() -> None:
    node = root(PeerSettings(own_searches_per_window=5))
    flooded, other = request("flooder"), request("other")
    for n in range(20):
        node.receive("neighbour", message(search("flooder", flooded, n), 3, 0), 1.0)
    assert sent(node.receive("neighbour", message(search("other", other, 99), 3, 0), 1.0), peers.Offer)


def test_a_parent_cannot_make_the_tree_below_busy_with_pulses() -> None:
    settings = PeerSettings(children=2, root_children=1, root_patience_seconds=0)
    net = one_tree({"middle": "0", "below": "01"}, settings=settings)
    node = net.peers["middle"].node
    passed = 0
    for n in range(1_000):
        effects = node.receive("root", message(peers.Pulse("fast", n, 0)), net.now + n * 0.001)
        passed += len(sent(effects, peers.Pulse))
    assert passed <= 21


def test_a_search_is_handled_once() -> None:
    node = root()
    made = message(search("child", request("child")), None, None)
    assert sent(node.receive("child", made, 0.0), peers.Offer)
    assert not sent(node.receive("other", made, 0.0), peers.Offer)


def test_a_child_fetches_what_it_was_offered_each_event_once() -> None:
    node = root()
    node.receive("p", message(peers.Announce(ideal_advertisement("p")), None, None), 0.0)
    event = ideal_event("p", 1, {"a": "0101"})
    node.receive("p", message(peers.Inject(event), None, None), 0.0)
    linked_child(node, now=1.0)
    fetch = message(peers.Fetch((peers.event_id(event),) * 3))
    assert len(sent(node.receive("child", fetch, 1.0), peers.Carry)) == 1
    assert not sent(node.receive("child", fetch, 1.0), peers.Carry)
    assert not sent(node.receive("stranger", fetch, 1.0), peers.Carry)


def test_a_partings_answer_is_silence() -> None:
    """Two peers that know nothing of each other do not tell each other so for ever."""
    node = root()
    assert not sent(node.receive("x", message(peers.Unlink(0), 7, 9), 1.0), peers.PeerBody.__args__)  # type: ignore[attr-defined]
    assert not sent(node.receive("x", message(peers.Decline(bytes(16)), 7, 9), 1.0), peers.PeerBody.__args__)  # type: ignore[attr-defined]


def test_records_of_peers_are_bounded_and_bans_outlive_the_crowd() -> None:
    conduct = Conduct(PeerSettings(strikes=1))
    assert conduct.strike("mallory", 0.0) is not None
    for n in range(MAX_PEERS + 10):
        conduct.may_search(f"peer {n}", f"peer {n}", 1.0)
    assert len(conduct._records) == MAX_PEERS
    assert conduct.banned("mallory", 2.0)


def test_messages_of_other_topics_and_of_oneself_are_the_callers_mistake() -> None:
    node = root()
    with pytest.raises(Misuse):
        node.receive("x", PeerMessage(b"another topic...", None, None, peers.Unknown()), 0.0)
    with pytest.raises(Misuse):
        node.receive("root", message(peers.Unknown(), None, None), 0.0)
