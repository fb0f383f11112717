"""Who stated a transaction: signatures, kept with its last change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_b57bd089"
down_revision = "0002_12a0a444"


def upgrade() -> None:
    op.add_column("changes", sa.Column("signed", sa.Text, nullable=False, server_default=""))
