"""A mosquitto of the tests' own, from Debian's packages, with the plug-in built from this tree: on loopback."""

from __future__ import annotations

import ctypes
import getpass
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sealcast.log.closing import Closing
from tests.mqtt.servers import answers, free_port, until

TREE = Path(__file__).parents[2]
PLUGIN = "sealcast_mosquitto.so"
#: How long a busy machine may take to log what it was told.
PATIENCE = 60.0
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
#: Reads as: what the plug-in does not decide, everybody may. Without an ACL file, mosquitto refuses all of it.
OPEN_ACL = "pattern readwrite #\ntopic readwrite #\n"


def programs(name: str) -> Path:
    """Debian keeps mosquitto in a directory that is not on everybody's PATH."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.fail(f"the tests need mosquitto ({name}): make mosquitto", False)
    return Path(found)


def build(out: Path, target: str = PLUGIN) -> Path:
    """The plug-in, or the executable that the fuzz test runs."""
    done = subprocess.run(
        ["make", "-C", TREE / "mqtt-plugin", f"OUT={out}", out / target], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"the plug-in for mosquitto is not built: make mqtt-plugin\n{done.stderr}", False)
    return out / target


def _die_with_the_tests() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)


class Mosquitto(Closing):
    """One server on loopback, killed at the end if it still runs. With `users`, these have passwords, which are their
    names backwards. With persistence its sessions and queues survive `restart`."""

    def __init__(
        self,
        directory: Path,
        *lines: str,
        users: Sequence[str] = (),
        listener: str = "",
        persistent: bool = True,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.port = directory, free_port()
        self.log, self._config = directory / "mosquitto.log", directory / "mosquitto.conf"
        self._process: subprocess.Popen[bytes] | None = None
        settings = [
            f"listener {self.port} 127.0.0.1",
            listener,
            f"user {getpass.getuser()}",  # started by root it would change to another, who cannot write here
            *([] if "allow_anonymous false" in lines else ["allow_anonymous true"]),
            *(self._doors(users) if users else []),
            *(["persistence true", f"persistence_location {directory}/"] if persistent else []),
            "max_queued_messages 0",
            "log_type error",
            "log_type warning",
            "log_type notice",
            "set_tcp_nodelay true",
            *lines,
        ]
        self._config.write_text("\n".join(settings) + "\n")

    def _doors(self, users: Sequence[str]) -> list[str]:
        passwords, acl = self.directory / "passwords", self.directory / "acl"
        passwords.write_text("".join(f"{user}:{user[::-1]}\n" for user in users))
        passwords.chmod(0o600)
        subprocess.run([programs("mosquitto_passwd"), "-U", passwords], check=True, capture_output=True)
        acl.write_text(OPEN_ACL)
        return [f"password_file {passwords}", f"acl_file {acl}"]

    def start(self) -> Mosquitto:
        with self.log.open("ab") as log:
            process = self._process = subprocess.Popen(
                [programs("mosquitto"), "-c", self._config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_the_tests,
            )
        until(lambda: answers(self.port) or process.poll() is not None, 30)
        assert process.poll() is None, self.said()
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """In good order, if it is not told otherwise: what it holds is saved."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def restart(self) -> None:
        self.stop()
        assert (self.directory / "mosquitto.db").exists()
        self.start()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    close = kill

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until the server's log has the text so many times."""
        end = time.monotonic() + PATIENCE
        while self.said().count(text) < times:
            assert self._process is not None and self._process.poll() is None, f"it ended:\n{self.said()}"
            assert time.monotonic() < end, f"{text!r} is not in the log:\n{self.said()}"
            time.sleep(0.02)
