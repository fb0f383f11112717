"""Frames on their way between brokers: from the broker that took them in, once, to every other that has subscribers.

    origin's ledger: admitted -->  the block of its partitions in the destination's log, in order, each with its offset

**Once.** Where to go on is read from the end of the destination's own log, under its lock: a forwarder that is killed,
started twice, or whose answer was lost, appends nothing twice and leaves nothing out. **Only the origin forwards**:
what came from elsewhere is in other partitions than its own, so there is no loop, whatever brokers are connected.
**Only what was admitted** goes on (paper 004, section 4.8.3), so that a flood stops at the broker that it reaches. The
destination believes none of it: a forwarded frame passes all checks of admission again, its replay windows included, so
that a frame that was published at two brokers is delivered by each of them once.

A destination needs nothing from before its subscribers came: the link begins with the origin's first batch that was
pinned to the version at which the first of them did, or to a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from sealcast.errors import Misuse, SealcastError
from sealcast.log.closing import Closing
from sealcast.log.forwarded import BrokerTopic, ForwardedLog
from sealcast.model.bounded import bounded
from sealcast.overlay.parts import BrokerPart
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import OpenRealm
from sealcast.trust.realm.state import RealmState

#: Frames that are made durable at the destination by one sync.
BYTES_PER_TAKE: Final = 8 << 20
FRAMES_PER_TAKE: Final = 4_096


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """One broker that sends what it admits on a topic to another."""

    topic: str
    origin: str
    destination: str


def since(state: RealmState, topic: str, broker: str) -> int | None:
    """The version from which on somebody who has subscriptions is at the broker; None when nobody has."""
    there = {s.subscriber for s in state.subscriptions_at(topic, broker).values()}
    stays = (stay for name in there for stay in state.stays_of(topic, name))
    return min((stay.since for stay in stays if stay.broker == broker and stay.until is None), default=None)


def links(state: RealmState, origin: str, topics: Sequence[str] = ()) -> dict[Link, int]:
    """Where a broker forwards to, and from which version on: to brokers that serve the topic, are not revoked, and have
    live subscriptions on it. Events of a layered topic go from broker to broker by its own rules, never as frames."""
    who = state.entity(origin)
    if Role.BROKER not in who.roles:
        raise Misuse(f"entity {origin!r} is no broker")
    if who.revoked:
        return {}
    frames_go = [t for t in topics or sorted(state.topics) if not state.topic(t).protection.overlay]
    others = ((t, b) for t in frames_go for b in state.serving(t) if b != origin)
    found = {Link(topic, origin, broker): since(state, topic, broker) for topic, broker in others}
    return {link: version for link, version in found.items() if version is not None}


class Forwarder(Closing):
    """What one broker forwards, over all of its links. One process at a time does any good; two do no harm."""

    def __init__(self, realm: OpenRealm, origin: str, topics: Sequence[str] = ()) -> None:
        self._realm, self._origin, self._topics = realm, origin, tuple(topics)
        self._parts: dict[str, BrokerPart] = {}
        self._destinations: dict[Link, BrokerTopic] = {}
        #: Where each link is, by partition of the origin: only so that nothing is looked at twice.
        self._reached: dict[tuple[Link, int], int] = {}
        self._links: dict[Link, int] = {}
        self._version = -1
        #: Links that failed when they were last tried, and why. One that fails keeps no other from forwarding.
        self.failures: dict[Link, SealcastError] = {}

    def once(self) -> dict[Link, int]:
        """Forwards what there is; how many frames went over each link."""
        state = self._realm.state()
        if state.version != self._version:
            self._links, self._version = links(state, self._origin, self._topics), state.version
        sent, self.failures = dict[Link, int](), {}
        for link, version in self._links.items():
            try:
                sent[link] = self._forward(link, version)
            except SealcastError as error:
                self.failures[link] = error
        return sent

    def _forward(self, link: Link, version: int) -> int:
        part, sent = self._part(link.topic), 0
        if not part.ledger.end():
            return 0
        log = self._destination(link)
        for partition, begin in zip(part.log.own, part.starts(version), strict=True):
            destination = log.forwarded(partition)
            at = max(begin, self._reached.get((link, partition)) or destination.next_origin())
            end = part.consumed(part.ledger.end(), partition)
            if at < end:
                sent += _send(part, destination, partition, at, end)
                self._reached[link, partition] = end
        return sent

    def _part(self, topic: str) -> BrokerPart:
        if topic not in self._parts:
            self._parts[topic] = BrokerPart(self._realm, topic, self._origin)
        return self._parts[topic]

    def _destination(self, link: Link) -> BrokerTopic:
        if link not in self._destinations:
            self._destinations[link] = self._realm.frames(link.topic, link.destination)
        return self._destinations[link]

    def close(self) -> None:
        while self._parts:
            self._parts.popitem()[1].close()
        while self._destinations:
            self._destinations.popitem()[1].close()


def waiting(realm: OpenRealm, link: Link, version: int) -> int:
    """Frames that were admitted and did not go over a link yet."""
    with BrokerPart(realm, link.topic, link.origin) as part, realm.frames(link.topic, link.destination) as log:
        starts = zip(part.log.own, part.starts(version), strict=True)
        return sum(sum(1 for _ in part.admitted(p, max(b, log.forwarded(p).next_origin()))) for p, b in starts)


def needed(realm: OpenRealm, link: Link, version: int) -> dict[int, int]:
    """By partition of the origin, the first frame that was admitted and did not go over a link yet, where there is
    one."""
    with BrokerPart(realm, link.topic, link.origin) as part, realm.frames(link.topic, link.destination) as log:
        begins = {
            p: max(begin, log.forwarded(p).next_origin())
            for p, begin in zip(part.log.own, part.starts(version), strict=True)
        }
        firsts = {p: next(part.admitted(p, begin), None) for p, begin in begins.items()}
        return {p: record.offset for p, record in firsts.items() if record is not None}


def _send(part: BrokerPart, destination: ForwardedLog, partition: int, first: int, end: int) -> int:
    admitted = takewhile(lambda record: record.offset < end, part.admitted(partition, first))
    frames = ((record.offset, record.data) for record in admitted)
    batches = bounded(frames, lambda frame: len(frame[1]), BYTES_PER_TAKE, FRAMES_PER_TAKE)
    return sum(map(destination.take, batches))
