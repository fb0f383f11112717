"""Topics over MQTT: a client around Paho, a bridge to the log, and brokers that match what they cannot read."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sealcast.errors import extras_named

if TYPE_CHECKING:
    from sealcast.mqtt.client import Client as Client
    from sealcast.mqtt.received import ReceivedEvent as ReceivedEvent

__all__ = ["Client", "ReceivedEvent"]
_HOMES = {"Client": "sealcast.mqtt.client", "ReceivedEvent": "sealcast.mqtt.received"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sealcast.mqtt' has no attribute {name!r}")
    with extras_named():
        return getattr(import_module(_HOMES[name]), name)
