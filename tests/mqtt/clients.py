"""Paho clients that remember what they got."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from paho.mqtt.client import CallbackAPIVersion, Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PATIENCE = 60.0


class Listener:
    """One client, connected while the block lasts. A name makes a session that outlives it."""

    def __init__(
        self,
        port: int,
        user: str | None,
        *,
        version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv311,
        session: str | None = None,
    ) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.acknowledged: list[Any] = []
        self.user = user
        self._port = port
        self._v5 = version == MQTTv5
        self._session = session
        self._connected, self._subscribed = threading.Event(), threading.Event()
        self.granted: list[int] = []
        more: dict[str, Any] = {} if self._v5 else {"clean_session": session is None}
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=session or "", protocol=version, **more)
        self.client.max_inflight_messages_set(1000)
        if user is not None:
            self.client.username_pw_set(user, user[::-1])
        self.client.on_connect = lambda *_: self._connected.set()
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message
        self.client.on_publish = lambda _c, _u, _mid, reason, _p: self.acknowledged.append(reason)

    def _on_message(self, _client: Client, _user: object, found: MQTTMessage) -> None:
        self.got.append((found.topic, found.payload))

    def _on_subscribe(self, _client: Client, _user: object, _mid: int, codes: Any, _p: object) -> None:
        self.granted = [code.value for code in codes]
        self._subscribed.set()

    def __enter__(self) -> Listener:
        self._connected.clear()
        if self._v5:
            lasting = Properties(PacketTypes.CONNECT)
            lasting.SessionExpiryInterval = 0 if self._session is None else 3600
            self.client.connect("127.0.0.1", self._port, clean_start=self._session is None, properties=lasting)
        else:
            self.client.connect("127.0.0.1", self._port)
        self.client.loop_start()
        assert self._connected.wait(PATIENCE)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        thread = self.client._thread  # Paho's `loop_stop` stumbles over a thread that ends by itself meanwhile
        self.client.disconnect()
        if thread is not None:
            thread.join(PATIENCE)

    def subscribe(self, topic: str, qos: int = 0) -> Listener:
        self._subscribed.clear()
        self.client.subscribe(topic, qos)
        assert self._subscribed.wait(PATIENCE)
        return self

    def publish(self, topic: str, payloads: Iterable[bytes], qos: int = 0) -> None:
        """All of them, and until each is on its way (QoS 0) or acknowledged."""
        sent = [self.client.publish(topic, payload, qos) for payload in payloads]
        for info in sent:
            info.wait_for_publish(PATIENCE)

    def wait_for(self, count: int) -> None:
        end = time.monotonic() + PATIENCE
        while len(self.got) < count:
            assert time.monotonic() < end, f"{self.user} got {len(self.got)} of {count}"
            time.sleep(0.01)
