"""Both databases a registry can be in, for tests that must hold on either."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealcast.trust.storage.address import Server as Address
from sealcast.trust.storage.address import parse
from tests.trust.postgres import Server


class FilePlace:
    """A file that does not exist yet."""

    kind = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.address: Path | Address = directory / "registry.sqlite"

    def run(self, *statements: str) -> None:
        """Behind the registry's back."""
        with closing(sqlite3.connect(str(self.address))) as connection:
            connection.executescript("; ".join(statements) + ";")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(str(self.address))) as connection:
            return connection.execute(query).fetchall()

    def unguard(self) -> None:
        self.run(
            *(f"DROP TRIGGER {table}_no_{what}" for table in ("changes", "realm") for what in ("update", "delete"))
        )


class ServerPlace:
    """A schema without tables."""

    kind = "postgres"

    def __init__(self, server: Server) -> None:
        self.server = server
        self.schema = server.schema()

    @property
    def address(self) -> Address:
        address = parse(self.server.url(self.schema))
        assert isinstance(address, Address)
        return address

    def run(self, *statements: str) -> None:
        with self.server.connect(self.schema) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[arg-type]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.server.connect(self.schema) as connection:
            return connection.execute(query).fetchall()  # type: ignore[arg-type]

    def unguard(self) -> None:
        self.run(*(f"ALTER TABLE {table} DISABLE TRIGGER USER" for table in ("changes", "realm")))


Place = FilePlace | ServerPlace


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield FilePlace(tmp_path) if request.param == "sqlite" else ServerPlace(request.getfixturevalue("postgres"))
