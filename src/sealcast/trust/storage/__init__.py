"""Where a registry is kept: an SQLite file of one machine, or a PostgreSQL server that several share.

    address   which of the two, told from a path or a URL; no password is ever shown
    schema    the tables, their triggers and their revisions
    store     transactions on either: one connection per thread and process, errors as ours
    sqlite    what is particular to the file         postgres  what is particular to the server
    group_tables, control_tables, window_tables   tables beside the registry's on a server (beside): consumer groups,
                                   requests and answers, replay windows
    migrate   older schemas to the newest (Alembic; the steps are in `trust/migrations`)

SQLAlchemy takes half a second to import: `registry` does so when it first reads, and what needs an address only never.
"""
