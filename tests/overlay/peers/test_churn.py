"""Many peers that come, go, crash and are cut off: every wanted event arrives once, and the trees stay trees."""

from __future__ import annotations

import pytest

from sealcast.overlay.peers.port import Dissemination, PeerSettings
from tests.overlay.peers.world import Crowd


def settings(dissemination: Dissemination) -> PeerSettings:
    return PeerSettings(dissemination=dissemination, children=8, root_children=32)


def churn(crowd: Crowd, *, changes: int, events: int, seconds: float = 60.0) -> None:
    """Peers come and go while events are published; then there is time to heal."""
    net, rng = crowd.net, crowd.rng
    net.run(crowd.joined + 15)
    begin = net.now
    for _ in range(changes):
        net.at(begin + rng.uniform(0, seconds), crowd.lose_one)
        net.at(begin + rng.uniform(seconds / 4, seconds), crowd.bring_one_back)
    for n in range(events):
        net.at(begin + n * seconds / events, crowd.publish)
    for n in range(0, int(seconds), 2):
        net.at(begin + n, net.check_forest)
    net.run(begin + seconds + 80)


def check(crowd: Crowd, *, least: int) -> None:
    net = crowd.net
    net.check_forest()
    assert not net.homeless()
    got, missing, wrong = crowd.deliveries(settled=0)
    assert (missing, wrong) == (0, 0)
    assert got >= least
    assert sum(peer.twice for peer in net.peers.values()) == 0
    assert not net.closed, "honest peers are never cut off"
    # No livelock: after healing nobody searches and nobody moves.
    before = (net.total("searches"), net.counts["links"], net.messages["Search"])
    net.run(net.now + 60)
    assert (net.total("searches"), net.counts["links"], net.messages["Search"]) == before


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("peers", "changes", "least"), [(384, 56, 900), pytest.param(2_048, 300, 5_000, marks=pytest.mark.soak)]
)
def test_many_peers_with_churn(peers: int, changes: int, least: int) -> None:
    crowd = Crowd(peers, 1, seed=1, settings=settings(Dissemination.FLOODING))
    churn(crowd, changes=changes, events=50, seconds=50)
    check(crowd, least=least)


@pytest.mark.parametrize("dissemination", Dissemination)
@pytest.mark.parametrize(
    ("hot_spots", "peers"), [(0, 70), *(pytest.param(each, 200, marks=pytest.mark.soak) for each in (0, 4))]
)
def test_two_attributes_with_churn(dissemination: Dissemination, hot_spots: int, peers: int) -> None:
    split = 2 if dissemination is Dissemination.ROUTING else 1
    crowd = Crowd(peers, 2, seed=2, settings=settings(dissemination), split=split, hot_spots=hot_spots, wire=True)
    churn(crowd, changes=peers * 3 // 10, events=120)
    check(crowd, least=peers // 2)


@pytest.mark.parametrize("seed", range(3, 7))
def test_a_rendezvous_dies_without_a_word(seed: int) -> None:
    crowd = Crowd(150, 1, seed=seed, settings=settings(Dissemination.FLOODING))
    net = crowd.net
    net.at(crowd.joined + 25, lambda: net.crash("root0"))
    net.at(crowd.joined + 60, lambda: net.restart("root0", ["root1"]))
    net.at(crowd.joined + 65, lambda: net.crash("root1", silent=False))
    churn(crowd, changes=20, events=120)
    check(crowd, least=1_000)


def test_a_cable_is_cut_and_mended() -> None:
    """Both sides have a rendezvous, so that each goes on; the publisher is on one of them."""
    crowd = Crowd(150, 1, seed=9, settings=settings(Dissemination.FLOODING), rendezvous=2)
    net = crowd.net
    net.run(crowd.joined + 15)
    side = {"root1", *(name for number, name in enumerate(crowd.names) if number % 3 == 0)}
    begin = net.now
    net.at(begin + 5, lambda: net.partition(side))
    net.at(begin + 45, net.heal)
    for n in range(120):
        net.at(begin + n * 0.5, crowd.publish)
    net.run(begin + 200)
    check(crowd, least=1_000)
    assert all(not peer.missed for peer in net.peers.values())


def test_without_its_only_rendezvous_nobody_despairs() -> None:
    """Peers ask ever more rarely while nobody answers, and are back soon after somebody does."""
    crowd = Crowd(60, 1, seed=11, settings=settings(Dissemination.FLOODING), rendezvous=1)
    net = crowd.net
    net.run(crowd.joined + 15)
    net.crash("root0")
    net.run(net.now + 120)
    assert net.homeless()
    before, hour = net.messages["Search"], 3_600
    net.run(net.now + hour)
    assert net.messages["Search"] - before < 60 * hour / 10, "at most a search in ten seconds for each"
    net.restart("root0", [])
    net.run(net.now + 180)
    assert not net.homeless()
