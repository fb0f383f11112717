"""The hosts of the tests are hosts: a cable that is cut, a disk of their own, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.network import hosts
from tests.network.hosts import Host, Network
from tests.network.machine import PATIENCE_S

_LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print("port", server.getsockname()[1], "open", flush=True)
    while True:
        caller, _ = server.accept()
        while heard := caller.recv(100):
            print("heard", heard.decode(), flush=True)
            caller.sendall(heard)
"""
#: Says a word and waits for it to come back; then again, whenever it is told to.
_SAY = """
import socket, sys, time
from pathlib import Path
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=100) as line:
    for word in sys.argv[3:]:
        while not Path(word).exists():
            time.sleep(0.01)
        line.sendall(word.encode())
        print("said", word, flush=True)
        print("got", line.recv(100).decode(), flush=True)
"""
_DIAL = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)"


def test_a_cut_cable_holds_everything_back_until_it_is_healed(network: Callable[..., Network]) -> None:
    found = network("north", "south")
    north, south = found["north"], found["south"]
    server = north.start(sys.executable, "-c", _LISTEN, north.address, log="heard")
    port = server.wait_for("open").split()[1]
    caller = south.start(sys.executable, "-c", _SAY, north.address, port, "one", "two", log="said")
    (south.directory / "one").touch()
    caller.wait_for("got one")
    south.cut()
    (south.directory / "two").touch()
    caller.wait_for("said two")
    assert not reaches(south, north, port)
    assert "two" not in server.told() and "got two" not in caller.told()
    south.heal()
    caller.wait_for("got two")
    assert caller.process.wait(60) == 0 and reaches(south, north, port)


def reaches(host: Host, other: Host, port: str) -> bool:
    command = host.command([sys.executable, "-c", _DIAL, other.address, port])
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_a_host_has_a_disk_and_a_loopback_of_its_own(network: Callable[..., Network]) -> None:
    found = network("north", "south")
    north, south = found["north"], found["south"]
    (north.directory / "mine").write_text("north's")
    for host, seen in ((north, "mine"), (south, "")):
        listed = host.command(["ls", north.directory])
        assert subprocess.run(listed, capture_output=True, text=True, check=True).stdout.strip() == seen
    server = north.start(sys.executable, "-c", _LISTEN, "127.0.0.1", log="heard")
    port = server.wait_for("open").split()[1]
    assert reaches(north, north, port) is False, "it listens at its loopback alone"
    dial = [sys.executable, "-c", _DIAL, "127.0.0.1", port]
    assert [subprocess.run(host.command(dial), stderr=subprocess.DEVNULL).returncode for host in (north, south)] == [
        0,
        1,
    ]


def test_what_a_killed_run_left_is_swept_away(network: Callable[..., Network], tmp_path: Path) -> None:
    """A run that is killed cannot clean up. The next one does, and touches nobody else's."""
    living = network("here")["here"]
    left = tmp_path / "left"
    left.mkdir()
    script = f"""
import os, signal
from pathlib import Path
from tests.network.hosts import Network
found = Network(Path({str(left)!r}), "orphan").__enter__()["orphan"]
orphan = found.start("sh", "-c", "echo up; exec sleep 1000", log="log")
orphan.wait_for("up")
print(orphan.process.pid, found.namespace, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(hosts.__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    pid, namespace = run.stdout.split()
    assert namespace in names() and runs(int(pid))
    hosts.sweep()
    assert namespace not in names() and living.namespace in names()
    until = time.monotonic() + PATIENCE_S
    while runs(int(pid)):
        assert time.monotonic() < until
        time.sleep(0.05)


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def names() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
