"""What tests that start servers on the loopback interface have in common."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: Below what kernels give to outgoing connections (from 32,768 on Linux): a port from there may be somebody's again by
#: the time that a server listens, or comes back.
PORTS = range(20_000, 32_000)
#: As Linux numbers them: established, and closed by the other side only.
_HELD = ("01", "08")


def free_port() -> int:
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports were tried, and all are taken")


def until(what: Callable[[], object], seconds: float = 60.0, every: float = 0.02) -> None:
    """Waits for something to be so, and fails when it does not come to be."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"still not so after {seconds} s"
        time.sleep(every)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def holds(port: int, peer: int) -> bool:
    """Whether a server on loopback still holds a connection that came from a client's port, whoever closed it there."""
    ends = (f"0100007F:{port:04X}", f"0100007F:{peer:04X}")
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any((local, remote) == ends and state in _HELD for _, local, remote, state, *_ in lines)
