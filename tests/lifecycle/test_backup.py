"""Backup and restore: one moment of a realm that runs on, sealed, verified, and a realm that goes on safely."""

from __future__ import annotations

import random
import shutil
import threading
import time
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.errors import CannotOpen, Corrupt, Misuse, SealcastError, Unavailable
from sealcast.log import whole
from sealcast.model.protection import PROTECTIONS
from sealcast.protections import steps
from sealcast.protections.steps import StepName
from sealcast.trust.backups import envelope, making, moment
from sealcast.trust.backups.making import back_up, restore
from sealcast.trust.heads import Pin
from sealcast.wire import sealed
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.lifecycle.attackers import OpenUnread
from tests.soak import small_realm
from tests.soak.small_realm import TOPIC


def a_realm(directory: Path, protection: str = "endpoint") -> Realm:
    small_realm.make(directory / "realm", protection)
    return Realm(directory / "realm")


@pytest.fixture(autouse=True)
def _anew() -> None:
    steps._open.cache_clear()


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_a_restored_realm_has_everything_and_goes_on(tmp_path: Path, protection: str) -> None:
    realm = a_realm(tmp_path, protection)
    made = back_up(realm, tmp_path / "b")
    done = restore(made.path, tmp_path / "again")
    assert done.state == realm.state() and done.whole == whole.verify(realm.paths.root) and done.whole.pieces >= 2
    shutil.rmtree(realm.paths.root)
    found = small_realm.outcome(tmp_path / "again")
    assert set(found.values()) == {"same"} and found.keys() == small_realm.ACTS.keys(), found


def test_it_is_one_moment_while_everything_runs(tmp_path: Path) -> None:
    """Backups one after the other while events are published, delivered, read and decided on: each restores to a realm
    whose ledger, logs and registry fit, with everything that was acknowledged before it began."""
    realm = a_realm(tmp_path)
    stop, done, trouble = threading.Event(), [0], list[BaseException]()

    def work() -> None:
        try:
            own, n = Realm(realm.paths.root), 10
            while not stop.is_set():
                with Publisher(own, TOPIC, "ann") as ann:
                    ann.publish([Event({"price": 1}, b"%d" % n)])
                pump(own, TOPIC)
                with Subscriber(own, TOPIC, "low") as low:
                    list(low)
                    low.ack()
                own.grant(TOPIC, "high", template="*" if n % 2 else "price=1")
                done[0], n = n, n + 1
        except BaseException as error:  # noqa: BLE001
            trouble.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for number in range(4):
            time.sleep(0.2)
            sure = done[0]
            back_up(realm, tmp_path / f"b{number}")
            again = Realm(restore(tmp_path / f"b{number}", tmp_path / f"r{number}").root)
            with Subscriber(again, TOPIC, "low", from_=0) as low:
                got = [int(event.payload) for event in low]
            waiting = again.frames(TOPIC, read_only=True).partition(0).end()
            assert got == [0, 1, 4, *range(10, 7 + len(got))], "without a gap"
            assert max(got) >= sure and waiting >= len(got) - 1
            assert sealcast("check", "--realm", again.paths.root).code == 0
    finally:
        stop.set()
        worker.join()
    assert not trouble


def test_a_restored_broker_never_seals_under_a_key_and_position_again(tmp_path: Path) -> None:
    """Both go on from one moment with other events at the same positions: no two bodies are under one keystream."""
    realm = a_realm(tmp_path)
    again = Realm(restore(back_up(realm, tmp_path / "b").path, tmp_path / "again").root)
    bodies = list[bytes]()
    for each, payload in ((realm, b"A" * 64), (again, b"B" * 64)):
        steps._open.cache_clear()
        StepName(str(each.paths.root), TOPIC).open().begin()
        with Publisher(each, TOPIC, "ann") as ann:
            ann.publish([Event({"price": 1}, payload)])
        pump(each, TOPIC)
        newest = max(each.paths.topic(TOPIC).pieces.glob("*.piece"))
        piece = sealed.parse(newest.read_bytes())
        assert str(piece.position(0)) == "0/2/0"
        bodies.append(piece.body(0))
    states = [each.state() for each in (realm, again)]
    assert states[0].incarnation(TOPIC, "broker") != states[1].incarnation(TOPIC, "broker")
    xored = bytes(a ^ b for a, b in zip(*bodies, strict=True))
    assert bytes([ord("A") ^ ord("B")] * 32) not in xored


