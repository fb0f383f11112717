"""The address of a registry: a file, or a database of a PostgreSQL server.

    market/registry.sqlite                               a file
    postgresql://broker@db.example/market                a database, and in it the first schema of the search path
    postgresql://broker@db.example/market?options=-csearch_path%3Dquotes

An address that is written down (in `realm.json`) has no password in it. Passwords come from where PostgreSQL's clients
look for them, or with a whole URL in the environment, which then takes the place of the written one.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from sealcast.errors import Misuse
from sealcast.model.dataclass import dataclass

ENVIRONMENT: Final = "SEALCAST_REGISTRY_URL"
SCHEMES: Final = ("postgresql", "postgresql+psycopg")
MAX_CHARACTERS: Final = 2_048
_SECRET_PARAMETERS: Final = frozenset({"password", "sslpassword", "passphrase"})
_REMEDY: Final = f"leave it out, and set PGPASSFILE, PGPASSWORD or {ENVIRONMENT} where Sealcast runs"


@dataclass(frozen=True, slots=True)
class Server:
    """A database of a PostgreSQL server. What is shown has no password in it."""

    #: With the password, if it had one: for the driver alone.
    url: str = field(repr=False)
    shown: str
    has_password: bool

    def __str__(self) -> str:
        return self.shown

    @property
    def is_local(self) -> bool:
        """Whether nothing on the way leaves this machine."""
        host = urllib.parse.urlsplit(self.url).hostname or self.parameter("host") or ""
        return host in ("", "localhost", "127.0.0.1", "::1") or host.startswith("/")

    def parameter(self, name: str) -> str | None:
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.url).query)).get(name)

    def without(self, text: str) -> str:
        """`text` with the password struck out, should somebody else's message repeat it."""
        parts = urllib.parse.urlsplit(self.url)
        secrets = [value for name, value in urllib.parse.parse_qsl(parts.query) if name in _SECRET_PARAMETERS]
        for secret in (parts.password, urllib.parse.unquote(parts.password or ""), *secrets):
            text = text.replace(secret, "***") if secret else text
        return text


Address = Path | Server


def parse(given: Path | str | Server) -> Address:
    """A path as it is; a URL if it is one of ours."""
    if isinstance(given, Path | Server):
        return given
    if "://" not in given:
        return Path(given)
    if len(given) > MAX_CHARACTERS or not given.isprintable() or " " in given:
        raise Misuse("a registry's URL is one line without spaces", hint=_EXAMPLE)
    try:
        parts = urllib.parse.urlsplit(given)
        _ = parts.port
    except ValueError:
        raise Misuse("this is no URL", hint=_EXAMPLE) from None
    if parts.scheme not in SCHEMES:
        raise Misuse(f"a registry is an SQLite file or on PostgreSQL, not {parts.scheme!r}", hint=_EXAMPLE)
    if not parts.path.strip("/"):
        raise Misuse("the URL names no database", hint=_EXAMPLE)
    query = urllib.parse.parse_qsl(parts.query)
    public = [(name, value) for name, value in query if name not in _SECRET_PARAMETERS]
    where = parts.netloc.rpartition("@")[2]
    user = f"{urllib.parse.quote(urllib.parse.unquote(parts.username))}@" if parts.username else ""
    shown = f"postgresql://{user}{where}{parts.path}" + (f"?{urllib.parse.urlencode(public)}" if public else "")
    url = f"postgresql+psycopg://{parts.netloc}{parts.path}" + (f"?{parts.query}" if parts.query else "")
    return Server(url, shown, has_password=parts.password is not None or len(public) < len(query))


def written(url: str) -> str:
    """A server's URL as it may be written down: Misuse if it has a password."""
    server = parse(url)
    if not isinstance(server, Server):
        raise Misuse("a registry that is not in the realm's directory is on PostgreSQL", hint=_EXAMPLE)
    if server.has_password:
        raise Misuse("the registry's URL has a password in it, and realm.json is public", hint=_REMEDY)
    return server.shown


def effective(url: str, environment: Mapping[str, str] = os.environ) -> Server:
    """The server that a realm's written URL means here: the environment's, if it names one."""
    told = environment.get(ENVIRONMENT)
    server = parse(told or url)
    if not isinstance(server, Server):
        raise Misuse(f"{ENVIRONMENT} is not the URL of a PostgreSQL database", hint=_EXAMPLE)
    return server


_EXAMPLE: Final = "for example postgresql://user@host/database"
