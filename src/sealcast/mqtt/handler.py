"""One connection of the MQTT broker: what amqtt would do with its packets, done our way (`broker`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from amqtt.adapters import StreamReaderAdapter
from amqtt.errors import AMQTTError, ProtocolHandlerError
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.mqtt.puback import PubackPacket
from amqtt.mqtt.publish import PublishPacket
from amqtt.session import INCOMING

from sealcast.errors import SealcastError
from sealcast.mqtt.live import Live
from sealcast.mqtt.messages import MAX_BYTES

if TYPE_CHECKING:
    from sealcast.mqtt.broker import MatchingBroker

#: Any packet but the first: one event at the most.
MAX_PACKET_BYTES: Final = MAX_BYTES + 1_024


class BoundedReader(StreamReaderAdapter):  # type: ignore[misc]
    """Reads what was read before, then the stream; nothing that is too long for a packet of ours."""

    def __init__(self, reader: asyncio.StreamReader, before: bytes, room: Callable[[], Awaitable[None]]) -> None:
        super().__init__(reader)
        self._before, self._room = before, room

    async def read(self, n: int = -1) -> bytes:
        if n > MAX_PACKET_BYTES:
            raise AMQTTError(f"a packet has at most {MAX_PACKET_BYTES} bytes")
        if self._before and n >= 0:
            found, self._before = self._before[:n], self._before[n:]
            return found
        await self._room()  # who publishes faster than the disk writes has to wait
        data: bytes = await super().read(n)
        return data


class ConnectionHandler(BrokerProtocolHandler):  # type: ignore[misc]
    """One connection's packets. `hub` and `live` are set before the first one is read."""

    hub: MatchingBroker
    live: Live
    delivering: asyncio.Future[None]
    #: Its client said goodbye, or the connection broke.
    gone = False

    async def _handle_qos0_message_flow(self, message: Any) -> None:
        if message.direction == INCOMING:
            self.hub.take(self.live.session, message.topic, 0, bytes(message.data))

    async def _handle_qos1_message_flow(self, message: Any) -> None:
        if message.direction != INCOMING:
            return
        durable = self.hub.take(self.live.session, message.topic, 1, bytes(message.data))
        if durable is not None:
            try:
                await durable
            except SealcastError as error:
                self.hub.told(f"an event was not stored, and is not acknowledged: {error.message}")
                await self.handle_connection_closed()  # its publisher sends it again
                return
        await self._send_packet(PubackPacket.build(message.packet_id))

    async def _handle_qos2_message_flow(self, message: Any) -> None:
        # 3.1.1 has no way to refuse it but this one.
        self.hub.refuse("qos", "an event came at QoS 2: the broker has 0 and 1")
        await self.handle_connection_closed()

    async def handle_puback(self, puback: Any) -> None:
        self.live.acknowledged(puback.variable_header.packet_id)

    async def handle_disconnect(self, disconnect: Any) -> None:
        self.gone = True
        await super().handle_disconnect(disconnect)

    def handle_read_timeout(self) -> None:
        """Nothing was heard for one and a half times as long as the client said: it is gone."""
        self._gone = asyncio.ensure_future(self.handle_connection_closed())

    async def send(self, channel: str, data: bytes, qos: int, packet_id: int | None, again: bool) -> None:
        if self.gone:
            # amqtt drops what is written to a closed connection and says nothing. The session's place would pass events
            # at QoS 0 that its client can have when it is back.
            raise asyncio.CancelledError
        try:
            await self._send_packet(PublishPacket.build(channel, data, packet_id, again, qos, False))
        except ProtocolHandlerError:
            # amqtt makes this of being cancelled, as happens while a client that reads nothing is waited for.
            raise asyncio.CancelledError from None
