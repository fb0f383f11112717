"""What waits in the logs of MQTT brokers for clients that are away, and what stolen keys open of it.

Messages there are as their publishers sealed them for readers. So the keys of a reader's epoch open all of them, and no
broker can seal them again; a log lets its oldest go beyond its size (`sealcast mqtt broker --keep-mib`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sealcast.errors import CannotOpen, Corrupt, FrameRejected
from sealcast.log.embedded import EmbeddedLog
from sealcast.mqtt.feed import entry_of
from sealcast.mqtt.messages import Message
from sealcast.protections.enveloped.client import EnvelopedSide
from sealcast.protections.port import KeysOf, client_side
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.state import RealmState


def waiting(realm: Realm, state: RealmState, topic: str) -> Iterator[Message]:
    """Every message of a topic in a log that lies here."""
    for broker in state.brokers():
        directory = realm.paths.broker(broker) / "mqtt" / "log"
        if not directory.is_dir():
            continue
        with EmbeddedLog(directory, read_only=True) as log:
            for record in log.read(log.start()):
                with suppress(Corrupt, FrameRejected):
                    entry = entry_of(record.offset, record.data)
                    if entry.topic == topic:
                        yield Message.parse(entry.data)


def opened(realm: Realm, state: RealmState, topic: str, keys_of: KeysOf) -> int:
    """How many of them a reader's keys open."""
    side = client_side(state.topic(topic).protection)
    if not isinstance(side, EnvelopedSide):
        return 0
    opener, count = side.opener_with(lambda: state, topic, keys_of), 0
    for message in waiting(realm, state, topic):
        with suppress(CannotOpen):
            opener.open_alone(message.signed, message.message)
            count += 1
    return count
