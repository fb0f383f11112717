"""A connection to an MQTT broker, as the bridge has one: with a session that lasts, and reconnecting with patience."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from sealcast.errors import Misuse, Unavailable

#: By the names that commands take.
PROTOCOLS: Final = {"3.1.1": MQTTProtocolVersion.MQTTv311, "5": MQTTProtocolVersion.MQTTv5}
#: The first and the longest pause between two attempts, in seconds. Each is drawn anew around it, so that many clients
#: of a broker that comes back do not all come at once.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
#: Messages that the broker may send before the first of them is acknowledged.
RECEIVE_MAXIMUM: Final = 256
#: MQTT 5's word for a session that does not end.
_FOR_GOOD: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class MqttLink:
    """Where an MQTT broker is, and how to connect to it."""

    host: str
    port: int
    client_id: str
    protocol: str = "5"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    #: TLS: whom to believe, and whom to present oneself as. With an authority alone, the server is verified.
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    keepalive: int = 30

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise Misuse(f"MQTT's versions here are {' and '.join(PROTOCOLS)}, not {self.protocol!r}")
        if (self.certificate is None) != (self.key is None):
            raise Misuse("a client certificate comes with its key: give both, or neither")
        if self.certificate is not None and self.authority is None:
            raise Misuse("a client certificate is presented to a server that is verified: name its authority, too")

    def client(self, will: tuple[str, bytes] | None = None, **options: Any) -> Client:
        """Paho's client for it, with a persistent session; not connected yet. `will` is published, retained, by the
        broker when the connection is lost."""
        five = self.protocol == "5"
        if not five:
            options["clean_session"] = False
        made = Client(CallbackAPIVersion.VERSION2, self.client_id, protocol=PROTOCOLS[self.protocol], **options)
        if self.username is not None:
            made.username_pw_set(self.username, self.password)
        if self.authority is not None:
            try:
                made.tls_set(str(self.authority), _text(self.certificate), _text(self.key))
            except OSError as error:  # ssl's errors are, too
                raise Unavailable(f"the TLS files cannot be used: {error}") from None
        if will is not None:
            made.will_set(will[0], will[1], qos=1, retain=True)
        return made

    def open(self, client: Client) -> None:
        """Connects for the first time; Unavailable when nobody answers there."""
        options: dict[str, Any] = {}
        if client.protocol == MQTTv5:
            properties = lasting()
            properties.ReceiveMaximum = RECEIVE_MAXIMUM
            options = {"clean_start": False, "properties": properties}
        pace(client)
        try:
            client.connect(self.host, self.port, self.keepalive, **options)
        except OSError as error:
            raise Unavailable(
                f"no MQTT broker answers at {self.host}:{self.port}: {error}", hint="is it running there?"
            ) from None


def pace(client: Client) -> None:
    """Draws the pauses of the next attempts to reconnect; they double from the first to the longest."""
    first, longest = (pause * random.uniform(0.5, 1.5) for pause in (FIRST_PAUSE, LONGEST_PAUSE))
    # Paho says whole seconds, and computes with fractions as well.
    client.reconnect_delay_set(first, longest)  # type: ignore[arg-type]


def lasting() -> Properties:
    """What MQTT 5 is told on connecting, so that the session does not end with the connection."""
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = _FOR_GOOD
    return properties


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
