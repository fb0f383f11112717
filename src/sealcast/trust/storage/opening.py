"""Opening the database of a registry, by its address."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sealcast.trust.storage.address import Address, Server

if TYPE_CHECKING:
    from sealcast.trust.storage.store import Store

#: Servers that one process keeps connections to.
MAX_SERVERS: Final = 16


def open_store(address: Address) -> Store:
    # Half a second of SQLAlchemy, for those who come to read.
    from sealcast.trust.storage.store import Store

    return Store(address) if isinstance(address, Path) else _server(address)


@lru_cache(MAX_SERVERS)
def _server(address: Server) -> Store:
    """One for all handles in this process: a server counts its connections, a file does not."""
    from sealcast.trust.storage.store import Store

    return Store(address)
