"""Forgetting: events become unreadable for good. All keys that were ever on disk open nothing of what lies here now,
and keys of now open nothing of what a copy from before has, as far as the topic's brokers forget."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.errors import Locked, Misuse, NotFound, Rejected
from sealcast.lab import forgetting
from sealcast.lab.forgetting import Forgotten, forget, preview
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.tries import Tries
from sealcast.log.ledger import Ledger
from sealcast.model.protection import PROTECTIONS
from sealcast.protections import steps
from sealcast.protections.steps import StepName
from sealcast.trust.keys.ratchet import DAY_US
from sealcast.trust.realm.changes import ForgetEpochs
from sealcast.trust.realm.parameters import FOR_EVER_S, KeyParameters
from sealcast.trust.realm.stored import from_json, to_json
from tests.cli.shell import sealcast
from tests.clients import pump as pumping
from tests.lifecycle.attackers import opened, with_keys_of
from tests.soak.small_realm import SCHEMA

TOPIC = "quotes"
READERS = ("alice", "bob")
WHOEVER = ("broker", "center", "nyse", "lse", *READERS)
MATCHED = [name for name, made in PROTECTIONS.items() if not made().peers and not made().overlay]

Deliver = Callable[..., None]


def a_realm(directory: Path, protection: str = "endpoint", **parameters: object) -> Realm:
    realm = Realm.create(directory / "realm")
    about = KeyParameters.parse({"past_keys": "forgotten", "token_lifetime_s": 200 * 86_400, **parameters})
    realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members", parameters=about)
    realm.enrol_many(["nyse", "lse", *READERS])
    for name in READERS:
        realm.subscribe(TOPIC, name, "price >= 0")
    return realm


@pytest.fixture
def deliver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deliver]:
    """Publishes one frame, and has the broker commit it so many days from now."""

    def deliver(realm: Realm, publisher: str, *payloads: bytes, days: float = 0) -> None:
        with Publisher(realm, TOPIC, publisher) as writing:
            writing.publish([Event({"price": 1}, each) for each in payloads])
        steps._open.cache_clear()
        StepName(str(realm.paths.root), TOPIC).open().begin()
        ahead = SimpleNamespace(time_ns=lambda: time.time_ns() + int(days * DAY_US) * 1000)
        monkeypatch.setattr(pumping, "time", ahead)
        pumping.pump(realm, TOPIC)

    yield deliver
    steps._open.cache_clear()


def read(realm: Realm, name: str = "alice", **options: object) -> list[bytes]:
    with Subscriber(realm, TOPIC, name, **options) as reader:  # type: ignore[arg-type]
        return [event.payload for event in reader]


# --- the attacks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", MATCHED)
def test_all_keys_that_were_ever_on_disk_open_nothing(tmp_path: Path, deliver: Deliver, protection: str) -> None:
    realm = a_realm(tmp_path, protection)
    root, before = realm.paths.root, tmp_path / "before"
    deliver(realm, "nyse", b"a", b"b")
    realm.maintain()
    realm.rotate(TOPIC)
    deliver(realm, "lse", b"c")
    shutil.copytree(root, before)
    assert opened(Realm(before), TOPIC, *WHOEVER) > 0
    done = forget(realm, Forgotten(TOPIC))
    assert done.over and done.attack.keys() == set(WHOEVER) and (done.batches, done.deliveries) == (2, 6)
    # The disk as it is now, with every key file from before and with those of now.
    assert (
        opened(with_keys_of(root, before, tmp_path / "old keys"), TOPIC, *WHOEVER)
        == opened(realm, TOPIC, *WHOEVER)
        == 0
    )
    for secret in (b"a", b"b", b"c"):
        assert secret not in read(realm, from_=0)
    with Subscriber(realm, TOPIC, "bob") as bob:
        assert list(bob) == [] and bob.dropped.missed == 3
    deliver(realm, "nyse", b"d")
    assert read(realm) == read(realm, "bob", from_=0) == [b"d"], "and it goes on"
    check = sealcast("check", "--json", "--realm", root)
    assert check.code == 0 and check.document["removed_deliveries"] == 6, check.out


def test_keys_of_now_open_nothing_of_a_copy_from_before(tmp_path: Path, deliver: Deliver) -> None:
    """The center forgets once the day is over on which the chain began; brokers at once."""
    realm = a_realm(tmp_path)
    root, before = realm.paths.root, tmp_path / "before"
    deliver(realm, "nyse", b"a", b"b")
    shutil.copytree(root, before)
    done = forget(realm, Forgotten(TOPIC))
    assert done.left.brokers == () and done.left.center_until_us is not None
    copy = with_keys_of(before, root, tmp_path / "copy")
    assert opened(copy, TOPIC, "broker") == 0
    assert opened(copy, TOPIC, "center") > 0, "said: until then its day gives the chain"
    then = done.left.center_until_us
    later = Realm(root, clock=lambda: then)
    later.create_topic("other", SCHEMA)
    later.maintain()
    assert opened(with_keys_of(before, root, tmp_path / "later"), TOPIC, "broker", "center") == 0
    assert opened(with_keys_of(before, root, tmp_path / "readers"), TOPIC, "alice") == 2, (
        "said: entities keep what they were given"
    )


def test_a_broker_that_keeps_its_keys_opens_a_copy(tmp_path: Path, deliver: Deliver) -> None:
    """The weakened variant, and what is said of it."""
    realm = a_realm(tmp_path, past_keys="kept")
    before = tmp_path / "before"
    deliver(realm, "nyse", b"a", b"b")
    shutil.copytree(realm.paths.root, before)
    done = forget(realm, Forgotten(TOPIC))
    assert done.over and done.left.brokers == ("broker",)
    assert opened(with_keys_of(before, realm.paths.root, tmp_path / "copy"), TOPIC, "broker") > 0


@pytest.mark.parametrize("skipped", ["withdraw", "_drop_frames"])
def test_the_attack_finds_what_was_left_out(
    tmp_path: Path, deliver: Deliver, monkeypatch: pytest.MonkeyPatch, skipped: str
) -> None:
    """The weakened variants: the proof is one because it fails."""
    realm = a_realm(tmp_path)
    deliver(realm, "nyse", b"a", b"b")
    left_out = {"withdraw": lambda *a: forgetting.Withdrawn(), "_drop_frames": lambda *a: 0}
    monkeypatch.setattr(forgetting, skipped, left_out[skipped])
    if skipped == "withdraw":
        monkeypatch.setattr(forgetting.reseal, "run", lambda *a: forgetting.reseal.Done(TOPIC, 2))
    assert not forget(realm, Forgotten(TOPIC)).over


# --- one publisher, one span of time ----------------------------------------------------------------------------


@pytest.mark.parametrize("protection", MATCHED)
def test_one_publishers_events_are_taken_out_exactly(tmp_path: Path, deliver: Deliver, protection: str) -> None:
    realm = a_realm(tmp_path, protection)
    with Publisher(realm, TOPIC, "lse") as other:
        other.publish([Event({"price": 1}, b"x"), Event({"price": 1}, b"y")])
    deliver(realm, "nyse", b"a", b"b")  # one batch of both
    deliver(realm, "lse", b"z")
    deliver(realm, "nyse", b"c")
    with Subscriber(realm, TOPIC, "bob") as bob:
        first = [event.payload for event in bob.poll(3)]
        bob.ack()
    planned = preview(realm, Forgotten(TOPIC, "nyse"))
    done = forget(realm, Forgotten(TOPIC, "nyse"))
    assert planned.deliveries == done.deliveries == 6 and done.over and done.kept == 0
    assert sorted(read(realm, from_=0)) == [b"x", b"y", b"z"], "the others' stay"
    rest = read(realm, "bob")
    assert sorted([*(each for each in first if each in b"xyz"), *rest]) == [b"x", b"y", b"z"], "each once"
    with Subscriber(realm, TOPIC, "bob") as bob:
        got = list(bob)
        assert [event.payload for event in got] == rest and not bob.dropped.repeated, "by nobody's fault"
        bob.ack()
    later = forget(realm, Forgotten(TOPIC, until_us=1))  # of a time when there was nothing
    assert later.over and later.deliveries == 0 and sorted(read(realm, from_=0)) == [b"x", b"y", b"z"]
    deliver(realm, "nyse", b"d")
    assert read(realm, "bob") == [b"d"] and sealcast("check", "--realm", realm.paths.root).code == 0


def test_a_span_of_time_is_rounded_to_batches(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path)
    now = realm.clock()
    for day in range(4):
        deliver(realm, "nyse", b"%d" % day, days=day / 10)
    span = Forgotten(TOPIC, from_us=now + DAY_US // 20, until_us=now + DAY_US // 4)
    before = {name: steal(realm, name, tokens=False) for name in WHOEVER}
    done = forget(realm, span)
    assert done.over and (done.batches, done.deliveries) == (2, 4)
    assert read(realm, from_=0) == [b"0", b"3"]
    held = [Tries(realm, forgetting._held(loot, 1, TOPIC)) for loot in before.values()]
    assert sum(thief.reads(TOPIC).opened for thief in held) == 0


def test_twice_is_once_and_a_recording_is_forgotten_too(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path, frames_kept_s=FOR_EVER_S)
    deliver(realm, "nyse", b"a")
    assert forget(realm, Forgotten(TOPIC)).deliveries == 2
    again = forget(realm, Forgotten(TOPIC))
    assert again.over and again.deliveries == 0 and again.epoch == 3


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", [name for name, made in PROTECTIONS.items() if made().peers])
def test_where_it_cannot_be_it_is_refused(tmp_path: Path, protection: str) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection=protection)
    with pytest.raises(Misuse, match="nobody can see to it that all of them forget"):
        forget(realm, Forgotten(TOPIC))


def test_what_waits_would_be_lost(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, "nyse", b"a")
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": 1}, b"b")])
    with pytest.raises(Rejected, match="1 frames of topic"):
        forget(realm, Forgotten(TOPIC))
    pumping.pump(realm, TOPIC)
    ledger = Ledger(realm.paths.topic(TOPIC).ledger, realm.broker().journal_key(realm.state().topic(TOPIC).id))
    with ledger.exclusive(), pytest.raises(Locked):
        forget(realm, Forgotten(TOPIC))
    ledger.close()
    with pytest.raises(NotFound):
        forget(realm, Forgotten(TOPIC, "nobody"))
    assert read(realm, from_=0) == [b"a", b"b"]


def test_the_rules(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    for before in (0, 1, 2):
        with pytest.raises(Misuse, match="cannot be forgotten"):
            realm.registry.apply(ForgetEpochs(TOPIC, before))
    realm.rotate(TOPIC)
    assert realm.state().topic(TOPIC).epoch_admissible(1, realm.clock()), "within the grace"
    realm.registry.apply(ForgetEpochs(TOPIC, 2))
    about = realm.state().topic(TOPIC)
    assert not about.epoch_admissible(1, realm.clock()) and about.first_needed(realm.clock()) == 2
    change = ForgetEpochs(TOPIC, 2)
    assert from_json(change.kind, to_json(change)) == change
    realm.paths.administrator_key.rename(tmp_path / "elsewhere.key")
    realm.rotate(TOPIC)
    with pytest.raises(Misuse, match="administrator"):
        Realm(realm.paths.root).registry.apply(ForgetEpochs(TOPIC, 3))


def test_a_frame_of_a_forgotten_epoch_is_refused_by_name(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, "nyse", b"a")
    with Publisher(realm, TOPIC, "nyse") as late:
        late.publish([Event({"price": 1}, b"b")])
    log = realm.paths.topic(TOPIC).frames_root
    shutil.copytree(log, tmp_path / "frames")
    pumping.pump(realm, TOPIC)
    forget(realm, Forgotten(TOPIC))
    with realm.frames(TOPIC) as frames:
        from sealcast.log.embedded import EmbeddedLog

        with EmbeddedLog(tmp_path / "frames" / "0", read_only=True) as old:
            frames.partition(0).append([record.data for record in old.read(1)])
    counts = pumping.pump(realm, TOPIC)
    assert counts["rejected_epoch"] == 1 and counts["admitted"] == 0


def test_the_command(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, "nyse", b"a", b"b")
    at = ("--realm", realm.paths.root)
    shown = sealcast("forget", TOPIC, "--publisher", "nyse", "--dry-run", "--json", *at)
    assert shown.code == 0 and shown.document["deliveries"] == 4 and shown.document["over"] is None
    assert "--yes" in sealcast("forget", TOPIC, *at).err and read(realm, from_=0) == [b"a", b"b"]
    done = sealcast("forget", TOPIC, "--from", "2020-01-01", "--until", "2100-01-01", "--yes", *at)
    assert done.code == 0 and "attack: no key of broker, center" in done.out, done.out + done.err
    assert "left: " in done.out and read(realm, from_=0) == []
