"""What a worker needs to handle a batch: loaded where it is used, by name, and kept while it is current.

Spark ships only names: a realm's directory, a topic, a version. Keys are read from the realm's own files by the
worker that needs them, so that none is ever in a closure, a plan or a checkpoint. Everything here lives in this
module's globals, which survive from task to task (those of a closure do not).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from sealcast.broker.context import MAX_CONTEXTS, GateKeeper
from sealcast.broker.gate import Gate
from sealcast.broker.tables import SubscriptionTable, TableCache
from sealcast.log.ledger import LedgerReader
from sealcast.log.pieces import Pieces
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.memory import KeyMemory
from sealcast.protections.endpoint.sealer import EndpointSealer
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.machine import RealmState, Topic


@dataclass(frozen=True, slots=True)
class TopicContext:
    """One topic at one pinned version."""

    version: int
    topic: Topic
    gate: Gate
    table: SubscriptionTable
    sealer: EndpointSealer
    planner: KeyMemory


class TopicWorker(GateKeeper):
    """One topic in this process: what outlives a version (keys, tables, the planner's memory)."""

    def __init__(self, realm: BrokerRealm, topic: str, broker: str = FIRST_BROKER) -> None:
        super().__init__(realm, topic, broker)
        self._tables = TableCache(realm.paths.tables(topic, broker), broker)
        journal_key = self._broker.journal_key(realm.state().topic(topic).id)
        self._ledger = LedgerReader(realm.paths.topic(topic, broker).ledger, journal_key)
        self._pieces = Pieces(realm.paths.topic(topic, broker).pieces)
        self._memories: dict[int, KeyMemory] = {}
        self._sealers: dict[int, EndpointSealer] = {}
        #: By slot. Slots are never given twice, so that a longer list says all that a shorter one did.
        self._subscribers: tuple[str, ...] = ()
        self._at = lru_cache(MAX_CONTEXTS)(self._load)

    def at(self, version: int, time_us: int | None = None) -> TopicContext:
        """At a version, and at the time that a batch is pinned to; without one, for whoever has a token at all."""
        with self._lock:
            found = self._at(version)
        return found if time_us is None else replace(found, table=found.table.at(time_us))

    def _load(self, version: int) -> TopicContext:
        state = self._realm.state(version)
        topic = state.topic(self._name)
        self._subscribers = max(self._subscribers, tuple(state.slots_of(topic.name)), key=len)
        gate, sealer = self._gate(version), self._sealer(state, topic)
        return TopicContext(version, topic, gate, self._tables.at(state, topic), sealer, self._memory(topic))

    def _memory(self, topic: Topic) -> KeyMemory:
        """Keys are an epoch's: what was handed out in another is of no use in this one."""
        memory = self._memories.get(topic.epoch)
        if memory is None:
            subscribers = len(self._subscribers)
            memory = KeyMemory(self._ledger, self._pieces, topic.epoch, subscribers, topic.group_keys)
            self._memories[topic.epoch] = memory
        memory.grown_to(len(self._subscribers))
        return memory

    def _sealer(self, state: RealmState, topic: Topic) -> EndpointSealer:
        """Pair keys do not depend on the version: contexts expanded once stay warm while the realm moves on."""
        sealer = self._sealers.get(topic.epoch)
        if sealer is None:
            sealer = sealer_of(state, topic, self._broker, lambda slot: self._subscribers[slot])
            self._sealers[topic.epoch] = sealer
        return sealer


def sealer_of(state: RealmState, topic: Topic, broker: BrokerSecrets, name_of: Callable[[int], str]) -> EndpointSealer:
    """The keys of a topic's current epoch, for subscribers by slot."""
    ours, bits = broker.topic_keys(state, topic), topic.parameters.key_bits

    def pair_of_slot(slot: int) -> Secret:
        return ours.mailbox_key(name_of(slot), broker.name)

    return EndpointSealer(topic.id, topic.epoch, ours.content_root(broker.name), pair_of_slot, bits)


#: By process, too: neither SQLite's handles nor locks survive a fork.
_workers: dict[tuple[int, str, str, str], TopicWorker] = {}
_workers_lock = threading.Lock()


def context(
    realm: str, topic: str, version: int, broker: str = FIRST_BROKER, time_us: int | None = None
) -> TopicContext:
    """The context of a batch, from this process's memory if it was here before."""
    return _worker(realm, topic, broker).at(version, time_us)


def _worker(realm: str, topic: str, broker: str) -> TopicWorker:
    name = (os.getpid(), realm, topic, broker)
    with _workers_lock:
        worker = _workers.get(name)
        if worker is None:
            worker = _workers[name] = TopicWorker(BrokerRealm(realm), topic, broker)
    return worker
