"""What a broker is handed that is to serve a topic: the topic's keys, and the keys that filters are sealed under."""

from __future__ import annotations

from contextlib import suppress

from sealcast.errors import CannotOpen, Unavailable
from sealcast.trust.admin.handle import Handle
from sealcast.trust.handles import at_hand
from sealcast.trust.keys import filter_texts
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.issuing import Issuer
from sealcast.trust.realm.changes import Change, HandFilterKey
from sealcast.trust.realm.machine import RealmState, apply_all


def service(realm: Handle, issuer: Issuer, state: RealmState, topic: str, broker: str, at_us: int) -> list[Change]:
    """Everything that a broker lacks to serve a topic."""
    keys = issuer.service(state, topic, broker, at_us)
    return [*keys, *_filter_keys(realm, apply_all(state, keys), topic, broker)]


def _filter_keys(realm: Handle, state: RealmState, topic: str, broker: str) -> list[HandFilterKey]:
    """As far as brokers that have them can be asked here. The others hand over what is left while they run
    (overlay/filter_keys.py): until then nobody moves to the new broker.

    Brokers that were revoked are asked, too, after the others. Where the only broker of a topic was compromised, nobody
    else has the keys by which the next one reads what subscribers want.
    """
    found, serving = state.topic_state(topic).filter_keys, state.serving(topic)
    holders = dict.fromkeys(name for _, name in found if name != broker)
    handed: dict[bytes, HandFilterKey] = {}
    for giver in sorted(holders, key=lambda name: name not in serving):
        path = realm.paths.broker_key_of(giver)
        if at_hand(path):
            with suppress(CannotOpen, Unavailable):  # a key file that is somebody else's to unlock
                for change in filter_texts.handed_on(state, topic, BrokerSecrets.load(path), broker):
                    handed.setdefault(change.id, change)
    return list(handed.values())
