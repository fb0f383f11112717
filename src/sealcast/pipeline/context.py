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
from functools import cache, lru_cache
from typing import Final

from sealcast.log.ledger import LedgerReader
from sealcast.log.pieces import Pieces
from sealcast.pipeline.gate import Gate, bounds_of
from sealcast.pipeline.memory import KeyMemory
from sealcast.pipeline.tables import SubscriptionTable, TableCache
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.schemes.endpoint import keys
from sealcast.schemes.endpoint.broker import EndpointSealer
from sealcast.trust.broker import BrokerSecrets
from sealcast.trust.deployment import Realm
from sealcast.trust.gates import gate_of
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm import RealmState, Topic
from sealcast.trust.replay import identify
from sealcast.trust.tokens import VerifiedTokens, parse
from sealcast.wire.records import RecordCodec

#: Frame keys are per publisher and boot; a boot is a client's life.
MAX_FRAME_KEYS: Final = 4_096
MAX_VERIFY_KEYS: Final = 65_536
MAX_TOKENS: Final = 4_096
#: The version of the batch at hand, and of a neighbour that is being finished.
MAX_CONTEXTS: Final = 4


@dataclass(frozen=True, slots=True)
class TopicContext:
    """One topic at one pinned version."""

    version: int
    topic: Topic
    gate: Gate
    table: SubscriptionTable
    sealer: EndpointSealer
    planner: KeyMemory


class TopicWorker:
    """One topic in this process: what outlives a version (keys, tables, the planner's memory)."""

    def __init__(self, realm: Realm, topic: str, broker: str = FIRST_BROKER) -> None:
        self._realm = realm
        self._name = topic
        self._broker: BrokerSecrets = realm.broker(broker)
        self._tables = TableCache(realm.paths.tables(topic, broker), broker)
        journal_key = self._broker.journal_key(realm.state().topic(topic).id)
        self._ledger = LedgerReader(realm.paths.topic(topic, broker).ledger, journal_key)
        self._pieces = Pieces(realm.paths.topic(topic, broker).pieces)
        self._memories: dict[int, KeyMemory] = {}
        self._sealers: dict[int, EndpointSealer] = {}
        #: By slot. Slots are never given twice, so that a longer list says all that a shorter one did.
        self._subscribers: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._at = lru_cache(MAX_CONTEXTS)(self._load)
        self._gate = lru_cache(MAX_CONTEXTS)(self._load_gate)
        #: Which tokens were signed does not change with the version.
        self._tokens = VerifiedTokens()

    def at(self, version: int, time_us: int | None = None) -> TopicContext:
        """At a version, and at the time that a batch is pinned to; without one, for whoever has a token at all."""
        with self._lock:
            found = self._at(version)
        return found if time_us is None else replace(found, table=found.table.at(time_us))

    def gate(self, version: int) -> Gate:
        """For admission alone: no table is compiled for it."""
        with self._lock:
            return self._gate(version)

    def _load_gate(self, version: int) -> Gate:
        state = self._realm.state(version)
        self._realm.trust(state)  # the root is the one that this realm was made with
        return gate_at(state, state.topic(self._name), self._broker, self._tokens)

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


def gate_at(state: RealmState, topic: Topic, broker: BrokerSecrets, tokens: VerifiedTokens | None = None) -> Gate:
    """What admission needs to know at one version."""
    topic_keys = cache(lambda epoch: broker.topic_keys(state, topic, epoch))

    def frame_key(name: str, epoch: int, boot: bytes) -> SealingKey:
        pair = topic_keys(epoch).pair_key(name)
        return keys.frame_key(pair, boot, keys.associated_data(topic.id, epoch), topic.parameters.key_bits)

    return Gate(
        state=state,
        topic=topic,
        codec=RecordCodec(topic.schema),
        tokens=gate_of(state, tokens),
        token=lru_cache(MAX_TOKENS)(parse),
        frame_key=lru_cache(MAX_FRAME_KEYS)(frame_key),
        verify_key=lru_cache(MAX_VERIFY_KEYS)(lambda name: VerifyKey(state.entity(name).verify_key)),
        bounds=bounds_of(topic),
        identify=lru_cache(MAX_FRAME_KEYS)(identify),
    )


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


def gate(realm: str, topic: str, version: int, broker: str = FIRST_BROKER) -> Gate:
    """The gate of a batch, likewise."""
    return _worker(realm, topic, broker).gate(version)


def _worker(realm: str, topic: str, broker: str) -> TopicWorker:
    name = (os.getpid(), realm, topic, broker)
    with _workers_lock:
        worker = _workers.get(name)
        if worker is None:
            worker = _workers[name] = TopicWorker(Realm(realm), topic, broker)
    return worker
