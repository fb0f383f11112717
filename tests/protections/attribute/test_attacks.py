"""Every event that no peer may take, and every frame that may not leave a publisher's log: refused for its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from sealcast import Right
from sealcast.errors import FrameRejected, Rejected
from sealcast.lab.attacks import RATES, Attack, Cast, Insider, attacks, outdated
from sealcast.lab.carried_attacks import LogNumbers, carried_attacks, stolen
from sealcast.model.rejection import Reason
from sealcast.overlay.peers.node import PeerNode
from sealcast.overlay.peers.port import Closed, Deliver, PeerSettings, Send
from sealcast.protections.attribute.arriving import ArrivalGate
from sealcast.protections.attribute.carry import refresh_here
from sealcast.protections.attribute.incoming import SubscriberPeer
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.peering.places import PeerPlaces
from sealcast.protections.attribute.scheme import requests
from sealcast.wire import frame
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.frame import Header
from sealcast.wire.peers import Announce, Carry, Inject, Offer, PeerMessage, Search, Urgency
from tests.protections.attribute.ward import TOPIC, Ward

#: What a frame tries that has no meaning for a log without budgets and templates.
OUTSIDE = {Reason.BUDGET, Reason.TEMPLATE}
#: Checks of frames that peers make no more, since no frames come to them; and those of whoever opens or keeps events.
NOT_CARRIED = {Reason.VERSION, Reason.EVENT, Reason.SEAL, Reason.REPLAY} | OUTSIDE


@pytest.fixture
def cast(ward: Ward) -> Cast:
    realm = ward.realm
    pump = Insider.of(realm, TOPIC, "pump")
    realm.revoke(TOPIC, "doctor", [Right.PUBLISH])
    reader = Insider.of(realm, TOPIC, "doctor", Right.SUBSCRIBE)
    realm.revoke(TOPIC, "mallory")
    realm.revoke_entity("pump")
    return Cast(
        publisher=Insider.of(realm, TOPIC, "monitor"),
        reader=reader,
        narrow=None,
        revoked=pump,
        stranger=Insider.without(realm, "mallory"),
        outdated=outdated(realm, TOPIC, "monitor"),
    )


def mounted(ward: Ward, cast: Cast) -> tuple[CarriedEvent, list[Attack]]:
    """An honest event for `nurse`, and what is made of it."""
    assert all(got is True for name, got in refresh_here(ward.realm, TOPIC) if name == "nurse"), "keys of the new epoch"
    ward.publish([3])
    (honest,) = ward.outgoing()
    state, clock = ward.realm.state(), ward.realm.clock()
    numbers = LogNumbers(*(state.entity_number(name) for name in ("monitor", "doctor", "pump", "mallory")))
    return honest, list(carried_attacks(state.topic(TOPIC), honest, cast, numbers, clock))


def refusal(peer: SubscriberPeer, data: bytes) -> Reason | None:
    """Why a subscriber's peer takes this not; None if it takes it."""
    try:
        found = peer.look_at([CarriedEvent.from_bytes(data)])
    except FrameRejected as error:
        return Reason(error.reason)
    assert len(found.events) + len(found.rejected) == 1
    return found.rejected[0].reason if found.rejected else None


def test_a_subscribers_peer_refuses_each_for_its_reason(ward: Ward, cast: Cast) -> None:
    honest, hostile = mounted(ward, cast)
    assert {attack.reason for attack in hostile} == set(Reason) - NOT_CARRIED
    with SubscriberPeer(ward.realm, TOPIC, "nurse") as peer:
        assert {attack.story: refusal(peer, attack.data) for attack in hostile} == {
            attack.story: attack.reason for attack in hostile
        }
        about, clock = ward.realm.state().topic(TOPIC), ward.realm.clock()
        number = ward.realm.state().entity_number("nurse")
        theft = stolen(about, honest, Insider.of(ward.realm, TOPIC, "nurse"), number, clock)
        assert refusal(peer, theft.data) is theft.reason
        peer.keep(peer.look_at([honest]))
        assert refusal(peer, honest.to_bytes()) is Reason.REPLAY
    assert ward.got("nurse") == [b"monitor 3"]


def rooted(ward: Ward, name: str = "monitor") -> PeerNode:
    """The node of a rendezvous, to which `doctor` has announced itself."""
    places = PeerPlaces(ward.realm, TOPIC, name, CredentialRing(ward.realm, TOPIC, ward.realm.identity(name)))
    places.refresh(rendezvous=True)
    node = PeerNode(places.topic_id, name, places, [name, "nurse"], settings=PeerSettings(strikes=1_000))
    node.join([], 0.0)
    return node


