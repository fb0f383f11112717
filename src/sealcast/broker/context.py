"""What a worker needs to admit a batch: loaded where it is used, by name, and kept while it is current.

Spark ships only names: a realm's directory, a topic, a version. Keys are read from the realm's own files by the
worker that needs them, so that none is ever in a closure, a plan or a checkpoint. Everything here lives in this
module's globals, which survive from task to task (those of a closure do not).
"""

from __future__ import annotations

import os
import threading
from functools import cache, lru_cache
from typing import Final

from sealcast.broker.gate import Gate, bounds_of
from sealcast.broker.replay import identify
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.frames import associated_data, frame_key
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.trust.tokens.gates import gate_of
from sealcast.trust.tokens.token import VerifiedTokens, parse
from sealcast.wire.records import RecordCodec

#: Frame keys are per publisher and boot; a boot is a client's life.
MAX_FRAME_KEYS: Final = 4_096
MAX_VERIFY_KEYS: Final = 65_536
MAX_TOKENS: Final = 4_096
#: The version of the batch at hand, and of a neighbour that is being finished.
MAX_CONTEXTS: Final = 4


class GateKeeper:
    """The gates of one topic at one broker, in this process: one for each version that a batch is pinned to."""

    def __init__(self, realm: BrokerRealm, topic: str, broker: str = FIRST_BROKER) -> None:
        self._realm = realm
        self._name = topic
        self._broker: BrokerSecrets = realm.broker(broker)
        self._lock = threading.RLock()
        self._gate = lru_cache(MAX_CONTEXTS)(self._load_gate)
        #: Which tokens were signed does not change with the version.
        self._tokens = VerifiedTokens()

    def gate(self, version: int) -> Gate:
        """For admission alone: no table is compiled for it."""
        with self._lock:
            return self._gate(version)

    def _load_gate(self, version: int) -> Gate:
        state = self._realm.state(version)
        self._realm.trust(state)  # the root is the one that this realm was made with
        return gate_at(state, state.topic(self._name), self._broker, self._tokens)


def gate_at(state: RealmState, topic: Topic, broker: BrokerSecrets, tokens: VerifiedTokens | None = None) -> Gate:
    """What admission needs to know at one version."""
    topic_keys = cache(lambda epoch: broker.topic_keys(state, topic, epoch))

    def key_of(name: str, epoch: int, boot: bytes) -> SealingKey:
        pair = topic_keys(epoch).pair_key(name)
        return frame_key(pair, boot, associated_data(topic.id, epoch), topic.parameters.key_bits)

    return Gate(
        state=state,
        topic=topic,
        codec=RecordCodec(topic.schema),
        tokens=gate_of(state, tokens),
        token=lru_cache(MAX_TOKENS)(parse),
        frame_key=lru_cache(MAX_FRAME_KEYS)(key_of),
        verify_key=lru_cache(MAX_VERIFY_KEYS)(lambda name: VerifyKey(state.entity(name).verify_key)),
        bounds=bounds_of(topic),
        identify=lru_cache(MAX_FRAME_KEYS)(identify),
    )


#: By process, too: neither SQLite's handles nor locks survive a fork.
_keepers: dict[tuple[int, str, str, str], GateKeeper] = {}
_keepers_lock = threading.Lock()


def gate(realm: str, topic: str, version: int, broker: str = FIRST_BROKER) -> Gate:
    """The gate of a batch, from this process's memory if it was here before."""
    name = (os.getpid(), realm, topic, broker)
    with _keepers_lock:
        keeper = _keepers.get(name)
        if keeper is None:
            keeper = _keepers[name] = GateKeeper(BrokerRealm(realm), topic, broker)
    return keeper.gate(version)
