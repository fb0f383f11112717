"""Executors that see no realm: the registry on PostgreSQL, the topic on Kafka, and on each worker a home with one
broker's keys in the place where the driver has the realm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sealcast.bench.carrier_servers import KafkaServer
from sealcast.bench.standalone import DaemonPlace, Standalone
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Misuse, NotFound
from sealcast.model import Event
from sealcast.trust import worker_home
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import BrokerRealm, EntityRealm
from sealcast.trust.layout import Layout
from sealcast.trust.realm.changes import CarryJournal, CarryTopic
from sealcast.trust.vault import unlock
from tests.network.hosts import NOT_HERE
from tests.pipeline.standalone import on, sealcast
from tests.pipeline.test_canaries import FILTERS, PAYLOAD, PRICE, SCHEMA, SYMBOL, found, spellings
from tests.trust.postgres import PASSWORD, Server

pytestmark = pytest.mark.timeout(1_500)

#: In a mount namespace of its own: the worker's home where the realm is, and neither the realm nor the key of whoever
#: runs the driver anywhere.
_HIDDEN = """
set -e
mount --bind "$HIDE_HOME" "$HIDE_REALM"
mount -t tmpfs none "$HIDE_KEYS"
exec "$@"
"""


def _realm(directory: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Realm:
    password = directory.parent / ".pgpass"
    password.write_text(f"*:*:*:*:{PASSWORD}\n")
    password.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(password))
    registry = postgres.url(postgres.schema(), password=None)
    realm = Realm.create(directory, f"r{os.getpid()}-{directory.parent.name[-12:]}", registry=registry)
    realm.create_topic("quotes", SCHEMA, partitions=2, access="members")
    realm.enrol_many(["nyse", *FILTERS])
    for name, text in FILTERS.items():
        realm.subscribe("quotes", name, text)
    return realm


def test_a_worker_has_the_keys_of_one_broker_and_nobody_elses(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm, home = _realm(tmp_path / "realm", postgres, monkeypatch), tmp_path / "home"
    made = worker_home.make(BrokerRealm(realm.paths.root), home)
    assert made.files == ["realm.json", "secrets/broker.key"] and made.shared == ["quotes"]
    assert sorted(p.relative_to(home).as_posix() for p in home.rglob("*") if p.is_file()) == made.files
    assert all(p.stat().st_mode & 0o077 == 0 for p in home.rglob("*"))
    there = BrokerRealm(home)
    assert there.state().version == realm.state().version
    assert there.broker().journal_key(b"t").reveal() == realm.broker().journal_key(b"t").reveal()
    with pytest.raises(NotFound):
        EntityRealm(home).identity("alice")
    with pytest.raises(NotFound):
        Realm(home).center()


def test_a_home_is_brought_up_to_date_and_takes_another_broker_in(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an executor made stays, what its holder destroyed goes."""
    realm, home = _realm(tmp_path / "realm", postgres, monkeypatch), tmp_path / "home"
    realm.create_topic("routed", SCHEMA, protection="layered", access="members")
    first, second = realm.state().overlay("routed").downwards()[:2]
    here = BrokerRealm(realm.paths.root)
    worker_home.make(here, home, first)
    before = keys_in(home, first)
    (home / "snapshots").mkdir()
    (home / "snapshots" / "made-by-an-executor").write_bytes(b"")
    realm.rotate("routed")
    worker_home.make(here, home, first)
    assert before < keys_in(home, first) == keys_in(realm.paths.root, first), "the epoch's keys came"
    worker_home.make(here, home, second)
    assert keys_in(home, first) and keys_in(home, second) == keys_in(realm.paths.root, second)
    gone = min(keys_in(realm.paths.root, first))
    (realm.paths.broker_key_of(first).parent / gone).unlink()
    worker_home.make(here, home, first)
    assert gone not in keys_in(home, first) and keys_in(home, first) == keys_in(realm.paths.root, first)
    assert (home / "snapshots" / "made-by-an-executor").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_bytes(b"somebody's")
    with pytest.raises(Misuse, match="not empty, and is no home of this realm"):
        worker_home.make(here, tmp_path / "other")
    for what in (realm.paths.root, Realm.create(tmp_path / "another").paths.root):
        with pytest.raises(Misuse, match="is a realm, and no home"):
            worker_home.make(here, what)


def keys_in(root: Path, broker: str) -> set[str]:
    """What a broker's agreement keys are called."""
    key = Layout(root).broker_key_of(broker)
    return {str(path.relative_to(key.parent)) for path in key.with_suffix(".layers").rglob("*") if path.is_file()}


