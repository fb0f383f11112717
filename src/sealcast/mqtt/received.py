"""What arrives at a client: opened, counted, and handed out once."""

from __future__ import annotations

from collections.abc import Mapping

from paho.mqtt.client import MQTTMessage

from sealcast.model.event import OpenedEvent
from sealcast.model.schema import Value


class ReceivedEvent:
    """An event that arrived, in the shape of Paho's message: `topic`, `payload`, `qos`, `retain`, `mid`, `timestamp`;
    and what Sealcast knows beyond that."""

    def __init__(self, topic: str, event: OpenedEvent, carried: MQTTMessage) -> None:
        #: The realm's topic, not MQTT's.
        self.topic = topic
        self.event = event
        self.qos, self.retain, self.mid, self.timestamp = carried.qos, carried.retain, carried.mid, carried.timestamp

    @property
    def payload(self) -> bytes:
        return self.event.payload

    @property
    def attributes(self) -> Mapping[str, Value]:
        return self.event.attributes

    @property
    def publisher(self) -> str:
        return self.event.publisher

    def __repr__(self) -> str:
        return f"ReceivedEvent(topic={self.topic!r}, publisher={self.publisher!r}, sequence={self.event.sequence})"
