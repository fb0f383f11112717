"""A topic's directory that is lost, or put back from a copy, gives positions again: nonces come again, keys must not.

The attack: two events that were sealed at one position, XORed. Whoever knows one of them reads the other.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from sealcast.clients.publisher import Publisher
from sealcast.clients.replayed import replayed_events
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Bug, Corrupt, Misuse, Rejected, Unavailable
from sealcast.model import Event, Schema
from sealcast.pipeline.sources import Limits, StepsStream
from sealcast.primitives.aead import TAG_BYTES
from sealcast.protections import frame_steps, steps
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.port import client_side
from sealcast.protections.recall import recall
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import BeginIncarnation
from sealcast.wire import sealed
from sealcast.wire.sealed import SealedPiece
from tests.clients.pump import pump
from tests.pipeline.crowd import TOPIC as CROWDED
from tests.pipeline.crowd import Crowd

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1_000_000}]})
SECRET, KNOWN = b"buy 40,000 of them at any price.", b"what everybody reads in the news"

Accident = Callable[[Realm, Path], Realm]


def lost(realm: Realm, copy: Path) -> Realm:
    shutil.rmtree(realm.paths.topic(TOPIC).root)
    return realm


def put_back(realm: Realm, copy: Path) -> Realm:
    shutil.rmtree(realm.paths.topic(TOPIC).root)
    shutil.copytree(copy / "topics" / TOPIC, realm.paths.topic(TOPIC).root)
    return realm


def overwritten(realm: Realm, copy: Path) -> Realm:
    """In place: the same files, the same inodes, the bytes of the copy."""
    root, before = realm.paths.topic(TOPIC).root, copy / "topics" / TOPIC
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_file() and not (before / path.relative_to(root)).exists():
            path.unlink()
    for path in before.rglob("*"):
        if path.is_file():
            (root / path.relative_to(before)).write_bytes(path.read_bytes())
    return realm


def whole_realm(realm: Realm, copy: Path) -> Realm:
    """The registry, too: nothing on this machine remembers what was sealed since."""
    root = realm.paths.root
    shutil.rmtree(root)
    shutil.copytree(copy, root)
    return Realm(root)


ACCIDENTS = [lost, put_back, overwritten, whole_realm]


def run(realm: Realm) -> SealedPiece:
    """A run, planned as Spark has it planned, in a process that remembers nothing; the piece it made."""
    steps._open.cache_clear()
    stream = StepsStream((StepName(str(realm.paths.root), TOPIC),), Limits(100, 1 << 20, 1))
    stream.latestOffset(stream.initialOffset(), ReadMaxRows(100))
    pump(realm, TOPIC)
    paths = realm.paths.topic(TOPIC)
    newest = max(paths.pieces.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return sealed.parse(newest.read_bytes())


def publish(realm: Realm, *payloads: bytes) -> None:
    with Publisher(realm, TOPIC, "nyse") as publisher:
        publisher.publish([Event({"price": 1}, payload) for payload in payloads])


def taken(realm: Realm) -> list[bytes]:
    with Subscriber(realm, TOPIC, "alice") as reader:
        found = [event.payload for event in reader]
        reader.ack()
    return found


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    made = Realm.create(tmp_path / "realm")
    made.create_topic(TOPIC, SCHEMA, access="members")
    made.enrol_many(["nyse", "alice"])
    made.subscribe(TOPIC, "alice", "price > 0")
    return made


def history(realm: Realm, copy: Path, accident: Accident) -> tuple[Realm, SealedPiece, SealedPiece]:
    """Two events that stand at one position, one before an accident and one after it."""
    publish(realm, b"first")
    run(realm)
    assert taken(realm) == [b"first"]
    shutil.copytree(realm.paths.root, copy)
    publish(realm, SECRET)
    before = run(realm)
    after_it = accident(realm, copy)
    if accident is lost:
        publish(after_it, b"filler")
    publish(after_it, KNOWN)
    return after_it, before, run(after_it)


def stolen(one: SealedPiece, other: SealedPiece) -> bytes:
    """What the XOR of two bodies at one position, and the payload of the second, leave of the first."""
    (event,) = (e for e in range(len(other)) if other.position(e) == one.position(0))
    bodies, known = (one.body(0), other.body(event)), KNOWN.rjust(len(one.body(0)) - TAG_BYTES)
    assert len(bodies[0]) == len(bodies[1])
    return bytes(a ^ b ^ c for a, b, c in zip(*bodies, known, strict=False))


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_no_key_seals_at_a_position_twice(realm: Realm, tmp_path: Path, accident: Accident) -> None:
    after, one, other = history(realm, tmp_path / "copy", accident)
    assert one.epoch == other.epoch
    assert SECRET not in stolen(one, other) and one.commitment(0) != other.commitment(len(other) - 1)
    # What is there is there, and its reader notices nothing.
    expected = [b"filler", KNOWN] if accident is lost else [KNOWN]
    assert taken(after) == expected


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_runs_with_one_incarnation_would_give_the_event_away(
    realm: Realm, tmp_path: Path, accident: Accident, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_steps, "token_bytes", lambda size: bytes(range(size)))
    _, one, other = history(realm, tmp_path / "copy", accident)
    assert SECRET in stolen(one, other)


def test_a_run_that_plans_nothing_leaves_no_trace(realm: Realm) -> None:
    version = realm.registry.version()
    stream = StepsStream((StepName(str(realm.paths.root), TOPIC),), Limits(100, 1 << 20, 1))
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadMaxRows(100)) == start
    assert realm.registry.version() == version
    publish(realm, b"something")
    planned = stream.latestOffset(start, ReadMaxRows(100))
    publish(realm, b"more")
    stream.latestOffset(planned, ReadMaxRows(100))
    begun = [change for _, _, change in realm.registry.changes(version + 1) if isinstance(change, BeginIncarnation)]
    assert len(begun) == 1, "one for a run, however many batches it plans"


def test_nothing_is_planned_under_an_incarnation_of_somebody_elses(realm: Realm) -> None:
    """Whoever writes the registry puts an incarnation back whose keys have sealed before."""
    publish(realm, b"first")
    run(realm)
    old = realm.state().incarnation(TOPIC, "broker")
    publish(realm, b"second")
    stream = StepsStream((StepName(str(realm.paths.root), TOPIC),), Limits(100, 1 << 20, 1))
    start = stream.initialOffset()
    stream.latestOffset(start, ReadMaxRows(100))
    realm.registry.apply(BeginIncarnation(TOPIC, "broker", old))
    with pytest.raises(Corrupt, match="another incarnation of broker 'broker'"):
        stream.latestOffset(start, ReadMaxRows(100))


def test_a_batch_is_planned_by_a_run_that_has_begun(realm: Realm) -> None:
    publish(realm, b"first")
    step = MatchingStep.of(StepName(str(realm.paths.root), TOPIC))
    with pytest.raises(Bug, match="has not begun"):
        step.pinned(step.committed(), step.available(), 1)


def test_keys_are_handed_out_anew_and_old_ones_still_open_what_they_did(tmp_path: Path) -> None:
    """Groups, tables and all: each run has keys of its own, and a reader of both needs nothing but its key file."""
    crowd = Crowd(tmp_path, 24)
    crowd.want({g: crowd.rng.sample(list(crowd.wishes), 12) for g in range(1, 9)})
    step, costs = StepName(str(crowd.realm.paths.root), CROWDED), []
    for _ in range(3):
        steps._open.cache_clear()
        step.open().begin()
        crowd.publish(range(1, 9))
        costs.append(crowd.pump()["encryptions"])
    crowd.publish(range(1, 9))
    assert crowd.pump()["encryptions"] == 8, "and within a run, once"
    assert min(costs) > 8
    for name in crowd.wishes:
        with Subscriber(crowd.realm, CROWDED, name) as reader:
            assert {e.position for e in reader} == {p for p, members in crowd.groups.items() if name in members}


def test_a_replay_of_what_several_runs_sealed(realm: Realm) -> None:
    publish(realm, b"first")
    run(realm)
    publish(realm, b"second")
    run(realm)
    side = client_side(realm.state().topic(TOPIC).protection)
    step = MatchingStep.of(StepName(str(realm.paths.root), TOPIC))
    recalled = recall(step, "alice", side.asks_of_past(realm, TOPIC, "alice", "price = 1"), 0, 1 << 60)
    found = [e.payload for e in replayed_events(realm, TOPIC, "broker", recalled.replayed)]
    assert found == [b"first", b"second"]


def test_a_run_of_the_same_process_goes_on_while_the_ledger_ends_where_it_left_off(realm: Realm) -> None:
    """Only after one that ended well, and only once."""

    def batch(payload: bytes, *, fails: bool = False) -> bytes:
        publish(realm, payload)
        step = MatchingStep.of(StepName(str(realm.paths.root), TOPIC))
        with step.going_on() as continues:
            step.begin(continues)
            pump(realm, TOPIC)
            if fails:
                raise Unavailable("the driver lost its mind")
        return realm.state().incarnation(TOPIC, "broker")

    first = batch(b"1")
    assert batch(b"2") == batch(b"3") == first
    with pytest.raises(Unavailable):
        batch(b"4", fails=True)
    second = batch(b"5")
    assert second != first
    pump_alone(realm, b"6")
    third = batch(b"7")
    assert third not in (first, second), "the ledger does not end there any more"
    shutil.rmtree(realm.paths.topic(TOPIC).root)
    steps._open.cache_clear()
    assert batch(b"8") not in (first, second, third)


def pump_alone(realm: Realm, payload: bytes) -> None:
    publish(realm, payload)
    pump(realm, TOPIC)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (BeginIncarnation("nowhere", "broker", bytes(16)), Exception, "there is no topic 'nowhere'"),
        (BeginIncarnation(TOPIC, "alice", bytes(16)), Misuse, "'alice' is no"),
        (BeginIncarnation(TOPIC, "broker", bytes(15)), Misuse, "16 bytes, not 15"),
        (BeginIncarnation("carried", "broker", bytes(16)), Misuse, "carry it themselves"),
    ],
)
def test_what_the_registry_takes(realm: Realm, change: BeginIncarnation, error: type[Exception], words: str) -> None:
    realm.create_topic("carried", SCHEMA, protection="attribute", access="members")
    with pytest.raises(error, match=words):
        realm.registry.apply(change)


def test_a_revoked_broker_begins_nothing(realm: Realm) -> None:
    realm.add_broker("second")
    realm.revoke_entity("second")
    with pytest.raises(Rejected, match="'second' was revoked"):
        realm.registry.apply(BeginIncarnation(TOPIC, "second", bytes(16)))
