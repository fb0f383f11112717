"""Opening the database of a registry, by its address."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from sealcast.trust.storage.address import Address, Server
from sealcast.trust.storage.reading import FileStore

if TYPE_CHECKING:
    from sealcast.trust.storage.store import Store

#: Servers that one process keeps connections to.
MAX_SERVERS: Final = 16


#: A registry's database, wherever it is.
AnyStore: TypeAlias = "Store | FileStore"


def open_store(address: Address) -> AnyStore:
    return FileStore(address) if isinstance(address, Path) else open_server(address)


@lru_cache(MAX_SERVERS)
def open_server(address: Server) -> Store:
    """One for all handles in this process: a server counts its connections, a file does not."""
    # A quarter of a second of SQLAlchemy, for those who use a server.
    from sealcast.trust.storage.store import Store

    return Store(address)
