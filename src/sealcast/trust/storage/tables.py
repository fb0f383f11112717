"""The tables of a registry as SQLAlchemy has them: for making them, and for bringing older ones up to date."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from sealcast.trust.storage.schema import KEPT, NEWEST, VERSION_TABLE

#: 64 bits on both; SQLite calls them INTEGER, and only so is the primary key the row's own number.
Number: Final = BigInteger().with_variant(Integer, "sqlite")

metadata: Final = MetaData()

changes: Final = Table(
    "changes",
    metadata,
    Column("version", Number, primary_key=True, autoincrement=False),
    Column("at_us", Number, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    Column("signed", Text, nullable=False, server_default=""),
    sqlite_strict=True,
)
realm: Final = Table(
    "realm",
    metadata,
    Column("one", Number, primary_key=True, autoincrement=False),
    Column("id", LargeBinary, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    CheckConstraint("one = 1", name="one_realm"),
    sqlite_strict=True,
)
revision: Final = Table(VERSION_TABLE, metadata, Column("version_num", String(32), primary_key=True))


def create(connection: Connection) -> None:
    """All of it, at the newest revision, in an empty database."""
    metadata.create_all(connection, checkfirst=False)
    for statement in triggers(connection.dialect.name, KEPT):
        connection.execute(text(statement))
    connection.execute(revision.insert(), {"version_num": NEWEST})


def triggers(dialect: str, tables: tuple[str, ...]) -> list[str]:
    """What refuses every change of a row that is there."""
    if dialect == "sqlite":
        return [
            f"CREATE TRIGGER {table}_no_{what} BEFORE {what.upper()} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} are only added'); END"
            for table in tables
            for what in ("update", "delete")
        ]
    function = (
        "CREATE OR REPLACE FUNCTION sealcast_only_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION '% are only added', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    return [function] + [
        f"CREATE TRIGGER {table}_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION sealcast_only_added()"
        for table in tables
    ]
