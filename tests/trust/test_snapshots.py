"""Snapshots of a realm's state: they are what the registry folds to, and nobody else's word is taken for one."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sealcast.errors import Bug, Corrupt
from sealcast.model import Schema
from sealcast.primitives.secrets import Secret
from sealcast.trust import history, snapshots
from sealcast.trust.deployment import Realm
from sealcast.trust.heads import Head, Pin
from sealcast.trust.history import KnownVersion
from sealcast.trust.realm.kept import KeptTable
from sealcast.trust.realm.state import RealmState
from sealcast.trust.snapshots import Snapshots, is_due
from tests.cli.shell import sealcast
from tests.trust import forging

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1000}]})
TOPIC = "quotes"
PROTECTED = {"endpoint": "members", "payload": "members", "searchable": "granted", "attribute": "members"}
MANY = 300


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A realm with a topic of every protection but one, and one table that is large enough to be cut out."""
    realm = Realm.create(tmp_path_factory.mktemp("snapshots") / "realm")
    realm.enrol_many(["nyse", "alice", "mallory", "eve"])
    for name, access in PROTECTED.items():
        realm.create_topic(name, SCHEMA, access=access, protection=name)
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.add_broker("second")
    realm.serve(TOPIC, "second")
    realm.create_topic("layers", SCHEMA, protection="layered", access="members")
    realm.grant("searchable", "alice", ["subscribe"])
    realm.subscribe_many(TOPIC, [("alice", f"price > {number}", None) for number in range(MANY)])
    realm.subscribe(TOPIC, "eve", "price > 3", broker="second")
    realm.unsubscribe("alice-7")
    realm.revoke_entity("mallory")
    return realm.paths.root


@pytest.fixture
def realm(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Realm]:
    """A copy that keeps snapshots however small it is, and has one."""
    monkeypatch.setattr(snapshots, "MIN_CHANGES", 1)
    for beside in made.glob("registry.sqlite-*"):
        beside.unlink()
    found = Realm(shutil.copytree(made, tmp_path / "realm"))
    found.state()
    assert kept(found).load() is not None
    yield found


def kept(realm: Realm) -> Snapshots:
    return Snapshots(realm.paths.root, realm.id, realm._root)


def folded(realm: Realm) -> RealmState:
    """By somebody without snapshots."""
    return forging.unattended(realm).state()


def unread(state: RealmState) -> bool:
    table = state.topics[TOPIC].subscriptions
    return isinstance(table, KeptTable) and not table.is_read


# --- what is kept -------------------------------------------------------------------------------------


def test_it_is_the_state_that_the_registry_folds_to(realm: Realm) -> None:
    found = kept(realm).load()
    assert found is not None and unread(found.state)
    assert found.state == folded(realm) and found.chain == realm.registry.head().chain


