"""Who of several machines may run a topic that is on a carrier: whoever has its turn in the database that they share.

The turn keeps a second run from starting, and lets one that stands by take over when the first is gone. What makes a
takeover safe is the carrier, which refuses the writer before (`port.TermedLog`): a turn goes with a connection, and a
connection may break while its holder lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sealcast.errors import Locked
from sealcast.log.journal import Turn
from sealcast.trust.storage.address import Address, Server
from sealcast.trust.storage.opening import open_server


class SharedTurn(Turn):
    """A turn among all who share a registry on a server."""

    def __init__(self, server: Server, what: str, realm: bytes) -> None:
        self._server, self._what, self._key = server, what, f"{realm.hex()} {what}"

    def taken(self) -> Locked | None:
        return self._locked() if open_server(self._server).is_taken(self._key) else None

    @contextmanager
    def held(self) -> Iterator[None]:
        with open_server(self._server).turn(self._key) as has_it:
            if not has_it:
                raise self._locked()
            yield

    def _locked(self) -> Locked:
        return Locked(
            f"{self._what} is being run on another machine", hint="one pipeline runs a topic: stop that one first"
        )


def turn_of(registry: Address, what: str, realm: bytes) -> Turn:
    """Of a realm whose registry is a file, this machine is the only one."""
    return Turn() if isinstance(registry, Path) else SharedTurn(registry, what, realm)
