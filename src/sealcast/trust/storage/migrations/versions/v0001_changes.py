"""The table of changes, only ever added to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001_c73f56d0"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_POSTGRES = (
    """
    CREATE FUNCTION sealcast_only_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION '% are only added', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation'; END $$
    """,
    """
    CREATE TRIGGER changes_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON changes
    FOR EACH STATEMENT EXECUTE FUNCTION sealcast_only_added()
    """,
)
_SQLITE = (
    "CREATE TRIGGER no_update BEFORE UPDATE ON changes BEGIN SELECT RAISE(ABORT, 'changes are only added'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON changes BEGIN SELECT RAISE(ABORT, 'changes are only added'); END",
)


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    if dialect == "sqlite" and sa.inspect(op.get_bind()).has_table("changes"):
        # The first files had this schema and no revision.
        return
    op.create_table(
        "changes",
        sa.Column("version", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("at_us", _NUMBER, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("chain", sa.LargeBinary, nullable=False),
        sqlite_strict=True,
    )
    for statement in _SQLITE if dialect == "sqlite" else _POSTGRES:
        op.execute(statement)
