"""The paper's protocol where it fails, and ours beside it: findings F8, F10 and F11 of the repaired scheme."""

from __future__ import annotations

import random

import pytest

from sealcast.errors import Bug
from sealcast.lab.tariq.ideal import IdealCredentials
from sealcast.lab.tariq.simulate import Simulation
from sealcast.overlay.peers import searching
from sealcast.overlay.peers.core import OFFER, proof, proves
from sealcast.overlay.peers.port import Dissemination, PeerSettings, SeatAddress
from sealcast.primitives.secrets import Secret
from sealcast.wire.peers import Urgency
from tests.overlay.peers.world import Crowd, one_tree

# --- F8 -----------------------------------------------------------------------------------------


def lost(attributes: int, dissemination: Dissemination = Dissemination.FLOODING) -> tuple[int, int]:
    crowd = Crowd(
        300,
        attributes,
        seed=8,
        settings=PeerSettings(children=8, root_children=8, dissemination=dissemination),
        split=2 if dissemination is Dissemination.ROUTING else 1,
        rendezvous=1,
        apart=0.05,
    )
    crowd.net.run(crowd.joined + 30)
    for n in range(150):
        crowd.net.at(crowd.net.now + n * 0.1, crowd.publish)
    crowd.net.run(crowd.net.now + 30)
    got, missing, wrong = crowd.deliveries(settled=0)
    assert wrong == 0
    return got, missing


@pytest.mark.parametrize("attributes", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_f8_passing_on_what_one_can_decrypt_loses_most_deliveries(
    attributes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, none = lost(attributes)
    assert ours > 50
    assert none == 0, "forward iff the own tag test succeeds on that attribute: nothing is lost"
    real = IdealCredentials.matches
    monkeypatch.setattr(
        IdealCredentials, "matches", lambda self, seat, event: real(self, seat, event) and self.wants(event)
    )
    got, missing = lost(attributes)
    assert missing / (got + missing) > 0.7, "forward iff it decrypts, as the paper says: about three quarters are lost"


def test_f8_with_one_attribute_both_rules_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IdealCredentials, "matches", lambda self, seat, event: self.wants(event))
    assert lost(1)[1] == 0


def test_f8_routing_by_tokens_loses_nothing() -> None:
    assert lost(2, Dissemination.ROUTING)[1] == 0


# --- F10 ----------------------------------------------------------------------------------------


def keys_of_slots(label: str, one_key: bool, rng: random.Random) -> dict[str, Secret]:
    """The key that a connection request hides in the slot of each label that covers its maker's."""
    same = Secret(rng.randbytes(32))
    return {label[:n]: same if one_key else Secret(rng.randbytes(32)) for n in range(len(label) + 1)}


@pytest.mark.parametrize("one_key", [False, True])
def test_f10_one_connection_key_tells_the_newcomer_nothing_about_the_acceptor(one_key: bool) -> None:
    """The newcomer made the slots: an offer under the key of one of them names the acceptor's label."""
    rng, acceptor, search = random.Random(10), SeatAddress("acceptor", 0), bytes(16)
    slots = keys_of_slots("010011", one_key, rng)
    for label in slots:
        offer = proof(slots[label], OFFER, search, acceptor)
        suspects = [each for each, key in slots.items() if proves(offer, key, OFFER, search, acceptor)]
        if one_key:
            assert suspects == list(slots), "ours: it may be any label that covers mine"
        else:
            assert suspects == [label], "the paper's: exactly this one"


def test_f10_an_offer_is_the_same_whatever_the_acceptors_label() -> None:
    """What reaches the newcomer's node depends on the acceptor's address and on nothing else about it."""
    offers = set()
    for label in ("", "0", "01", "010"):
        credentials = IdealCredentials("acceptor")
        credentials.subscribe({"a": (label,)})
        maker = IdealCredentials("newcomer")
        maker.subscribe({"a": ("0101",)})
        key = credentials.open_request(0, maker.ask(0).request, "newcomer")
        assert key is not None
        offers.add(proof(key, OFFER, bytes(16), SeatAddress("acceptor", 0)))
    assert len(offers) == 1


# --- F11 ----------------------------------------------------------------------------------------

EIGHT = [format(n, "03b") for n in range(8)]
THREE = PeerSettings(children=3, overflow=3, root_children=3, root_patience_seconds=0)


def eight_incomparable() -> Simulation:
    net = one_tree({}, settings=THREE)
    for n, label in enumerate(EIGHT):
        net.subscriber(f"p{n}", [{"a": (label,)}])
        net.at(0.1 + n * 0.1, lambda n=n: net.join(f"p{n}", ["root"]))
    return net


def test_f11_the_papers_displacement_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A displaced peer displaces the next one: eight peers that do not cover each other, three places."""
    papers = ((Urgency.FREE, True), (Urgency.DISPLACE, True))
    monkeypatch.setattr(searching, "LADDER", papers)
    monkeypatch.setattr(searching, "DISPLACED_LADDER", papers)
    net = eight_incomparable()
    before = 0
    for _ in range(5):
        net.run(net.now + 120)
        displaced = net.total("displaced")
        assert displaced > before, "still going on"
        assert net.homeless()
        before = displaced
    with pytest.raises(Bug, match="does not end"):
        net.run(1e9, most=20_000)


def test_f11_ours_ends_with_everybody_in_a_place() -> None:
    net = eight_incomparable()
    net.run(60)
    assert not net.homeless()
    displaced, searches = net.total("displaced"), net.total("searches")
    assert displaced <= 8 - 3, "one displacement for each newcomer that found no place"
    net.run(1200)
    assert (net.total("displaced"), net.total("searches")) == (displaced, searches), "nothing moves any more"
    net.check_forest()
