"""Brokers hand each other the keys that filters are sealed under, where they read filters.

A broker that comes to serve a topic gets its keys from the topic's center, which does not have these. So a broker that
has them hands them over, beside its pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.handles import BrokerRealm, at_hand
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.filter_texts import handed_on, keys_in_use
from sealcast.trust.realm.changes import Change
from sealcast.trust.realm.state import RealmState


class FilterKeyHandover(Unpicklable):
    """For the brokers that run here. It looks at each version of the registry once."""

    def __init__(self, realm: BrokerRealm, brokers: Iterable[str]) -> None:
        self._realm = realm
        self._brokers = [name for name in brokers if at_hand(realm.paths.broker_key_of(name))]
        self._secrets: dict[str, BrokerSecrets] = {}
        self._looked = -1

    def once(self) -> int:
        """How many keys were handed over."""
        state = self._realm.state()
        if state.version == self._looked:
            return 0
        handed = 0
        for topic, giver, taker in self._lacking(state):

            def decide(
                newest: RealmState, topic: str = topic, giver: str = giver, taker: str = taker
            ) -> Sequence[Change]:
                if taker not in newest.serving(topic):
                    return ()
                return list(handed_on(newest, topic, self._broker(giver), taker))

            before = self._realm.registry.version()
            after = self._realm.registry.transact(decide, self._broker(giver).identity.author)
            handed += after.version - before
        self._looked = state.version
        return handed

    def _lacking(self, state: RealmState) -> Iterator[tuple[str, str, str]]:
        """(topic, one of ours that has keys, one that lacks some of them)"""
        for topic, found in state.topics.items():
            if not found.topic.protection.brokers_read or not found.filter_keys:
                continue
            serving = state.serving(topic)
            givers = [name for name in self._brokers if name in serving]
            if len(serving) < 2 or not givers:
                continue
            used = keys_in_use(found.subscriptions)
            has = {name: {key for key in used if (key, name) in found.filter_keys} for name in serving}
            for taker in serving:
                yield from ((topic, giver, taker) for giver in givers if has[giver] - has[taker])

    def _broker(self, name: str) -> BrokerSecrets:
        if name not in self._secrets:
            self._secrets[name] = self._realm.broker(name)
        return self._secrets[name]
