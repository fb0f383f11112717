"""The table of replay windows in the database of a registry that several machines share (`trust.shared_windows`).

    sealcast_windows   of a topic at a broker: what replay detection remembers, sealed with the broker's MAC

As the tables of consumer groups (`group_tables`), it is no part of the registry.
"""

from __future__ import annotations

from typing import Final

from sealcast.trust.storage.beside import TablesBeside

WINDOWS: Final = "sealcast_windows"
TABLES: Final = (WINDOWS,)

_MAKE: Final = f"CREATE TABLE {WINDOWS} (topic bytea, broker text, data bytea NOT NULL, PRIMARY KEY (topic, broker))"

_TABLES: Final = TablesBeside(WINDOWS, (_MAKE,))
are_there, make = _TABLES.are_there, _TABLES.make