def test_who_has_seen_more_names_the_rollback(tmp_path: Path) -> None:
    """A key file that was elsewhere, with the head that it saw since."""
    realm = a_realm(tmp_path)
    made = back_up(realm, tmp_path / "b")
    realm.rotate(TOPIC)
    realm.identity("low")
    again = Realm(restore(made.path, tmp_path / "again").root)
    assert again.identity("low")
    head = Pin.beside(realm.paths.entity_key("low"), "low").path
    shutil.copy(head, again.paths.entity_key("low").with_suffix(".head"))
    with pytest.raises(SealcastError, match="version"):
        Realm(again.paths.root).identity("low")


def test_what_was_forgotten_since_is_back_and_can_be_forgotten_again(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    made = back_up(realm, tmp_path / "b")
    realm.delete_topic(TOPIC)
    again = Realm(restore(made.path, tmp_path / "again").root)
    assert TOPIC in again.state().topics
    again.delete_topic(TOPIC)
    assert not again.paths.topic(TOPIC).root.exists()


# --- sealed and verified --------------------------------------------------------------------------------------


def test_nothing_of_the_realm_shows(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    raw = back_up(realm, tmp_path / "b").path.read_bytes()
    for word in (b"quotes", b"registry", b"entities", b"price", realm.state().topic(TOPIC).id, b"SQLite format"):
        assert word not in raw
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600


def test_every_kind_of_damage_is_found_and_leaves_nothing(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    raw = back_up(realm, tmp_path / "b").path.read_bytes()
    dice, bad = random.Random(7), tmp_path / "bad"
    spots = [*range(0, 60, 7), *dice.sample(range(len(raw)), 20), len(raw) - 1]
    damaged = [raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in spots]
    damaged += [raw[:at] for at in (0, 10, len(raw) // 2, len(raw) - 1)] + [raw + b"x", raw + raw]
    for content in damaged:
        bad.write_bytes(content)
        with pytest.raises((Corrupt, CannotOpen, Unavailable)):
            restore(bad, tmp_path / "again")
        assert not (tmp_path / "again").exists() and not list(tmp_path.glob(".again*"))


def test_chunks_cannot_be_moved_repeated_or_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "CHUNK_BYTES", 1_000)
    realm = a_realm(tmp_path)
    raw = back_up(realm, tmp_path / "b").path.read_bytes()
    size = int.from_bytes(raw[len(envelope.MAGIC) :][:4], "little")
    begin = len(envelope.MAGIC) + 4 + size + envelope.COMMITMENT_BYTES
    step = 4 + 1_000 + envelope.TAG_BYTES
    head, chunks = raw[:begin], [raw[at : at + step] for at in range(begin, len(raw), step)]
    assert len(chunks) > 20
    again = [[*chunks[:3], *chunks[4:]], [chunks[1], chunks[0], *chunks[2:]], [chunks[0], *chunks], chunks[:-1]]
    for moved in again:
        (tmp_path / "bad").write_bytes(head + b"".join(moved))
        with pytest.raises(Corrupt):
            restore(tmp_path / "bad", tmp_path / "again")
    (tmp_path / "good").write_bytes(head + b"".join(chunks))
    assert restore(tmp_path / "good", tmp_path / "again").files > 20


def test_where_chunks_are_not_numbered_they_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variant: a stream cut at a chunk's end passes for whole as far as the seal goes."""
    monkeypatch.setattr(envelope, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(envelope, "_nonce", lambda number, last: bytes(12))
    writing = (tmp_path / "b").open("wb")
    writer = envelope.BackupWriter(writing, "r", bytes(16), 0, 0)
    writer.write(bytes(3_500))
    writer.close()
    writing.close()
    raw = (tmp_path / "b").read_bytes()
    cut = raw[: -(4 + 500 + envelope.TAG_BYTES)]
    (tmp_path / "b").write_bytes(cut)
    with (tmp_path / "b").open("rb") as file:
        assert len(envelope.BackupReader(file, tmp_path / "b").read(3_000)) == 3_000


def test_sealed_to_a_key_for_backups(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    public = envelope.make_key(tmp_path / "vault.key")
    made = back_up(realm, tmp_path / "b", envelope.read_public(public))
    with pytest.raises(Misuse, match="--key FILE"):
        restore(made.path, tmp_path / "again")
    envelope.make_key(tmp_path / "other.key")
    with pytest.raises(CannotOpen, match="another key"):
        restore(made.path, tmp_path / "again", tmp_path / "other.key")
    assert restore(made.path, tmp_path / "again", tmp_path / "vault.key").state == realm.state()
    with pytest.raises(Misuse, match="not a public key"):
        envelope.read_public(tmp_path / "b")


def test_locked_by_a_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = a_realm(tmp_path)
    for name, phrase in (("right", "correct horse battery staple"), ("wrong", "wrong horse battery staple")):
        (tmp_path / name).write_text(phrase)
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("SEALCAST_PASSPHRASE_FILE", str(tmp_path / "right"))
    made = back_up(realm, tmp_path / "b", by="passphrase")
    monkeypatch.setenv("SEALCAST_PASSPHRASE_FILE", str(tmp_path / "wrong"))
    with pytest.raises(SealcastError):
        restore(made.path, tmp_path / "again")
    monkeypatch.setenv("SEALCAST_PASSPHRASE_FILE", str(tmp_path / "right"))
    assert restore(made.path, tmp_path / "again").state == realm.state()


def test_a_registry_that_was_tampered_with_before_the_backup_is_named(tmp_path: Path) -> None:
    import sqlite3

    realm = a_realm(tmp_path)
    with sqlite3.connect(realm.paths.registry) as database:
        for (name,) in database.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            database.execute(f"drop trigger {name}")
        database.execute("delete from changes where version = (select max(version) - 2 from changes)")
    back_up(OpenUnread(realm), tmp_path / "b")  # type: ignore[arg-type]
    with pytest.raises(SealcastError):
        restore(tmp_path / "b", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_moment_that_passes_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = a_realm(tmp_path)
    lost = [1, 1]
    opened = making._opened

    def gone(part: moment.BackupPart) -> object:
        if part.name.endswith(".piece") and lost:
            lost.pop()
            raise moment.MomentPassed("gone")
        return opened(part)

    monkeypatch.setattr(making, "_opened", gone)
    assert restore(back_up(realm, tmp_path / "b").path, tmp_path / "again").whole.pieces == 2 and not lost
    assert not list(realm.paths.root.glob(".backup-*"))


# --- the commands ---------------------------------------------------------------------------------------------


def test_the_commands(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    at = ("--realm", realm.paths.root)
    assert sealcast("backup", *at).code == 2
    inside = sealcast("backup", tmp_path / "elsewhere" / ".." / "realm" / "b", *at)
    assert inside.code == 1 and "lie in the realm" in inside.err
    key = sealcast("backup", "--new-key", tmp_path / "vault.key", "--json", *at).document
    made = sealcast("backup", tmp_path / "b", "--to", key["public"], "--json", *at)
    assert made.code == 0 and made.document["lock"] == "recipient" and made.document["version"] > 10
    assert sealcast("backup", tmp_path / "b", *at).code == 1, "it exists"
    done = sealcast("restore", tmp_path / "b", tmp_path / "again", "--key", key["key"], "--json")
    assert done.code == 0 and (done.document["frames"], done.document["pieces"]) == (2, 2), done.err
    refused = sealcast("restore", tmp_path / "b", tmp_path / "again", "--key", key["key"])
    assert refused.code == 1 and "not empty" in refused.err