@pytest.mark.parametrize("body", [Inject, Carry])
def test_a_rendezvous_takes_none_of_them_from_a_publisher_or_from_another_rendezvous(
    ward: Ward, cast: Cast, body: Callable[[bytes], Inject | Carry]
) -> None:
    honest, hostile = mounted(ward, cast)
    node, topic = rooted(ward), ward.realm.state().topic(TOPIC).id
    node.receive("nurse", PeerMessage(topic, None, None, Announce(topic)), 1.0)
    for attack in hostile:
        found = node.receive("nurse", PeerMessage(topic, None, None, body(attack.data)), 1.0)
        assert not [each for each in found if isinstance(each, Deliver | Send)], attack.story
    assert node.counts["broken rules"] == len(hostile)
    node.receive("nurse", PeerMessage(topic, None, None, body(honest.to_bytes())), 1.0)
    assert node.counts["events"] == 1


def test_who_goes_on_like_this_is_cut_off(ward: Ward, cast: Cast) -> None:
    _, hostile = mounted(ward, cast)
    node, topic = rooted(ward), ward.realm.state().topic(TOPIC).id
    node._core.conduct._settings = PeerSettings(strikes=3)
    found = [
        effect
        for attack in hostile[:3]
        for effect in node.receive("nurse", PeerMessage(topic, None, None, Carry(attack.data)), 1.0)
    ]
    assert [each.peer for each in found if isinstance(each, Closed)] == ["nurse"]


def test_a_peer_that_only_reads_headers_takes_most_of_them(
    ward: Ward, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks are what stops them: without, events that nobody may send are delivered."""

    def reads(gate: ArrivalGate, event: CarriedEvent, *more: object) -> Header:
        return frame.parse_signed(event.signed).header

    monkeypatch.setattr(ArrivalGate, "check", reads)
    _, hostile = mounted(ward, cast)
    with SubscriberPeer(ward.realm, TOPIC, "nurse") as peer:
        taken = [attack.reason for attack in hostile if refusal(peer, attack.data) is None]
    assert {Reason.TOKEN, Reason.TOKEN_TIME, Reason.CENTER, Reason.TIME} <= set(taken)
    assert Reason.SCHEMA not in taken, "an event is held to the schema of its epoch once more when it is opened"


def test_frames_that_must_not_pass_do_not_leave_a_publishers_log(ward: Ward, cast: Cast) -> None:
    """Whoever writes into the log of a publisher, or is the publisher with a client of its own."""
    # Nobody counts bytes here: what would be too many elsewhere need not be made.
    about = replace(ward.realm.state().topic(TOPIC), parameters=RATES)
    frames = [each for each in attacks(about, cast, ward.realm.clock()) if each.reason not in OUTSIDE]
    for attack in frames:
        ward.publish([3])
        with ward.realm.outbox(TOPIC, "monitor") as log:
            log.partition(0).append([attack.data])
    counted = ward.carry()
    expected = Counter[str]()
    for attack in frames:
        expected[f"rejected_{attack.reason}"] += attack.events
    assert {name: count for name, count in counted.items() if name.startswith("rejected_") and count} == expected
    assert counted["admitted"] == len(frames)
    assert len(ward.got("nurse")) == len(frames)


def test_a_request_that_was_altered_is_nobodys(ward: Ward) -> None:
    node = rooted(ward)
    places = PeerPlaces(ward.realm, TOPIC, "nurse", CredentialRing(ward.realm, TOPIC, ward.realm.identity("nurse")))
    places.refresh(rendezvous=False)
    (seat, *_), (root, *_) = places.seats, node._core.seats
    request = places.ask(seat).request
    assert node._core.credentials.open_request(root, request, "nurse") is not None
    for at in range(0, len(request), max(1, len(request) // 64)):
        altered = request[:at] + bytes([request[at] ^ 1]) + request[at + 1 :]
        with suppress(Rejected):
            assert node._core.credentials.open_request(root, altered, "nurse") is None


def search_with(ward: Ward, origin: str) -> tuple[PeerNode, list[Send]]:
    """A rendezvous is sent nurse's connection request, by somebody who says that it is its own."""
    places = PeerPlaces(ward.realm, TOPIC, "nurse", CredentialRing(ward.realm, TOPIC, ward.realm.identity("nurse")))
    places.refresh(rendezvous=False)
    (seat, plan), *_ = places.seats.items()
    node = rooted(ward)
    body = Search(bytes(16), origin, seat, plan.attribute, places.ask(seat).request, Urgency.FREE, (), 0)
    found = node.receive(origin, PeerMessage(places.topic_id, None, None, body), 1.0)
    return node, [each for each in found if isinstance(each, Send) and isinstance(each.message.body, Offer)]


def test_a_copied_request_gets_no_answer_and_who_sends_it_is_to_blame(ward: Ward) -> None:
    node, offers = search_with(ward, "mallory")
    assert (offers, node.counts["broken rules"]) == ([], 1)
    node, offers = search_with(ward, "nurse")
    assert len(offers) == 1 and node.broken_rules == 0


def test_where_requests_are_nobodys_a_copied_one_tells_who_covers_it(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_to_be_signed", lambda request, origin: request.signed_part())
    _, offers = search_with(ward, "mallory")
    assert [each.to for each in offers] == ["mallory"]
