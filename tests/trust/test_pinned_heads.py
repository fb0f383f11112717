"""An old registry with rows added until its version fits, where whoever put it back has removed every file of heads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Corrupt
from sealcast.log.cursor import CursorFile, _check
from sealcast.log.entry import Entry
from sealcast.model import Event, Schema
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.heads import SeenHeads
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.trust import forging

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})
TOPIC = "quotes"


def copied(root: Path, to: Path) -> Realm:
    """A realm in another place: nothing in this process has seen it."""
    for beside in root.glob("registry.sqlite-*"):
        beside.unlink()
    return Realm(shutil.copytree(root, to))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A realm of which a batch was delivered, read and acknowledged; then its registry of before was put back, rows
    were added by somebody with a key of its own, and all heads were removed."""
    directory = tmp_path_factory.mktemp("pinned")
    realm = Realm.create(directory / "realm")
    realm.enrol_many(["nyse", "alice", "mallory"])
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.subscribe(TOPIC, "alice", "price > 0")
    with Publisher(realm, TOPIC, "nyse") as publisher:
        publisher.publish([Event({"price": 1}, b"1")])
    old = copied(realm.paths.root, directory / "old")
    realm.revoke_entity("mallory")
    realm.subscribe(TOPIC, "alice", "price > 10")
    assert pump(realm, TOPIC)["deliveries"] == 1
    with Subscriber(realm, TOPIC, "alice") as alice:
        assert len(alice.poll()) == 1
        alice.ack()
    last = realm.registry.version()
    shutil.copy(old.paths.registry, realm.paths.registry)
    for each in [*realm.paths.root.rglob("*.head"), *realm.paths.root.glob("registry.sqlite-*")]:
        each.unlink()
    forging.filled(copied(realm.paths.root, directory / "filled"), last + 3)
    return directory / "filled"


@pytest.fixture
def forked(made: Path, tmp_path: Path) -> Realm:
    found = copied(made, tmp_path / "realm")
    for each in found.paths.root.rglob("*.head"):
        each.unlink()
    assert not found.state().entity("mallory").revoked, "by the registry alone, nothing is wrong"
    return found


def by_version_alone(self: SeenHeads, seen, newest, chain_at, pin=None):  # type: ignore[no-untyped-def]
    """The weakened variant: a registry is good if it is long enough."""
    if newest < seen.version:
        raise Corrupt("it went back")


@pytest.mark.parametrize("compared", ["chains", "versions"])
def test_a_run_names_the_fork_by_its_ledger(forked: Realm, compared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = FramesStep.of(StepName(str(forked.paths.root), TOPIC, "broker"))
    if compared == "versions":
        monkeypatch.setattr(SeenHeads, "hold_to", by_version_alone)
        step.prepare()
        return
    with pytest.raises(Corrupt, match="the ledger of broker 'broker' saw: the history was forked"):
        step.prepare()


@pytest.mark.parametrize("compared", ["chains", "versions"])
def test_check_names_the_fork_by_the_ledger(forked: Realm, compared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if compared == "versions":
        monkeypatch.setattr(SeenHeads, "hold_to", by_version_alone)
    done = sealcast("check", TOPIC, "--realm", forked.paths.root)
    assert ("the ledger saw: the history was forked" in done.out + done.err) is (compared == "chains")
    if compared == "chains":
        assert done.code == 1


@pytest.mark.parametrize("kept", ["cursor", "ledger", "neither"])
def test_a_reader_names_the_fork_by_its_cursor_and_by_its_brokers_ledger(
    forked: Realm, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cursor,) = forked.paths.root.rglob("alice.cursor")
    if kept != "cursor":
        cursor.unlink()
    if kept != "ledger":
        decode = Entry.decode

        def unpinned(raw: bytes) -> tuple[Entry, bytes]:
            entry, previous = decode(raw)
            object.__setattr__(entry, "chain", b"")
            return entry, previous

        monkeypatch.setattr(Entry, "decode", unpinned)
    if kept == "neither":
        Subscriber(forked, TOPIC, "alice").close()
        return
    where = "alice.cursor" if kept == "cursor" else "ledger"
    with pytest.raises(Corrupt, match=rf"not believed \(fork\).*'alice', by .*{where}, saw") as refusal:
        Subscriber(forked, TOPIC, "alice")
    assert ("remove" in str(refusal.value.hint)) is (kept == "cursor"), "nobody is told to remove a ledger"


def test_a_cursor_of_an_earlier_release_is_read(forked: Realm) -> None:
    (path,) = forked.paths.root.rglob("alice.cursor")
    body = json.loads(path.read_text())
    version, chain = body.pop("head")
    assert version <= forked.registry.version() and len(bytes.fromhex(chain)) == 32
    del body["check"]
    file = CursorFile(path.parent, "alice", body["slot"])
    path.write_text(json.dumps({**body, "check": _check(body)}))
    assert file.load().head is None and file.load().cursor.rank == 1
