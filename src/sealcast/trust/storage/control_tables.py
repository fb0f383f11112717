"""The tables of control topics in the database of a registry that several machines share (`trust.shared_control`).

    sealcast_control_topics   one row each: who made it, whether somebody waits for an answer there, how far it is
    sealcast_control_posts    what is queued
    sealcast_control_nodes    where discovery nodes listen

As those of consumer groups (`group_tables`), they are no part of the registry. A database that has them is where all
machines pass requests on; one without them leaves that to the realm's directory.
"""

from __future__ import annotations

from typing import Final

from sealcast.trust.storage.beside import TablesBeside

TOPICS: Final = "sealcast_control_topics"
POSTS: Final = "sealcast_control_posts"
NODES: Final = "sealcast_control_nodes"
TABLES: Final = (TOPICS, POSTS, NODES)

_MAKE: Final = (
    f"CREATE TABLE {TOPICS} (id bytea PRIMARY KEY, reply boolean NOT NULL, maker text, made_us bigint NOT NULL,"
    " taken bigint NOT NULL DEFAULT 0, next bigint NOT NULL DEFAULT 0)",
    f"CREATE TABLE {POSTS} (topic bytea NOT NULL REFERENCES {TOPICS} ON DELETE CASCADE, position bigint NOT NULL,"
    " at_us bigint NOT NULL, origin text NOT NULL, data bytea NOT NULL, PRIMARY KEY (topic, position))",
    f"CREATE TABLE {NODES} (name text PRIMARY KEY, topic bytea NOT NULL, certificate bytea NOT NULL)",
)

_TABLES: Final = TablesBeside(TOPICS, _MAKE)
are_there, make = _TABLES.are_there, _TABLES.make
