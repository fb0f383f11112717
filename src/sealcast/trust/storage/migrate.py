"""Older schemas to the newest, step by step, inside the transaction of whoever asks."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

STEPS: Final = Path(__file__).parent / "migrations"


def upgrade(connection: Connection, to: str = "head") -> None:
    """All steps that are missing. The caller commits, so that all of them are made or none is."""
    command.upgrade(_config(connection), to)


def _config(connection: Connection | None) -> Config:
    config = Config(attributes={"connection": connection})
    # Its own parser takes a percent sign in a path for the start of a name.
    config.set_main_option("script_location", str(STEPS).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    return config
