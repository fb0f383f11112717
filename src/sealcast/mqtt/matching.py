"""Which users an MQTT broker delivers a message to: sealed filters of the registry against the message's block.

The tables are those of the pipeline (`broker.tables`). Whoever has lost a right, or whose token is over, gets nothing
from the next look at the registry on: also nothing that has waited.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.tables import SubscriptionTable, TableCache
from sealcast.errors import Bug, FrameRejected
from sealcast.mqtt.messages import Message
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.searchable.search import DEFAULT_PREFILTER
from sealcast.protections.searchable.table import SealedIndex, SealedIndexes
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.state import RealmState
from sealcast.wire.searching import SealedRejected

#: How often the registry is looked at, in seconds.
LOOK_SECONDS: Final = 0.25
Users = frozenset[str]
NOBODY: Final[Users] = frozenset()


class _Table(NamedTuple):
    subscriptions: SubscriptionTable
    #: Of each subscription, whose it is.
    users: NDArray[np.object_]
    sealed: SealedIndex


class MessageMatcher(Unpicklable):
    """One broker of a realm, for all topics that it serves and whose filters are sealed. One thread looks and matches;
    what the registry said at the last look, any may ask."""

    def __init__(self, realm: BrokerRealm, broker: str, prefilter: str = DEFAULT_PREFILTER) -> None:
        self._realm, self._broker, self._secrets = realm, broker, realm.broker(broker)
        self._prefilter = prefilter
        self._caches: dict[str, TableCache] = {}
        self._tables: dict[str, _Table] = {}
        self._looked = 0.0
        self._state: RealmState = realm.state()
        #: Changes whenever the registry does: what was matched at another version is matched again.
        self.version = 1

    def look(self) -> None:
        """Goes by the newest registry; Unavailable if it cannot be asked."""
        state = self._realm.state()
        self._looked = time.monotonic()
        if state is not self._state:
            self._state, self.version = state, self.version + 1
            self._tables.clear()

    @property
    def due(self) -> bool:
        """Whether the last look was longer ago than it should be: what holds now may be something else."""
        return time.monotonic() - self._looked >= LOOK_SECONDS

    @property
    def state(self) -> RealmState:
        """The registry at the last look."""
        return self._state

    def serves(self, topic: str) -> bool:
        """Whether this broker matches events of a topic."""
        state = self._state
        return (
            topic in state.topics
            and state.topic(topic).protection.filters_sealed
            and self._broker in state.serving(topic)
        )

    def users(self, topic: str, messages: Sequence[bytes]) -> list[Users]:
        """Who gets each of these messages. One that cannot be searched goes to nobody."""
        found: list[Users] = [NOBODY] * len(messages)
        if not self.serves(topic):
            return found
        read = [(number, *one) for number, data in enumerate(messages) if (one := _read(data)) is not None]
        if not read:
            return found
        table, at = self._table(topic), self._realm.clock()
        numbers, publishers, epochs, blocks = zip(*read, strict=True)
        # Most messages come alone, and match few of many filters: what is done for each stays with those.
        rows, columns = table.sealed.pairs(publishers, epochs, blocks)
        reached = (table.subscriptions.from_us[columns] <= at) & (at < table.subscriptions.until_us[columns])
        for row, user in zip(rows[reached].tolist(), table.users[columns[reached]].tolist(), strict=True):
            found[numbers[row]] |= {user}
        may = {user for users in found for user in users if self._state.may_subscribe(topic, user, at)}
        return [users & may for users in found]

    def _table(self, topic: str) -> _Table:
        if topic not in self._tables:
            about = self._state.topic(topic)
            if topic not in self._caches:
                self._caches[topic] = TableCache(SealedIndexes(self._secrets, about, self._prefilter), self._broker)
            made = self._caches[topic].at(self._state, about)
            if not isinstance(made.index, SealedIndex):
                raise Bug(f"filters of topic {topic!r} are not sealed")
            users = np.array([self._state.subscription(id).subscriber for id in made.ids], np.object_)
            self._tables[topic] = _Table(made, users, made.index)
        return self._tables[topic]


def _read(data: bytes) -> tuple[str, int, bytes] | None:
    try:
        message = Message.parse(data)
        return message.publisher, message.epoch, message.block
    except (FrameRejected, SealedRejected):
        return None
