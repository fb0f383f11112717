"""Backup and restore of a realm whose registry is on PostgreSQL: the same promises, and no way back to a server that
may have seen more."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.errors import Misuse, SealcastError, Unavailable
from sealcast.protections import steps
from sealcast.protections.steps import StepName
from sealcast.trust.backups import making
from sealcast.trust.backups.making import back_up, restore
from sealcast.trust.layout import read_mark
from sealcast.trust.storage import copying, rows
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.lifecycle.attackers import OpenUnread
from tests.soak import small_realm
from tests.soak.small_realm import FILTERS, SCHEMA, TOPIC
from tests.trust.postgres import PASSWORD, Server


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    steps._open.cache_clear()
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


def a_place(server: Server) -> str:
    """A new schema without tables, as it may be written down."""
    return server.url(server.schema(), password=None)


def a_realm(directory: Path, url: str) -> Realm:
    """As `small_realm` makes it, with its registry on a server."""
    realm = Realm.create(directory / "realm", registry=url)
    realm.create_topic(TOPIC, SCHEMA, partitions=1, access="members")
    realm.enrol_many(["ann", *FILTERS])
    for name, text in FILTERS.items():
        realm.subscribe(TOPIC, name, text)
    for numbers in ([0, 1, 2], [3, 4]):
        small_realm.publish(realm, numbers)
        pump(realm, TOPIC)
    for name in FILTERS:
        with Subscriber(realm, TOPIC, name) as reader:
            reader.poll(small_realm.ACKNOWLEDGED)
            reader.ack()
    return realm


@pytest.mark.parametrize("onto", ["a directory", "a server"])
def test_a_restored_realm_has_everything_and_goes_on(tmp_path: Path, postgres: Server, onto: str) -> None:
    realm = a_realm(tmp_path, a_place(postgres))
    made, again = back_up(realm, tmp_path / "b"), None if onto == "a directory" else a_place(postgres)
    done = restore(made.path, tmp_path / "again", registry=again)
    assert done.state == realm.state() and done.state.version == made.head.version
    assert done.whole.pieces == 2 and done.registry_before == read_mark(realm.paths).registry
    restored = Realm(done.root)
    assert restored.paths.registry.exists() == (again is None)
    assert read_mark(restored.paths).registry == done.registry and (done.registry is None) == (again is None)
    before = realm.registry.version()
    found = small_realm.outcome(done.root)
    assert set(found.values()) == {"same"} and found.keys() == small_realm.ACTS.keys(), found
    restored.rotate(TOPIC)
    assert restored.registry.version() > before == realm.registry.version(), "they share nothing"


def test_a_realm_in_a_directory_moves_to_a_server(tmp_path: Path, postgres: Server) -> None:
    small_realm.make(tmp_path / "realm", "endpoint")
    back_up(Realm(tmp_path / "realm"), tmp_path / "b")
    done = restore(tmp_path / "b", tmp_path / "again", registry=a_place(postgres))
    assert done.registry_before is None and not Realm(done.root).paths.registry.exists()
    assert set(small_realm.outcome(done.root).values()) == {"same"}


def test_it_is_one_moment_while_the_registry_grows(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are published, sealed and decided on meanwhile, and the registry is copied in many pages: each backup has
    a registry that all its ledgers fit, without a gap."""
    monkeypatch.setattr(rows, "_BETWEEN", rows._BETWEEN.replace(f"LIMIT {rows.AT_ONCE}", "LIMIT 3"))
    realm = a_realm(tmp_path, a_place(postgres))
    stop, done, trouble = threading.Event(), [0], list[BaseException]()

    def work() -> None:
        try:
            own, n = Realm(realm.paths.root), 10
            while not stop.is_set():
                with Publisher(own, TOPIC, "ann") as ann:
                    ann.publish([Event({"price": 1}, b"%d" % n)])
                own.grant(TOPIC, "high", template="*" if n % 2 else "price=1")
                pump(own, TOPIC)
                done[0], n = n, n + 1
        except BaseException as error:  # noqa: BLE001
            trouble.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for number in range(3):
            sure, version = done[0], realm.registry.version()
            back_up(realm, tmp_path / f"b{number}")
            again = restore(tmp_path / f"b{number}", tmp_path / f"r{number}")
            with Subscriber(Realm(again.root), TOPIC, "low", from_=0) as low:
                got = [int(event.payload) for event in low]
            assert got == [0, 1, 4, *range(10, 7 + len(got))] and max(got) >= sure
            assert again.state.version >= version and again.state == realm.state(again.state.version)
            assert sealcast("check", "--realm", again.root).code == 0
    finally:
        stop.set()
        worker.join()
    assert not trouble


def test_both_go_on_and_no_position_is_sealed_twice_under_one_key(tmp_path: Path, postgres: Server) -> None:
    realm = a_realm(tmp_path, a_place(postgres))
    back_up(realm, tmp_path / "b")
    again = Realm(restore(tmp_path / "b", tmp_path / "again", registry=a_place(postgres)).root)
    for each in (realm, again):
        steps._open.cache_clear()
        StepName(str(each.paths.root), TOPIC).open().begin()
    drawn = [each.state().incarnation(TOPIC, "broker") for each in (realm, again)]
    assert drawn[0] != drawn[1]


