"""A mosquitto of the tests' own, from Debian's packages, with the plug-in built from this tree: on loopback."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PLUGIN = "sealcast_mosquitto.so"
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


class Mosquitto:
    """One server. Its users' passwords are their names, backwards."""

    def __init__(self, directory: Path, users: Sequence[str], *more: str) -> None:
        self.directory = directory
        self.log = directory / "mosquitto.log"
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as chosen:
            self.port: int = chosen.getsockname()[1]
        passwords, acl = directory / "passwords", directory / "acl"
        passwords.write_text("".join(f"{user}:{user[::-1]}\n" for user in users))
        passwords.chmod(0o600)
        subprocess.run([programs("mosquitto_passwd"), "-U", passwords], check=True, capture_output=True)
        acl.write_text(OPEN_ACL)
        (directory / "mosquitto.conf").write_text(
            "\n".join(
                [
                    f"listener {self.port} 127.0.0.1",
                    *(["user root"] if os.geteuid() == 0 else []),
                    "allow_anonymous true",
                    f"password_file {passwords}",
                    f"acl_file {acl}",
                    "max_queued_messages 0",
                    "log_type error",
                    "log_type warning",
                    "log_type notice",
                    "set_tcp_nodelay true",
                    *more,
                    "",
                ]
            )
        )

    def start(self) -> Mosquitto:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [programs("mosquitto"), "-c", self.directory / "mosquitto.conf"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_the_tests,
            )
        end = time.monotonic() + 30
        while self._process.poll() is None and time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.02)
        raise AssertionError(self.said())

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until the server's log has the text so many times."""
        end = time.monotonic() + 20
        while self.said().count(text) < times:
            assert time.monotonic() < end, f"{text!r} is not in the log:\n{self.said()}"
            time.sleep(0.02)


def with_plugin(directory: Path, plugin: Path, users: Sequence[str], *more: str) -> Mosquitto:
    """A server that matches sealed topics with the table `directory/table`."""
    return Mosquitto(directory, users, f"plugin {plugin}", f"plugin_opt_table {directory / 'table'}", *more)
