"""Filters that brokers read, sealed: to the brokers that serve the topic, and to their owner. Nobody else opens them.

    filter key   random; whoever states filters makes one, and hands it to each broker that serves the topic
                 (`HandFilterKey`), sealed (HPKE) to that broker and bound to realm, topic, key and broker
    owner key    = derive(filter key, "owner", subscriber)             sealed (HPKE) to the subscriber, in each row
    row key      = derive(owner key, "subscription", salt, realm, topic, subscription)       seals the filter's text

One filter key serves a transaction: many filters cost one HPKE for each broker and one for each owner. A subscriber
gets its own owner key, from which nobody else's follows. Salts are random, so that a row key seals one text, whatever
is tried again: its nonce can be constant.

A broker that serves the topic later is handed the filter keys in use by one that has them (`handed_on`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from sealcast.errors import CannotOpen, FilterRejected, NotFound
from sealcast.model.subscription import Subscription
from sealcast.primitives import hpke, kdf, kem
from sealcast.primitives.aead import NONCE_BYTES, SealingKey
from sealcast.primitives.encoding import joined
from sealcast.primitives.kem import EntityKey
from sealcast.primitives.secrets import KEY_BYTES, Secret, Unpicklable
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.changes import HandFilterKey
from sealcast.trust.realm.state import Entity, RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.wire.sealed_texts import (
    KEY_ID_BYTES,
    SALT_BYTES,
    SealedText,
    is_sealed_text,
    key_id_of,
    padded,
    unpadded,
)

#: What a sealed key is for: part of what HPKE binds, so that it opens as nothing else.
BROKER_INFO: Final = b"sealcast filter key"
OWNER_INFO: Final = b"sealcast filter owner key"
#: Names the key that a broker seals under what it notes of filters for itself: it is handed to nobody.
OWN_KEY_ID: Final = bytes(KEY_ID_BYTES)
#: In place of a subscription, where somebody asked once: of the past.
ASKED_ONCE: Final = "asked-once"
_PURPOSE: Final = b"sealcast filter text"
#: The only nonce of a row key.
_NONCE: Final = bytes(NONCE_BYTES)


def _place(state: RealmState, topic: Topic, key_id: bytes, holder: str) -> bytes:
    """Names one key of one holder."""
    realm = b"" if state.founding is None else state.founding.id
    return joined((realm, topic.id, key_id, holder.encode()))


def _row_key(owner_key: Secret, salt: bytes, place: bytes, id: str) -> SealingKey:
    secret = kdf.derive(owner_key, b"subscription", salt, place, id.encode())
    return SealingKey(secret, _PURPOSE)


# --- sealing ------------------------------------------------------------------------------------------


class FilterSealer(Unpicklable):
    """One filter key, for the filters of one topic that are stated in one go."""

    def __init__(self, state: RealmState, topic: str, key_id: bytes, key: Secret) -> None:
        self._state, self._topic = state, state.topic(topic)
        self._id, self._key = key_id, key
        self._owners: dict[str, tuple[Secret, bytes]] = {}

    @classmethod
    def fresh(cls, state: RealmState, topic: str) -> tuple[FilterSealer, list[HandFilterKey]]:
        """A new filter key, and how the brokers that serve the topic are handed it."""
        serving = state.serving(topic)
        if not serving:
            raise NotFound(
                f"no broker serves topic {topic!r}, so nobody could read a filter",
                hint=f"let one: sealcast topic serve {topic} BROKER",
            )
        sealer = cls(state, topic, os.urandom(KEY_ID_BYTES), Secret.random())
        return sealer, [sealer.handed_to(state.entity(broker)) for broker in serving]

    @classmethod
    def at_desk(
        cls, state: RealmState, topic: str, broker: BrokerSecrets
    ) -> tuple[FilterSealer, Sequence[HandFilterKey]]:
        """The newest filter key, where exactly those brokers have it that serve the topic now; otherwise a new one. So
        a desk that takes in one filter after the other hands out one key."""
        found = state.topic_state(topic).filter_keys
        for key_id, _ in list(found)[-1:]:
            serving = state.serving(topic)
            have = [name for name in state.brokers() if (key_id, name) in found]
            if have == serving and broker.name in serving:
                try:
                    return cls(state, topic, key_id, BrokerFilters(broker).filter_key(state, topic, key_id)), ()
                except CannotOpen:
                    pass  # somebody handed it something else: it seals nothing
        return cls.fresh(state, topic)

    def handed_to(self, broker: Entity) -> HandFilterKey:
        at = _place(self._state, self._topic, self._id, broker.name)
        sealed = kem.seal(broker.kem_public, self._key.reveal(), BROKER_INFO, at)
        return HandFilterKey(self._topic.name, self._id, broker.name, sealed)

    def seal(self, subscription: Subscription) -> str:
        """The filter as the registry keeps it."""
        owner_key, for_owner = self._owner(subscription.subscriber)
        salt, place = os.urandom(SALT_BYTES), _place(self._state, self._topic, self._id, subscription.subscriber)
        key = _row_key(owner_key, salt, place, subscription.id)
        sealed = key.seal(_NONCE, padded(subscription.filter))
        return SealedText(self._id, salt, for_owner, key.commitment, sealed).to_text()

    def _owner(self, name: str) -> tuple[Secret, bytes]:
        found = self._owners.get(name)
        if found is None:
            owner_key = kdf.derive(self._key, b"owner", name.encode())
            at = _place(self._state, self._topic, self._id, name)
            # Each of the owner's filters has this: a hybrid seal would make every row a kilobyte longer.
            to = kem.curve_half(self._state.entity(name).kem_public)
            sealed = hpke.seal(to, owner_key.reveal(), OWNER_INFO, at)
            found = self._owners[name] = (owner_key, sealed)
        return found


def noted(state: RealmState, topic: str, broker: BrokerSecrets, reader: str, text: str) -> str:
    """A filter that a reader asked with once, for a broker's notes: the broker opens it, and so does the reader."""
    sealer = FilterSealer(state, topic, OWN_KEY_ID, _own_key(broker, state.topic(topic)))
    return sealer.seal(Subscription(ASKED_ONCE, topic, reader, text))


