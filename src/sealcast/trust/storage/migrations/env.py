"""How Alembic reaches the database: on the connection, and in the transaction, of `storage.migrate`."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="sealcast_schema",
    version_table_pk=True,
)
with context.begin_transaction():
    context.run_migrations()
