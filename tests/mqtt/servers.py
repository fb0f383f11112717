"""What tests that start servers on the loopback interface have in common."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(what: Callable[[], object], seconds: float = 20.0, every: float = 0.02) -> None:
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
