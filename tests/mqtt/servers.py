"""A real mosquitto for tests: started on a free port of the loopback interface, and ended by its id."""

from __future__ import annotations

import getpass
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.log.closing import Closing

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


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


class Mosquitto(Closing):
    """One server. Its sessions and queues survive `restart`."""

    def __init__(self, directory: Path, *lines: str, listener: str = "") -> None:
        if MOSQUITTO is None:
            pytest.fail("these tests need mosquitto: apt-get install --no-install-recommends mosquitto")
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._directory, self._config = directory, directory / "mosquitto.conf"
        settings = [
            f"listener {self.port} 127.0.0.1",
            listener,
            f"user {getpass.getuser()}",  # started by root it would change to another, who cannot write here
            *([] if "allow_anonymous false" in lines else ["allow_anonymous true"]),
            "persistence true",
            f"persistence_location {directory}/",
            "max_queued_messages 0",
            *lines,
        ]
        self._config.write_text("\n".join(settings) + "\n")
        self.start()

    def start(self) -> None:
        log = (self._directory / "log").open("ab")
        command = [str(MOSQUITTO), "-c", str(self._config)]
        self._process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        until(lambda: answers(self.port) or self._process.poll() is not None)
        assert self._process.poll() is None, (self._directory / "log").read_text()

    def stop(self) -> None:
        """In good order: what it holds is saved."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)
        assert (self._directory / "mosquitto.db").exists()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(20)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
