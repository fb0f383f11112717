"""What all endpoints share: the realm, its newest state, its logs as they are followed, and the gateway's own key."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from sealcast.broker.intake import FrameChecks
from sealcast.errors import CertificateRejected, Misuse, SealcastError
from sealcast.gateway import access
from sealcast.gateway.asked import ApiCall
from sealcast.gateway.callers import Caller, Callers
from sealcast.gateway.control import ControlTopics
from sealcast.gateway.feeds import Feeds
from sealcast.gateway.frames import FrameLogs
from sealcast.gateway.joining import JoinRelay
from sealcast.gateway.limits import GatewayLimits
from sealcast.gateway.mail import LEDGER, Readers, place_of
from sealcast.gateway.metrics import GatewayMetrics
from sealcast.gateway.newest import NewestRegistry
from sealcast.gateway.problems import Refusal
from sealcast.gateway.streams import FollowedLedger
from sealcast.gateway.work import Workers
from sealcast.log.closing import Closing
from sealcast.log.journal import KeptJournal
from sealcast.telemetry.logs import JsonLog
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import GatewayRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic

#: Ledgers whose pieces' readers are known, and that are prepared for followers.
_LEDGERS: Final = 256
#: How long a version that a caller names is waited for.
COME_S: Final = 5.0


class Hub(Closing):
    """One gateway at work. Made on the event loop, and used there."""

    def __init__(
        self, realm: GatewayRealm, identity: Identity, limits: GatewayLimits, log: JsonLog, document: bytes
    ) -> None:
        self.realm, self.identity, self.limits, self.log, self.document = realm, identity, limits, log, document
        self.metrics = GatewayMetrics()
        self.newest = NewestRegistry(realm, lambda message: log.write("registry", message=message))
        self.callers = Callers(self.newest, realm.clock)
        self.workers = Workers(limits.workers, limits.queued)
        self.feeds = Feeds()
        self.checks = FrameChecks()
        self.frames = FrameLogs(realm, limits.max_waiting_frames)
        self.control = ControlTopics(realm, limits.topics)
        self.joins = JoinRelay(realm, identity.name)
        #: Whether it is about to stop.
        self.leaving = False
        self._waiting = Counter[str]()
        self._readers: OrderedDict[Hashable, Readers] = OrderedDict()
        self._journals: OrderedDict[Hashable, FollowedLedger] = OrderedDict()
        self.metrics.lags(self.lags)
        self.metrics.waiting.set_function(lambda: self.feeds.followers)
        self.metrics.version.set_function(lambda: self.newest.version)

    @property
    def home(self) -> bool:
        """Whether this is the machine of a broker, and the realm is on another."""
        return not self.realm.site.here

    async def come_to(self, named: str | None) -> None:
        """Sees the version of the registry that a caller goes by before it judges the caller. On a broker's machine,
        changes come a moment later than where the realm is."""
        if self.home and named is not None and named.isascii() and named.isdigit() and len(named) < 19:
            with suppress(TimeoutError):
                async with asyncio.timeout(COME_S):
                    await self.newest.catch_up(int(named))

    def topic_at(self, state: RealmState, topic: str, broker: str) -> Topic:
        """A topic at a broker whose things are on this machine."""
        about = access.topic_at(state, topic, broker)
        access.be_here(state, broker, self.identity.name, home=self.home)
        return about

    def again(self, asked: ApiCall) -> Caller:
        """The caller, judged by the registry as it is now."""
        return self.callers.judge(asked.connection.certificate)

    @contextmanager
    def waiting(self, caller: Caller) -> Iterator[None]:
        """One of the caller's requests that may wait; Refusal when it has too many of them."""
        if self._waiting[caller.name] >= self.limits.waiting:
            raise Refusal(
                429, "busy", f"a caller waits for {self.limits.waiting} things at a time", hint="wait for less"
            )
        self._waiting[caller.name] += 1
        try:
            yield
        finally:
            self._waiting[caller.name] -= 1
            if not self._waiting[caller.name]:
                del self._waiting[caller.name]

    def readers(self, journal: KeptJournal, *, by_name: bool) -> Readers:
        """Whom the pieces of a ledger concern."""
        found = self._readers.get(journal.key)
        if found is None:
            found = self._readers[journal.key] = Readers(journal, by_name=by_name)
            while len(self._readers) > _LEDGERS:
                self._readers.popitem(last=False)
        self._readers.move_to_end(journal.key)
        return found

    async def journal(self, journal: KeptJournal, *, by_name: bool) -> FollowedLedger:
        """A ledger, prepared for those who follow it."""
        feed, found = self.feeds.of(place_of(journal, LEDGER)), self._journals.get(journal.key)
        await feed.asked(self.workers)
        if found is None or found.feed is not feed:
            made = found = self._journals[journal.key] = FollowedLedger(feed, journal, by_name=by_name)
            feed.prepare = lambda offset: made.record(offset, self.workers)
            while len(self._journals) > _LEDGERS:
                self._journals.popitem(last=False)
        self._journals.move_to_end(journal.key)
        return found

    def trouble(self) -> str | None:
        """What keeps it from serving, in a word."""
        state, trust = self.newest.seen
        if self.leaving:
            return "draining"
        if self.newest.trouble is not None:
            return "registry"
        try:
            own = state.entity(self.identity.name)
            trust.verify(own.certificate, self.realm.clock(), state.revoked, role=Role.GATEWAY, name=own.name)
        except (CertificateRejected, Misuse):
            return "certificate"
        return None

    def lags(self) -> list[tuple[str, str, int]]:
        """Frames that wait, of every topic at every broker whose log is here. For the thread that serves metrics."""
        state, found = self.newest.seen.state, list[tuple[str, str, int]]()
        for name, topic in state.topics.items():
            if topic.topic.protection.peers:
                continue
            for broker in state.serving(name):
                if self.realm.paths.topic(name, broker).frames_root.is_dir():
                    try:
                        log = self.frames.at(state, name, broker)
                        found.append((name, broker, sum(log.waiting(each) for each in log.log.own)))
                    except SealcastError as error:
                        self.log.write("metrics", message=error.message)
        return found

    def close(self) -> None:
        self.newest.close()
        self.workers.close()
        self.feeds.close()
        self.frames.close()
        self.control.close()
        self.joins.close()
        while self._readers:
            self._readers.popitem()[1].close()
