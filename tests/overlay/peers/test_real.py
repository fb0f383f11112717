"""Some tens of peers with the real scheme: the protocol needs nothing that only ideal credentials have."""

from __future__ import annotations

import random

import pytest

from sealcast.errors import Rejected
from sealcast.lab.tariq.ideal import Meter
from sealcast.lab.tariq.real import RealTopic
from sealcast.lab.tariq.simulate import Simulation
from sealcast.lab.tariq.workloads import Workload
from sealcast.overlay.peers.port import Dissemination, PeerSettings
from sealcast.primitives.pairing import available, named
from sealcast.protections.attribute.scheme import AttributeRejected, Profile, TagKind
from sealcast.wire import cbor
from sealcast.wire.peers import event_id

ATTRIBUTES = ("a", "b")
DEPTH = 4


def crowd(topic: RealTopic, dissemination: Dissemination, peers: int, seed: int) -> tuple[Simulation, list[str]]:
    settings = PeerSettings(dissemination=dissemination, children=3, root_children=4)
    net = Simulation(seed, settings=settings, wire=True, make=topic.credentials)
    for name in ("root0", "root1"):
        net.add(name, roots=ATTRIBUTES)
        net.join(name)
    work, names = Workload(random.Random(seed), depth=DEPTH), []
    for n in range(peers):
        name = f"p{n}"
        net.subscriber(name, [work.labels(ATTRIBUTES)], 2 if dissemination is Dissemination.ROUTING else 1)
        net.at(0.5 + n * 0.5, lambda name=name: net.join(name, ["root0", "root1"]))
        names.append(name)
    net.run(peers * 0.5 + 30)
    return net, names


@pytest.mark.parametrize(
    ("dissemination", "profile", "tags"),
    [
        (Dissemination.FLOODING, Profile.A, TagKind.KEYED),
        (Dissemination.ROUTING, Profile.A, TagKind.KEYED),
        (Dissemination.ROUTING, Profile.P, TagKind.PAPER),
    ],
)
def test_peers_with_real_credentials_get_and_open_what_they_want(
    dissemination: Dissemination, profile: Profile, tags: TagKind
) -> None:
    topic = RealTopic(ATTRIBUTES, DEPTH, profile=profile, tags=tags)
    net, names = crowd(topic, dissemination, 24, seed=1)
    assert not net.homeless()
    net.check_forest()
    work, events = Workload(random.Random(2), depth=DEPTH), {}
    net.add("publisher")
    net.join("publisher")
    net.run(net.now + 1)
    for n in range(12):
        values = work.values(ATTRIBUTES)
        event = topic.event(values, payload=bytes([n]))
        events[event] = values
        net.at(net.now + n * 0.5, lambda event=event: net.publish("publisher", event))
    victim = next(name for name in names if any(view.children for view in net.peers[name].node.seats()))
    net.at(net.now + 3, lambda: net.crash(victim))
    net.run(net.now + 90)
    assert not net.homeless()
    assert not net.closed
    opened = 0
    for name in names:
        peer = net.peers[name]
        if name == victim:
            continue
        (conjunction,) = peer.credentials.conjunctions
        wanted = {
            event_id(event): event
            for event, values in events.items()
            if all(values[at].startswith(labels[0]) for at, labels in conjunction.items())
        }
        assert set(peer.delivered) == set(wanted), name
        opener = topic.opener([conjunction])
        for event in wanted.values():
            assert opener.open(topic.sealed(event)).payload == bytes([list(events).index(event)])
            opened += 1
        unwanted = next(event for event in events if event_id(event) not in wanted)
        with pytest.raises(AttributeRejected):
            opener.open(topic.sealed(unwanted))
    assert opened > 10


@pytest.mark.parametrize("library", available())
def test_a_real_request_opens_for_who_covers_it_and_for_nobody_else(library: str) -> None:
    topic = RealTopic(ATTRIBUTES, DEPTH, pairing=named(library))
    maker = topic.credentials("maker", Meter())
    maker.subscribe({"a": ("0110",)})
    ask = maker.ask(0)
    for label in ("", "0", "01", "011", "0110", "1", "00", "0111"):
        other = topic.credentials("other", Meter())
        other.subscribe({"a": (label,)})
        key = other.open_request(0, ask.request, "maker")
        assert (key is not None) == "0110".startswith(label)
        assert key is None or key == ask.key, "one key, whichever label it was"


def test_forged_and_foreign_things_are_refused() -> None:
    topic, another = RealTopic(ATTRIBUTES, DEPTH), RealTopic(ATTRIBUTES, DEPTH)
    credentials, stranger = topic.credentials("x", Meter()), another.credentials("y", Meter())
    credentials.subscribe({"a": ("0",)})
    stranger.subscribe({"a": ("01",)})
    with pytest.raises(Rejected):
        credentials.open_request(0, stranger.ask(0).request, "y")
    with pytest.raises(Rejected):
        credentials.open_request(0, b"noise", "y")
    event = topic.event({"a": "0101", "b": "0000"})
    credentials.check_event(event)
    for forged in (another.event({"a": "0101", "b": "0000"}), event[:-1], b"", cbor.encode([b"x", bytes(64)])):
        with pytest.raises(Rejected):
            credentials.check_event(forged)
