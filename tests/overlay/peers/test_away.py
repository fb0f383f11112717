"""Peers that were away get what their parents kept, and are told what is missing."""

from __future__ import annotations

import random

import pytest

from sealcast.errors import Misuse, Unavailable
from sealcast.lab.tariq.ideal import ideal_event
from sealcast.lab.tariq.simulate import Simulation
from sealcast.overlay.peers.node import PeerNode
from sealcast.overlay.peers.port import Confirmed, PeerSettings
from sealcast.overlay.peers.recent import RecentEvents
from sealcast.wire.peers import event_id
from tests.overlay.peers.world import one_tree, parent


def world(settings: PeerSettings | None = None) -> Simulation:
    net = one_tree({"subscriber": "0"}, settings=settings)
    net.add("publisher")
    net.join("publisher")
    net.run(net.now + 1)
    return net


def publish(net: Simulation, numbers: range, seconds: float = 0.1) -> list[bytes]:
    events = [ideal_event("publisher", n, {"a": "01010101"}) for n in numbers]
    for n, event in enumerate(events):
        net.at(net.now + n * seconds, lambda event=event: net.publish("publisher", event))
    net.run(net.now + len(events) * seconds + 2)
    return [event_id(event) for event in events]


def test_a_peer_that_was_away_gets_what_came_meanwhile_and_nothing_twice() -> None:
    net = world()
    first = publish(net, range(20))
    net.crash("subscriber")
    begin = net.now
    second = publish(net, range(20, 60))
    net.restart("subscriber", ["root"], away=net.now - begin)
    net.run(net.now + 10)
    peer = net.peers["subscriber"]
    assert set(peer.delivered) == {*first, *second}
    assert (peer.twice, peer.missed) == (0, [])


def test_a_new_peer_gets_the_history_that_it_needs_to_help_others_but_no_more() -> None:
    net = world(PeerSettings(history_seconds=20))
    old = publish(net, range(10))
    net.run(net.now + 100)
    recent = publish(net, range(10, 20))
    net.subscriber("newcomer", [{"a": ("0",)}])
    net.join("newcomer", ["root"])
    net.run(net.now + 10)
    assert set(net.peers["newcomer"].delivered) == set(recent)
    assert not set(old) & set(net.peers["newcomer"].delivered)
    assert not net.peers["newcomer"].missed


def test_who_was_away_for_too_long_is_told_how_many_events_its_parent_let_go() -> None:
    net = world(PeerSettings(kept_events=16))
    net.crash("subscriber")
    begin = net.now
    events = publish(net, range(40))
    net.restart("subscriber", ["root"], away=net.now - begin)
    net.run(net.now + 10)
    peer = net.peers["subscriber"]
    assert set(peer.delivered) == set(events[-16:])
    assert [each.events for each in peer.missed] == [24]


def test_who_was_away_for_longer_than_its_parent_knows_is_told_for_how_long() -> None:
    net = world()
    net.restart("subscriber", ["root"], away=500.0)
    net.run(net.now + 10)
    (missed,) = net.peers["subscriber"].missed
    assert missed.events == 0
    assert missed.seconds == pytest.approx(500 - net.now + 10, abs=2)
    assert (missed.seat, missed.attribute) == (0, "a")


def test_a_parent_that_just_came_itself_helps_an_orphan() -> None:
    """The orphan's new parent was not there when its old one died: it has the events from its own parent."""
    settings = PeerSettings(children=4, root_children=1, root_overflow=1, root_patience_seconds=0)
    net = one_tree({"old": "0", "orphan": "01"}, settings=settings)
    assert parent(net, "orphan") == "old"
    net.add("publisher")
    net.join("publisher")
    net.run(net.now + 1)
    net.crash("old")
    events = publish(net, range(100))
    net.subscriber("new", [{"a": ("0",)}])
    net.join("new", ["root"])
    events += publish(net, range(100, 300))
    net.run(net.now + 60)
    assert set(net.peers["orphan"].delivered) == set(events)
    assert not net.peers["orphan"].missed


def test_a_publisher_is_told_what_has_arrived_and_gives_again_what_has_not() -> None:
    net = Simulation(3, wire=True)
    for name in ("one", "two"):
        net.add(name, roots=["a"])
    net.join("one")
    net.add("publisher")
    net.join("publisher")
    net.subscriber("subscriber", [{"a": ("0",)}])
    net.join("subscriber", ["one"])
    net.run(5)
    net.peers["two"].alive = False
    node, confirmed = net.peers["publisher"].node, list[Confirmed]()
    real = net._effect
    net._effect = lambda name, peer, effect: (  # type: ignore[method-assign]
        confirmed.append(effect) if isinstance(effect, Confirmed) else None,
        real(name, peer, effect),
    )[1]
    events = publish(net, range(10))
    assert [each.id for each in confirmed if each.rendezvous == "one"] == events
    assert node.room("two") == net.settings.unconfirmed_events - 10
    net.restart("two", [])
    net.run(net.now + 60)
    assert [each.id for each in confirmed if each.rendezvous == "two"] == events
    assert node.room("two") == net.settings.unconfirmed_events
    assert len(net.peers["subscriber"].delivered) == 10


def test_a_publisher_waits_for_a_rendezvous_that_does_not_answer() -> None:
    from sealcast.lab.tariq.ideal import IdealCredentials

    settings = PeerSettings(unconfirmed_events=2)
    node = PeerNode(bytes(16), "p", IdealCredentials("p"), ["r"], settings=settings, rng=random.Random(1))
    for n in range(2):
        node.publish(ideal_event("p", n, {}), 0.0)
    assert node.room("r") == 0
    with pytest.raises(Unavailable, match="not confirmed"):
        node.publish(ideal_event("p", 2, {}), 0.0)


# --- what is remembered is bounded ----------------------------------------------------------------


def event(n: int, size: int = 10) -> tuple[bytes, bytes]:
    body = n.to_bytes(size, "big")
    return event_id(body), body


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (PeerSettings(kept_events=5), 5),
        (PeerSettings(kept_bytes=70), 7),
        (PeerSettings(kept_seconds=3), 4),
    ],
)
def test_events_are_kept_up_to_a_number_a_size_and_an_age(settings: PeerSettings, kept: int) -> None:
    recent = RecentEvents(settings)
    for n in range(20):
        recent.keep(*event(n), float(n))
    assert [body for _, body in recent.since(0.0)] == [event(n)[1] for n in range(19, 19 - kept, -1)]
    assert recent.lost_since(0.0) == 20 - kept
    assert recent.lost_since(float(20 - kept)) == 0
    assert recent.get(event(0)[0]) is None
    assert recent.get(event(19)[0]) == event(19)[1]


def test_ids_are_remembered_up_to_a_number() -> None:
    recent = RecentEvents(PeerSettings(seen_events=3))
    for n in range(5):
        recent.add_seen(event(n)[0])
    assert [recent.seen(event(n)[0]) for n in range(5)] == [False, False, True, True, True]


@pytest.mark.parametrize("settings", [{"children": 0}, {"kept_events": 5_000}, {"strikes": 0}, {"pulse_seconds": 10.0}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(Misuse):
        PeerSettings(**settings)  # type: ignore[arg-type]


def test_a_node_needs_a_rendezvous() -> None:
    from sealcast.lab.tariq.ideal import IdealCredentials

    with pytest.raises(Misuse):
        PeerNode(bytes(16), "p", IdealCredentials("p"), [])
