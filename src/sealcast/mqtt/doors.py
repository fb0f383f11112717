"""Who may connect to the MQTT broker: the first packet, read before amqtt hears of the connection.

It is bounded in size and time. Another version than MQTT 3.1.1 is refused by the packet that says so, and whoever is
not the entity that it says it is. A registry that cannot be asked lets nobody in.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Final

from amqtt.adapters import BufferReader, WriterAdapter
from amqtt.errors import MQTTError
from amqtt.mqtt.connack import BAD_USERNAME_PASSWORD, SERVER_UNAVAILABLE, UNACCEPTABLE_PROTOCOL_VERSION, ConnackPacket
from amqtt.mqtt.connect import ConnectPacket

from sealcast.errors import Rejected, Unavailable
from sealcast.mqtt.credentials import PasswordChecker

#: The first packet: how long it may take, and how long it may be.
CONNECT_SECONDS: Final = 10.0
MAX_CONNECT_BYTES: Final = 16_384
_CONNECT: Final = 0x10
_PROTOCOL: Final = struct.Struct(">H4sB")
_VERSION_3_1_1, _VERSION_5 = 4, 5
#: MQTT 5's CONNACK with the reason 0x84, unsupported protocol version, and no properties.
_REFUSED_5: Final = bytes([0x20, 3, 0, 0x84, 0])


class Doors:
    """Reads first packets, and lets entities in."""

    def __init__(self, passwords: PasswordChecker, refuse: Callable[[str, str], None]) -> None:
        """`refuse` counts a reason, and tells a message."""
        self._passwords, self._refuse = passwords, refuse

    async def admit(self, reader: asyncio.StreamReader, out: WriterAdapter) -> Any | None:
        """The CONNECT packet of somebody who may connect, with the user's name before the client's id; None for whom
        was told why not. TimeoutError, or an error of the connection or of amqtt, for what is no such packet."""
        return await asyncio.wait_for(self._first(reader, out), CONNECT_SECONDS)

    async def _first(self, reader: asyncio.StreamReader, out: WriterAdapter) -> Any | None:
        kind, length, raw = await _packet(reader)
        if kind != _CONNECT or length < _PROTOCOL.size:
            raise MQTTError("the first packet is no CONNECT")
        rest = await reader.readexactly(length)
        _, name, version = _PROTOCOL.unpack_from(rest)
        if name != b"MQTT" or version != _VERSION_3_1_1:
            five = name == b"MQTT" and version >= _VERSION_5
            self._refuse("version", f"a client speaks version {version} of MQTT; the broker speaks 3.1.1")
            await _say(out, _REFUSED_5 if five else _connack(UNACCEPTABLE_PROTOCOL_VERSION))
            return None
        connect = await ConnectPacket.from_stream(BufferReader(raw + rest))
        payload = connect.payload
        user, given = payload.username or "", payload.password or ""
        own = "" if payload.client_id_is_random else payload.client_id
        try:
            self._passwords.admit(user, own, given)
        except Rejected as error:
            self._refuse("credentials", f"a connection was refused: {error.message}")
            await _say(out, _connack(BAD_USERNAME_PASSWORD))
            return None
        except Unavailable as error:
            self._refuse("registry", f"a connection was refused, because nobody can say who it is: {error.message}")
            await _say(out, _connack(SERVER_UNAVAILABLE))
            return None
        payload.client_id = f"{user}/{payload.client_id}"
        return connect


def _connack(reason: int) -> bytes:
    data: bytes = ConnackPacket.build(0, reason).to_bytes()
    return data


async def _say(out: WriterAdapter, packet: bytes) -> None:
    out.write(packet)
    await out.drain()


async def _packet(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """The first packet's kind and length, and the bytes that said so."""
    raw = await reader.readexactly(1)
    length = 0
    for shift in (0, 7):  # two bytes say more than a CONNECT may have
        byte = await reader.readexactly(1)
        raw += byte
        length |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return raw[0], length, raw
    raise MQTTError(f"a CONNECT packet has at most {MAX_CONNECT_BYTES} bytes")
