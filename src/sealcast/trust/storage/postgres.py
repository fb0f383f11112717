"""A registry on a PostgreSQL server: what several machines share.

Writers take turns by an advisory lock of their own table, held until their transaction ends; it needs no privilege
beyond those to read and to insert, so that a broker's role can be given these and nothing else:

    GRANT SELECT, INSERT ON changes TO broker; GRANT SELECT ON realm, sealcast_schema TO broker;

Beside the registry are the tables of consumer groups (`group_tables`) and of control topics (`control_tables`). Whoever
asks or answers requests, or takes part in groups, has to be given SELECT, INSERT, UPDATE and DELETE on these.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from sqlalchemy import Connection, Engine, bindparam, create_engine, text
from sqlalchemy.pool import NullPool

from sealcast.errors import DiskFull, Locked, Misuse, SealcastError, Unavailable, extras_named
from sealcast.trust.storage import control_tables, group_tables, schema, tables, window_tables
from sealcast.trust.storage.address import ENVIRONMENT, Server
from sealcast.trust.storage.trouble import BUSY_SECONDS, damaged

#: How long to try to reach a server, unless the URL says something else.
CONNECT_SECONDS: Final = 10
#: A server that is cut off while it is asked is noticed within this time, unless the URL says something else: without
#: it, a client waits for as long as its operating system sends again, a quarter of an hour.
_ALIVE: Final = {
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds
}
ENCODING: Final = "UTF8"

# A server that acknowledges before it wrote (synchronous_commit = off) does not do so for us.
_SETTINGS: Final = text(
    "SELECT set_config('lock_timeout', :wait, true), set_config('synchronous_commit',"
    " CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,"
    " true)"
).bindparams(bindparam("wait", f"{BUSY_SECONDS * 1000:.0f}ms"))
_TURN: Final = text("SELECT pg_advisory_xact_lock(:application, CAST(CAST('changes' AS regclass) AS oid)::int)")
_TURN_TO_MAKE: Final = text("SELECT pg_advisory_xact_lock(:application, 0)")
_TURN_BESIDE: Final = text("SELECT pg_advisory_xact_lock(:key)")
_TAKE: Final = text("SELECT pg_try_advisory_lock(:key)")
_TAKEN: Final = text(
    "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND classid = CAST(:high AS bigint)::oid AND objid = CAST(:low AS bigint)::oid)"
)
_KEEPALIVE: Final = text(
    "SELECT set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '5', false),"
    " set_config('tcp_keepalives_count', '2', false)"
)
_TABLES: Final = text(
    "SELECT to_regclass(:revision) IS NOT NULL, to_regclass('changes') IS NOT NULL, current_setting('server_encoding')"
)

_REMARKS: Final = text(
    "SELECT current_setting('server_version'), current_setting('fsync'),"
    " coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)"
)

# The server's codes (SQLSTATE): https://www.postgresql.org/docs/current/errcodes-appendix.html
_DAMAGED: Final = ("23", "XX001", "XX002", "42P01", "42703", "42883", "22")
_FULL: Final = ("53100", "53400")
_BUSY: Final = ("55P03", "40P01", "40001", "57014")


class PostgresDatabase:
    """The database, its locks and its errors."""

    #: Other machines may still run the release before: somebody says when.
    migrates_itself: Final = False

    def __init__(self, server: Server) -> None:
        self._server = server
        self.shown = server.shown

    def make(self) -> None:
        """There is nothing to be made outside of the transaction that makes the tables."""

    def engine(self) -> Engine:
        ours: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, **_ALIVE}
        arguments: dict[str, Any] = {"application_name": "sealcast"}
        arguments |= {name: value for name, value in ours.items() if self._server.parameter(name) is None}
        with extras_named():
            return create_engine(
                self._server.url,
                poolclass=NullPool,
                connect_args=arguments,
                # What is stored has names and filters in it, which are nobody's business in a log.
                hide_parameters=True,
                use_native_hstore=False,
            )

    def begin_making(self, connection: Connection) -> None:
        connection.execute(_TURN_TO_MAKE, {"application": schema.APPLICATION_ID})
        has_revision, has_changes, encoding = connection.execute(_TABLES, {"revision": schema.VERSION_TABLE}).one()
        if encoding != ENCODING:
            raise Misuse(f"{self.shown} keeps text as {encoding}", hint=f"make the database with ENCODING '{ENCODING}'")
        if has_revision or has_changes:
            raise Misuse(
                f"{self.shown} has a registry already",
                hint="name another database, or a schema of its own: ...?options=-csearch_path%3DNAME",
            )

    def furnish(self, connection: Connection) -> None:
        """Makes the tables that are beside the registry's, unless they are there."""
        self.take_turn_to_make(connection)
        group_tables.make(connection)
        control_tables.make(connection)
        window_tables.make(connection)

    def take_turn_to_make(self, connection: Connection) -> None:
        connection.execute(_TURN_TO_MAKE, {"application": schema.APPLICATION_ID})

    def begin_beside(self, connection: Connection, what: str) -> None:
        """Those who do the same thing take turns; nobody waits who does something else."""
        connection.begin()
        connection.execute(_SETTINGS)
        connection.execute(_TURN_BESIDE, {"key": _number(what)})

    def begin_exclusive(self, connection: Connection) -> None:
        """The writers' turn before anything is read: what a decision is based on stays so until it is written."""
        connection.begin()
        connection.execute(_SETTINGS)
        connection.execute(_TURN, {"application": schema.APPLICATION_ID})

    def take_turn(self, connection: Connection, what: str) -> bool:
        """A lock of that name, for as long as the connection lives; False if another connection has it. A machine that
        is gone is noticed after some 15 seconds, if the server's operating system can."""
        connection.execute(_KEEPALIVE)
        return bool(connection.scalar(_TAKE, {"key": _number(what)}))

    def is_taken(self, connection: Connection, what: str) -> bool:
        """Whether somebody has that lock."""
        high, low = (int.from_bytes(half, "big") for half in (_key(what)[:4], _key(what)[4:]))
        return bool(connection.scalar(_TAKEN, {"high": high, "low": low}))

    def settle(self, connection: Connection) -> None:
        """The server keeps its log itself, and checks it when it reads it again."""

    def revision(self, connection: Connection) -> str | None:
        """The schema's revision; None if there is no registry."""
        has_revision, *_ = connection.execute(_TABLES, {"revision": schema.VERSION_TABLE}).one()
        return (connection.scalar(tables.revision.select()) or "") if has_revision else None

    def remarks(self, connection: Connection) -> tuple[str, str | None]:
        version, syncs, tls = connection.execute(_REMARKS).one()
        found = f"PostgreSQL {version.split()[0]}" + (", over TLS" if tls else "")
        if syncs != "on":
            return f"{found}, which never syncs", "set fsync = on: acknowledged changes do not survive a power cut"
        if not tls and not self._server.is_local:
            return (
                f"{found}, not encrypted",
                "add ?sslmode=verify-full to the URL: whoever is in between can rewrite it",
            )
        return found, None

    def trouble(self, error: BaseException | None) -> SealcastError:
        code = getattr(error, "sqlstate", None) or ""
        said = self._server.without(" ".join(str(error).split("\n")[0].split()))
        if code.startswith(_DAMAGED):
            return damaged(self.shown, said)
        if code in _FULL:
            return DiskFull(f"no space left on {self.shown}; nothing was changed")
        if code in _BUSY:
            return Locked(f"others kept {self.shown} locked for {BUSY_SECONDS:.0f} seconds", hint="try again")
        return Unavailable(f"{self.shown}: {said}", hint=_hint(code, said))


