"""What a registry asks of its tables, inside somebody's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from sqlalchemy import Connection, bindparam, func, select

from sealcast.trust.storage import schema

#: Rows that are fetched at once: memory is bounded, and no reader keeps a transaction open while it works.
AT_ONCE: Final = 20_000

_version = schema.changes.c.version
_NEWEST: Final = select(func.coalesce(func.max(_version), 0))
_BETWEEN: Final = (
    select(schema.changes)
    .where(_version > bindparam("known"), _version <= bindparam("last"))
    .order_by(_version)
    .limit(AT_ONCE)
)


class ChangeRow(NamedTuple):
    """A row of `changes`."""

    version: int
    at_us: int
    kind: str
    body: str
    chain: bytes


class Owner(NamedTuple):
    """The row of `realm`."""

    one: int
    id: bytes
    chain: bytes


class Rows:
    """The rows, as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def newest(self) -> int:
        """The version of the last change, 0 if there is none."""
        return int(self._connection.execute(_NEWEST).scalar_one())

    def between(self, known: int, last: int) -> Sequence[ChangeRow]:
        """Changes after version `known` up to `last`, in order; no more than AT_ONCE of them."""
        # SQLAlchemy's rows are tuples with these names.
        return cast(Sequence[ChangeRow], self._connection.execute(_BETWEEN, {"known": known, "last": last}).all())

    def add(self, rows: Sequence[tuple[int, int, str, str, bytes]]) -> None:
        if rows:
            self._connection.execute(
                schema.changes.insert(), [dict(zip(ChangeRow._fields, row, strict=True)) for row in rows]
            )

    def owner(self) -> Owner | None:
        return cast(Owner | None, self._connection.execute(schema.realm.select()).one_or_none())

    def claim(self, id: bytes, chain: bytes) -> None:
        self._connection.execute(schema.realm.insert(), Owner(1, id, chain)._asdict())
