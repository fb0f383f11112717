"""Python processes for Spark, forked from one that has imported everything, instead of started one by one.

Spark runs Python in more places than workers: to find data sources, to make one, to plan a read, to plan a write, to
follow a stream's offsets, to commit. Each is a process of its own that starts Python, imports PySpark, Arrow and us,
and does a few milliseconds of work; before the first micro-batch there are seven of them, one after the other, and then
come three workers a core. So the session starts this process while the JVM starts, and names `LAUNCHER` to Spark as its
Python (half the CPU of a first micro-batch is saved, measured):

    Spark --exec--> launcher --argv, environment, stdin, stdout, stderr over a Unix socket--> zygote --fork--> process

The launcher is a dozen lines that run in a bare interpreter; it stays for as long as its process does, since Spark
holds on to it, and the process ends with it. Whatever it cannot hand over (another module, no zygote) it runs itself,
with the real Python. The socket is in the session's private directory.

Forking is safe because nothing here has started a thread (settings.THREADLESS, and a test that counts), and nothing
here has opened a realm: a fork inherits code and no secrets.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sealcast.model.protection import PROTECTIONS
from sealcast.pipeline.settings import DAEMON

SOCKET: Final = "zygote"
LAUNCHER: Final = "python"
_DAEMON: Final = "pyspark.daemon"
#: What the zygote can become: the daemon that forks workers, and the processes that Spark has on the driver for a
#: stream's offsets and for the start of a stateful query. Anything else is started as usual.
_MODULES: Final = (
    _DAEMON,
    DAEMON,
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
_MAX_REQUEST: Final = 1 << 20
#: A kernel's limit for the first line of a script.
_MAX_SHEBANG: Final = 127
_LENGTH: Final = struct.Struct(">I")

_LAUNCH: Final = """\
#!{python} -IS
import array, json, os, socket, struct, sys

PYTHON, SOCKET = {python!r}, {socket!r}
if sys.argv[1:2] == ["-m"] and sys.argv[2] in {modules!r}:
    body = json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode()
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(SOCKET)
        streams = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
        link.sendmsg([struct.pack(">I", len(body))], [streams])
        link.sendall(body)
        taken = link.recv(1)
    except OSError:
        taken = b""
    if taken:
        os.close(0), os.close(1)
        link.recv(1)  # until the process has ended
        sys.exit(0)
os.execv(PYTHON, [PYTHON, *sys.argv[1:]])
"""


class Zygote:
    """The process as its parent sees it. It ends when its standard input is closed, so with its parent."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sealcast.pipeline.zygote", str(home / SOCKET)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environment, "PYTHONHASHSEED": "0"},  # as Spark's own workers have it, to agree on hashes
            process_group=0,
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()


def launcher(home: Path) -> str:
    """The program to name to Spark as its Python."""
    if len(sys.executable) + len("#! -IS") > _MAX_SHEBANG or " " in sys.executable:
        return sys.executable
    path = home / LAUNCHER
    text = _LAUNCH.format(python=sys.executable, socket=str(home / SOCKET), modules=_MODULES)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)
    # Where nothing may be executed in the directory for temporary files, Spark starts its Pythons itself.
    return str(path) if os.access(path, os.X_OK) else sys.executable


# --- in the process itself --------------------------------------------------------------------------


def serve(listening: socket.socket) -> None:
    """Forks a process for every request, until standard input ends."""
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        ready, _, _ = select.select([listening.fileno(), 0], [], [])
        if 0 in ready:
            return
        link, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            become(link)
        link.close()


def _reap(*_: object) -> None:
    """Waits for children that have ended, so that the processor time that they took counts for this session."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become(link: socket.socket) -> None:
    """In the child: takes over the launcher's streams, environment and arguments, and never returns."""
    code = 1
    try:
        (module, *arguments), environment, directory = _request(link)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        sys.argv = [module, *arguments]
        wanted = environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[1:1] = [entry for entry in wanted if entry and entry not in sys.path]
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        link.sendall(b"+")
        _run(module, link)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        # Without the clean-up of an interpreter that is a copy of another one's.
        os._exit(code)


def _run(module: str, link: socket.socket) -> None:
    if module in (_DAEMON, DAEMON):  # it ends with its standard input, and forks: no threads
        from pyspark.daemon import manager

        manager()
        return
    threading.Thread(target=_end_with, args=(link,), daemon=True).start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # it was imported before it is run: that is what we are for
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with(link: socket.socket) -> None:
    """What Spark ends, or somebody kills, is the launcher."""
    with contextlib.suppress(OSError):
        link.recv(1)
    os._exit(1)


def _request(link: socket.socket) -> tuple[list[str], dict[str, str], str]:
    streams = array.array("i")
    head, ancillary, _, _ = link.recvmsg(_LENGTH.size, socket.CMSG_SPACE(3 * streams.itemsize))
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            streams.frombytes(data)
    (length,) = _LENGTH.unpack(head)
    if len(streams) != 3 or length > _MAX_REQUEST:
        raise SystemExit(1)
    body = bytearray()
    while len(body) < length and (part := link.recv(length - len(body))):
        body += part
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    arguments, environment, directory = json.loads(body)
    return arguments, environment, directory


def preload() -> None:
    """Everything that a daemon, a worker or a planner imports sooner or later."""
    for module in (
        "pandas",
        "pyspark.worker",
        "pyspark.sql.pandas.serializers",
        *_MODULES,
        *(
            f"pyspark.sql.worker.{name}"
            for name in (
                "create_data_source",
                "lookup_data_sources",
                "plan_data_source_read",
                "write_into_data_source",
                "commit_data_source_write",
                "python_streaming_sink_runner",
            )
        ),
        *(f"sealcast.protections.{name}.broker" for name in PROTECTIONS),
        "sealcast.pipeline.public",
        "sealcast.pipeline.sinks",
        "sealcast.pipeline.sources",
        # The registry's: imported late elsewhere, for those who never open one.
        "sealcast.trust.storage.store",
        "sealcast.trust.storage.sqlite",
        "sqlalchemy.dialects.sqlite.pysqlite",
    ):
        importlib.import_module(module)


def main(path: str) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)  # before the imports: whoever comes early waits
    preload()
    # What is there before the fork takes no part in the garbage collection that Spark asks for after every task.
    gc.collect()
    gc.freeze()
    serve(listening)


if __name__ == "__main__":
    main(sys.argv[1])
