"""Backup and restore: one moment of a realm that runs on, sealed, verified, and a realm that goes on safely."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.control.invited import OPEN, Invitations
from sealcast.errors import CannotOpen, Corrupt, Misuse, SealcastError, Unavailable
from sealcast.log import whole
from sealcast.log.files import make_directory
from sealcast.model.protection import PROTECTIONS
from sealcast.protections import steps
from sealcast.protections.steps import StepName
from sealcast.trust.backups import envelope, making, moment
from sealcast.trust.backups.making import back_up, restore
from sealcast.trust.heads import Pin
from sealcast.trust.invitations import InvitationCode
from sealcast.trust.layout import Below, Layout
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


# --- where others may write, and what was decided since -------------------------------------------------------


def _backed_up_over_a_link(directory: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What is left of a file that somebody links to under the name that a backup is written under, at the last
    moment."""
    realm, precious = a_realm(directory), directory / "precious"
    precious.write_bytes(b"precious")
    real = making.scratch

    def planting(root: Path) -> TemporaryDirectory[str]:
        (directory / ".b.partial").symlink_to(precious)
        return real(root)

    monkeypatch.setattr(making, "scratch", planting)
    with suppress(SealcastError):
        back_up(realm, directory / "b")
    return precious.read_bytes()


def test_a_backup_is_not_written_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _backed_up_over_a_link(tmp_path, monkeypatch) == b"precious"


def test_without_asking_for_a_new_file_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "_NEW_FILE", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    assert _backed_up_over_a_link(tmp_path, monkeypatch).startswith(envelope.MAGIC)


def test_a_directory_of_others_does_not_become_the_realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who may write beside the new realm makes a link to a directory of its own there."""
    made, theirs = back_up(a_realm(tmp_path), tmp_path / "b"), tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / ".again.partial").symlink_to(theirs)
    with pytest.raises(Misuse, match="in the way"):
        restore(made.path, tmp_path / "again")
    assert not list(theirs.iterdir()) and not (tmp_path / "again").exists()
    # The weaker variant takes what is there, and then its owner has the realm.
    monkeypatch.setattr(making, "_make_anew", make_directory)
    restore(made.path, tmp_path / "again")
    assert (theirs / "realm.json").exists()
    with pytest.raises(Misuse, match="is a link"):
        restore(made.path, tmp_path / "again")


def _standing_after_restoring(directory: Path) -> str | None:
    """How an invitation stands in a restored realm that was open in the backup, and was revoked since because others
    had seen its code."""
    realm = a_realm(directory)
    keys, at = InvitationCode.make(realm.id, bytes(32), "zoe").keys(), Path("secrets/reception/invitations.sqlite")
    with Invitations(realm.paths.root / at) as kept:
        kept.add(keys, "zoe", (), until_us=1 << 60, now_us=0)
    made = back_up(realm, directory / "b")
    with Invitations(realm.paths.root / at) as kept:
        kept.revoke("zoe", 0)
    with Invitations(restore(made.path, directory / "again").root / at) as kept:
        found = kept.find(keys.id)
        return None if found is None else found.standing


def test_codes_from_before_a_restoration_are_void(tmp_path: Path) -> None:
    assert _standing_after_restoring(tmp_path) is None


def test_where_invitations_are_restored_a_revoked_code_is_open_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Layout, "invitations", Below("elsewhere"), raising=False)
    assert _standing_after_restoring(tmp_path) == OPEN


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
