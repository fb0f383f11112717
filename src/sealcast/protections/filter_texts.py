"""Filters in clear, for whoever has keys that open them: their subscriber, or a broker that serves the topic.

For commands that list what somebody wants. Whoever has neither key sees that a subscription exists.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from sealcast.errors import CannotOpen, Unavailable
from sealcast.model.subscription import Subscription
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.handles import BrokerRealm, EntityRealm, OpenRealm, at_hand
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.filter_texts import BrokerFilters, FilterTexts, OwnerFilters
from sealcast.trust.keys.identity import Identity
from sealcast.wire.sealed_texts import is_sealed_text

#: How a key file says that it is somebody else's to unlock: it opens nothing here.
_LOCKED: Final = (CannotOpen, Unavailable)


class FilterTextsAtHand(Unpicklable):
    """With the keys that are on this machine, and that this handle reaches. Keys are read when a filter needs them."""

    def __init__(self, realm: OpenRealm) -> None:
        self._realm, self._state = realm, realm.state()
        self._owners: dict[str, FilterTexts | None] = {}
        self._brokers: dict[str, list[FilterTexts]] = {}

    def text(self, subscription: Subscription) -> str | None:
        """The filter's text; None where no key that is here opens it."""
        if not is_sealed_text(subscription.filter):
            return subscription.filter
        # Of many subscribers a broker opens all with one key; each of them has a file of its own.
        for filters in (*self._serving(subscription.topic), self._owner(subscription.subscriber)):
            if filters is not None:
                try:
                    return filters.text(self._state, subscription)
                except CannotOpen:
                    continue
        return None

    def _serving(self, topic: str) -> list[FilterTexts]:
        """Clients use keys of brokers only in a realm that says so."""
        if not isinstance(self._realm, BrokerRealm) or not self._realm.at_hand:
            return []
        if topic not in self._brokers:
            paths = map(self._realm.paths.broker_key_of, self._state.serving(topic))
            self._brokers[topic] = found = []
            for path in filter(at_hand, paths):
                with suppress(*_LOCKED):
                    found.append(BrokerFilters(BrokerSecrets.load(path)))
        return self._brokers[topic]

    def _owner(self, name: str) -> FilterTexts | None:
        if name not in self._owners:
            path, self._owners[name] = self._realm.paths.entity_key(name), None
            if isinstance(self._realm, EntityRealm) and at_hand(path):
                with suppress(*_LOCKED):
                    self._owners[name] = OwnerFilters(Identity.load(path, name))
        return self._owners[name]