def test_reading_begins_at_it(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    read = history.read

    def counted(rows: Any, start: KnownVersion, *more: Any) -> KnownVersion:
        calls.append(start.state.version)
        return read(rows, start, *more)

    monkeypatch.setattr(history, "read", counted)
    again = realm.reopen()
    assert again.state() == folded(realm)
    assert calls == [0], "whoever has no snapshot folds; whoever has one does not"


def test_topics_are_listed_and_counted_without_reading_their_tables(realm: Realm) -> None:
    state = realm.reopen().state()
    assert [len(each.subscriptions) for each in state.topics.values() if each.topic.name == TOPIC] == [MANY]
    assert state.may_subscribe(TOPIC, "alice") and not state.may_subscribe(TOPIC, "mallory")
    assert unread(state)


def test_status_and_topic_list_read_no_subscriptions(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    realm.create_topic("alone", SCHEMA, access="members")
    realm.subscribe_many("alone", [("alice", f"price > {number}", None) for number in range(MANY)])
    read = list[str]()
    rows = KeptTable.rows

    def noted(self: KeptTable[Any, Any]) -> dict[Any, Any]:
        found = rows(self)
        read.extend({type(each).__name__ for each in found.values()})
        return found

    monkeypatch.setattr(KeptTable, "rows", noted)
    at = ("--json", "--realm", realm.paths.root)
    topics = sealcast("status", "--topic", "alone", *at).document["topics"]
    assert {each["broker"]: each["subscriptions"] for each in topics} == {"broker": MANY, "second": 0}
    assert "alone" in sealcast("topic", "list", *at).out
    assert "Subscription" not in read and "Credential" not in read
    assert sealcast("subscription", "list", "--topic", "alone", *at).code == 0 and "Subscription" in read


def test_changes_after_it_are_folded_on_top(realm: Realm) -> None:
    again = realm.reopen()
    again.subscribe(TOPIC, "eve", "price > 9", "eve-new")
    assert again.state() == folded(realm) and again.state().subscription("eve-new").subscriber == "eve"


def test_an_older_version_is_folded_from_change_one(realm: Realm) -> None:
    again = realm.reopen()
    newest = again.state().version
    for version in (0, 1, newest // 2, newest - 1):
        assert again.state(version) == forging.unattended(realm).state(version)


def test_a_version_is_worth_one_after_an_eighth_more() -> None:
    least = snapshots.MIN_CHANGES
    assert not is_due(least - 1, 0) and is_due(least, 0)
    assert not is_due(17 * least, 16 * least) and is_due(18 * least, 16 * least)


def test_a_small_realm_keeps_none(made: Path, tmp_path: Path) -> None:
    found = Realm(shutil.copytree(made, tmp_path / "small"))
    found.state()
    assert not (found.paths.root / "snapshots").exists()


def test_inspect_says_what_it_is(realm: Realm) -> None:
    found = sealcast("inspect", str(kept(realm).path))
    assert found.code == 0 and "that a user verified" in found.out


# --- who is believed ----------------------------------------------------------------------------------


def forged(realm: Realm) -> KnownVersion:
    """What whoever writes the registry would like others to begin with: the same head, and nobody revoked."""
    found = kept(realm).load()
    assert found is not None
    back = replace(found.state.entity("mallory"), revoked_at_version=None)
    return found._replace(state=replace(found.state, entities={**found.state.entities, "mallory": back}))


@pytest.mark.parametrize("checked", [True, False], ids=["ours", "weakened"])
def test_a_forged_snapshot_is_found_out(realm: Realm, checked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    thief = kept(realm)
    thief._write(Secret(os.urandom(32)), forged(realm))
    if not checked:
        monkeypatch.setattr(Snapshots, "_is_ours", lambda *_: True)
    assert realm.reopen().state().entity("mallory").revoked is checked, "without the check, the thief decides"


@pytest.mark.parametrize("byte", ["head", "core", "table"])
def test_an_altered_one_is_none(realm: Realm, byte: str) -> None:
    path = kept(realm).path
    raw = bytearray(path.read_bytes())
    raw[{"head": raw.index(b'"version"') + 1, "core": raw.index(b"RealmState"), "table": len(raw) - 40}[byte]] ^= 1
    path.write_bytes(raw)
    state = realm.reopen().state()
    if byte != "table":
        assert not unread(state) and state == folded(realm)
        return
    tables = [table for topic in state.topics.values() for table in (topic.subscriptions, topic.credentials)]
    with pytest.raises(Corrupt, match="snapshot"):
        [dict(table) for table in (*tables, state.subscription_topics)]


def test_anothers_key_or_directory_is_not_believed(realm: Realm) -> None:
    found = kept(realm)
    key = found.path.with_name("key")
    key.chmod(0o644)
    assert found.load() is None, "others could have read it"
    key.chmod(0o600)
    assert found.load() is not None
    found.path.parent.chmod(0o777)
    assert found.load() is None, "others could have put it there"
    found.path.parent.chmod(0o700)
    key.rename(key.with_name("elsewhere"))
    key.symlink_to("elsewhere")
    assert found.load() is None


def test_one_of_another_realm_or_shape_is_none(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Snapshots(realm.paths.root, bytes(16), realm._root).load() is None
    assert Snapshots(realm.paths.root, realm.id, bytes(32)).load() is None
    monkeypatch.setattr(snapshots, "shape", lambda: "another release's")
    assert kept(realm).load() is None


def test_only_values_of_a_state_are_made_of_it() -> None:
    with pytest.raises(Bug, match="subprocess"):
        import subprocess

        snapshots._unpickled(pickle.dumps(subprocess.Popen), {})


# --- against the registry -----------------------------------------------------------------------------


def rewrite_early(realm: Realm) -> None:
    """A row before the snapshot becomes another one; the column of its chain stays as it was."""
    with closing(sqlite3.connect(realm.paths.registry)) as connection:
        connection.executescript("; ".join(forging.GUARDS) + ";")
        connection.execute("UPDATE changes SET body = replace(body, 'nyse', 'evil') WHERE kind = 'enrol-entity'")
        connection.commit()


def test_rows_before_it_are_given_to_nobody_unless_they_are_those_that_were_verified(realm: Realm) -> None:
    rewrite_early(realm)
    again = realm.reopen()
    assert "nyse" in again.state().entities and "evil" not in again.state().entities
    with pytest.raises(Corrupt, match="not the one that was written"):
        list(again.registry.changes())
    with pytest.raises(Corrupt, match="not the one that was written"):
        again.registry.rows(0, 1 << 20)
    with pytest.raises(Corrupt, match="not the one that was written"):
        again.state(again.state().version - 1)


@pytest.mark.parametrize("held", [True, False], ids=["ours", "weakened"])
def test_a_pin_before_it_is_held_to_the_rows_and_not_to_their_column(
    realm: Realm, held: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Somebody saw another history long ago. Whoever writes the registry puts that chain into the old row's column, and
    hopes that nobody looks at rows before a snapshot."""
    pin = Pin(tmp_path / "seen.head", "'alice'")
    pin.write(Head(5, b"f" * 32))
    with closing(sqlite3.connect(realm.paths.registry)) as connection:
        connection.executescript("; ".join(forging.GUARDS) + ";")
        connection.execute("UPDATE changes SET chain = ? WHERE version = 5", (b"f" * 32,))
        connection.commit()
    again = realm.reopen()
    again.registry.hold(pin)
    if held:
        with pytest.raises(Corrupt):
            again.state()
    else:
        monkeypatch.setattr(type(again.registry), "_hold", lambda *_: None)
        assert again.state().version, "without it, the fork goes unnoticed"


def test_one_of_another_history_is_not_begun_with(realm: Realm) -> None:
    old = realm.state().version
    with closing(sqlite3.connect(realm.paths.registry)) as connection:
        connection.executescript("; ".join(forging.GUARDS) + ";")
        last = connection.execute("SELECT max(version) FROM changes WHERE signed != '' AND version < ?", (old,))
        (end,) = last.fetchone()
        connection.execute("DELETE FROM changes WHERE version > ?", (end,))
        connection.commit()
    for beside in realm.paths.root.rglob("*.head"):
        beside.unlink()
    again = realm.reopen()
    assert again.state() == folded(realm) and again.state().version == end
