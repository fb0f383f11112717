"""What a broker needs to handle a batch: the gate, the table and the sealing of one version, kept while current.

A batch is pinned to a version of the registry. What is loaded for a version serves every batch that is pinned to it, in
the process that loaded it; what does not depend on the version (verified tokens, expanded keys) outlives it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Protocol, TypeVar

from sealcast.broker.gate import Gate, Unfit, bounds_of
from sealcast.broker.replay import identify
from sealcast.broker.tables import SubscriptionTable
from sealcast.model.stages import Grouped, GroupSealed
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.frames import associated_data, frame_key
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.trust.tokens.gates import gate_of
from sealcast.trust.tokens.token import VerifiedTokens, parse
from sealcast.wire.lifting import lifts
from sealcast.wire.records import RecordCodec
from sealcast.wire.sealed import SealedPiece

#: Frame keys are per publisher and boot; a boot is a client's life.
MAX_FRAME_KEYS: Final = 4_096
MAX_VERIFY_KEYS: Final = 65_536
MAX_TOKENS: Final = 4_096
#: The version of the batch at hand, and of a neighbour that is being finished.
MAX_CONTEXTS: Final = 4

T = TypeVar("T")


class Sealing(Protocol):
    """How events are sealed for their groups: all in which protections differ whose brokers match."""

    def seal(self, grouped: Grouped) -> GroupSealed: ...
    def made(self, piece: SealedPiece, data: bytes) -> None:
        """Hears of the piece that became of the last `seal`, and of its encoding, which the ledger may name."""


@dataclass(frozen=True, slots=True)
class Context:
    """One topic at one pinned version."""

    gate: Gate
    table: SubscriptionTable
    sealing: Sealing

    @property
    def version(self) -> int:
        return self.gate.state.version

    @property
    def topic(self) -> Topic:
        return self.gate.topic


def by_version(load: Callable[[int], T]) -> Callable[[int], T]:
    """What `load` makes for a version, made once while batches are pinned to it, whichever thread asks first."""
    lock, loaded = threading.Lock(), lru_cache(MAX_CONTEXTS)(load)

    def at(version: int) -> T:
        with lock:
            return loaded(version)

    return at


def gate_at(
    state: RealmState,
    topic: Topic,
    broker: BrokerSecrets,
    tokens: VerifiedTokens | None = None,
    unfit: Unfit | None = None,
) -> Gate:
    """What admission at a broker needs to know at one version; `unfit` is the word of the topic's protection on
    payloads."""
    topic_keys = cache(lambda epoch: broker.topic_keys(state, topic, epoch))

    def pair_key(name: str, epoch: int) -> Secret:
        return topic_keys(epoch).pair_key(name)

    def holds_key(epoch: int) -> bool:
        return state.topic_key(topic.name, epoch, broker.name) is not None

    return gate_with(state, topic, pair_key, holds_key, tokens, unfit)


def gate_with(
    state: RealmState,
    topic: Topic,
    pair_key: Callable[[str, int], Secret],
    holds_key: Callable[[int], bool],
    tokens: VerifiedTokens | None = None,
    unfit: Unfit | None = None,
) -> Gate:
    """The same for whoever has the keys that frames are sealed under, by publisher and epoch; `holds_key` says of
    which epochs."""

    def key_of(name: str, epoch: int, boot: bytes) -> SealingKey:
        aad = associated_data(topic.id, epoch)
        return frame_key(pair_key(name, epoch), boot, aad, topic.parameters.key_bits)

    return Gate(
        state=state,
        topic=topic,
        codec=RecordCodec(topic.schema),
        lifts=lifts(topic.schema, topic.earlier_schemas),
        tokens=gate_of(state, tokens),
        token=lru_cache(MAX_TOKENS)(parse),
        frame_key=lru_cache(MAX_FRAME_KEYS)(key_of),
        verify_key=lru_cache(MAX_VERIFY_KEYS)(lambda name: VerifyKey(state.entity(name).verify_key)),
        bounds=bounds_of(topic),
        identify=lru_cache(MAX_FRAME_KEYS)(identify),
        holds_key=holds_key,
        unfit=unfit,
    )
