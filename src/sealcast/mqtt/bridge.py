"""The bridge between an MQTT broker and the log: frames in, mail out. Any MQTT broker serves, and it reads nothing.

    publisher ── MQTT ──> sealcast/v1/T/frames ──> inbound ──> the log of a broker ──> pipeline
    subscriber <── MQTT ── sealcast/v1/T/mail/NAME <── outbound <── mailboxes <────────────┘

The bridge holds no key of anybody's. It could withhold, and repeat; it can neither read nor invent an event.

One thread works, and Paho's own thread talks to the broker. Between them are a queue of frames and one of
acknowledgements, so a slow disk never keeps the connection from answering.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import MQTTErrorCode

from sealcast.clients.publisher import MAX_WAITING
from sealcast.errors import Corrupt, Misuse, Unavailable
from sealcast.log.closing import Closing
from sealcast.mqtt import channels
from sealcast.mqtt.inbound import Arrived, Inbound
from sealcast.mqtt.link import MqttLink, pace
from sealcast.mqtt.outbound import Outbound
from sealcast.trust.handles import EntityRealm
from sealcast.trust.layout import FIRST_BROKER

#: How long the worker rests when there is nothing to do, and after trouble with a disk or the registry.
IDLE_S: Final = 0.02
TROUBLE_S: Final = 1.0
#: How long acknowledgements are waited for when the bridge stops in good order.
GOODBYE_S: Final = 5.0
#: With `once`, how long nothing must have happened before the bridge stops.
QUIET_S: Final = 1.0
#: MQTT 5's word that nobody listens on a channel.
_NO_SUBSCRIBERS: Final = 0x10


class Bridge(Closing):
    """Between one MQTT broker and the topics of one realm."""

    def __init__(
        self,
        realm: EntityRealm,
        link: MqttLink,
        topics: Iterable[str],
        *,
        broker: str = FIRST_BROKER,
        subscribers: Iterable[str] = (),
        max_waiting: int = MAX_WAITING,
        told: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Frames without a broker's name go to `broker`. Mail is sent to the `subscribers` that are named, and to
        nobody else: whoever's mail is sent reads over MQTT, and its cursor is the bridge's to move."""
        self._link, self._told = link, told
        self.topics = tuple(dict.fromkeys(topics))
        if not self.topics:
            raise Misuse("a bridge serves at least one topic")
        for topic in self.topics:
            realm.state().topic(topic)
        names = tuple(dict.fromkeys(subscribers))
        for name in names:
            realm.state().entity(name)
        self.counts: Counter[str] = Counter()
        self._inbound = Inbound(realm, self.topics, broker, max_waiting=max_waiting, counts=self.counts, told=told)
        pairs = tuple((topic, name) for topic in self.topics for name in names)
        self._outbound = Outbound(realm, pairs, counts=self.counts, told=told)
        presence = channels.presence(link.client_id)
        self._client = link.client(will=(presence, b"offline"), manual_ack=True)
        self._presence = presence
        self._generation = 0
        self._refusal: str | None = None
        self._connected, self._wake = threading.Event(), threading.Event()
        self._client.on_connect, self._client.on_disconnect = self._on_connect, self._on_disconnect
        self._client.on_message, self._client.on_publish = self._on_message, self._on_publish

    def run(self, stop: threading.Event, *, once: bool = False) -> dict[str, int]:
        """Works until it is told to stop; with `once`, until nothing is left to do. What was done, in numbers."""
        self._link.open(self._client)
        self._client.loop_start()
        try:
            quiet = time.monotonic()
            while not stop.is_set() and self._refusal is None:
                if self._turn():
                    quiet = time.monotonic()
                elif once and time.monotonic() - quiet > QUIET_S and self._idle():
                    break
            self._leave()
        finally:
            self._client.loop_stop()
        if self._refusal is not None:
            raise Unavailable(
                f"the MQTT broker at {self._link.host}:{self._link.port} refuses the bridge: {self._refusal}",
                hint="check the user name, the password or the certificate, and what the broker lets them do",
            )
        return dict(self.counts)

    def close(self) -> None:
        self._inbound.close()
        self._outbound.close()

    # --- the worker -----------------------------------------------------------------------------------

    def _turn(self) -> bool:
        """One round of both ways; whether anything happened. A disk that is full, or a registry that is being
        restarted, passes: what was not acknowledged is tried again."""
        self._wake.clear()
        try:
            busy = self._inbound.turn()
            busy |= self._outbound.turn(self._publish)
        except Corrupt:
            raise
        except Unavailable as error:
            self.counts["troubles"] += 1
            self._told(error.message)
            time.sleep(TROUBLE_S)
            return True
        if not busy:
            self._wake.wait(IDLE_S)
        return busy

    def _idle(self) -> bool:
        return self._connected.is_set() and not self._outbound.waits and not len(self._inbound)

    def _publish(self, channel: str, data: bytes) -> int | None:
        if not self._connected.is_set():
            return None
        sent = self._client.publish(channel, data, qos=1)
        if sent.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
            return None
        self.counts["messages"] += 1
        return sent.mid

    def _leave(self) -> None:
        """Appends what arrived, waits a little for what is on its way, and says goodbye."""
        deadline = time.monotonic() + GOODBYE_S
        while (len(self._inbound) or self._outbound.waits) and time.monotonic() < deadline and self._refusal is None:
            self._inbound.turn()
            self._outbound.turn(lambda channel, data: None)
            time.sleep(IDLE_S)
        if self._connected.is_set():
            self._client.publish(self._presence, b"offline", qos=1, retain=True).wait_for_publish(1.0)
        self._client.disconnect()

    # --- Paho's thread --------------------------------------------------------------------------------

    def _on_connect(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            # Paho would go on for ever. What was refused now is refused the next time: say so, and end.
            self._refusal = str(reason)
            self._wake.set()
            return
        self._generation += 1
        self.counts["connections"] += 1
        client.subscribe([(channels.all_frames(topic), 1) for topic in self.topics])
        client.publish(self._presence, b"online", qos=1, retain=True)
        self._told(f"connected to {self._link.host}:{self._link.port}" + " again" * (self._generation > 1))
        self._connected.set()

    def _on_disconnect(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._generation += 1
        self._connected.clear()
        if reason.is_failure:
            pace(client)
            self._told(f"the connection is lost ({reason}); trying again")

    def _on_message(self, client: Client, userdata: Any, message: MQTTMessage) -> None:
        generation, mid, qos = self._generation, message.mid, message.qos

        def acknowledge() -> None:
            # A number belongs to its connection. On a later one it may be another message's, which is not durable yet.
            if qos and generation == self._generation:
                client.ack(mid, qos)

        self._inbound.put(Arrived(message.topic, bytes(message.payload), acknowledge), qos)
        self._wake.set()

    def _on_publish(self, client: Client, userdata: Any, mid: int, reason: Any, properties: Any) -> None:
        self._outbound.acknowledge(mid, listened=reason.value != _NO_SUBSCRIBERS and not reason.is_failure)
        self._wake.set()
