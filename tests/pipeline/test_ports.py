"""Nobody else on the machine can talk to a running pipeline: every port and socket of every process of it is tried."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

from tests.pipeline.drivers import Driver, batches
from tests.pipeline.field import Field

PATIENCE = 240.0
#: What whoever finds a port of py4j's asks it, of either side: for the class of an object that may be there, for a
#: field of it to be set, for Java's runtime, for the JVM's entry point. Without knowing any secret.
ASKED = (
    b"c\np0\n__class__\ne\n",
    b"c\np0\n__setattr__\ns_metrics\nn\ne\n",
    b"r\nu\njava.lang.Runtime\nrj\ne\n",
    b"c\nt\ngetClass\ne\n",
    b"A\nguess\ne\n",
)
#: How py4j begins an answer to somebody it takes orders from; a refusal to authenticate is another word (`!x`).
_HEARD = (b"!y", b"y")
#: Tries the ports of its arguments, in a process that may be another user's; prints those that take orders.
_STRANGER = f"""
import socket, sys
for where in sys.argv[1:]:
    for asked in {ASKED!r}:
        try:
            if where.isdigit():
                link = socket.create_connection(("127.0.0.1", int(where)), timeout=5)
            else:
                link = socket.socket(socket.AF_UNIX)
                link.settimeout(5)
                link.connect(where)
                print(where, "lets strangers in", flush=True)
            with link:
                link.settimeout(1)
                link.sendall(asked)
                said = link.recv(4096)
                if said.startswith({_HEARD!r}):
                    print(where, "obeys", asked, "with", said, flush=True)
        except OSError:
            pass
"""


def stranger() -> tuple[str, dict[str, int]]:
    """A Python and another user who can run it; this user, where none can or this one may not become another."""
    if os.geteuid() == 0:
        nobody = {"user": pwd.getpwnam("nobody").pw_uid}
        for python in (sys.executable, "/usr/bin/python3"):
            with suppress(OSError):
                if not subprocess.run([python, "-S", "-c", ""], cwd="/", check=False, user=nobody["user"]).returncode:
                    return python, nobody
    return sys.executable, {}


def obeyed(*where: str) -> list[str]:
    """What a stranger who knows no secret achieves at ports and sockets."""
    python, identity = stranger()
    done = subprocess.run(
        [python, "-S", "-c", _STRANGER, *where],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        cwd="/",
        user=identity.get("user"),
    )
    return list(done.stdout.splitlines())


def tcp(processes: list[psutil.Process]) -> list[tuple[str, int]]:
    return [
        (process.name(), connection.laddr.port)
        for process in processes
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]


def unix(processes: list[psutil.Process]) -> set[str]:
    named = {c.laddr for process in processes for c in process.net_connections("unix")}
    return {path for path in named if isinstance(path, str) and path.startswith("/")}


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    with closing(Field(tmp_path / "realm")) as field:
        yield field


@pytest.mark.timeout(600)
def test_no_port_of_a_running_pipeline_takes_orders_from_strangers(field: Field, tmp_path: Path) -> None:
    field.publish_round()
    driver = Driver(field.realm.paths.root, log=tmp_path / "log", command=True)
    try:
        driver.wait_until(lambda: batches(field.paths.ledger) > 0, PATIENCE)
        processes = driver.everyone()
        assert len(processes) >= 3, driver.told()
        ports, sockets = tcp(processes), unix(processes)
        assert {name for name, _ in ports} <= {"java"}, f"a Python process listens: {ports}"
        assert ports, "Spark listens on loopback, behind secrets"
        addresses = [c.laddr.ip for p in processes for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
        assert obeyed(*(str(port) for _, port in ports)) == []
        if stranger()[1]:
            assert obeyed(*sockets) == [], "nor does a socket let another user in"
        for path in sockets:
            guards = [parent for parent in Path(path).parents if parent.exists()]
            assert any(stat.S_IMODE(parent.stat().st_mode) == 0o700 for parent in guards), path
        # It goes on as if nobody had asked.
        before = batches(field.paths.ledger)
        field.publish_round()
        driver.wait_until(lambda: batches(field.paths.ledger) > before, PATIENCE)
        assert driver.process.poll() is None, driver.told()
    finally:
        driver.kill_all()


def test_what_py4j_opens_for_listeners_obeys_everybody() -> None:
    """The attack that made us fetch progress instead of listening for it: anybody silences the metrics."""

    class Listener:
        _metrics = "on"

    listener = Listener()
    gateway = ClientServer(JavaParameters(), PythonParameters(port=0, daemonize=True, daemonize_connections=True))
    try:
        gateway.gateway_property.pool.put(listener, "p0")
        found = obeyed(str(gateway._callback_server.server_socket.getsockname()[1]))
        assert any("__setattr__" in line for line in found)
        assert listener._metrics is None
    finally:
        gateway.shutdown_callback_server()
