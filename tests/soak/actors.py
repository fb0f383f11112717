"""Clients and peers of a campaign as real processes, many and light: forked from one that has everything imported.

    python -m tests.soak.actors     {"role": NAME, "realm": DIR, "topic": ..., "name": ..., ...} -> the process's id
                                    {"kill": ID}, {"wait": ID}                                   -> its exit code

A client that meets an error of ours writes it down and tries again, as a user's program would. Any other exception is a
finding. Children end with their parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealcast.errors import SealcastError, Unavailable
from sealcast.pipeline.settings import THREADLESS
from tests.pipeline.drivers import ROOT
from tests.soak.journal import Journal, Published
from tests.soak.world import events, named

if TYPE_CHECKING:
    from sealcast import Event
    from sealcast.clients.publisher import Publisher

MODULES: Final = (
    "sealcast.cli.main",
    "sealcast.cli.peer",
    "sealcast.clients.publisher",
    "sealcast.clients.subscriber",
    "sealcast.control.at_hand",
    "sealcast.protections.attribute.peering.host",
    "sealcast.trust.storage.store",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "sqlalchemy.dialects.postgresql.psycopg",
)
DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG
#: Frames that a publisher is ahead of whoever carries them, at most.
AHEAD: Final = 40
RETRY_S: Final = 0.3
#: How long a client with nothing to do waits: there are many of them, and they have two cores.
PAUSE_S: Final = 0.3


def publish(asked: dict[str, Any], journal: Journal) -> None:
    """Publishes up to the number that stands in the file `allowance`, which grows. With `room`, its files cannot grow
    by more than so many bytes, until it was refused once. With `pause`, it rests after each frame. With `again`, it
    publishes the same events again, by the same handle, until they are acknowledged."""
    from sealcast.clients.publisher import Publisher

    number = Published(Path(asked["journal"])).next
    with Publisher(asked["realm"], asked["topic"], asked["name"]) as publisher:
        while True:
            allowed = int(Path(asked["allowance"]).read_text() or 0)
            count = asked["frame"]
            if number + count > allowed or publisher.waiting() > AHEAD:
                publisher.flush()
                time.sleep(PAUSE_S)
                continue
            made = events(asked["name"], number, count)
            journal.note("begin", number, count)
            number += count
            with on_full_disk(_largest(publisher) if "room" in asked else 0, asked.get("room")):
                _publish(publisher, made, journal if asked.get("again") else None)
            journal.note("acknowledged")
            time.sleep(asked.get("pause", 0.0))


def _publish(publisher: Publisher, made: list[Event], journal: Journal | None) -> None:
    while True:
        try:
            publisher.publish(made)
            return
        except Unavailable as error:
            if journal is None:
                raise
            journal.note("error", type(error).__name__, error.message)
            time.sleep(RETRY_S)


def _largest(publisher: Publisher) -> int:
    """The size of the segment that it writes to."""
    return max((file.stat().st_size for file in publisher.directory.rglob("*.seg")), default=0)


def subscribe(asked: dict[str, Any], journal: Journal) -> None:
    """Reads and acknowledges; with `once`, until there is nothing more. With `room`, it cannot save its cursor, until
    it was refused once."""
    from sealcast.clients.subscriber import Subscriber

    with Subscriber(asked["realm"], asked["topic"], asked["name"]) as reader:
        while True:
            found = reader.poll(asked.get("batch", 700), asked.get("wait", 0.0))
            if reader.dropped:
                journal.note("dropped", reader.dropped.repeated + reader.dropped.misrouted)
                raise AssertionError(f"a broker sent what it should not: {reader.dropped}")
            if found:
                journal.note("got", [named(event.payload) for event in found])
                with on_full_disk(0, asked.get("room")):
                    reader.ack()
                journal.note("acknowledged")
            elif asked.get("once"):
                os._exit(0)
            else:
                time.sleep(PAUSE_S)


def peer(asked: dict[str, Any], journal: Journal) -> None:
    from sealcast.cli.main import main as command

    try:
        command(["peer", "run", "--as", asked["name"], "--heartbeat", "2", "--realm", asked["realm"]])
    except SystemExit as end:
        # A registry that does not answer ends the command with a word. Whoever supervises it starts it again.
        if end.code != 1:
            raise
        raise Unavailable("a peer's command has ended; its own word is in its output") from None


ROLES: Final[dict[str, Callable[[dict[str, Any], Journal], None]]] = {
    "publisher": publish,
    "subscriber": subscribe,
    "peer": peer,
}


@contextlib.contextmanager
def on_full_disk(size: int, room: int | None) -> Iterator[None]:
    """With `room`, no file of this process grows beyond `size` and so much more, as on a full disk."""
    if room is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def child(asked: dict[str, Any]) -> None:
    out = os.open(asked["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd in (1, 2):
        os.dup2(out, fd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    journal = Journal(Path(asked["journal"]))
    try:
        while True:
            try:
                ROLES[asked["role"]](asked, journal)
            except SealcastError as error:
                asked.pop("room", None)
                journal.note("error", type(error).__name__, error.message)
                time.sleep(RETRY_S)
    except BaseException as error:  # noqa: BLE001
        traceback.print_exc()
        code = getattr(error, "code", None)
        journal.note("UNEXPECTED", f"{type(error).__name__} {code or error}")
    finally:
        os._exit(1)


def main() -> None:
    for module in MODULES:
        import_module(module)
    from sealcast.primitives.pairing import best

    best()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        if "role" in asked:
            pid = os.fork()
            if pid == 0:
                child(asked)
            print(pid, flush=True)
            continue
        # It is ours until we have waited for it: no other process can have its number.
        if "kill" in asked:
            os.kill(asked["kill"], signal.SIGKILL)
        _, status = os.waitpid(asked.get("kill") or asked["wait"], 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class Actors:
    """Starts clients and peers, and kills those that it started."""

    def __init__(self, environment: Mapping[str, str], within: Sequence[str] = ()) -> None:
        """`within` is a command that starts programs elsewhere, in a namespace."""
        self._process = subprocess.Popen(
            [*within, sys.executable, "-m", "tests.soak.actors"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **THREADLESS, **environment},
            cwd=ROOT,
        )
        self._living: dict[tuple[str, str, str], int] = {}

    def start(self, role: str, topic: str, name: str, **about: Any) -> None:
        assert (role, topic, name) not in self._living
        self._living[role, topic, name] = self._ask({"role": role, "topic": topic, "name": name, **about})

    def kill(self, role: str, topic: str, name: str) -> int:
        """Its exit code: -9, unless it had ended before."""
        return self._ask({"kill": self._living.pop((role, topic, name))})

    def wait(self, role: str, topic: str, name: str) -> int:
        return self._ask({"wait": self._living.pop((role, topic, name))})

    def close(self) -> None:
        for who in list(self._living):
            self.kill(*who)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _ask(self, request: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
