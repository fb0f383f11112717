"""Users' own jobs on a Spark cluster whose workers share no disk with the driver or each other: the registry on
PostgreSQL, the topic on Kafka, and on each machine a home that has the keys of one entity (`worker-home --as`)."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from sealcast import Event, Publisher, Realm, Schema, Subscriber
from sealcast.bench.carrier_servers import KafkaServer
from sealcast.bench.standalone import DaemonPlace, Standalone
from sealcast.errors import Misuse, NotFound
from sealcast.trust import worker_home
from sealcast.trust.handles import BrokerRealm, EntityRealm
from sealcast.trust.vault import unlock
from tests.cli.shell import spawn
from tests.network.hosts import NOT_HERE
from tests.pipeline.drivers import Driver
from tests.pipeline.standalone import sealcast
from tests.pipeline.test_canaries import found, unlocked, written
from tests.trust.postgres import PASSWORD, Server

pytestmark = pytest.mark.timeout(1_500)

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 100_000}]})
FILES, ROWS = 12, 40
#: In a mount namespace of its own: homes of this worker where the driver has its own, and neither the realm nor the
#: driver's key anywhere. Words: homes here, homes there, what is hidden, `--`, a command.
_APART = (
    'mount --bind "$1" "$2"; shift 2; while [ "$1" != -- ]; do mount -t tmpfs none "$1"; shift; done; shift; exec "$@"'
)
#: A user's program: the home, `once` or `on`, a number, then the master, what to do, a directory, and Spark's settings.
_JOB = """
import json, sys
from pathlib import Path
from sealcast.pipeline.session import session

home, _, _, master, what, place, *conf = sys.argv[1:]
spark = session(master, extra=dict(each.split("=", 1) for each in conf))
def client(entity):
    return {"realm": f"{home}/{entity}", "topic": "quotes", "as": entity}
columns = "cast(id as int) price", "cast(id as string) payload"
if what == "batch":
    rows = spark.range(0, 500, 1, 5).selectExpr(*columns)
    rows.write.format("sealcast").options(**client("nyse")).mode("append").save()
elif what == "stream":
    rows = spark.readStream.schema("price int, payload string").option("maxFilesPerTrigger", 1).json(f"{place}/rows")
    sink = rows.writeStream.format("sealcast").options(**client("nyse"), checkpointLocation=f"{place}/checkpoint")
    sink.trigger(availableNow=True).start().awaitTermination()
elif what == "read":
    rows = spark.read.format("sealcast").options(**client("alice")).load()
    answer = {"tasks": rows.rdd.getNumPartitions(), "prices": sorted(row.price for row in rows.collect())}
    Path(place, "read.json").write_text(json.dumps(answer))
"""


class Jobs(NamedTuple):
    """A realm, a cluster, and where the homes are on the driver's machine."""

    realm: Realm
    cluster: Standalone
    homes: Path
    workers: list[Path]
    place: Path

    def job(self, what: str, count: int = 0) -> Driver:
        conf = {"spark.cores.max": "2", **self.cluster.quick}
        options = [self.cluster.url, what, str(self.place), *(f"{name}={value}" for name, value in conf.items())]
        log = self.place / f"{what}-{count}.log"
        return Driver(self.homes, log=log, once=True, script=_JOB, options=options)

    def delivered(self) -> Counter[int]:
        """What alice has by now, after a run of the pipeline."""
        sealcast("run", "--once", "--master", "local[2]", "--realm", str(self.realm.paths.root))
        with Subscriber(self.realm, "quotes", "alice", from_=0) as reader:
            return Counter(int(event.payload) for event in reader)


@pytest.fixture
def realm(tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Realm:
    password = tmp_path / ".pgpass"
    password.write_text(f"*:*:*:*:{PASSWORD}\n")
    password.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(password))
    registry = postgres.url(postgres.schema(), password=None)
    realm = Realm.create(tmp_path / "realm", f"r{os.getpid()}-{tmp_path.name[-12:]}", registry=registry)
    realm.create_topic("quotes", SCHEMA, partitions=2, access="members")
    realm.enrol_many(["nyse", "alice"])
    realm.subscribe("quotes", "alice", "price >= 0")
    return realm


@pytest.fixture
def jobs(tmp_path: Path, realm: Realm) -> Iterator[Jobs]:
    homes, places = tmp_path / "homes", dict[str, DaemonPlace]()
    with ExitStack() as held:
        kafka = held.enter_context(KafkaServer(tmp_path / "kafka")).start()
        realm.add_carrier("kafka", kafka.address)
        realm.move_topic("quotes", "kafka")
        for entity in ("nyse", "alice"):
            worker_home.make_of_entity(EntityRealm(realm.paths.root), homes / entity, entity)
        own = tmp_path / "own"
        own.mkdir()
        shutil.copyfile(unlock.key_path(), own / "unlock.key")
        shutil.copyfile(tmp_path / ".pgpass", own / ".pgpass")
        for file in own.iterdir():
            file.chmod(0o600)
        workers = [tmp_path / f"homes-of-worker-{number}" for number in range(2)]
        for number, there in enumerate(workers):
            shutil.copytree(homes, there)
            hidden = (str(realm.paths.root), str(unlock.key_path().parent))
            within = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", _APART, "sh", str(there))
            places[f"worker-{number}"] = DaemonPlace(within=(*within, str(homes), *hidden, "--"))
        environment = {name: str(own) for name in ("HOME", "XDG_CONFIG_HOME")}
        environment |= {"PGPASSFILE": str(own / ".pgpass"), "SEALCAST_UNLOCK_KEY": str(own / "unlock.key")}
        cluster = held.enter_context(Standalone(tmp_path / "cluster", environment=environment, places=places))
        serving = spawn("serve", "--realm", realm.paths.root)
        held.callback(serving.communicate)
        held.callback(serving.terminate)
        place = tmp_path / "place"
        (place / "rows").mkdir(parents=True)
        yield Jobs(realm, cluster, homes, workers, place)


