"""One connection for one client id: two clients that share one would end each other's connections, over and over.

An MQTT broker ends a connection when another with the same id comes, and clients connect again by themselves. So an id
is claimed on this machine before it is used.

    REALM/wallets/NAME/mqtt/<digest of broker and client id>.lock
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from sealcast.errors import Locked
from sealcast.log import files
from sealcast.trust.handles import EntityRealm


class ClaimedId(files.OpenFile):
    """A client id of one entity at one MQTT broker, held until it is closed or its process ends."""

    def __init__(self, realm: EntityRealm, name: str, client_id: str, host: str, port: int) -> None:
        self._path = _path(realm, name, client_id, host, port)
        files.make_directory(self._path.parent)
        with files.named(self._path, "opening"):
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, files.FILE_MODE)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise Locked(
                f"another client of {name!r} is connected to {host}:{port} as {client_id!r}",
                hint="close it first, or give each client an id of its own: Client(..., client_id='...')",
            ) from None


def _path(realm: EntityRealm, name: str, client_id: str, host: str, port: int) -> Path:
    used = hashlib.sha256(f"{host}:{port}/{client_id}".encode()).hexdigest()
    return realm.paths.root / "wallets" / name / "mqtt" / f"{used}.lock"
