"""What the rows of suite `network` share: a gateway in a process of its own, and clients that have homes."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from sealcast.control.budgets import Allowance
from sealcast.control.running import Running
from sealcast.errors import Unavailable
from sealcast.gateway.limits import DEFAULT_LIMITS
from sealcast.gateway.running import GatewayService
from sealcast.model.protection import PROTECTIONS
from sealcast.overlay.brokers import requests_of
from sealcast.protections.port import broker_side, center_rules
from sealcast.trust import homes
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import EntityRealm, GatewayRealm
from sealcast.trust.layout import RealmMark, read_mark

GATEWAY: Final = "door"
HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 300


class ServerProcess:
    """A server of the benchmark, as its parent sees it. `target` sends its port, answers "cpu" with the seconds that it
    has spent, and ends at None."""

    def __init__(self, target: Any, root: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, other = spawn.Pipe()
        self._process = spawn.Process(target=target, args=(str(root), other), daemon=True)
        self._process.start()
        if not self._pipe.poll(PATIENCE_S):
            raise Unavailable("the server of the benchmark does not start")
        self.port: int = self._pipe.recv()

    def cpu(self) -> float:
        self._pipe.send("cpu")
        found: float = self._pipe.recv()
        return found

    def say(self, what: object) -> None:
        self._pipe.send(what)

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join(30)
        self._process.kill()


def gateway(root: str, pipe: Connection) -> None:
    """A gateway that refuses nobody for asking much."""
    plenty = Allowance(per_second=100_000, burst=100_000)
    limits = replace(
        DEFAULT_LIMITS, caller=plenty, address=plenty, waiting=1 << 20, connections=1 << 16, per_address=1 << 16
    )
    made = GatewayService(GatewayRealm(root), limits=limits)

    def obey() -> None:
        made.started.wait()
        pipe.send(made.port)
        while pipe.recv() == "cpu":
            pipe.send(time.process_time())
        made.stop()

    threading.Thread(target=obey, daemon=True).start()
    asyncio.run(made.run())


def gateway_and_services(root: str, pipe: Connection) -> None:
    """The same, with what `sealcast serve` answers."""
    here = Realm(root)
    asked = [requests_of, *(broker_side(kind()).requests for kind in PROTECTIONS.values())]

    def answer() -> None:
        with Running(
            here, more=lambda name: {k: a for each in asked for k, a in each(here, name).items()},
            center_more=center_rules,
        ) as running:  # fmt: skip
            running.start()
            while True:
                if not running.turn():
                    time.sleep(0.01)

    threading.Thread(target=answer, daemon=True).start()
    gateway(root, pipe)


def home(realm: Realm, port: int, directory: Path, *names: str) -> EntityRealm:
    """A home with the keys of these entities, as `sealcast join` leaves it."""
    mark, state = read_mark(realm.paths), realm.state()
    paths = homes.make(directory, RealmMark(mark.name, mark.id, mark.root, gateway=f"sealcast://{HOST}:{port}"))
    trust = realm.trust(state)
    for name in names:
        certificate = state.entity(name).certificate
        homes.write_chain(paths, name, [certificate, trust.issuer_of(certificate), trust.root.der])
        shutil.copy(realm.paths.entity_key(name), paths.entity_key(name))
    return EntityRealm(directory)


@contextmanager
def files_for(connections: int) -> Iterator[None]:
    """As many open files as so many connections take, at both ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4 * connections + 512
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Unavailable(f"{needed} files are needed for {connections} followers, and {hard} may be opened")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
