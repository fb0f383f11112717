"""The table of replay windows in the database of a registry that several machines share (`trust.shared_windows`).

    sealcast_windows   of a topic at a broker: what replay detection remembers, sealed with the broker's MAC

As the tables of consumer groups (`group_tables`), it is no part of the registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sealcast.trust.storage.group_tables import as_text

if TYPE_CHECKING:
    from sqlalchemy import Connection

WINDOWS: Final = "sealcast_windows"
TABLES: Final = (WINDOWS,)

_THERE: Final = f"SELECT to_regclass('{WINDOWS}') IS NOT NULL"
_MAKE: Final = f"CREATE TABLE {WINDOWS} (topic bytea, broker text, data bytea NOT NULL, PRIMARY KEY (topic, broker))"


def are_there(connection: Connection) -> bool:
    return bool(connection.scalar(as_text(_THERE)))


def make(connection: Connection) -> None:
    """Makes it, unless it is there."""
    if not are_there(connection):
        connection.execute(as_text(_MAKE))
