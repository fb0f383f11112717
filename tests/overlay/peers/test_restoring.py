"""A node that is started anew: it takes back what it kept, and goes by whoever runs the roots now."""

from __future__ import annotations

import random

import pytest

from sealcast.errors import Misuse
from sealcast.lab.tariq.ideal import ideal_event
from sealcast.overlay.peers.node import PeerNode
from sealcast.overlay.peers.port import Confirmed, Deliver, PeerSettings, Send
from sealcast.wire.peers import Announce, Inject, PeerMessage, Taken, event_id
from tests.overlay.peers.world import one_tree

EVENTS = [ideal_event("publisher", number, {"a": "0101"}) for number in range(5)]


def rooted() -> PeerNode:
    """The node of a root, which had been told nothing yet."""
    net = one_tree({}, settings=PeerSettings())
    made = net.peers["root"].node
    return PeerNode(
        made._core.topic, "root", made._core.credentials, ["root"], settings=PeerSettings(), rng=random.Random(1)
    )


def test_what_was_kept_is_known_and_still_held() -> None:
    node = rooted()
    node.restore([(100.0, EVENTS[0]), (5.0, EVENTS[1])], 1_000.0, complete=3_600.0)
    node.join([], 1_000.0)
    assert all(node.knows(event_id(event)) and node.holds(event_id(event)) for event in EVENTS[:2])
    assert not node.knows(event_id(EVENTS[2]))
    # It was handled in the node's former life: it is not delivered, and not passed on, again.
    effects = node.publish(EVENTS[0], 1_001.0)
    assert [type(effect) for effect in effects if isinstance(effect, Deliver)] == []
    assert node.behind(1_001.0) == 0.0, "a root has whatever it confirmed"
    (seat,) = node._core.seats.values()
    assert seat.complete_since == pytest.approx(1_000.0 - 3_600.0)


def test_what_is_too_old_is_let_go_when_it_is_taken_back() -> None:
    node = rooted()
    node.restore([(10_000.0, EVENTS[0]), (1.0, EVENTS[1])], 20_000.0)
    assert not node.holds(event_id(EVENTS[0])) and node.holds(event_id(EVENTS[1]))
    assert node.knows(event_id(EVENTS[0])), "and is recognised all the same"


def sent(effects: list[object], kind: type) -> list[str]:
    return [e.to for e in effects if isinstance(e, Send) and isinstance(e.message.body, kind)]


def test_others_run_the_roots_from_now_on() -> None:
    root = rooted()
    node = PeerNode(root._core.topic, "publisher", root._core.credentials, ["one", "two"], rng=random.Random(1))
    node._core.credentials = root._core.credentials
    assert sorted(sent(node._passing.advertise(b"me") or node._done(), Announce)) == ["one", "two"]
    assert sent(node.publish(EVENTS[0], 1.0), Inject) == ["one", "two"]
    effects = node.meet(["two", "three"], 2.0)
    assert sent(effects, Announce) == ["three"]
    taken = PeerMessage(root._core.topic, None, None, Taken(event_id(EVENTS[0])))
    assert [e for e in node.receive("one", taken, 3.0) if isinstance(e, Confirmed)] == [], "it is nobody's root now"
    assert [e for e in node.receive("two", taken, 3.0) if isinstance(e, Confirmed)] != []
    assert sent(node.publish(EVENTS[0], 4.0, to="three"), Inject) == ["three"]
    with pytest.raises(Misuse):
        node.meet([], 5.0)
