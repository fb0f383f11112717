"""A PostgreSQL server of the tests' own, from Debian's packages: started once, in a temporary place, on loopback."""

from __future__ import annotations

import ctypes
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

USER = "sealcast"
PASSWORD = "Correct-Horse-7391"
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def binaries() -> Path:
    """Where PostgreSQL's programs are: Debian keeps them off the PATH, by version."""
    found = shutil.which("pg_ctl")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda p: int(p.parts[-3]))
    if not versions:
        pytest.fail(
            "the tests need PostgreSQL: make postgres, or apt-get install --no-install-recommends postgresql", False
        )
    return versions[-1].parent


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    who = names.get("postgres") or names["nobody"]
    return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}


def _die_with_the_tests() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGINT)


class Server:
    """One server. Every test gets a schema of its own in its database."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="sealcast-postgres-"))
        self._as = _unprivileged()
        if self._as:
            os.chown(self.directory, self._as["user"], self._as["group"])
        self._bin = binaries()
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        with tempfile.NamedTemporaryFile("w", dir=self.directory) as password:
            password.write(PASSWORD)
            password.flush()
            os.chmod(password.name, 0o644)
            self._run(
                "initdb", "-D", "data", "-U", USER, "-A", "scram-sha-256", f"--pwfile={password.name}", "-E", "UTF8"
            )

    def start(self) -> None:
        for _ in range(5):
            with socket.create_server(("127.0.0.1", 0)) as chosen:
                self.port = self.port or chosen.getsockname()[1]
            options = {
                "listen_addresses": "127.0.0.1",
                "unix_socket_directories": str(self.directory),
                "fsync": "on",
                "max_connections": "60",
                "shared_buffers": "16MB",
            }
            arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
            log = (self.directory / "log").open("ab")
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", "data", "-p", str(self.port), *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_the_tests,
                **self._as,
            )
            log.close()
            if self._answers():
                return
            self.port = 0  # somebody else was quicker
        raise AssertionError((self.directory / "log").read_text()[-2000:])

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: at once, in order. SIGQUIT: as if the power went."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory)

    def _answers(self) -> bool:
        assert self._process is not None
        end = time.monotonic() + 60
        while time.monotonic() < end and self._process.poll() is None:
            try:
                self.connect().close()
                return True
            except psycopg.OperationalError:
                time.sleep(0.05)
        return False

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments], cwd=self.directory, capture_output=True, check=False, **self._as
        )
        assert done.returncode == 0, done.stderr.decode()

    # --- for tests --------------------------------------------------------------------------------

    def connect(self, schema: str | None = None, **more: Any) -> psycopg.Connection[Any]:
        """As the server's administrator."""
        options = f"-csearch_path={schema}" if schema else ""
        arguments = {"user": USER, "password": PASSWORD, "dbname": "postgres", "options": options, "autocommit": True}
        return psycopg.connect(**{"host": "127.0.0.1", "port": self.port, **arguments, **more})

    def schema(self) -> str:
        """A new one."""
        name = f"s{next(self._numbers)}_{os.getpid()}"
        with self.connect() as connection:
            connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[arg-type]
        return name

    def url(self, schema: str, *, user: str = USER, password: str | None = PASSWORD, database: str = "postgres") -> str:
        secret = "" if password is None else f":{urllib.parse.quote(password)}"
        options = urllib.parse.urlencode({"options": f"-csearch_path={schema}"})
        return f"postgresql+psycopg://{user}{secret}@127.0.0.1:{self.port}/{database}?{options}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server: for all tests of this process, a few seconds once."""
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.close()
