"""The machines of a cluster campaign: network namespaces, each with an address, a cable that can be cut, and a disk.

    clients    the realm, with the authority's keys; publishers and subscribers
    driver     `sealcast run`, with the home of a broker
    worker-0, worker-1, master    a standalone Spark cluster; workers have the home of a broker
    carrier    Kafka or NATS
    database   PostgreSQL with the registry

Each machine's own disk is at OWN: the same path everywhere, other files on each. Nothing of the realm is on two disks
but what `sealcast worker-home` wrote. Spark's checkpoint is in `state`, which stands for a Hadoop file system.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psycopg

from sealcast.bench.carrier_servers import CarrierServer, KafkaServer, NatsServer
from sealcast.bench.standalone import DaemonPlace, Standalone
from sealcast.lab.hosts import Cable, Cables
from tests.pipeline.drivers import ROOT
from tests.trust.postgres import PASSWORD, Server

OWN: Final = "own"
WORKERS: Final = ("worker-0", "worker-1")
BROKERS: Final = ("driver", *WORKERS)
NAMES: Final = ("clients", *BROKERS, "master", "carrier", "database")
CARRIERS: Final[dict[str, type[CarrierServer]]] = {"kafka": KafkaServer, "nats": NatsServer}
#: Free on a machine that has just been made.
_PORT: Final = 7_000
#: A machine that is cut off is lost after half a minute, where Spark's own patience is two minutes.
PATIENCE: Final = {
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "5s",
}
#: What executors write is searched as it is. A compressed block would hide what it holds.
LEGIBLE: Final = dict.fromkeys(
    ("spark.shuffle.compress", "spark.shuffle.spill.compress", "spark.broadcast.compress"), "false"
)
#: Puts the machine's disk, the first word, to its place, the second; and becomes the command after them.
_MOUNTED: Final = 'mount --bind "$1" "$2"; shift 2; exec "$@"'


class Postgres(Server):
    """A server on a machine of its own. This process reaches it by a socket in its directory."""

    def __init__(self, address: str, within: Sequence[str]) -> None:
        super().__init__()
        self.address, self._within, self.port = address, within, _PORT
        with (self.directory / "data" / "pg_hba.conf").open("a") as file:
            file.write("host all all 10.0.0.0/8 scram-sha-256\n")

    def start(self) -> None:
        options = {"listen_addresses": self.address, "unix_socket_directories": str(self.directory), "fsync": "on"}
        given = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        who = [f"--reuid={self._as['user']}", f"--regid={self._as['group']}", "--clear-groups"]
        command = [self._bin / "postgres", "-D", "data", "-p", self.port, *given]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._within, "setpriv", *who, *map(str, command)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        assert self._answers(), (self.directory / "log").read_text()[-2_000:]

    def connect(self, schema: str | None = None, **more: object) -> psycopg.Connection[object]:
        return super().connect(schema, host=str(self.directory), **more)

    def registry(self, schema: str) -> str:
        """Its URL, without the password."""
        return self.url(schema, password=None).replace("127.0.0.1", self.address)


class Machines:
    """All of them, with what runs there but for clients and the driver. Made and removed by a `with` block."""

    def __init__(
        self,
        root: Path,
        carrier: str,
        *,
        more: Sequence[str] = (),
        spark: bool = True,
        shared: Mapping[str, str] | None = None,
    ) -> None:
        """`more` are further machines, for whoever wants them. Without Spark, brokers have no machines. Those who are
        `shared` see the disk of another one, as by a network file system."""
        self._shared = shared or {}
        self._spark = spark
        self.root, self._held = root, ExitStack()
        self._names = (*(name for name in NAMES if spark or name not in (*BROKERS, "master")), *more)
        self._kind = CARRIERS[carrier]
        self.own, self.state = root / OWN, root / "state"
        for path in (self.own, self.state, *(root / name / OWN / "user" for name in self._names)):
            path.mkdir(parents=True)
        for name in self._names:
            (root / name / OWN / "tmp").mkdir()
            password = root / name / OWN / "user" / ".pgpass"
            password.write_text(f"*:*:*:*:{PASSWORD}\n")
            password.chmod(0o600)
        # An interface's name has no hyphen in it, so a machine's has none there.
        self.cables = Cables([name.replace("-", "") for name in self._names])

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._held.close()
            raise
        return self

    def _start(self) -> None:
        self._held.enter_context(self.cables)
        self.postgres = Postgres(self.address("database"), self.within("database"))
        self._held.callback(shutil.rmtree, self.postgres.directory)
        self._held.callback(self.kill, "database")
        self.postgres.start()
        server = self.root / "carrier" / "server"
        self.carrier = self._kind(server, self.address("carrier"), _PORT, self.within("carrier"))
        self._held.callback(self.carrier.kill)
        self.carrier.start()
        if not self._spark:
            return
        places = {name: DaemonPlace(self.address(name), self.within(name)) for name in ("master", *WORKERS)}
        cluster = Standalone(self.root, environment=self.environment, places=places)
        self.cluster = self._held.enter_context(cluster)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held.close()

    # --- one of them --------------------------------------------------------------------------------

    def _cable(self, name: str) -> Cable:
        return self.cables.of[name.replace("-", "")]

    def address(self, name: str) -> str:
        return self._cable(name).address

    def namespace(self, name: str) -> str:
        return self._cable(name).namespace

    def within(self, name: str, reached: Sequence[str] = ()) -> list[str]:
        """What starts a program on a machine: its own disk is there, and nobody else's but of those that an operator
        there reaches, as by ssh."""
        whose = self._shared.get(name, name)
        others = [self.root / other for other in self._names if other not in (name, whose, *reached)]
        disk = ["sh", "-ec", _MOUNTED, "sh", str(self.root / whose / OWN), str(self.own)]
        inside = self._cable(name).inside([], others)
        # Disks first: a mount below a directory that is hidden already would find nothing.
        return [*inside[: inside.index("--") + 1], *disk]

    @property
    def environment(self) -> dict[str, str]:
        """Of whoever works on any of them: the paths are the same."""
        user = self.own / "user"
        return {
            "HOME": str(user),
            "XDG_CONFIG_HOME": str(user),
            "PGPASSFILE": str(user / ".pgpass"),
            "SEALCAST_UNLOCK_KEY": str(user / "unlock.key"),
            "TMPDIR": str(self.own / "tmp"),
        }

    def start(self, name: str, *words: object, log: str) -> subprocess.Popen[bytes]:
        """A Python module or script that runs on; what it says goes to a file of that machine."""
        with (self.root / name / log).open("wb") as out:
            return subprocess.Popen(
                [*self.within(name), sys.executable, *map(str, words)],
                env={**os.environ, **self.environment},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def run(self, name: str, *words: object, code: int = 0) -> str:
        """A Python module or script that ends; what it printed."""
        done = subprocess.run(
            [*self.within(name), sys.executable, *map(str, words)],
            env={**os.environ, **self.environment},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout[-500:], done.stderr[-3_000:])
        return done.stdout

    def settings(self) -> dict[str, str]:
        """Of Spark, for a session on the driver's machine."""
        address = dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), self.address("driver"))
        return {"spark.cores.max": "2", **self.cluster.quick, **PATIENCE, **LEGIBLE, **address}

    def options(self) -> list[str]:
        """Of `sealcast run` on the driver's machine."""
        spread = [word for name, value in self.settings().items() for word in ("--conf", f"{name}={value}")]
        return ["--master", self.cluster.url, "--checkpoint", self.state.as_uri(), *spread]

    def give_homes(self, *names: str) -> None:
        """Brings each of these what `sealcast worker-home` wrote of every broker (`realm.py`), and the unlock key."""
        source = self.root / "clients" / OWN
        for name in names:
            target = self.root / name / OWN
            for home in (source / "homes").iterdir():
                shutil.copytree(home, target / "realm", dirs_exist_ok=True)
            shutil.copyfile(source / "user" / "unlock.key", target / "user" / "unlock.key")
            (target / "user" / "unlock.key").chmod(0o600)

    # --- what happens to them -----------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """Everything that runs there, at once, as by kill -9: a machine that loses its power."""
        asked = ["ip", "netns", "pids", self.namespace(name)]
        while pids := subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)

    def cut(self, name: str) -> None:
        self._cable(name).cut()

    def heal(self, name: str) -> None:
        self._cable(name).heal()

    def start_again(self, name: str) -> None:
        """What ran on a machine that was killed."""
        if name == "database":
            self.postgres.start()
        elif name == "carrier":
            self.carrier.start()
        else:
            number = WORKERS.index(name)
            self.cluster.start_worker(number)
            self.cluster.await_worker(number)
