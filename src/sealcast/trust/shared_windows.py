"""Replay windows of brokers whose registry is on a server: a copy in the same database, for whoever takes over.

A driver keeps them in a file (broker/kept_windows.py). One on another machine has no such file, or an old one. It would
work the windows out from the frames of two periods, which are days. With a copy that is some seconds old it works out
what came since. As the file is, the copy is held to its MAC and to the ledger.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sealcast.errors import SealcastError
from sealcast.trust.storage import window_tables
from sealcast.trust.storage.address import Address, Server
from sealcast.trust.storage.beside import as_text
from sealcast.trust.storage.opening import open_server
from sealcast.trust.storage.window_tables import WINDOWS

_LOAD: Final = f"SELECT data FROM {WINDOWS} WHERE topic = :topic AND broker = :broker"
_SAVE: Final = (
    f"INSERT INTO {WINDOWS} (topic, broker, data) VALUES (:topic, :broker, :data)"
    " ON CONFLICT (topic, broker) DO UPDATE SET data = excluded.data"
)
_DROP: Final = f"DELETE FROM {WINDOWS} WHERE topic = :topic"


@dataclass(frozen=True)
class SharedWindows:
    """Of one topic at one broker. It only saves time: what cannot be had or kept now is worked out later."""

    server: Server
    topic: bytes
    broker: str

    def load(self) -> bytes | None:
        found: bytes | None = None
        with suppress(SealcastError), open_server(self.server).beside(self._what) as connection:
            if window_tables.are_there(connection):
                found = connection.scalar(as_text(_LOAD), {"topic": self.topic, "broker": self.broker})
        return None if found is None else bytes(found)

    def save(self, data: bytes) -> None:
        with suppress(SealcastError), open_server(self.server).beside(self._what) as connection:
            if window_tables.are_there(connection):
                values = {"topic": self.topic, "broker": self.broker, "data": data}
                connection.execute(as_text(_SAVE), values)

    @property
    def _what(self) -> str:
        return f"windows {self.topic.hex()} {self.broker}"


def windows_of(registry: Address, topic: bytes, broker: str) -> SharedWindows | None:
    """Where others find them; nowhere, if the registry is in the realm's directory."""
    return SharedWindows(registry, topic, broker) if isinstance(registry, Server) else None


def remove_all(registry: Address, topic: bytes) -> None:
    """Removes those of a topic that was deleted. The files go with its directory."""
    if isinstance(registry, Server):
        with open_server(registry).beside(f"windows {topic.hex()}") as connection:
            if window_tables.are_there(connection):
                connection.execute(as_text(_DROP), {"topic": topic})
