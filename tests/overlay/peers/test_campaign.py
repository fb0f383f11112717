"""Random small worlds with everything that can go wrong at once; a few in the daily tests, many in the long ones."""

from __future__ import annotations

import random

import pytest

from sealcast.overlay.peers.port import Dissemination, PeerSettings
from tests.effort import seeds
from tests.overlay.peers.world import Crowd

SECONDS = 60.0


def campaign(seed: int) -> Crowd:
    """Peers come, go and crash; a rendezvous dies and returns; a cable is cut and mended; events go on."""
    rng = random.Random(seed)
    dissemination = rng.choice(list(Dissemination))
    settings = PeerSettings(
        dissemination=dissemination,
        children=rng.choice([1, 2, 3, 8]),
        overflow=rng.choice([0, 1, 8]),
        root_children=rng.choice([1, 2, 8, 32]),
        root_patience_seconds=rng.choice([0.0, 0.3]),
        pulse_seconds=rng.choice([2.0, 5.0]),
    )
    crowd = Crowd(
        rng.choice([8, 25, 60]),
        rng.choice([1, 1, 2, 3]),
        seed,
        settings=settings,
        split=rng.choice([1, 2, 3]) if dissemination is Dissemination.ROUTING else 1,
        rendezvous=rng.choice([1, 2, 3]),
        hot_spots=rng.choice([0, 3]),
        apart=rng.choice([0.0, 0.02, 0.5]),
        wire=True,
    )
    net = crowd.net
    net.run(crowd.joined + 30)
    begin = net.now
    for _ in range(rng.choice([0, 5, 20])):
        net.at(begin + rng.uniform(0, SECONDS), crowd.lose_one)
        net.at(begin + rng.uniform(10, SECONDS), crowd.bring_one_back)
    if len(net.rendezvous) > 1 and rng.random() < 0.5:
        net.at(begin + rng.uniform(0, 20), lambda: net.crash("root0", silent=rng.random() < 0.5))
        if rng.random() < 0.5:
            net.at(begin + rng.uniform(30, SECONDS), lambda: net.restart("root0", ["root1"]))
    if rng.random() < 0.4:
        side = {name for name in net.peers if name not in ("publisher", "root0") and rng.random() < 0.4}
        cut = begin + rng.uniform(0, 20)
        net.at(cut, lambda: net.partition(side))
        net.at(cut + rng.uniform(2, 30), net.heal)
    for n in range(80):
        net.at(begin + n * SECONDS / 80, crowd.publish)
    for n in range(0, int(SECONDS), 5):
        net.at(begin + n, net.check_forest)
    net.run(begin + SECONDS + 240)
    return crowd


def check(crowd: Crowd, seed: int) -> None:
    net = crowd.net
    net.check_forest()
    assert not net.homeless(), seed
    _, _, wrong = crowd.deliveries(settled=0)
    assert wrong == 0, seed
    for name, lacks in crowd.lacking().items():
        # Whoever lacks something was told so itself: how many events, or for how long nobody knows.
        told = net.peers[name].missed
        assert any(each.seconds > 0 for each in told) or sum(each.events for each in told) >= lacks, (seed, name, lacks)
    assert sum(peer.twice for peer in net.peers.values()) == 0, seed
    assert not net.closed, seed
    searches, links, shared = net.total("searches"), net.counts["links"], net.shared_parents()
    apart = net.total("searches apart")
    net.run(net.now + 120)
    moved = net.counts["links"] - links
    assert net.total("searches") == searches, (seed, "still searching")
    # Who moves leaves a parent to another of its seats, so that moves come to an end. Who cannot asks ever more rarely.
    assert moved == shared - net.shared_parents(), (seed, "still moving")
    assert net.total("searches apart") - apart <= 4 * shared, (seed, "still asking")


@pytest.mark.parametrize("seed", seeds(range(6), daily=3))
def test_random_worlds(seed: int) -> None:
    check(campaign(seed), seed)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_random_worlds() -> None:
    for seed in (*range(6, 10), *range(100, 500)):
        check(campaign(seed), seed)