def _key(what: str) -> bytes:
    return hashlib.sha256(b"sealcast turn\0" + what.encode()).digest()[:8]


def _number(what: str) -> int:
    return int.from_bytes(_key(what), "big", signed=True)


_BESIDE: Final = (*group_tables.TABLES, *control_tables.TABLES, *window_tables.TABLES)


def _hint(code: str, said: str) -> str:
    if code == "42501":
        return (
            "give this role its rights: GRANT SELECT, INSERT ON changes; GRANT SELECT ON realm, sealcast_schema; for"
            " requests and consumer groups, let the owner of the tables run `sealcast registry migrate`, and GRANT"
            f" SELECT, INSERT, UPDATE, DELETE ON {', '.join(_BESIDE)}"
        )
    if code == "25006":
        return "this is a copy that can only be read: name the primary server"
    if code.startswith("28") or "password" in said or "authentication" in said or "no pg_hba.conf entry" in said:
        return f"set PGPASSWORD, a line in the file that PGPASSFILE names, or {ENVIRONMENT}; or ask its administrator"
    if code == "3D000" or "does not exist" in said:
        return "create it first: createdb; or correct the URL"
    if code.startswith("53"):
        return "the server is at its limits: try again, or raise them"
    return "check that the server runs and can be reached from here: sealcast doctor"
