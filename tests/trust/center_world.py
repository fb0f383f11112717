"""A realm with a key center and a broker's desk, entities who ask them, and a clock that is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sealcast.control.at_hand import services_at_hand
from sealcast.control.center.service import KeyCenter, center_service
from sealcast.control.correspondence import Correspondent
from sealcast.control.desk import More
from sealcast.control.discovery import embedded
from sealcast.control.envelopes import ControlMessage, EnvelopeParty, ProvenMessage
from sealcast.control.running import Running
from sealcast.control.service import Service
from sealcast.control.wallet import Wallet
from sealcast.model import Schema
from sealcast.trust.certificates.certificate import Certificate, parse
from sealcast.trust.deployment import Realm

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 100}]})
SECOND = 1_000_000
DAY = 86_400 * SECOND
NOW = 1_800_000_000 * SECOND


class World:
    """One realm. `now` is its clock; who asks is closed at the end."""

    def __init__(self, directory: Path) -> None:
        self.now = NOW
        self.realm = Realm.create(directory / "market", clock=self.clock)
        self.realm.enrol_many(["owner", "alice", "bob", "mallory"])
        self._open: list[Correspondent | Wallet] = []

    def clock(self) -> int:
        return self.now

    def later(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def asker(self, name: str, *, at_hand: bool = True) -> Correspondent:
        here = services_at_hand(self.realm) if at_hand else None
        made = Correspondent(self.realm, self.realm.identity(name), at_hand=here)
        self._open.append(made)
        return made

    def wallet(self, name: str, **options: bool) -> Wallet:
        made = Wallet(self.realm, name, **options)
        self._open.append(made)
        return made

    def certificate(self, name: str) -> Certificate:
        return parse(self.realm.state().entity(name).certificate)

    def party(self, name: str) -> EnvelopeParty:
        return embedded.party(self.realm, self.realm.identity(name))

    def opened(self, sender: str, kind: str, body: bytes) -> ProvenMessage:
        """A request as the service's handler gets it, proven."""
        return ProvenMessage(self.certificate(sender), ControlMessage.request(kind, body, bytes(16), self.now))

    def center(self, name: str = "center") -> tuple[Service, KeyCenter]:
        service, center = center_service(self.realm, self.realm.center(name), advertised=False)
        service.start(self.now)
        return service, center

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


@contextmanager
def served(realm: Realm, *names: str, more: Callable[[str], More] | None = None) -> Iterator[Running]:
    """The realm's services in a thread of their own, as `sealcast serve` has them in a process."""
    with Running(Realm(realm.paths.root, clock=realm.clock), names or None, more=more) as running:
        running.start()
        with turning(running):
            yield running


@contextmanager
def turning(running: Running) -> Iterator[None]:
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            if not running.turn():
                time.sleep(0.002)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
