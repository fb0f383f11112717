"""Paho's client, with the order of events kept when a connection breaks.

When Paho is connected again it sends first what was not acknowledged. But as soon as the socket is open, whoever
publishes meanwhile comes before that, and so does a callback that publishes. Here such an event at QoS 1 waits behind
what is sent again:

    _before_connect ── behind ──> CONNACK, user's callback ── again, in order ──> what was published meanwhile ── level

What is overridden is private to Paho, so that a test of the order stands for it (`tests/mqtt/test_order.py`).
"""

from __future__ import annotations

import threading
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import MessageState, MQTTErrorCode


class OrderedClient(Client):
    """Whoever derives from it calls `fall_behind` before each connection, and `send_again` when it was accepted."""

    #: Whether something may have to be sent again first.
    _behind = True
    #: The thread that sends again.
    _again: int | None = None

    def fall_behind(self) -> None:
        with self._out_message_mutex:
            self._behind, self._again = True, None

    def send_again(self) -> None:
        """From now on this thread sends what was not acknowledged."""
        self._again = threading.get_ident()

    def _send_publish(self, mid: int, topic: bytes, payload: Any = b"", qos: int = 0, *rest: Any, **named: Any) -> Any:
        if qos and self._behind and self._again != threading.get_ident():
            return MQTTErrorCode.MQTT_ERR_NO_CONN  # it stays among the messages that are to be sent
        return super()._send_publish(mid, topic, payload, qos, *rest, **named)

    def _handle_connack(self) -> MQTTErrorCode:
        found = super()._handle_connack()
        with self._out_message_mutex:
            if self._again is not None:
                self._behind, self._again = False, None
                for message in self._out_messages.values():
                    if message.qos and message.state == MessageState.MQTT_MS_PUBLISH:
                        message.state = MessageState.MQTT_MS_QUEUED
                self._update_inflight()
        return found
