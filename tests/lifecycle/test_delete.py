"""Deleting a topic: nothing of it is left here, whoever has all keys that ever lay here opens nothing, and it says what
cannot be taken back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.errors import Locked, Misuse, NotFound
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.tries import Tries
from sealcast.log.ledger import Ledger
from sealcast.model.protection import PROTECTIONS
from sealcast.trust.admin import deletion
from sealcast.trust.keys.ratchet import DAY_US
from sealcast.trust.realm.audit import history
from sealcast.trust.realm.changes import DeleteTopic, Right
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.realm.stored import from_json, to_json
from tests.cli.shell import sealcast
from tests.soak.small_realm import FILTERS, SCHEMA, TOPIC, make

WHOEVER = ("broker", "center", "ann", *FILTERS)


def a_realm(directory: Path, protection: str = "endpoint") -> Realm:
    make(directory / "realm", protection)
    return Realm(directory / "realm")


def loot_of(before: Path, after: Path, to: Path) -> Realm:
    """All keys that ever lay on the disk, and the registry that has the topic; of sealed files, what is left."""
    shutil.copytree(before, to)
    for data in ("topics", "brokers"):
        shutil.rmtree(to / data, ignore_errors=True)
        if (after / data).is_dir():
            shutil.copytree(after / data, to / data)
    return Realm(to)


def opened(realm: Realm) -> int:
    """What everybody's stolen keys open together, of pieces and of frames."""
    found = [Tries(realm, steal(realm, name, tokens=False)).reads(TOPIC) for name in WHOEVER]
    return sum(each.opened + each.frames for each in found)


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_nothing_of_it_is_left(tmp_path: Path, protection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = a_realm(tmp_path, protection)
    id, before = realm.state().topic(TOPIC).id, tmp_path / "before"
    shutil.copytree(realm.paths.root, before)
    peers = PROTECTIONS[protection]().peers
    assert peers or opened(Realm(before)) > 0
    done = realm.delete_topic(TOPIC)
    assert done.removed.files > 5 and done.removed.bytes > 1_000 and done.version == realm.registry.version()
    left = [path for path in realm.paths.root.rglob("*") if id.hex() in path.name or path.name == TOPIC]
    assert left == []
    if not peers:
        assert opened(loot_of(before, realm.paths.root, tmp_path / "loot")) == 0
    # Whatever asks for it is told.
    for asks in (lambda: Publisher(realm, TOPIC, "ann"), lambda: Subscriber(realm, TOPIC, "low")):
        with pytest.raises(NotFound, match="was deleted"):
            asks()
    with pytest.raises(Misuse, match="not given again"):
        realm.create_topic(TOPIC, SCHEMA)
    realm.maintain()
    assert realm.maintain().deleted == () and sealcast("status", "--realm", realm.paths.root).code == 0
    assert sealcast("check", "--realm", realm.paths.root).code == 0


def test_what_only_ends_in_the_registry_is_open_to_old_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variant."""
    realm = a_realm(tmp_path)
    shutil.copytree(realm.paths.root, tmp_path / "before")
    monkeypatch.setattr(deletion, "_remove", lambda *about: deletion.RemovedFiles())
    realm.delete_topic(TOPIC)
    assert opened(loot_of(tmp_path / "before", realm.paths.root, tmp_path / "loot")) > 0


def test_the_center_gives_its_keys_no_more_after_three_days(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    about = realm.state().topic(TOPIC)
    done = realm.delete_topic(TOPIC)
    until = done.left.center_until_us
    assert until is not None and realm.clock() < until <= realm.clock() + 3 * DAY_US and realm.center().has(about, 1)
    then = until + 1
    Realm(realm.paths.root, clock=lambda: then - DAY_US - 2).maintain()
    assert realm.center().has(about, 1), "its day is kept, so that others can be made on it"
    realm.create_topic("other", SCHEMA)  # nothing is forgotten beyond the newest change
    later = Realm(realm.paths.root, clock=lambda: then)
    later.create_topic("another", SCHEMA)
    later.maintain()
    assert not realm.center().has(about, 1) and realm.center().has(realm.state().topic("other"), 1)


def test_links_and_seeds_of_it_leave_the_centers_file_at_once(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, "attribute")
    then = realm.clock() + 9 * DAY_US
    later = Realm(realm.paths.root, clock=lambda: then)
    later.create_topic("other", SCHEMA)
    later.rotate(TOPIC)
    about = later.state().topic(TOPIC)
    after = Realm(realm.paths.root, clock=lambda: then + 9 * DAY_US)
    after.create_topic("another", SCHEMA)
    after.maintain()
    center = realm.center()
    assert about.id in center._links and about.id in center._seeds
    assert after.delete_topic(TOPIC).left.center_until_us is None
    center = realm.center()
    assert about.id not in center._links and about.id not in center._seeds and not center.has(about, about.epoch)


def test_it_says_who_can_open_copies(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol("ann")
    for past_keys in ("kept", "forgotten"):
        parameters = KeyParameters(past_keys=past_keys)
        realm.create_topic(past_keys, SCHEMA, access="members", parameters=parameters)
    assert realm.delete_topic("kept").left.brokers == ("broker",)
    gone = realm.delete_topic("forgotten")
    assert (gone.left.brokers, gone.left.entities, gone.left.elsewhere) == ((), 1, ()) and gone.removed.keys >= 1
    assert not list(realm.paths.secrets.glob(f"**/{gone.id.hex()}"))


# --- rules --------------------------------------------------------------------------------------------------


def test_the_rules(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    before, ids = realm.state(), [s.id for s in realm.state().subscriptions_of(TOPIC)]
    realm.delete_topic(TOPIC)
    state = realm.state()
    assert TOPIC in before.topics and TOPIC not in state.topics, "a state is a value"
    assert not any(state.may(right, TOPIC, "ann") for right in Right)
    with pytest.raises(NotFound, match="was removed"):
        state.subscription(ids[0])
    with pytest.raises(NotFound, match=r"was deleted \(at version \d+\)"):
        realm.registry.apply(DeleteTopic(TOPIC))
    change = DeleteTopic("quotes")
    assert from_json(change.kind, to_json(change)) == change
    spans = history(realm.registry.changes(), topic=TOPIC)
    assert all(each.span.until and each.span.until.what == "delete-topic" for each in spans.rights)
    assert all(each.span.until is not None for each in spans.subscriptions)
    assert all(each.ended is not None for each in spans.keys)
    assert realm.state(before.version) == before, "what was decided before stays as it was"


def test_nobody_but_the_administrator_deletes(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    realm.paths.administrator_key.rename(tmp_path / "elsewhere.key")
    with pytest.raises(Misuse, match="administrator"):
        realm.delete_topic(TOPIC)
    assert TOPIC in realm.state().topics and realm.paths.topic(TOPIC).ledger.is_dir(), "and nothing was removed"


def test_a_topic_that_is_being_run_stays(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    about = realm.state().topic(TOPIC)
    ledger = Ledger(realm.paths.topic(TOPIC).ledger, realm.broker().journal_key(about.id))
    with ledger.exclusive(), pytest.raises(Locked, match="is being run by process"):
        realm.delete_topic(TOPIC)
    ledger.close()
    assert TOPIC in realm.state().topics
    realm.delete_topic(TOPIC)


def test_what_comes_back_by_a_copy_is_removed_again(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    shutil.copytree(realm.paths.topic(TOPIC).root, tmp_path / "topic")
    realm.delete_topic(TOPIC)
    shutil.copytree(tmp_path / "topic", realm.paths.topic(TOPIC).root)
    assert realm.maintain().deleted == (TOPIC,) and not realm.paths.topic(TOPIC).root.exists()


# --- the command --------------------------------------------------------------------------------------------


def test_the_command_asks_shows_and_does(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    at = ("--realm", realm.paths.root)
    shown = sealcast("topic", "delete", TOPIC, "--dry-run", "--json", *at)
    assert shown.code == 0 and shown.document["dry_run"] and shown.document["version"] is None
    refused = sealcast("topic", "delete", TOPIC, *at)
    assert refused.code == 1 and "--yes" in refused.err and "will be deleted, with 2 subscriptions" in refused.err
    with Publisher(realm, TOPIC, "ann") as still:
        still.publish([Event({"price": 1}, b"still there")])
    done = sealcast("topic", "delete", TOPIC, "--yes", "--json", *at)
    assert done.code == 0 and done.document["left"]["brokers_with_keys"] == ["broker"]
    assert done.document["removed"]["files"] >= shown.document["removed"]["files"]
    again = sealcast("topic", "delete", TOPIC, "--yes", *at)
    assert again.code == 1 and "was deleted" in again.err
