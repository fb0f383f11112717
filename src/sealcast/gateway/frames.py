"""Frames over a gateway: appended where their publisher would have appended them, and acknowledged when durable.

Each frame passes the checks of `broker.intake`, and is its caller's own. One that comes again is not appended again:
its first offset is answered. Requests side by side are appended by a bounded pool, so that many of them share one sync.

The receipt is the gateway's word that these frames are durable at these offsets:

    Ed25519 over  label | CBOR [realm id, topic id, broker, partition, [[offset, SHA-256 of the frame], ...]]

It does not make them so. A publisher compares it with the ledger later, and whoever lost a frame that it signed for is
convicted by it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, TypeVar

from sealcast.broker.intake import NotAppended, RecentFrames, digest_of
from sealcast.errors import Busy, Misuse
from sealcast.gateway import access
from sealcast.gateway.asked import ApiCall, CborAnswer
from sealcast.gateway.problems import Refusal
from sealcast.log.closing import Closing
from sealcast.log.embedded import Moved
from sealcast.log.forwarded import BrokerTopic, partition_of
from sealcast.log.ledger import LedgerReader
from sealcast.trust.handles import OpenRealm
from sealcast.trust.realm.state import Carried, RealmState
from sealcast.wire import cbor

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

T = TypeVar("T")

RECEIPT_LABEL: Final = b"sealcast/1 gateway receipt\0"


class FrameLogs(Closing):
    """The logs that frames are appended to, each opened when it is first asked for. For many threads."""

    def __init__(self, realm: OpenRealm, max_waiting: int) -> None:
        self._realm, self._max_waiting = realm, max_waiting
        self._guard = threading.Lock()
        self._topics: dict[tuple[str, str], AppendedTopic] = {}

    def at(self, state: RealmState, topic: str, broker: str) -> AppendedTopic:
        """A topic at one broker. Brokers that came since it was opened have blocks of their own in it."""
        brokers, each = len(state.brokers()), state.topic(topic).partitions
        with self._guard:
            found = self._topics.get((topic, broker))
            place = state.carried.get((topic, broker))
            if found is not None and found.place != place:  # it was moved; what waits in it was, too
                self._topics.pop((topic, broker)).close()
                found = None
            if found is None or found.log.partitions < each * brokers:
                log = self._realm.carriers.frames(state, topic, broker)
                if found is not None:
                    log.close()  # opening it has made the new blocks, which the open one sees
                    return found
                ledger = LedgerReader(self._realm.carriers.journal(state, topic, broker))
                found = AppendedTopic(log, ledger, self._max_waiting, place)
                self._topics[topic, broker] = found
            return found

    def where_it_is(self, state: RealmState, topic: str, broker: str, work: Callable[[AppendedTopic], T]) -> T:
        """Does something with a topic at one broker. If it was moved since the gateway saw the registry, then where the
        newest version says; Moved while it is on its way."""
        try:
            return work(self.at(state, topic, broker))
        except Moved:
            return work(self.at(self._realm.state(), topic, broker))

    def close(self) -> None:
        with self._guard:
            while self._topics:
                self._topics.popitem()[1].close()


class AppendedTopic(Closing):
    """One topic at one broker, to be appended to."""

    def __init__(self, log: BrokerTopic, ledger: LedgerReader, max_waiting: int, place: Carried | None = None) -> None:
        self.place = place
        self.log, self._ledger, self._max_waiting = log, ledger, max_waiting
        self._guard = threading.Lock()
        #: How many records the ledger had when it was looked at, and how far its broker had taken each partition.
        self._taken: tuple[int, tuple[int, ...]] = 0, ()
        self._recent: dict[int, RecentFrames] = {}
        #: Frames that are being appended, by partition and digest.
        self._under_way: dict[tuple[int, bytes], Future[int]] = {}

    def waiting(self, partition: int) -> int:
        """Frames of a partition that no pipeline has taken yet."""
        with self._guard:
            records, end = self._ledger.end(), self.log.partition(partition).end()
            if records != self._taken[0]:
                last = self._ledger.last_span()
                self._taken = records, () if last is None else last.end.partitions
            taken = self._taken[1]
        return max(0, end - (taken[partition] if partition < len(taken) else 0))

    def span(self, partition: int) -> tuple[int, int]:
        """Where a partition begins and ends."""
        with self._guard:
            log = self.log.partition(partition)
        return log.start(), log.end()

    def append(self, partition: int, frames: Sequence[bytes]) -> list[int]:
        """Their offsets, durable on return; that of its first coming for one that came before."""
        if self.waiting(partition) >= self._max_waiting:
            raise Busy("too many frames wait for the broker", hint="try again later; is it running? sealcast run")
        digests = [digest_of(data) for data in frames]
        known, others, fresh = dict[bytes, int](), dict[bytes, Future[int]](), dict[bytes, bytes]()
        with self._guard:
            log, recent = self.log.partition(partition), self._memory(partition)
            for digest, data in zip(digests, frames, strict=True):
                place, coming = recent.place(digest), self._under_way.get((partition, digest))
                if place is not None:
                    known[digest] = place
                elif coming is not None:
                    others[digest] = coming
                else:
                    fresh[digest] = data
            mine = {digest: Future[int]() for digest in fresh}
            self._under_way.update({(partition, digest): future for digest, future in mine.items()})
        if fresh:
            try:
                offsets = log.append(list(fresh.values()))
            except BaseException as error:
                self._ended(partition, mine, error)
                raise
            known |= zip(fresh, offsets, strict=True)
            with self._guard:
                for digest, offset in zip(fresh, offsets, strict=True):
                    recent.remember(digest, offset)
            self._ended(partition, mine, None, known)
        known |= {digest: coming.result() for digest, coming in others.items()}
        return [known[digest] for digest in digests]

    def close(self) -> None:
        self._ledger.close()
        self.log.close()

    def _memory(self, partition: int) -> RecentFrames:
        if partition not in self._recent:
            self._recent[partition] = RecentFrames()
            self._recent[partition].learn(self.log.partition(partition))
        return self._recent[partition]

    def _ended(
        self,
        partition: int,
        mine: dict[bytes, Future[int]],
        error: BaseException | None,
        places: dict[bytes, int] | None = None,
    ) -> None:
        with self._guard:
            for digest in mine:
                del self._under_way[partition, digest]
        for digest, future in mine.items():
            if error is not None or places is None:
                future.set_exception(Busy("the same frame was being appended, and that failed", hint="try again"))
            else:
                future.set_result(places[digest])


# --- endpoints ----------------------------------------------------------------------------------------


async def append(hub: Hub, asked: ApiCall) -> CborAnswer:
    """Appends frames of the caller; answers when they are durable."""
    state, (topic, broker) = hub.newest.seen.state, _named(asked)
    about = hub.topic_at(state, topic, broker)
    if about.protection.peers:
        raise Misuse(f"topic {topic!r} has no broker: its publishers' peers carry the events")
    partition, frames = asked.body["partition"], asked.body["frames"]
    name = asked.caller.name

    def appended(log: AppendedTopic) -> list[int]:
        own = log.log.own[partition_of(name, about.partitions)]
        if partition != own:
            raise Misuse(f"{name!r} appends to partition {own} of topic {topic!r} at {broker!r}, not to {partition}")
        return log.append(partition, frames)

    def work() -> tuple[list[int], bytes]:
        for data in frames:
            try:
                access.be(asked.caller, hub.checks.check(state, topic, broker, data).publisher, "a frame")
            except NotAppended as error:
                raise Refusal(422, error.code, error.message, reason=error.reason) from None
        offsets = hub.frames.where_it_is(state, topic, broker, appended)
        said = [[n, hashlib.sha256(data).digest()] for n, data in zip(offsets, frames, strict=True)]
        return offsets, hub.identity.signer.sign(receipt(hub.realm.id, about.id, broker, partition, said))

    offsets, signed = await hub.workers.run(work)
    hub.metrics.frames(topic, broker, len(frames))
    return CborAnswer({"offsets": offsets, "receipt": signed})


async def look(hub: Hub, asked: ApiCall) -> CborAnswer:
    """How far a log of frames goes."""
    state, (topic, broker) = hub.newest.seen.state, _named(asked)
    hub.topic_at(state, topic, broker)
    access.look_at_frames(state, asked.caller, topic)
    partition = asked.query["partition"]

    def far(found: AppendedTopic) -> dict[str, object]:
        if not isinstance(partition, int):
            return {"own": [found.log.own.start, found.log.own.stop], "partitions": found.log.partitions}
        start, end = found.span(partition)
        return {"start": start, "end": end, "waiting": found.waiting(partition)}

    return CborAnswer(await hub.workers.run(lambda: hub.frames.where_it_is(state, topic, broker, far)))


def receipt(realm: bytes, topic: bytes, broker: str, partition: int, said: list[list[object]]) -> bytes:
    """What a gateway signs when frames are durable."""
    return RECEIPT_LABEL + cbor.encode([realm, topic, broker, partition, said])


def _named(asked: ApiCall) -> tuple[str, str]:
    return asked.path["topic"], asked.path["broker"]
