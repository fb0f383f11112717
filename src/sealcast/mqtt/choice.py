"""Which way a client's events go, for one topic."""

from __future__ import annotations

from typing import Final

from sealcast.errors import Misuse
from sealcast.mqtt.carriers import BridgedCarrier, EventCarrier
from sealcast.mqtt.direct import DirectCarrier
from sealcast.trust.handles import EntityRealm

BRIDGE: Final = "bridge"
BROKER: Final = "broker"


def carrier_for(realm: EntityRealm, topic: str, name: str, broker: str, through: str | None) -> EventCarrier:
    """The carrier of one entity on one topic; Misuse for a way that the topic's protection does not have."""
    if through not in (None, BRIDGE, BROKER):
        raise Misuse(f"events go through a {BRIDGE!r} or a {BROKER!r}, not {through!r}")
    protection = realm.state().topic(topic).protection
    if protection.peers:
        raise Misuse(
            f"events of topic {topic!r} do not go over MQTT: its protection is {protection.name!r}, and peers carry it",
            hint="run its peers: sealcast peer run",
        )
    if through == BROKER and not protection.filters_sealed:
        raise Misuse(
            f"no MQTT broker matches events of topic {topic!r}: it is protected by {protection.name!r}",
            hint="run a bridge (sealcast mqtt bridge), or make a topic whose protection is searchable",
        )
    direct = protection.filters_sealed if through is None else through == BROKER
    return DirectCarrier(realm, topic, name, broker) if direct else BridgedCarrier(realm, topic, name, broker)
