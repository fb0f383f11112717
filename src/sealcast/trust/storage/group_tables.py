"""The tables of consumer groups in the database of a registry that several machines share (`trust.shared_groups`).

    sealcast_groups         which there are: by topic, reader and name, with the format of their rows
    sealcast_group_members  who takes part      sealcast_group_shares   who has which share, and how far it is
    sealcast_group_acks     the ledger of acknowledgements

They are no part of the registry: nothing in them is signed by the realm's authors, rows are changed and removed, and no
client fetches them. So they have no revision of the registry's, which earlier releases go on to read.
"""

from __future__ import annotations

from typing import Final

from sealcast.log.group_rows import TableNames
from sealcast.trust.storage.beside import TablesBeside

#: The format of a group's rows.
FORMAT: Final = 1
GROUPS: Final = "sealcast_groups"
NAMES: Final = TableNames("sealcast_group_members", "sealcast_group_shares", "sealcast_group_acks", "of_group")
TABLES: Final = (GROUPS, *NAMES[:3])

_OF_GROUP: Final = f"of_group bigint NOT NULL REFERENCES {GROUPS} ON DELETE CASCADE"
_MAKE: Final = (
    f"CREATE TABLE {GROUPS} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic bytea NOT NULL,"
    " reader text NOT NULL, name text NOT NULL, format integer NOT NULL, UNIQUE (topic, reader, name))",
    f"CREATE TABLE {NAMES.member} ({_OF_GROUP}, id text NOT NULL, about text NOT NULL, here integer NOT NULL,"
    " seen_us bigint NOT NULL, PRIMARY KEY (of_group, id))",
    f"CREATE TABLE {NAMES.share} ({_OF_GROUP}, number integer NOT NULL, owner text, fence bigint NOT NULL,"
    " seq bigint NOT NULL, ack bigint NOT NULL, had bytea NOT NULL, PRIMARY KEY (of_group, number))",
    f"CREATE TABLE {NAMES.ack} ({_OF_GROUP}, id bigint NOT NULL, at_us bigint NOT NULL, member text NOT NULL,"
    " statement bytea NOT NULL, signature bytea NOT NULL, events bytea NOT NULL, PRIMARY KEY (of_group, id))",
)

_TABLES: Final = TablesBeside(GROUPS, _MAKE)
are_there, make = _TABLES.are_there, _TABLES.make