def test_the_home_of_a_job_has_the_keys_of_one_entity_and_nobody_elses(tmp_path: Path, realm: Realm) -> None:
    made = worker_home.make_of_entity(EntityRealm(realm.paths.root), tmp_path / "home", "nyse")
    assert (
        {"realm.json", "entities/nyse.key"}
        <= {*made.files}
        <= {
            "realm.json",
            "entities/nyse.key",
            "entities/nyse.head",
        }
    )
    assert made.shared == ["quotes"], "which is not on a carrier"
    assert all(p.stat().st_mode & 0o077 == 0 for p in (tmp_path / "home").rglob("*"))
    there = EntityRealm(tmp_path / "home")
    assert there.state().version == realm.state().version
    assert there.identity("nyse").name == "nyse"
    with pytest.raises(NotFound):
        there.identity("alice")
    with pytest.raises(NotFound):
        BrokerRealm(tmp_path / "home").broker()
    with pytest.raises(NotFound, match="bob"):
        worker_home.make_of_entity(EntityRealm(realm.paths.root), tmp_path / "other", "bob")


def test_a_home_for_jobs_is_refused_where_no_worker_could_use_it(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["nyse"])
    with pytest.raises(Misuse, match="which no worker reaches"):
        worker_home.make_of_entity(EntityRealm(realm.paths.root), tmp_path / "home", "nyse")
    assert not (tmp_path / "home").exists()


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason=NOT_HERE)
def test_jobs_publish_and_read_in_parallel_exactly_once_and_share_no_disk(jobs: Jobs) -> None:
    """A driver that is killed while it publishes goes on where it was; a batch is whole or not there."""
    batch = jobs.job("batch")
    assert batch.wait(300) == 0, batch.told()[-3_000:]
    due = Counter(range(500))
    assert jobs.delivered() == due
    numbers = iter(range(1_000, 1_000 + FILES * ROWS))
    for file in range(FILES):
        rows = [next(numbers) for _ in range(ROWS)]
        lines = (json.dumps({"price": price, "payload": str(price)}) for price in rows)
        (jobs.place / "rows" / f"{file}.json").write_text("\n".join(lines))
        due.update(rows)
    for kill in range(2):
        driver, before = jobs.job("stream", kill), _committed(jobs)
        driver.wait_until(lambda before=before: _committed(jobs) >= before + 2, 300)  # type: ignore[misc]
        driver.kill_all()
    assert 0 < _committed(jobs) < FILES, "the kills came in between"
    last = jobs.job("stream", 2)
    assert last.wait(300) == 0, last.told()[-3_000:]
    assert jobs.delivered() == due
    reading = jobs.job("read")
    assert reading.wait(300) == 0, reading.told()[-3_000:]
    answer = json.loads((jobs.place / "read.json").read_text())
    assert answer["tasks"] >= 2 and Counter(answer["prices"]) == due
    for worker in jobs.workers:
        names = {path.name for path in worker.rglob("*")}
        assert "nyse.key" in names and not {"broker.key", "administrator.key", "registry.sqlite"} & names
        assert not list(worker.rglob("*.frames")), "frames went to the driver, sealed"
    for work in jobs.cluster.work:
        assert any("Running task" in log.read_text(errors="replace") for log in work.rglob("stderr")), work
    places = [*jobs.workers, jobs.cluster.directory, jobs.place / "checkpoint"]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    needles = {form: what for raw, what in unlocked(jobs.realm.paths.root) for form in written(raw)}
    assert found(files, needles) == []


def _committed(jobs: Jobs) -> int:
    """Batches of the stream that Spark knows to be done."""
    return sum(path.name.isdigit() for path in (jobs.place / "checkpoint" / "commits").glob("*"))


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason=NOT_HERE)
def test_a_stream_does_not_go_on_on_a_machine_that_has_no_journal_of_it(jobs: Jobs) -> None:
    with Publisher(jobs.realm, "quotes", "nyse") as nyse:
        nyse.publish([Event({"price": 7}, b"7")])
    for file in range(2):
        (jobs.place / "rows" / f"{file}.json").write_text(json.dumps({"price": file, "payload": str(file)}))
        if file:
            shutil.rmtree(jobs.homes / "nyse" / "topics")  # what the driver's machine had
        job = jobs.job("stream", file)
        code = job.wait(300)
    assert code != 0 and "is not its first one" in job.told(), job.told()[-3_000:]
    assert jobs.delivered() == Counter([7, 0])
