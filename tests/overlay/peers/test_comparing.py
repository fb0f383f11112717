"""Rendezvous that compare what they have: below whichever of them a seat stands, it gets everything or is told."""

from __future__ import annotations

import pytest

from sealcast.lab.tariq.ideal import ideal_event
from sealcast.lab.tariq.simulate import Simulation
from sealcast.overlay.peers import comparing, passing
from sealcast.overlay.peers.comparing import Comparing
from sealcast.overlay.peers.port import PeerSettings
from sealcast.overlay.peers.recent import RecentEvents
from sealcast.wire.peers import AskNews, Carry, Fetch, News, PeerMessage, event_id
from tests.overlay.peers.test_away import publish
from tests.overlay.peers.test_misbehaviour import sent
from tests.overlay.peers.world import parent

#: No history beyond what is needed, so that nothing arrives by luck.
EXACT = PeerSettings(history_seconds=0.0, root_patience_seconds=0.0, pulse_seconds=2.0, silent_seconds=6.0)


def two_roots(settings: PeerSettings = EXACT, seed: int = 7) -> Simulation:
    """Here and there, a publisher, and a subscriber that stands there."""
    net = Simulation(seed, settings=settings, wire=True)
    for name in ("here", "there"):
        net.add(name, roots=["a"])
    for name in ("here", "there"):
        net.join(name)
    net.add("publisher")
    net.join("publisher")
    net.subscriber("subscriber", [{"a": ("0",)}])
    net.join("subscriber", ["there"])
    net.run(10)
    return net


@pytest.mark.parametrize("seconds", [5.0, 10.0, 40.0, 400.0])
def test_who_stood_below_a_root_that_was_cut_off_knows_since_when(seconds: float) -> None:
    """The root's heartbeats went on, but no publisher reached it. Then it dies, before it has what it missed."""
    net = two_roots()
    assert parent(net, "subscriber") == "there"
    net.partition({"there", "subscriber"})
    events = publish(net, range(20), seconds=seconds / 20)
    net.heal()
    net.crash("there", silent=False)
    net.run(net.now + 60)
    peer = net.peers["subscriber"]
    assert parent(net, "subscriber") == "here"
    assert set(peer.delivered) == set(events)
    assert (peer.missed, peer.twice) == ([], 0)


def test_with_roots_that_say_nothing_of_that_events_are_lost_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Comparing, "behind", lambda self, now: 0.0)
    net = two_roots()
    net.partition({"there", "subscriber"})
    events = publish(net, range(20), seconds=2.0)
    net.heal()
    net.crash("there", silent=False)
    net.run(net.now + 60)
    peer = net.peers["subscriber"]
    assert set(events) - set(peer.delivered) and not peer.missed


def late_root(net: Simulation) -> list[bytes]:
    """There is one root when events are published; another begins later, and a subscriber stands below that one."""
    net.add("first", roots=["a"])
    net.join("first")
    net.add("publisher")
    net.join("publisher")
    net.run(5)
    events = publish(net, range(600), seconds=0.02)
    net.add("second", roots=["a"])
    publisher = net.peers["publisher"].node
    net._run("publisher", lambda: publisher.meet(["first", "second"], net.now))
    net.join("second")
    net.subscriber("subscriber", [{"a": ("0",)}])
    net.join("subscriber", ["second"], away=net.now)
    net.run(net.now + 30)
    assert parent(net, "subscriber") == "second"
    return events


def test_a_root_that_begins_later_gets_what_came_before_it() -> None:
    net = Simulation(3, settings=EXACT, wire=True)
    events = late_root(net)
    assert set(net.peers["subscriber"].delivered) == set(events)
    # Whoever comes later hears from it that nothing is missing
    net.subscriber("later", [{"a": ("0",)}])
    net.join("later", ["second"], away=net.now - 1)
    net.run(net.now + 30)
    assert set(net.peers["later"].delivered) == set(events) and not net.peers["later"].missed


def test_without_comparing_it_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Comparing, "ask", lambda self: None)
    net = Simulation(3, settings=EXACT, wire=True)
    late_root(net)
    assert not net.peers["subscriber"].delivered


def test_a_publisher_that_dies_leaves_no_root_without_its_events() -> None:
    net = two_roots()
    net.partition({"there", "subscriber"})
    events = publish(net, range(10))
    net.crash("publisher")
    net.heal()
    net.run(net.now + 60)
    assert parent(net, "subscriber") == "there"
    assert set(net.peers["subscriber"].delivered) == set(events)


