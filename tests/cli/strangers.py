"""What another user of the machine gets from the ports of a process, without any secret."""

from __future__ import annotations

import subprocess

import psutil

from tests.mqtt.servers import until
from tests.pipeline.test_ports import stranger, tcp

PATIENCE = 120.0
#: Told to every port: as a browser would, as an MQTT client without a name or password, as a client that is lost.
ASKED = {
    "http": b"GET /metrics HTTP/1.0\r\n\r\n",
    "mqtt": b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04anon",
    "noise": b"\x00\x01hello\n" * 4,
}
_STRANGER = f"""
import socket, sys
for port in map(int, sys.argv[1:]):
    for how, asked in {ASKED!r}.items():
        said = b""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
                link.settimeout(3)
                link.sendall(asked)
                said = link.recv(4096)
        except OSError:
            pass
        print(port, how, said.hex() or "-", flush=True)
"""


def answers(*ports: int) -> dict[str, bytes]:
    """What came back, by what was asked, from all of these ports together; empty where nothing did."""
    python, identity = stranger()
    done = subprocess.run(
        [python, "-S", "-c", _STRANGER, *map(str, ports)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        cwd="/",
        user=identity.get("user"),
    )
    found = dict.fromkeys(ASKED, b"")
    for line in done.stdout.splitlines():
        _, how, said = line.split()
        found[how] += b"" if said == "-" else bytes.fromhex(said)
    return found


def everyone(process: subprocess.Popen[str]) -> list[psutil.Process]:
    top = psutil.Process(process.pid)
    return [top, *top.children(recursive=True)]


def ports_of(process: subprocess.Popen[str], least: int = 0) -> list[int]:
    """Where a process and its children listen, when there are so many ports at least."""
    until(lambda: process.poll() is not None or len(tcp(everyone(process))) >= least)
    assert process.poll() is None, "it has ended"
    return [port for _, port in tcp(everyone(process))]


def said(process: subprocess.Popen[str], words: str) -> None:
    """Waits until a process has said something."""
    assert process.stderr is not None
    while words not in (line := process.stderr.readline()):
        assert line, "it has ended"
