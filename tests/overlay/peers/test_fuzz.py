"""Any well-formed messages in any order: a node never fails, never answers without end, and never grows without end."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from sealcast.lab.tariq.ideal import IdealCredentials, ideal_advertisement, ideal_event
from sealcast.overlay.peers.contacts import MAX_CONTACTS
from sealcast.overlay.peers.node import PeerNode
from sealcast.overlay.peers.placing import MAX_COVERED
from sealcast.overlay.peers.port import Dissemination, PeerSettings, Send
from sealcast.overlay.peers.searching import MAX_FALLBACKS
from sealcast.overlay.peers.timers import STALE, Timers
from sealcast.wire import limits, peers
from sealcast.wire.peers import PeerBody, PeerMessage

TOPIC = bytes(16)
NAMES = [f"peer{n}" for n in range(12)]


def requests_of(name: str, rng: random.Random) -> bytes:
    credentials = IdealCredentials(name)
    credentials.subscribe({"a": ("01"[: rng.randint(0, 2)],)})
    return credentials.ask(0).request


def makers(rng: random.Random) -> list[Callable[[], PeerBody]]:
    """Each kind of message, with values that are often right and sometimes not."""
    searches = [rng.randbytes(16) for _ in range(6)]
    events = [ideal_event("p", n, {"a": format(n % 4, "02b")}) for n in range(40)]

    def search() -> bytes:
        return rng.choice(searches)

    def name() -> str:
        return rng.choice(NAMES)

    def ids() -> tuple[bytes, ...]:
        return tuple(peers.event_id(rng.choice(events)) for _ in range(rng.randint(0, 5)))

    def asked() -> PeerBody:
        whose = name()
        heard = tuple((f"root{n}", rng.randrange(5)) for n in range(rng.randint(0, 3)))
        made = requests_of(whose, rng) if rng.random() < 0.9 else rng.randbytes(20)
        return peers.Search(search(), whose, rng.randrange(3), rng.choice("ab"), made, rng.randrange(3), heard, 0)

    return [
        asked,
        lambda: peers.Offer(search(), rng.random() < 0.5, rng.randbytes(32)),
        lambda: peers.Accept(search(), rng.randbytes(32), b"", rng.randrange(10_000)),
        lambda: peers.Decline(search()),
        lambda: peers.Swap(search(), search(), name(), rng.randrange(3), requests_of(name(), rng)),
        lambda: peers.Replace(search(), name(), rng.randrange(3), rng.randbytes(32), b"", 0),
        lambda: peers.Pulse(
            rng.choice(["root0", "root1"]),
            rng.randrange(100),
            rng.randrange(limits.MAX_PEER_DEPTH),
            rng.choice([0, rng.randrange(9_999)]),
        ),
        lambda: peers.AskNews(rng.getrandbits(48)),
        lambda: peers.News(rng.getrandbits(48), ids(), rng.randrange(100_000), rng.randrange(3)),
        peers.Alive,
        lambda: peers.Unlink(rng.randrange(6)),
        lambda: peers.Announce(ideal_advertisement(name())),
        lambda: peers.Inject(rng.choice(events)),
        lambda: peers.Taken(peers.event_id(rng.choice(events))),
        lambda: peers.Carry(rng.choice(events)),
        lambda: peers.Inventory(ids(), rng.randrange(100_000), rng.randrange(3)),
        lambda: peers.Fetch(ids()),
        lambda: peers.Reprove(search(), requests_of(name(), rng), b""),
        peers.Unknown,
    ]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("root", [True, False])
def test_a_node_survives_anything(seed: int, root: bool) -> None:
    rng = random.Random(seed)
    settings = PeerSettings(
        dissemination=rng.choice(list(Dissemination)),
        children=2,
        overflow=1,
        root_children=2,
        root_overflow=3,
        kept_events=8,
        seen_events=16,
        seen_searches=16,
        unconfirmed_events=4,
        strikes=1 << 30,
    )
    credentials = IdealCredentials("node")
    if root:
        credentials.add_roots(["a"])
    credentials.subscribe({"a": ("0", "10")})
    node = PeerNode(TOPIC, "node", credentials, ["peer0", "node"], settings=settings, rng=random.Random(seed))
    effects = node.join(NAMES[:3], 0.0, advertisement=ideal_advertisement("node"))
    make, now, answers = makers(rng), 0.0, 0
    for _ in range(3_000):
        now += rng.expovariate(2.0)
        match rng.randrange(12):
            case 0:
                effects = node.tick(now)
            case 1:
                effects = node.down(rng.choice(NAMES), now)
            case 2:
                effects = node.renew(now)
            case _:
                seats = [None, 0, 1, 2, 3]
                body = rng.choice(make)()
                effects = node.receive(
                    rng.choice(NAMES), PeerMessage(TOPIC, rng.choice(seats), rng.choice(seats), body), now
                )
        for effect in effects:
            if isinstance(effect, Send):
                assert effect.to != "node"
                peers.encode(effect.message)
                answers += 1
        check_bounds(node, settings)
    assert answers < 3_000 * 40, "what a message causes is bounded"


def check_bounds(node: PeerNode, settings: PeerSettings) -> None:
    core = node._core
    for seat in core.seats.values():
        most = (
            settings.root_children + settings.root_overflow if seat.plan.root else settings.children + settings.overflow
        )
        assert len(seat.children) + len(seat.reservations) <= most + 1  # a swap counts twice for a moment
        assert len(seat.covered) <= MAX_COVERED
        assert len(seat.heard) <= limits.MAX_PEER_ROOTS
        assert seat.round is None or len(seat.round.fallback) <= MAX_FALLBACKS
        assert all(len(link.offered) <= settings.kept_events for link in seat.children.values())
        assert len(seat.fetching) <= limits.MAX_INVENTORY_EVENTS
        assert seat.parent not in seat.children
    assert len(core.recent._seen) <= settings.seen_events
    assert len(core.recent._kept) <= settings.kept_events
    assert len(node._placing._seen) <= settings.seen_searches
    assert len(node._searching.contacts._contacts) <= MAX_CONTACTS
    assert set(node._searching.contacts._down) <= set(node._core.rendezvous)
    assert len(core.timers._at) <= 6 * len(core.seats) + 2
    assert len(core.timers._heap) <= STALE * (6 * len(core.seats) + 3)


def test_timers_are_due_in_order_and_leave_nothing_behind() -> None:
    timers = Timers()
    for n in range(10_000):
        timers.set(("often", 0), float(n))
    timers.set(("soon", 1), 5.0)
    timers.set(("never", 2), 6.0)
    timers.cancel(("never", 2))
    assert len(timers._heap) < 40
    assert timers.next() == 5.0
    assert list(timers.due(9_998.0)) == [("soon", 1)]
    assert list(timers.due(9_999.0)) == [("often", 0)]
    assert timers.next() is None
