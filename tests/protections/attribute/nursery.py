"""Real processes of `sealcast peer run`, many and light: forked from one that has everything imported.

    python -m tests.protections.attribute.nursery      {"args": [...], "out": PATH, "netns": NAME or null}  a line each
                                                    -> the process's id, a line each

Each child is a process of its own, with its own keys, files and sockets; it runs the command as a shell would. The
parent only forks. Children end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

CLONE_NEWNET = 0x40000000


#: What a child would import. It finds all of it there already.
MODULES = (
    "sealcast.cli.main",
    "sealcast.cli.peer",
    "sealcast.control.at_hand",
    "sealcast.protections.attribute.peering.host",
    "sealcast.trust.storage.store",
)


def main() -> None:
    for module in MODULES:
        import_module(module)
    from sealcast.primitives.pairing import best

    best()
    gc.collect()
    gc.freeze()  # children share these pages for as long as nobody counts the objects in them
    children = set[int]()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child(asked)
        children.add(pid)
        print(pid, flush=True)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def child(asked: dict[str, Any]) -> None:
    out = os.open(asked["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(0)  # noqa: SIM115
    if asked["netns"] is not None:
        fd = os.open(f"/var/run/netns/{asked['netns']}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET):
            os._exit(3)
    from sealcast.cli.main import main as command

    code = 1
    try:
        command(asked["args"])
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class PeerProcess:
    """One process of peers, by its id."""

    def __init__(self, pid: int, names: list[str], out: Path) -> None:
        self.pid, self.names, self.out = pid, names, out

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)
        deadline = time.monotonic() + 15
        while self.alive:
            assert time.monotonic() < deadline, f"{self.names} does not end: {self.said()[-2000:]}"
            time.sleep(0.01)

    def said(self) -> str:
        """What it printed; nothing while it has not begun."""
        return self.out.read_text() if self.out.exists() else ""


class Nursery:
    """Starts processes; ends those that it started."""

    def __init__(self, realm: Path, directory: Path) -> None:
        self._realm, self._directory = realm, directory
        directory.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.protections.attribute.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started = list[PeerProcess]()

    def start(self, *names: str, options: tuple[str, ...] = (), netns: str | None = None) -> PeerProcess:
        out = self._directory / f"{len(self.started)}-{'-'.join(names)[:40] or 'all'}.out"
        named = [part for name in names for part in ("--as", name)]
        args = ["peer", "run", *named, *options, "--realm", str(self._realm)]
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"args": args, "out": str(out), "netns": netns}) + "\n")
        self._process.stdin.flush()
        made = PeerProcess(int(self._process.stdout.readline()), list(names), out)
        self.started.append(made)
        return made

    def close(self) -> None:
        for each in self.started:
            if each.alive:
                each.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)


if __name__ == "__main__":
    main()