def test_a_worker_shares_the_topics_that_its_broker_serves_and_no_others(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm = _realm(tmp_path / "realm", postgres, monkeypatch)
    realm.create_topic("routed", SCHEMA, protection="layered", access="members")
    root = realm.state().overlay("routed").roots[0]
    of_root = worker_home.make(BrokerRealm(realm.paths.root), tmp_path / "root", root)
    assert of_root.shared == ["routed"]
    assert worker_home.make(BrokerRealm(realm.paths.root), tmp_path / "home").shared == ["quotes"]


def test_a_worker_shares_the_frames_that_other_brokers_send(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie in the directory of the broker that takes them, also where all of its own is on a carrier. Where they
    were published on one, workers read them there."""
    realm = _realm(tmp_path / "realm", postgres, monkeypatch)
    realm.add_carrier("away", "nats://127.0.0.1:4222")

    def carried(*brokers: str) -> dict[str, list[str]]:
        for broker in brokers:
            realm.registry.apply(CarryTopic("quotes", broker, "away", broker, (0, 0), (0, 0)))
            realm.registry.apply(CarryJournal("quotes", broker, "away", broker))
        homes = {broker: tmp_path / f"{broker} in {realm.state().version}" for broker in realm.state().brokers()}
        return {
            broker: worker_home.make(BrokerRealm(realm.paths.root), to, broker).shared for broker, to in homes.items()
        }

    assert carried("broker") == {"broker": []}
    realm.add_broker("second", ["quotes"])
    assert carried() == {"broker": ["quotes"], "second": ["quotes"]}
    assert carried("second") == {"broker": [], "second": []}


def test_a_registry_in_a_file_is_refused(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    with pytest.raises(Misuse, match="which no worker reaches"):
        worker_home.make(BrokerRealm(realm.paths.root), tmp_path / "home")
    assert not (tmp_path / "home").exists()


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason=NOT_HERE)
def test_executors_that_cannot_see_the_realm_deliver_what_they_should(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm, home = _realm(tmp_path / "realm", postgres, monkeypatch), tmp_path / "home"
    with KafkaServer(tmp_path / "kafka") as kafka:
        realm.add_carrier("kafka", kafka.start().address)
        realm.move_topic("quotes", "kafka")
        told = sealcast("worker-home", str(home), "--realm", str(realm.paths.root))
        assert told["shared_topics"] == []
        with Publisher(realm, "quotes", "nyse") as nyse:
            nyse.publish([Event({"symbol": SYMBOL, "price": PRICE}, PAYLOAD)] * 50)
            nyse.publish([Event({"symbol": "quiet", "price": number}) for number in range(50)])
        with _cluster(tmp_path, realm, home) as cluster:
            run = ("run", "--once", "--realm", str(realm.paths.root), "--checkpoint", (tmp_path / "state").as_uri())
            totals = sealcast(*run, *on(cluster))
        assert (totals["admitted"], totals["deliveries"]) == (100, 100), totals
        for name in ("alice", "bob"):
            with Subscriber(realm, "quotes", name, from_=0) as reader:
                opened = [(event.attributes, event.payload) for event in reader]
            assert opened == [({"symbol": SYMBOL, "price": PRICE}, PAYLOAD)] * 50
        logs = [log.read_text(errors="replace") for work in cluster.work for log in work.rglob("stderr")]
        assert any("Running task" in log for log in logs), "executors did it"
        written = {p.relative_to(home).parts[0] for p in home.rglob("*") if p.is_file()}
        assert {"realm.json", "secrets", "brokers"} <= written, "and used the home that they were given"
        left = [p for place in (cluster.directory, home, tmp_path / "kafka") for p in place.rglob("*")]
        files = [p for p in left if p.is_file() and p.name not in ("unlock.key", ".pgpass")]
        assert found(files, spellings(realm)) == []


def _cluster(tmp_path: Path, realm: Realm, home: Path) -> Standalone:
    """Workers with a home, an unlock key and a password in files of theirs, and without the realm."""
    place = tmp_path / "cluster"
    own = place / "user"
    own.mkdir(parents=True)
    shutil.copyfile(unlock.key_path(), own / "unlock.key")
    shutil.copyfile(tmp_path / ".pgpass", own / ".pgpass")
    for file in own.iterdir():
        file.chmod(0o600)
    names = {"HIDE_REALM": realm.paths.root, "HIDE_HOME": home, "HIDE_KEYS": unlock.key_path().parent}
    environment = {name: str(path) for name, path in names.items()}
    environment |= {"HOME": str(own), "XDG_CONFIG_HOME": str(own), "PGPASSFILE": str(own / ".pgpass")}
    environment |= {"SEALCAST_UNLOCK_KEY": str(own / "unlock.key")}
    within = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _HIDDEN, "sh")
    return Standalone(
        place, environment=environment, places={f"worker-{n}": DaemonPlace(within=within) for n in range(2)}
    )
