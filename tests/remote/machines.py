"""Brokers on machines of their own: a home with their keys and their disk, and a gateway before it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sealcast import Subscriber
from sealcast.control.reception import Reception, invite
from sealcast.gateway.hub import Hub
from sealcast.gateway.running import GatewayService
from sealcast.protections.layered.node import HOPS, HopStep
from sealcast.protections.steps import StepName
from sealcast.transports.address import GatewayAddress
from sealcast.trust import deployment, joining
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import BrokerRealm, EntityRealm, GatewayRealm
from sealcast.trust.realm.changes import AnnounceGateway
from sealcast.trust.registry import now_us
from tests.clients.layered_pump import admit_all, hop_all
from tests.remote.world import PATIENCE_S, TOPIC, Served

HOUR_US = 3_600_000_000


class BrokerMachine:
    """One broker's home, its gateway in a thread, and nothing of anybody else."""

    def __init__(self, world: Served, name: str) -> None:
        self.name, self.door, self.home = name, f"{name}-door", world.directory / f"machine-{name}"
        self._port = 0
        for who, role in ((name, Role.BROKER), (self.door, Role.GATEWAY)):
            join(world, self.home, who, role)
        self.start_gateway()
        self.realm.registry.apply(AnnounceGateway(name, self.door, "127.0.0.1", self.port))

    @property
    def realm(self) -> BrokerRealm:
        return BrokerRealm(self.home)

    @property
    def hub(self) -> Hub:
        assert self._gateway.hub is not None
        return self._gateway.hub

    def start_gateway(self) -> None:
        self._gateway = GatewayService(GatewayRealm(self.home), self.door, port=self._port)
        self.port = self._port = self._gateway.port
        self._serving = threading.Thread(target=lambda: asyncio.run(self._gateway.run()), daemon=True)
        self._serving.start()
        assert self._gateway.started.wait(PATIENCE_S)

    def stop_gateway(self) -> None:
        self._gateway.stop()
        self._serving.join(PATIENCE_S)
        assert not self._serving.is_alive()


def join(world: Served, home: Path, name: str, role: Role = Role.ENTITY) -> None:
    """Over the realm's gateway, with a code; the reception answers meanwhile."""
    hosts = ["127.0.0.1"] if role is Role.GATEWAY else []
    code, _ = invite(world.realm, name, (), HOUR_US, role, hosts)
    done, ready = threading.Event(), threading.Event()

    def answer() -> None:
        with Reception(deployment.Realm(world.realm.paths.root)) as reception:
            ready.set()
            while not done.is_set():
                reception.turn()
                done.wait(0.01)

    answering = threading.Thread(target=answer, daemon=True)
    answering.start()
    assert ready.wait(PATIENCE_S)
    try:
        joining.join(GatewayAddress("127.0.0.1", world.port), code, home, now_us)
    finally:
        done.set()
        answering.join(PATIENCE_S)


@contextmanager
def machines(world: Served, *names: str) -> Iterator[list[BrokerMachine]]:
    made = list[BrokerMachine]()
    try:
        for name in names:
            made.append(BrokerMachine(world, name))
        yield made
    finally:
        for machine in made:
            machine.stop_gateway()


def pump_node(realm: BrokerRealm, topic: str, node: str) -> int:
    """One broker of a tree, alone: filters, frames and hops that wait for it; how much moved."""
    name = StepName(str(realm.paths.root), topic, node, HOPS)
    HopStep.of(name).look_up()
    moved = HopStep.turn([name])
    if realm.paths.topic(topic, node).frames_root.is_dir():
        moved += sum(admit_all(realm, topic, node).values())  # type: ignore[arg-type]
    return moved + sum(hop_all(name, lambda piece: piece).values())


def payloads(home: EntityRealm, name: str, world: Served, timeout: float = 60.0) -> list[bytes]:
    """What a reader gets and acknowledges; where nothing is expected, it need not wait for it."""
    with world.side.key_asker(home, TOPIC, name) as ask, Subscriber(home, TOPIC, name, ask=ask) as sub:
        got = [event.payload for event in sub.poll(timeout=timeout)]
        sub.ack()
        return got


class Tree:
    """A layered topic: its root where the realm is, and brokers below it on machines of their own, side by side or one
    below the other."""

    def __init__(self, world: Served, below: list[BrokerMachine], *, chain: bool = False) -> None:
        self.world, self.root = world, f"{TOPIC}-node-1"
        self.below = {machine.name: machine for machine in below}
        above = self.root
        for name in self.below:
            world.realm.place_node(TOPIC, name, under=above)
            above = name if chain else above

    def settle(self) -> None:
        """Until nothing moves any more."""
        while sum(self.turn(name) for name in (self.root, *self.below)):
            pass

    def hear(self, readers: dict[str, EntityRealm]) -> None:
        """Until the filters of these have come to the root. A reader learns of a new publisher within a second or so,
        and says then what it wants."""
        until = time.monotonic() + PATIENCE_S
        while len(self.senders()) < len(readers):
            assert time.monotonic() < until
            for name, home in readers.items():
                with Subscriber(home, TOPIC, name) as early:
                    assert early.poll() == []
            self.settle()

    def senders(self) -> set[str]:
        """Whom the root hands events on to."""
        step = HopStep.of(StepName(str(self.world.realm.paths.root), TOPIC, self.root, HOPS))
        fold = step.keeper._log.fold()
        return {stream.sender for tree in fold.trees.values() for stream in tree.rows}

    def turn(self, name: str) -> int:
        realm = self.below[name].realm if name in self.below else self.world.realm
        return pump_node(realm, TOPIC, name)