def _own_key(broker: BrokerSecrets, topic: Topic) -> Secret:
    return kdf.derive(broker.tables_key(topic.id), b"notes")


def handed_on(state: RealmState, topic: str, giver: BrokerSecrets, taker: str) -> Iterator[HandFilterKey]:
    """The filter keys of live subscriptions that one broker has and the other lacks, handed to it."""
    found, filters, receiver = state.topic_state(topic), BrokerFilters(giver), state.entity(taker)
    for key_id in keys_in_use(found.subscriptions):
        if (key_id, taker) not in found.filter_keys and (key_id, giver.name) in found.filter_keys:
            try:
                key = filters.filter_key(state, topic, key_id)
            except CannotOpen:
                continue  # what this broker cannot open it cannot hand on
            yield FilterSealer(state, topic, key_id, key).handed_to(receiver)


def keys_in_use(subscriptions: Mapping[str, Subscription]) -> list[bytes]:
    """The filter keys of these subscriptions, the oldest first."""
    return list(dict.fromkeys(key_id_of(s.filter) for s in subscriptions.values() if is_sealed_text(s.filter)))


# --- opening ------------------------------------------------------------------------------------------


class FilterTexts(Protocol):
    """Opens filters with somebody's keys."""

    def text(self, state: RealmState, subscription: Subscription) -> str:
        """The filter's text; CannotOpen when it was not sealed for these keys, or altered."""


class _Opening(Unpicklable, ABC):
    """What brokers and owners have in common: they come to the owner key, each in its way."""

    def __init__(self) -> None:
        #: By what they were found with.
        self._owner_keys: dict[tuple[bytes, ...], Secret] = {}

    def text(self, state: RealmState, subscription: Subscription) -> str:
        """The filter's text. Registries of earlier releases have it as it is."""
        if not is_sealed_text(subscription.filter):
            return subscription.filter
        try:
            row = SealedText.from_text(subscription.filter)
        except FilterRejected as error:
            raise CannotOpen(error.message) from None
        owner_key = self._owner_key(state, subscription, row)
        place = _place(state, state.topic(subscription.topic), row.key_id, subscription.subscriber)
        key = _row_key(owner_key, row.salt, place, subscription.id)
        return unpadded(key.open(_NONCE, row.commitment, row.ciphertext))

    @abstractmethod
    def _owner_key(self, state: RealmState, subscription: Subscription, row: SealedText) -> Secret:
        """The key under which the owner's filters are sealed; CannotOpen where it cannot be had."""


class BrokerFilters(_Opening):
    """With the keys of a broker that serves the topic."""

    def __init__(self, broker: BrokerSecrets) -> None:
        super().__init__()
        self._name, self._kem, self._broker = broker.name, broker.identity.kem, broker
        self._filter_keys: dict[bytes, Secret] = {}

    def filter_key(self, state: RealmState, topic: str, key_id: bytes) -> Secret:
        """One that was handed to this broker. A key is handed to it once: what opened stays so."""
        if key_id == OWN_KEY_ID:
            return _own_key(self._broker, state.topic(topic))
        if key_id not in self._filter_keys:
            sealed = state.topic_state(topic).filter_keys.get((key_id, self._name))
            if sealed is None:
                raise CannotOpen(
                    f"broker {self._name!r} was not handed the key of this filter",
                    hint="a broker that has it hands it over: run it (sealcast run)",
                )
            at = _place(state, state.topic(topic), key_id, self._name)
            self._filter_keys[key_id] = _opened_key(self._kem, sealed, BROKER_INFO, at)
        return self._filter_keys[key_id]

    def _owner_key(self, state: RealmState, subscription: Subscription, row: SealedText) -> Secret:
        known = row.key_id, subscription.subscriber.encode()
        if known not in self._owner_keys:
            filter_key = self.filter_key(state, subscription.topic, row.key_id)
            self._owner_keys[known] = kdf.derive(filter_key, b"owner", known[1])
        return self._owner_keys[known]


class OwnerFilters(_Opening):
    """With the keys of their subscriber."""

    def __init__(self, identity: Identity) -> None:
        super().__init__()
        self._name, self._kem = identity.name, identity.kem

    def _owner_key(self, state: RealmState, subscription: Subscription, row: SealedText) -> Secret:
        if subscription.subscriber != self._name:
            raise CannotOpen(f"subscription {subscription.id!r} is not one of {self._name!r}")
        known = row.key_id, row.owner
        if known not in self._owner_keys:
            at = _place(state, state.topic(subscription.topic), row.key_id, self._name)
            self._owner_keys[known] = _opened_key(self._kem.curve, row.owner, OWNER_INFO, at)
        return self._owner_keys[known]


def _opened_key(own: EntityKey, sealed: bytes, info: bytes, at: bytes) -> Secret:
    opened = own.open(sealed, info, at)
    if len(opened) != KEY_BYTES:
        raise CannotOpen("what was handed over as a key of filters has the wrong size")
    return Secret(opened)