def test_nothing_is_listed_twice_and_links_may_break_at_any_time() -> None:
    net = two_roots()
    publish(net, range(50))
    listed = list[tuple[str, bytes]]()
    fetched = list[bytes]()

    def watch(at: float, name: str, to: str, message: PeerMessage) -> None:
        if isinstance(message.body, News):
            listed.extend((name, id) for id in message.body.events)
        elif isinstance(message.body, Fetch) and message.source is None:
            fetched.extend(message.body.events)

    net.watch = watch
    net.run(net.now + 30)
    assert len(set(listed)) == len(listed)
    listed.clear()
    for step in range(40):
        net.partition({"there"} if step % 2 else ())
        publish(net, range(100 + step, 101 + step), seconds=0.3)
    net.heal()
    net.run(net.now + 30)
    assert len(net.peers["subscriber"].delivered) == 90 and fetched


def test_who_is_no_rendezvous_is_told_nothing() -> None:
    net = two_roots()
    (id,) = publish(net, range(1))
    node = net.peers["here"].node
    for body in (AskNews(0), Fetch((id,))):
        for name in ("subscriber", "publisher", "mallory"):
            assert not sent(node.receive(name, PeerMessage(bytes(16), None, None, body), net.now), News)
            assert not sent(node.receive(name, PeerMessage(bytes(16), None, None, body), net.now), Carry)
    assert sent(node.receive("there", PeerMessage(bytes(16), None, None, AskNews(0)), net.now), News)


def test_news_that_nobody_asked_for_are_not_fetched() -> None:
    net = two_roots()
    strange = PeerMessage(bytes(16), None, None, News(5, (bytes(16),), 0, 0))
    net.run(net.now + 1)
    node = net.peers["here"].node
    net.peers["there"].alive = False
    for name in ("there", "mallory"):
        assert not sent(node.receive(name, strange, net.now), Fetch)


def test_a_forged_event_among_the_news_is_refused() -> None:
    net = two_roots()
    node, forged = net.peers["here"].node, ideal_event("publisher", 9, {"a": "01"})[:-1] + b"x"
    assert not node.knows(event_id(forged))
    node.receive("there", PeerMessage(bytes(16), None, None, Carry(forged)), net.now)
    assert not node.knows(event_id(forged)) and node.counts["broken rules"] == 1


def test_a_child_fetches_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    most = list[int]()

    def watch(at: float, name: str, to: str, message: PeerMessage) -> None:
        if isinstance(message.body, Fetch):
            most.append(len(message.body.events))

    net = two_roots()
    net.crash("subscriber")
    begin = net.now
    events = publish(net, range(700), seconds=0.01)
    net.watch = watch
    net.restart("subscriber", ["there"], away=net.now - begin)
    net.run(net.now + 20)
    assert set(net.peers["subscriber"].delivered) == set(events)
    assert max(most) == passing.FETCH_EACH and len(most) >= 3


@pytest.mark.parametrize("seed", range(1, 8))
def test_those_below_a_seat_that_lost_events_are_told_too(seed: int) -> None:
    """The tree's middle was cut off for longer than its parent keeps events: the leaf below it lacks them as well."""
    settings = PeerSettings(
        children=4, root_children=1, root_overflow=1, root_patience_seconds=0, kept_events=16, history_seconds=0.0
    )
    net = Simulation(seed, settings=settings, wire=True)
    net.add("root", roots=["a"])
    net.join("root")
    net.add("publisher")
    net.join("publisher")
    for name, label in {"middle": "0", "leaf": "01"}.items():
        net.subscriber(name, [{"a": (label,)}])
        net.join(name, ["root"])
        net.run(net.now + 20)
    assert parent(net, "leaf") == "middle"
    net.partition({"middle", "leaf"})
    publish(net, range(60), seconds=0.5)
    net.heal()
    net.run(net.now + 120)
    assert not net.homeless()
    for name in ("middle", "leaf"):
        peer = net.peers[name]
        assert len(peer.delivered) < 60
        assert any(each.events >= 60 - len(peer.delivered) or each.seconds > 20 for each in peer.missed), name


def test_arrivals_are_numbered_and_listed_from_any_number_on() -> None:
    recent = RecentEvents(PeerSettings(kept_events=4), first=100)
    ids = [bytes([n]) * 16 for n in range(6)]
    for n, id in enumerate(ids):
        recent.keep(id, b"x", float(n))
    assert recent.after(100, 9) == (ids[2:], 106, 2)
    assert recent.after(103, 2) == (ids[3:5], 105, 0)
    assert recent.after(106, 9) == ([], 106, 0)
    for strange in (0, 99, 107, 2**62):
        assert recent.after(strange, 9) == (ids[2:], 106, 2), "a number of another life: from the oldest on"
    assert comparing.NEWS_EACH <= 256
