"""What a broker is handed that is to serve a topic: the topic's keys, and the keys that filters are sealed under."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sealcast.errors import CannotOpen, Unavailable
from sealcast.trust.admin.handle import Handle
from sealcast.trust.handles import at_hand
from sealcast.trust.keys import filter_texts
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.issuing import Issuer
from sealcast.trust.realm.changes import Change
from sealcast.trust.realm.machine import RealmState, apply_all


def service(realm: Handle, issuer: Issuer, state: RealmState, topic: str, broker: str, at_us: int) -> list[Change]:
    """Everything that a broker lacks to serve a topic."""
    keys = issuer.service(state, topic, broker, at_us)
    return [*keys, *_filter_keys(realm, apply_all(state, keys), topic, broker)]


def _filter_keys(realm: Handle, state: RealmState, topic: str, broker: str) -> Iterator[Change]:
    """As far as a broker that has them can be asked here. The others hand over what is left while they run
    (overlay/filter_keys.py): until then nobody moves to the new broker."""
    for giver in state.serving(topic):
        path = realm.paths.broker_key_of(giver)
        if giver != broker and at_hand(path):
            with suppress(CannotOpen, Unavailable):  # a key file that is somebody else's to unlock
                yield from filter_texts.handed_on(state, topic, BrokerSecrets.load(path), broker)
                return