def test_nothing_but_an_empty_database_is_taken(tmp_path: Path, postgres: Server) -> None:
    """Neither the one that the registry was in, nor another realm's."""
    url = a_place(postgres)
    realm = a_realm(tmp_path, url)
    back_up(realm, tmp_path / "b")
    with pytest.raises(Misuse, match="has a registry already"):
        restore(tmp_path / "b", tmp_path / "again", registry=url)
    with pytest.raises(Misuse, match="password"):
        restore(tmp_path / "b", tmp_path / "again", registry=postgres.url(postgres.schema()))
    assert not (tmp_path / "again").exists() and not list(tmp_path.glob(".again*"))
    assert realm.state() == Realm(realm.paths.root).state()


def test_where_the_mark_is_kept_the_restored_realm_writes_to_the_server_of_the_other(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened variant: two directories, one of them from the past, would share a registry."""
    realm = a_realm(tmp_path, a_place(postgres))
    back_up(realm, tmp_path / "b")
    monkeypatch.setattr(making, "_detach", lambda paths, head: read_mark(paths).registry)
    again, before = Realm(restore(tmp_path / "b", tmp_path / "again").root), realm.registry.version()
    again.rotate(TOPIC)
    assert realm.registry.version() > before


def test_a_registry_that_was_tampered_with_is_named(tmp_path: Path, postgres: Server) -> None:
    url = a_place(postgres)
    realm = a_realm(tmp_path, url)
    schema = url.rpartition("%3D")[2]
    with postgres.connect(schema) as connection:
        connection.execute("ALTER TABLE changes DISABLE TRIGGER USER")
        connection.execute("UPDATE changes SET at_us = at_us + 1 WHERE version = 7")
    back_up(realm, tmp_path / "b")
    for where in (None, a_place(postgres)):
        with pytest.raises(SealcastError, match="change 7"):
            restore(tmp_path / "b", tmp_path / "again", registry=where)
    assert not (tmp_path / "again").exists() and not list(tmp_path.glob(".again*"))
    with postgres.connect(schema) as connection:
        connection.execute("DELETE FROM changes WHERE version = 7")
    with pytest.raises(SealcastError):
        back_up(OpenUnread(realm), tmp_path / "b2")  # type: ignore[arg-type]
        restore(tmp_path / "b2", tmp_path / "again")


def test_what_fails_half_way_leaves_no_tables_and_no_directory(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes away while rows are put into it: the next try finds the database as it was."""
    realm = a_realm(tmp_path, a_place(postgres))
    back_up(realm, tmp_path / "b")
    onto, add = a_place(postgres), rows.Rows.add

    def cut(self: rows.Rows, page: object) -> None:
        add(self, page)  # type: ignore[arg-type]
        with postgres.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
            )

    monkeypatch.setattr(rows.Rows, "add", cut)
    with pytest.raises(Unavailable):
        restore(tmp_path / "b", tmp_path / "again", registry=onto)
    monkeypatch.setattr(rows.Rows, "add", add)
    assert not (tmp_path / "again").exists()
    assert restore(tmp_path / "b", tmp_path / "again", registry=onto).state == realm.state()


def test_a_server_that_is_away_is_named(tmp_path: Path, postgres: Server) -> None:
    realm = a_realm(tmp_path, a_place(postgres))
    mark = json.loads(realm.paths.mark.read_text())
    realm.paths.mark.write_text(json.dumps({**mark, "registry": "postgresql://sealcast@127.0.0.1:1/postgres"}))
    with pytest.raises(Unavailable, match="127.0.0.1:1"):
        back_up(realm, tmp_path / "b")
    assert not (tmp_path / "b").exists() and not list(realm.paths.root.glob(".backup-*"))


def test_the_copy_has_the_rows_as_they_are(tmp_path: Path, postgres: Server) -> None:
    """Compared with what the drivers read from the tables themselves."""
    url = a_place(postgres)
    realm = a_realm(tmp_path, url)
    copied = copying.copy(realm.registry.address, tmp_path / "copy")
    assert not (tmp_path / "copy-wal").exists(), "all of it is in one file"
    query = "SELECT version, at_us, kind, body, chain, signed FROM changes ORDER BY version"
    with postgres.connect(url.rpartition("%3D")[2]) as connection:
        there = [tuple(row) for row in connection.execute(query).fetchall()]
    with sqlite3.connect(tmp_path / "copy") as file:
        assert file.execute(query).fetchall() == there and copied == len(there) == realm.registry.version()


def test_the_commands(tmp_path: Path, postgres: Server) -> None:
    realm = a_realm(tmp_path, a_place(postgres))
    made = sealcast("backup", tmp_path / "b", "--json", "--realm", realm.paths.root)
    assert made.code == 0 and made.document["version"] == realm.registry.version(), made.err
    for name in (b"postgresql", PASSWORD.encode(), TOPIC.encode()):
        assert name not in (tmp_path / "b").read_bytes()
    here = sealcast("restore", tmp_path / "b", tmp_path / "here")
    assert here.code == 0 and "the registry was at postgresql://" in here.err and PASSWORD not in here.err
    onto = a_place(postgres)
    there = sealcast("restore", tmp_path / "b", tmp_path / "there", "--registry", onto, "--json")
    assert there.code == 0 and there.document["registry"] == read_mark(Realm(tmp_path / "there").paths).registry
    shown = sealcast("registry", "show", "--realm", tmp_path / "there", "--json").document
    assert shown["version"] == there.document["version"]
    refused = sealcast("restore", tmp_path / "b", tmp_path / "third", "--registry", onto)
    assert refused.code == 1 and "has a registry already" in refused.err
