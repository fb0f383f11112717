"""Tables beside the registry's, in a database that several machines share: whether they are there, and making them.

SQLAlchemy is imported by those who use a server, who have it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection, TextClause


@cache
def as_text(statement: str) -> TextClause:
    """A statement for SQLAlchemy, compiled once."""
    from sqlalchemy import text

    return text(statement)


class TablesBeside:
    """Tables that are made together."""

    def __init__(self, first: str, made_by: Sequence[str]) -> None:
        """If the first is there, so are the others."""
        self._there, self._made_by = f"SELECT to_regclass('{first}') IS NOT NULL", made_by

    def are_there(self, connection: Connection) -> bool:
        return bool(connection.scalar(as_text(self._there)))

    def make(self, connection: Connection) -> None:
        """Makes them, unless they are there."""
        if not self.are_there(connection):
            for statement in self._made_by:
                connection.execute(as_text(statement))
