"""Frames have an end: once they are committed and old enough they are removed, and nothing else notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Schema, Subscriber
from sealcast.errors import ParameterRejected
from sealcast.lab.drill import drill
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.tries import Tries
from sealcast.log.embedded import FrameLog
from sealcast.log.entry import Entry
from sealcast.log.forwarded import ForwardedLog
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.model.protection import Layered
from sealcast.overlay.routing import Forwarder, Link, needed
from sealcast.pipeline.retention import Retainer, kept_steps
from sealcast.pipeline.sources import Limits, StepsStream
from sealcast.protections import steps
from sealcast.protections.layered.interests import LayeredInterests
from sealcast.protections.port import witness_side
from sealcast.protections.steps import FRAMES, StepName
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.changes import CreateTopic
from sealcast.trust.realm.parameters import FOR_EVER_S, NO_LIMIT, KeyParameters
from sealcast.trust.realm.stored import from_json, to_json
from tests.cli.shell import sealcast
from tests.clients.layered_pump import pump as layered_pump
from tests.clients.pump import pump
from tests.overlay.world import World

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1_000}]})
DAY_US = 86_400_000_000


def a_realm(directory: Path, protection: str = "endpoint", **parameters: int) -> Realm:
    realm = Realm.create(directory / "realm")
    realm.create_topic(
        TOPIC, SCHEMA, protection=protection, access="members", parameters=KeyParameters.parse(parameters)
    )
    realm.enrol_many(["nyse", "alice", "bob"])
    for name in ("alice", "bob"):
        realm.subscribe(TOPIC, name, "price > 0")
    return realm


def deliver(realm: Realm, *prices: int) -> None:
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": n}, b"%d" % n) for n in prices])
    steps._open.cache_clear()
    StepName(str(realm.paths.root), TOPIC).open().begin()
    pump(realm, TOPIC)


def retain(realm: Realm, days: float = 8, topic: str = TOPIC, broker: str = "broker") -> int:
    """What a run some days later removes."""
    with Retainer(BrokerRealm(realm.paths.root), kept_steps(realm, [topic], [broker])) as retainer:
        return sum(retainer.once(realm.clock() + int(days * DAY_US)).values())


def read(realm: Realm, name: str) -> list[bytes]:
    with Subscriber(realm, TOPIC, name, from_=0) as reader:
        return [event.payload for event in reader]


def test_a_thief_of_the_frame_log_finds_nothing_older_than_the_retention(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, 1, 2, 3)
    thief = Tries(realm, steal(realm, "nyse"))
    assert retain(realm, 5) == 0 and thief.reads(TOPIC).frames == 3
    assert retain(realm) == 1 and thief.reads(TOPIC).frames == 0
    # Nobody else notices: readers read, the next events come, and pieces can be sealed again without their frames.
    deliver(realm, 4)
    assert read(realm, "alice") == [b"1", b"2", b"3", b"4"]
    assert thief.reads(TOPIC).frames == 1
    report = drill(realm, "bob")
    assert report.over and report.unharmed and not any(done.kept for done in report.resealed)
    assert read(realm, "alice") == [b"1", b"2", b"3", b"4"]


def test_without_retention_it_finds_everything(tmp_path: Path) -> None:
    """A topic that keeps a recording on purpose."""
    realm = a_realm(tmp_path, frames_kept_s=FOR_EVER_S)
    deliver(realm, 1, 2, 3)
    assert retain(realm, 10_000) == 0
    assert Tries(realm, steal(realm, "nyse")).reads(TOPIC).frames == 3


def test_commands_say_what_is_gone(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, 1, 2)
    retain(realm)
    deliver(realm, 3)
    at = ("--realm", realm.paths.root)
    check = sealcast("check", TOPIC, "--json", *at)
    assert check.code == 0 and check.document["ok"] and check.document["topics"][TOPIC]["unchecked_frames"] == 1
    (topic,) = sealcast("status", "--json", *at).document["topics"]
    assert (topic["frames"], topic["frames_removed"], topic["backlog"]) == (2, 1, 0)
    assert "1 removed after they were committed" in sealcast("status", *at).out
    gone = sealcast("why", f"{TOPIC}/0/0/1", "alice", *at)
    assert gone.code == 0 and "delivered" in gone.out
    lines = sealcast("replay", TOPIC, "--as", "bob", "--from", "2020-01-01", "--filter", "price > 0", *at)
    assert [line["payload"] for line in lines.lines] == ["3"], "what is gone cannot be replayed"


def test_what_is_not_committed_stays_however_old_it_is(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, 1)
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": 2}, b"2")])
    assert retain(realm) == 0, "it shares a file with what is; from now on it does not"
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": 3}, b"3")])
    pump(realm, TOPIC)
    assert retain(realm) == 3 and read(realm, "alice") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("protection", ["payload", "searchable"])
def test_what_can_only_be_sealed_again_from_frames_keeps_them(tmp_path: Path, protection: str) -> None:
    realm = a_realm(tmp_path, protection)
    deliver(realm, 1)
    assert retain(realm, 20) == 0
    if protection == "payload":
        drill(realm, "bob")  # sealed again by the broker, for each reader: now it can do without
        assert retain(realm, 20) == 1 and read(realm, "alice") == [b"1"]


def test_at_all_times_nothing_is_older_and_the_newest_three_quarters_are_there(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, frames_kept_s=4 * 86_400)
    about, paths = realm.state().topic(TOPIC), realm.paths.topic(TOPIC)
    kept, hour, begin = about.frames_kept_us or 0, 3_600_000_000, realm.clock()
    ledger = Ledger(paths.ledger, realm.broker().journal_key(about.id))
    retainer = Retainer(BrokerRealm(realm.paths.root), kept_steps(realm, [TOPIC], ["broker"]))
    at, committed = PinnedOffset.initial(1), list[int]()
    for n in range(24 * 12):
        now = begin + n * hour
        with realm.frames(TOPIC) as log:
            log.partition(0).append([b"frame %d" % n])
            end = PinnedOffset((n + 1,), realm.registry.version(), now, now)
            ledger.commit(Entry("test", n, at, end, (), {}))
            at = end
            committed.append(now)
            retainer.once(now)
            start = log.partition(0).start()
        assert all(now - age <= kept for age in committed[start:]), "a thief would find something older"
        assert all(now - age >= kept * 3 // 4 for age in committed[:start]), "somebody may still need it"
    assert start > 24 * 7
    ledger.close()


def test_a_layered_topics_roots_let_frames_go_as_well(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection=Layered(2), nodes=2, access="members")
    realm.enrol_many(["nyse", "alice"])
    realm.place_subscriber(TOPIC, "alice", f"{TOPIC}-node-2")
    with LayeredInterests(realm, TOPIC, "alice") as interests:
        interests.add("price < 100")
    for n in (1, 2):
        with Publisher(realm, TOPIC, "nyse") as out:
            out.publish([Event({"price": n}, b"%d" % n)])
        layered_pump(realm, TOPIC)
        assert retain(realm, broker=f"{TOPIC}-node-1") == 1
    assert read(realm, "alice") == [b"1", b"2"]
    report = [
        audit.run(lambda done: None)
        for audit in witness_side(realm.state().topic(TOPIC).protection).audits(realm, TOPIC, by_reference=False)
    ]
    assert all(each.ok for each in report), [each.problems for each in report]


# --- other brokers --------------------------------------------------------------------------------------


def test_frames_wait_for_brokers_that_were_not_sent_them(tmp_path: Path) -> None:
    world = World(tmp_path / "realm")
    world.subscribe("alice", 0, "b1")
    world.publish("p0", "broker", [1, 2])
    world.run("broker")
    link = Link(TOPIC, "broker", "b1")
    assert needed(world.realm, link, 0) == {0: 0} and retain(world.realm) == 0
    with Forwarder(world.realm, "broker") as forwarder:
        forwarder.once()
    assert needed(world.realm, link, 0) == {} and retain(world.realm) == 1
    # What came from another broker goes as well, and forwarding goes on where it was.
    world.run("b1")
    assert retain(world.realm, broker="b1") == 1
    world.publish("p0", "broker", [3])
    world.run("broker")
    with Forwarder(world.realm, "broker") as forwarder:
        assert forwarder.once() == {link: 1}
    world.run("b1")
    world.read("alice")
    assert world.got["alice"] == sorted(world.due["alice"])
    world.close()


def test_a_forwarded_log_knows_where_it_begins_whatever_was_dropped(tmp_path: Path) -> None:
    with ForwardedLog(tmp_path / "0") as log:
        for origin in (3, 5, 9, 12):
            log.take([(origin, b"%d" % origin)])
            log.cut(origin + 1)
        assert log.drop(2) == 2 and [log.through(n) for n in (1, 2, 3, 4)] == [6, 6, 10, 13]
        assert log.next_origin() == 13 and log.index_of(9) == 2
        assert log.drop(4) == 4 and log.next_origin() == log.through(4) == 13
        # As an earlier release noted it, of a log whose records were all dropped.
        (log.directory / "next-origin").write_bytes((13).to_bytes(8, "little"))
        assert log.next_origin() == 13 and log.take([(12, b""), (13, b"next")]) == 1


def test_a_drop_that_was_killed_is_no_more_than_one_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ForwardedLog(tmp_path / "0") as log:
        for origin in (3, 5, 9):
            log.take([(origin, b"%d" % origin)])
            log.cut(origin + 1)
        with monkeypatch.context() as patch:
            patch.setattr(FrameLog, "drop", lambda self, before: self.start())
            log.drop(2)
        assert log.start() == 0 and log.next_origin() == 10 and log.through(0) == 0
        assert log.drop(2) == 2 and log.through(2) == 6


# --- a batch that comes again ---------------------------------------------------------------------------


def test_a_batch_that_spark_did_not_note_comes_again_without_its_frames(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, 1)
    retain(realm)
    deliver(realm, 2)
    name = StepName(str(realm.paths.root), TOPIC, "broker", FRAMES)
    step = name.open()
    start, end = (at.to_json(step.journal_key) for at in (step.ledger.at(1).entry.start, step.ledger.at(1).entry.end))
    assert StepsStream((name,), Limits(100, 1 << 20, 2)).partitions(start, end) == []


@pytest.mark.parametrize("most", [1_000, 8_000])
def test_the_oldest_of_a_recording_go_when_there_are_too_many_bytes(tmp_path: Path, most: int) -> None:
    """A frame of 100 bytes an hour: by its bytes, and never what somebody may look back at."""
    realm = a_realm(tmp_path, frames_kept_s=FOR_EVER_S, frames_kept_bytes=most)
    about, paths = realm.state().topic(TOPIC), realm.paths.topic(TOPIC)
    hour, begin = 3_600_000_000, realm.clock()
    ledger = Ledger(paths.ledger, realm.broker().journal_key(about.id))
    retainer = Retainer(BrokerRealm(realm.paths.root), kept_steps(realm, [TOPIC], ["broker"]))
    at, committed, start = PinnedOffset.initial(1), list[int](), 0
    # What lies in one file goes together: files begin eight times within the least time that frames are kept.
    file = -(-about.least_kept_us // 8 // hour) + 1
    for n in range(24 * 6):
        now = begin + n * hour
        with realm.frames(TOPIC) as log:
            log.partition(0).append([b"x" * 100])
            end = PinnedOffset((n + 1,), realm.registry.version(), now, now)
            ledger.commit(Entry("test", n, at, end, (), {}))
            at = end
            committed.append(now)
            retainer.once(now)
            start = log.partition(0).start()
        assert all(now - age >= about.looked_back_us for age in committed[:start]), "somebody may still need it"
        assert 100 * start <= max(0, 100 * (n + 1) - most) + 99, "there was room for it"
    due = min(len(committed) - most // 100, len(committed) - about.looked_back_us // hour - 1)
    assert 0 < due - file <= start <= due


def test_without_a_size_a_recording_has_no_end(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, frames_kept_s=FOR_EVER_S, frames_kept_bytes=0)
    deliver(realm, 1, 2, 3)
    assert retain(realm, 1) == 0 and retain(realm, 30) == 1
    realm.alter_topic(TOPIC, frames_kept_bytes=NO_LIMIT)
    deliver(realm, 4)
    assert retain(realm, 10_000) == 0 and read(realm, "alice") == [b"1", b"2", b"3", b"4"]


# --- settings -------------------------------------------------------------------------------------------


def test_topics_from_before_keep_their_frames_until_they_are_altered(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    change = next(c for _, _, c in realm.registry.changes() if isinstance(c, CreateTopic))
    assert change.parameters.frames_kept_s == 7 * 86_400
    stored = to_json(change)
    del stored["parameters"]["frames_kept_s"]
    before = from_json("create-topic", stored)
    assert isinstance(before, CreateTopic) and before.parameters.frames_kept_s == FOR_EVER_S
    del stored["parameters"]
    assert from_json("create-topic", stored).parameters.frames_kept_s == FOR_EVER_S  # type: ignore[union-attr]
    at = ("--json", "--realm", realm.paths.root)
    shown = sealcast("topic", "alter", TOPIC, "--keep-frames", "always", *at)
    assert shown.code == 0 and shown.document["frames_kept_s"] == FOR_EVER_S
    assert realm.state().topic(TOPIC).frames_kept_us is None
    assert sealcast("topic", "alter", TOPIC, "--keep-frames", "30d", *at).document["access"] == "members"
    assert realm.state().topic(TOPIC).frames_kept_us == 30 * DAY_US
    version = realm.registry.version()
    assert sealcast("topic", "alter", TOPIC, "--keep-frames", "30d", *at).code == 0
    assert realm.registry.version() == version, "nothing changed"
    assert sealcast("topic", "alter", TOPIC, *at).code == 2
    assert "for 30d at most" in sealcast("topic", "show", TOPIC, "--realm", realm.paths.root).out


def test_frames_are_kept_by_size_on_the_command_line(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    at = ("--json", "--realm", realm.paths.root)
    for text, kept_s, most in (
        ("always,10GB", FOR_EVER_S, 10**10),
        ("5d,300MB", 5 * 86_400, 3 * 10**8),
        ("2TB", FOR_EVER_S, 2 * 10**12),
        ("always", FOR_EVER_S, NO_LIMIT),
    ):
        shown = sealcast("topic", "alter", TOPIC, "--keep-frames", text, *at).document
        assert (shown["frames_kept_s"], shown["frames_kept_bytes"]) == (kept_s, most)
    realm.alter_topic(TOPIC, frames_kept_bytes=10**10)
    said = sealcast("topic", "show", TOPIC, "--realm", realm.paths.root).out
    assert "kept for good, and 10,000,000,000 bytes of them" in said
    assert sealcast("topic", "alter", TOPIC, "--keep-frames", "ten", *at).code == 1
    realm.create_topic("peers", SCHEMA, protection="attribute", access="members")
    altered = sealcast("topic", "alter", "peers", "--keep-frames", "1GB", "--realm", realm.paths.root)
    assert altered.code == 0 and "1,000,000,000 bytes of them, in its publishers' own logs" in altered.out


def test_frames_are_kept_as_long_as_replay_is_looked_for(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, frames_kept_s=0)
    looked_back = 2 * (86_400 + 300) * 1_000_000
    kept = realm.state().topic(TOPIC).frames_kept_us
    assert kept is not None and kept * 3 // 4 >= looked_back
    with pytest.raises(ParameterRejected, match="frames_kept_s"):
        KeyParameters.parse({"frames_kept_s": -1})
