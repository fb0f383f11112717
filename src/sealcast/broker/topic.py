"""A topic as the data sources see it: three names that may travel in a plan, and what they stand for where they arrive.

Spark pickles readers, writers and their options into plans. So only names are ever attributes of these; keys, logs and
ledgers are opened by the process that uses them, and kept by it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from sealcast.broker.gate import bounds_of
from sealcast.broker.history import History
from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import Pieces
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.layout import FIRST_BROKER, Layout
from sealcast.trust.realm.machine import Topic
from sealcast.wire import hops, sealed

MAX_OPEN: Final = 16


@dataclass(frozen=True, slots=True)
class TopicName:
    """Where a topic is: all that a plan says of it."""

    realm: str
    topic: str
    #: Whose part of it: the broker that seals for its subscribers.
    broker: str = FIRST_BROKER

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> TopicName:
        realm, topic = (options.get(name) for name in ("realm", "topic"))
        if not realm or not topic:
            raise Misuse('name the realm\'s directory and the topic: .option("realm", ...).option("topic", ...)')
        return cls(os.path.abspath(realm), topic, options.get("broker") or FIRST_BROKER)

    def open(self) -> OpenTopic:
        """In this process: opened on first use, kept for the next."""
        return _open(self, here(self.realm))


def here(realm: str) -> tuple[int, ...]:
    """What handles on a realm are kept by: the process, because they do not survive a fork, and which realm it is,
    because its directory may be made anew."""
    mark = Layout(Path(realm)).mark
    try:
        made = mark.stat()
    except OSError:
        raise NotFound(f"{realm} is no realm (it has no {mark.name})") from None
    return os.getpid(), made.st_ino, made.st_mtime_ns


@lru_cache(MAX_OPEN)
def _open(name: TopicName, where: tuple[int, ...]) -> OpenTopic:
    return OpenTopic(name)


class OpenTopic(Unpicklable):
    """A topic of a realm with its broker's files: frame log, pieces, ledger, journal key."""

    def __init__(self, name: TopicName) -> None:
        self.name = name
        self.realm = BrokerRealm(name.realm)
        self.about: Topic = self.realm.state().topic(name.topic)
        self.paths = self.realm.paths.topic(name.topic, name.broker)
        self.pieces = Pieces(self.paths.pieces)

    @cached_property
    def journal_key(self) -> Secret:
        return self.realm.broker(self.name.broker).journal_key(self.about.id)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.paths.ledger, self.journal_key)

    @cached_property
    def frames(self) -> BrokerTopic:
        """The frame log. Publishers may not have been here yet: then it is made, empty."""
        self.realm.frames(self.name.topic, self.name.broker).close()
        return self.realm.frames(self.name.topic, self.name.broker, read_only=True)

    def history(self) -> History:
        """What the ledger says of replay."""
        parse = hops.parse if self.about.protection.overlay else sealed.parse
        return History(self.ledger, self.pieces, self.frames, bounds_of(self.about), parse)

    def committed(self) -> PinnedOffset:
        """How far the ledger says that the topic is delivered."""
        last = self.ledger.last_span()
        return last.end if last is not None else PinnedOffset.initial(self.about.partitions)

    def available(self) -> tuple[int, ...]:
        """How far the frame log goes, by partition."""
        return tuple(self.frames.partition(p).end() for p in range(self.frames.partitions))

    def prepare(self) -> None:
        """Before a run, for whoever runs the topic alone: what crashes left is repaired or removed, what they cannot
        have left is refused."""
        with self.realm.frames(self.name.topic, self.name.broker) as log:
            ends = [log.partition(number).end() for number in range(log.partitions)]
        committed, version = self.committed(), self.realm.registry.version()
        if version < committed.version:
            raise Corrupt(
                f"{self.realm.registry.address} is at version {version}, but the last batch was made under version "
                f"{committed.version}: its newest changes were lost, or an old copy was put back",
                hint="restore the newest copy: subscriptions, rights or revocations are missing from this one",
            )
        for number, (done, end) in enumerate(zip(committed.partitions, ends, strict=False)):
            if end < done:
                raise Corrupt(
                    f"{self.paths.frames(number)} has {end} frames, but the ledger has delivered {done}: "
                    "frames were removed, or an old copy was put back",
                    hint="restore the newest copy, or make a new topic: what is published here now would take the "
                    "places, and so the nonces, of other events",
                )
        self.collect_garbage(time.time_ns() // 1000)

    def collect_garbage(self, before_us: int, term: str | None = None) -> list[str]:
        """Removes pieces that were staged by batches which never came to be."""
        return self.ledger.collect(self.pieces, before_us, term)
