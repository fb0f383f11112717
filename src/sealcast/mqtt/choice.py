"""Which way a client's events go, for one topic."""

from __future__ import annotations

from sealcast.errors import Misuse
from sealcast.mqtt.carriers import Bridged, Carrier
from sealcast.trust.handles import EntityRealm

BRIDGE, BROKER = "bridge", "broker"


def carrier_for(realm: EntityRealm, topic: str, name: str, broker: str, through: str | None) -> Carrier:
    """The carrier of one entity on one topic; Misuse for a way that the topic's protection does not have."""
    if through not in (None, BRIDGE, BROKER):
        raise Misuse(f"events go through a {BRIDGE!r} or a {BROKER!r}, not {through!r}")
    realm.state().topic(topic)
    return Bridged(realm, topic, name, broker)
