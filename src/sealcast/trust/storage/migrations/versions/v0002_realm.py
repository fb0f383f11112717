"""Whose registry it is. Triggers of SQLite get names that say which table they guard."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002_12a0a444"
down_revision = "0001_c73f56d0"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_POSTGRES = (
    """
    CREATE TRIGGER realm_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON realm
    FOR EACH STATEMENT EXECUTE FUNCTION sealcast_only_added()
    """,
)
_SQLITE = (
    "DROP TRIGGER no_update",
    "DROP TRIGGER no_delete",
    *(
        f"CREATE TRIGGER {table}_no_{what} BEFORE {what.upper()} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} are only added'); END"
        for table in ("changes", "realm")
        for what in ("update", "delete")
    ),
)


def upgrade() -> None:
    op.create_table(
        "realm",
        sa.Column("one", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("id", sa.LargeBinary, nullable=False),
        sa.Column("chain", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("one = 1", name="one_realm"),
        sqlite_strict=True,
    )
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRES:
        op.execute(statement)
