"""The world of the conformance suite on a cluster: clients, the authority and Spark's driver on one machine, the
registry on PostgreSQL, the topic on a carrier, and workers that have a home of each broker and nothing else.

This is the half that runs on the driver's machine. Whoever makes the machines says in a file where everything is
(tests/soak/test_cluster_conformance.py). Each copy of a world has a path, a schema of the database, names on the
carrier and a checkpoint of its own, and workers are given homes for it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Self

import psycopg

from sealcast import Realm
from sealcast.log import files
from sealcast.trust import worker_home
from sealcast.trust.handles import BrokerRealm, EntityRealm
from sealcast.trust.layout import Layout, read_mark
from sealcast.trust.vault import unlock
from tests.cli.shell import spawn
from tests.log.carried_world import CarriedWorld
from tests.protections.world import TOPIC
from tests.trust.postgres import USER, binaries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Names the file that says where everything is.
VARIABLE: Final = "TESTED_CLUSTER"
_SCHEMA: Final = "csearch_path="
_numbers: Final = count()


@dataclass(frozen=True)
class Cluster:
    """Where everything is, as the driver's machine sees it."""

    protection: str
    carrier: str
    #: PostgreSQL: its password is where its clients look for it.
    host: str
    port: int
    #: Spark's master, and the settings of a session.
    master: str
    settings: dict[str, str]
    #: The driver's own disk; the workers' disks, each at the same path there; and the file system for checkpoints.
    own: str
    workers: list[str]
    state: str

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def here(cls) -> Self:
        return cls(**json.loads(Path(os.environ[VARIABLE]).read_text()))

    def on_workers(self, path: Path) -> list[Path]:
        """Where a path of this machine is on each worker's disk."""
        return [Path(disk) / path.relative_to(self.own) for disk in self.workers]

    # --- registries -----------------------------------------------------------------------------------

    def new_registry(self) -> str:
        """The URL of a schema that is empty."""
        name = _new_name()
        with psycopg.connect(host=self.host, port=self.port, user=USER, dbname="postgres", autocommit=True) as server:
            server.execute(f"CREATE SCHEMA {name}".encode())
        return self._url(name)

    def copy_registry(self, url: str) -> str:
        """The same once more, with all that is beside it, in a schema of its own; its URL."""
        name, original = _new_name(), urllib.parse.unquote(url).rpartition(_SCHEMA)[2]
        written = self._client("pg_dump", f"--schema={original}")
        self._client("psql", "--quiet", "--set=ON_ERROR_STOP=1", given=written.replace(original, name))
        return self._url(name)

    def _url(self, schema: str) -> str:
        query = urllib.parse.urlencode({"options": f"-{_SCHEMA}{schema}"})
        return f"postgresql://{USER}@{self.host}:{self.port}/postgres?{query}"

    def _client(self, program: str, *options: str, given: str = "") -> str:
        where = (f"--host={self.host}", f"--port={self.port}", f"--username={USER}", "--no-password")
        command = [str(binaries() / program), *where, *options, "postgres"]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2_000:]
        return done.stdout


def _new_name() -> str:
    """Of a schema: no other text in a registry looks like it."""
    return f"conformance_{os.getpid()}_{next(_numbers)}_{os.urandom(4).hex()}"


class ClusterWorld(CarriedWorld):
    """One topic under one protection, on machines that share nothing."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.cluster = cluster
        super().__init__(directory, cluster.protection, cluster.carrier)
        self._start()

    def _start(self) -> None:
        #: Brokers whose homes are on the workers.
        self._given = set[str]()
        self.give_homes()

    def _create(self, directory: Path) -> Realm:
        return Realm.create(directory, registry=self.cluster.new_registry())

    def _copy_realm(self, directory: Path) -> None:
        super()._copy_realm(directory)
        paths = Layout(directory)
        mark = read_mark(paths)
        assert mark.registry is not None
        files.replace_file(paths.mark, replace(mark, registry=self.cluster.copy_registry(mark.registry)).to_bytes())

    def copy(self, directory: Path) -> Self:
        other = super().copy(directory)
        other.cluster = self.cluster
        other._start()
        return other

    # --- as an operator ------------------------------------------------------------------------------

    def give_homes(self) -> None:
        """Brings workers what `sealcast worker-home` writes of each broker that is new, and the unlock key."""
        root = self.realm.paths.root
        for broker in [each for each in self.realm.state().brokers() if each not in self._given]:
            with TemporaryDirectory() as made:
                home = Path(made) / "home"
                told = worker_home.make(BrokerRealm(root), home, broker)
                assert told.shared == [], told
                for place in self.cluster.on_workers(root):
                    shutil.copytree(home, place, dirs_exist_ok=True)
            self._given.add(broker)
        for place in self.cluster.on_workers(Path(self.cluster.own, "user", "unlock.key")):
            shutil.copy(unlock.key_path(), place)

    def rotate(self) -> None:
        """As the page for operators says, each worker gets the homes again where a new epoch has keys of brokers'."""
        super().rotate()
        if self.protection.overlay:
            self.renew_homes()

    def renew_homes(self) -> None:
        self._given.clear()
        self.give_homes()

    def add_broker(self, name: str) -> None:
        """Its part of the topic goes to the carrier, and its home to the workers."""
        super().add_broker(name)
        self.realm.move_topic(TOPIC, "away", broker=name, name=token_hex(6))
        self.give_homes()

    @contextmanager
    def job_of(self, name: str) -> Iterator[None]:
        """While a user's own job runs, whose tasks seal and open as an entity: workers have its home, and services
        answer it from where their keys are. Afterwards nothing of the entity is on the workers."""
        root = self.realm.paths.root
        with TemporaryDirectory() as made:
            home = Path(made) / "home"
            told = worker_home.make_of_entity(EntityRealm(root), home, name)
            assert told.shared == [], told
            for place in self.cluster.on_workers(root):
                shutil.copytree(home, place, dirs_exist_ok=True)
        try:
            with spawn("serve", "--realm", root) as services:
                assert services.stderr is not None
                said = iter(services.stderr.readline, "")
                assert any("serving" in line for line in said), "the services have not started"
                try:
                    yield
                finally:
                    services.send_signal(signal.SIGTERM)
        finally:
            for place in self.cluster.on_workers(root):
                shutil.rmtree(place / "entities")
                shutil.rmtree(place / "wallets", ignore_errors=True)  # where one published, its token

    def run(self, spark: SparkSession | None = None, **settings: Any) -> dict[str, int]:
        place = self.realm.paths.root.relative_to(self.cluster.own)
        return super().run(spark, checkpoint=f"{self.cluster.state}/checkpoints/{place}", **settings)
