"""Two gateways on machines of their own, behind one address that moves from one to the other, as VRRP moves it.

Registry and frames are on machines of their own, and both gateways have the realm's directory. What is measured is how
long a client is without an answer, from the moment in which the address moved: how fast a pair of machines notices that
one of them is gone is its own setting, one to three seconds by default."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.hosts import missing
from tests.soak.cluster.machines import OWN, Machines

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
DOORS = ("door-1", "door-2")
#: Requests to key centers and discovery nodes wait in the realm's directory: a gateway elsewhere has it by a network
#: file system.
SHARED = dict.fromkeys(DOORS, "clients")
ADDRESS, PORT = "10.213.7.200", 7443
COMMAND = ("-c", "from sealcast.cli.main import main; main()")
#: From the move until the next event is acknowledged. docs/cluster.md states what was measured.
TAKEOVER_S = 12.0
#: As `sealcast join` leaves a home: on the realm's machine, where the keys were made.
_HOMES = """
import shutil, sys
from pathlib import Path
from sealcast import Realm
from sealcast.trust import homes
from sealcast.trust.layout import RealmMark, read_mark
root, target, address = sys.argv[1:]
realm = Realm(root)
mark, state = read_mark(realm.paths), realm.state()
paths = homes.make(Path(target), RealmMark(mark.name, mark.id, mark.root, gateway=address))
trust, certificate = realm.trust(state), state.entity("ann").certificate
homes.write_chain(paths, "ann", [certificate, trust.issuer_of(certificate), trust.root.der])
shutil.copy(realm.paths.entity_key("ann"), paths.entity_key("ann"))
"""
#: Publishes without end, and writes down when each event was acknowledged, and which it was.
_PUBLISHER = """
import sys, time
from sealcast import Publisher
from tests.soak.world import events
number = 0
with Publisher(sys.argv[1], "endpoint", "ann") as publisher:
    while True:
        placed = publisher.publish(events("ann", number, 1))
        while not placed and publisher.flush():
            time.sleep(0.01)
        print(time.monotonic(), number, flush=True)
        number += 1
        time.sleep(0.02)
"""
#: The broker's part, without Spark: how many events there were.
_BROKER = """
import sys
from sealcast import Realm
from tests.clients.pump import pump
print(pump(Realm(sys.argv[1]), "endpoint")["admitted"])
"""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with Machines(tmp_path / "machines", "nats", more=(*DOORS, "bob"), spark=False, shared=SHARED) as made:
        yield made


def test_clients_go_on_when_the_address_moves(machines: Machines) -> None:
    realm, clients = machines.own / "realm", machines.root / "clients" / OWN
    registry = machines.postgres.registry(machines.postgres.schema())
    make = ("make", realm, registry, machines.carrier.address, machines.own / "home", "endpoint")
    machines.run("clients", "-m", "tests.soak.cluster.realm", *make)
    for door in DOORS:
        enrol = ("entity", "enrol", door, "--role", "gateway", "--host", ADDRESS)
        machines.run("clients", *COMMAND, *enrol, "--realm", realm)
    machines.run("clients", "-c", _HOMES, realm, machines.own / "bob", f"sealcast://{ADDRESS}:{PORT}")
    _give_home(machines, clients)
    machines.start("clients", *COMMAND, "serve", "--realm", realm, log="serve.log")
    _said(machines, "clients", "serve.log", "serving")
    _take(machines, "door-1")
    for door in DOORS:
        _open(machines, door)
    machines.start("bob", "-c", _PUBLISHER, machines.own / "realm", log="acks")
    _wait(lambda: len(_acknowledged(machines)) > 20)
    # A machine that loses its power.
    machines.kill("door-1")
    gap = _moved(machines, "door-1", "door-2")
    print(f"\nkilled: {gap:.2f} s")
    assert gap < TAKEOVER_S
    _open(machines, "door-1")
    # A machine that is cut off, and does not know that it is.
    machines.cut("door-2")
    gap = _moved(machines, "door-2", "door-1", cut_off=True)
    print(f"cut off: {gap:.2f} s")
    assert gap < TAKEOVER_S
    machines.kill("bob")
    numbers = [number for _, number in _acknowledged(machines)]
    assert numbers == [*range(len(numbers))]
    admitted = int(machines.run("clients", "-c", _BROKER, realm))
    assert admitted in (len(numbers), len(numbers) + 1), "each once, and one more if the publisher died over it"


def _give_home(machines: Machines, clients: Path) -> None:
    shutil.copytree(clients / "bob", machines.root / "bob" / OWN / "realm")
    shutil.copy(clients / "user" / "unlock.key", machines.root / "bob" / OWN / "user")


def _open(machines: Machines, door: str) -> None:
    listen = ("gateway", "--listen", f"0.0.0.0:{PORT}", "--name", door, "--realm", machines.own / "realm")
    machines.start(door, *COMMAND, *listen, log="gateway.log")
    _said(machines, door, "gateway.log", "started")


def _said(machines: Machines, name: str, log: str, word: str) -> None:
    path = machines.root / name / log
    _wait(lambda: word in path.read_text(), lambda: path.read_text()[-2_000:])


def _take(machines: Machines, door: str) -> None:
    """Gives a machine the address, and tells everybody so (a gratuitous ARP), as VRRP does."""
    ip = ["ip", "-n", machines.namespace(door)]
    subprocess.run([*ip, "address", "add", f"{ADDRESS}/24", "dev", "eth0"], check=True)
    announce = (
        "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0)); "
        f"mac, at = s.getsockname()[4], socket.inet_aton('{ADDRESS}'); "
        "s.send(bytes([255]) * 6 + mac + bytes.fromhex('0806000108000604' '0001') + mac + at + bytes(6) + at)"
    )
    machines.run(door, "-c", announce)


def _moved(machines: Machines, old: str, new: str, *, cut_off: bool = False) -> float:
    """Seconds from the move until the next event was acknowledged. A machine that is cut off keeps the address, and is
    not heard."""
    if not cut_off:
        gone = ["address", "delete", f"{ADDRESS}/24", "dev", "eth0"]
        subprocess.run(["ip", "-n", machines.namespace(old), *gone], check=True)
    _take(machines, new)
    moved = time.monotonic()
    before = len(_acknowledged(machines))
    _wait(lambda: len(_acknowledged(machines)) > before + 20)
    return next(at for at, _ in _acknowledged(machines)[before:] if at > moved) - moved


def _acknowledged(machines: Machines) -> list[tuple[float, int]]:
    lines = (machines.root / "bob" / "acks").read_text().splitlines()
    return [(float(at), int(number)) for at, number in (line.split() for line in lines)]


def _wait(happened, what=lambda: "", seconds: float = 120.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)
