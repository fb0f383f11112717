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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from sealcast.errors import Misuse, SealcastError
from sealcast.log.closing import Closing
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.port import PartitionLog
from sealcast.model.bounded import bounded, runs
from sealcast.overlay.parts import BrokerPart
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import OpenRealm
from sealcast.trust.realm.state import RealmState
from sealcast.trust.site import TakenFrames

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
        self._logs: dict[str, BrokerTopic] = {}
        self._destinations: dict[tuple[Link, int], TakenFrames] = {}
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
        for partition, begin in zip(part.own, part.starts(version), strict=True):
            destination = self._destination(link, partition)
            at = max(begin, self._reached.get((link, partition)) or destination.next_origin())
            end = part.consumed(part.ledger.end(), partition)
            if at < end:
                sent += _send(part, self._log(link.topic), destination, partition, at, end)
                self._reached[link, partition] = end
        return sent

    def _part(self, topic: str) -> BrokerPart:
        if topic not in self._parts:
            state, site = self._realm.state(), self._realm.site.of(self._origin)
            self._parts[topic] = BrokerPart(state, site, topic, self._origin)
        return self._parts[topic]

    def _log(self, topic: str) -> BrokerTopic:
        if topic not in self._logs:
            self._logs[topic] = self._realm.frames(topic, self._origin)
        return self._logs[topic]

    def _destination(self, link: Link, partition: int) -> TakenFrames:
        if (link, partition) not in self._destinations:
            site = self._realm.site.of(self._origin)
            self._destinations[link, partition] = site.forwarded(link.topic, link.destination, partition)
        return self._destinations[link, partition]

    def close(self) -> None:
        while self._parts:
            self._parts.popitem()[1].close()
        while self._logs:
            self._logs.popitem()[1].close()


def waiting(realm: OpenRealm, link: Link, version: int) -> int:
    """Frames that were admitted and did not go over a link yet."""
    with BrokerPart(realm.state(), realm.site.of(link.origin), link.topic, link.origin) as part:
        return sum(sum(1 for _ in part.admitted(p, begin)) for p, begin in _begins(realm, link, part, version).items())


def needed(realm: OpenRealm, link: Link, version: int) -> dict[int, int]:
    """By partition of the origin, the first frame that was admitted and did not go over a link yet, where there is
    one."""
    with BrokerPart(realm.state(), realm.site.of(link.origin), link.topic, link.origin) as part:
        begins = _begins(realm, link, part, version)
        firsts = {p: next(part.admitted(p, begin), None) for p, begin in begins.items()}
        return {p: offset for p, offset in firsts.items() if offset is not None}


def _begins(realm: OpenRealm, link: Link, part: BrokerPart, version: int) -> dict[int, int]:
    """By partition of the origin, what is next on its way over a link."""
    site = realm.site.of(link.origin)
    return {
        p: max(begin, site.forwarded(link.topic, link.destination, p).next_origin())
        for p, begin in zip(part.own, part.starts(version), strict=True)
    }


def _send(part: BrokerPart, log: BrokerTopic, destination: TakenFrames, partition: int, first: int, end: int) -> int:
    frames = _frames(log.partition(partition), takewhile(lambda offset: offset < end, part.admitted(partition, first)))
    batches = bounded(frames, lambda frame: len(frame[1]), BYTES_PER_TAKE, FRAMES_PER_TAKE)
    return sum(map(destination.take, batches))


def _frames(log: PartitionLog, offsets: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Frames by their offsets, which ascend; neighbours are read together."""
    for some in runs(offsets, FRAMES_PER_TAKE):
        yield from ((record.offset, record.data) for record in log.read(some.start, some.stop))
