"""`compromise` and what it proves: frames are tried as well as pieces, what cannot be taken back is said, and a proof
that is made again compares with nothing stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Right, Schema, Subscriber
from sealcast.errors import Misuse
from sealcast.lab import drill as drills
from sealcast.lab import matrix
from sealcast.lab.drill import DrillReport, ForgottenFrames, drill, preview
from sealcast.log.embedded import EmbeddedTopic
from sealcast.protections import steps
from sealcast.protections.endpoint.audit import EndpointAudit
from sealcast.protections.steps import StepName
from sealcast.trust.realm import compromise
from tests.cli.shell import sealcast
from tests.clients.pump import pump

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1_000}]})
EVENTS = [Event({"price": n}, b"payload %d" % n) for n in range(1, 6)]


def a_realm(directory: Path, protection: str = "endpoint") -> Realm:
    realm = Realm.create(directory / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members")
    realm.enrol_many(["nyse", "alice", "bob"])
    for name in ("alice", "bob"):
        realm.subscribe(TOPIC, name, "price > 0")
    return realm


def deliver(realm: Realm, events: list[Event] = EVENTS, publisher: str = "nyse") -> None:
    with Publisher(realm, TOPIC, publisher) as writing:
        writing.publish(events)
    steps._open.cache_clear()
    StepName(str(realm.paths.root), TOPIC).open().begin()
    pump(realm, TOPIC)


def read(realm: Realm, name: str) -> list[bytes]:
    with Subscriber(realm, TOPIC, name, from_=0) as reader:
        return [event.payload for event in reader]


def frames(realm: Realm) -> int:
    with EmbeddedTopic(realm.paths.topic(TOPIC).frames_root, read_only=True) as log:
        return sum(log.partition(p).end() - log.partition(p).start() for p in range(log.partitions))


@pytest.mark.parametrize("name", ["nyse", "center"])
@pytest.mark.parametrize("protection", ["endpoint", "payload"])
def test_a_thief_reads_frames_before_and_none_after(tmp_path: Path, protection: str, name: str) -> None:
    realm = a_realm(tmp_path, protection)
    deliver(realm)
    report = drill(realm, name)
    assert report.before[name, TOPIC].frames == 5, "frames are sealed under its key, and it tries them"
    assert report.after[name, TOPIC].frames == 0 and report.over and report.unharmed
    assert [(gone.removed, gone.left) for gone in report.forgotten] == [(1, 0)] and frames(realm) == 0
    # Nobody else notices; what comes next does come; and what was sealed again can be sealed again without its frames.
    realm.enrol("nasdaq")
    deliver(realm, [Event({"price": 6}, b"payload 6")], "nasdaq")
    everything = [b"payload %d" % n for n in range(1, 7)]
    assert read(realm, "alice") == read(realm, "bob") == everything
    again = drill(realm, "bob")
    assert again.before["bob", TOPIC].opened == 6 and again.over and again.unharmed
    assert not any(done.kept for done in again.resealed)
    assert read(realm, "alice") == everything


def test_a_proof_that_forgets_the_frames_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: every event, with the stolen key, out of the log."""
    realm = a_realm(tmp_path)
    deliver(realm)
    monkeypatch.setattr(drills, "_forget", lambda realm, loot, step: ForgottenFrames(TOPIC, "broker", 0, 5, "weak"))
    report = drill(realm, "nyse")
    assert report.after["nyse", TOPIC].frames == 5 and report.over is False


def test_a_reader_that_never_published_costs_nobody_the_frames(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    deliver(realm)
    report = drill(realm, "bob")
    assert report.over and not report.forgotten and frames(realm) == 1


def test_frames_that_nobody_has_sealed_yet_stay_and_it_is_not_over(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    deliver(realm)
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish(EVENTS[:2])
    report = drill(realm, "nyse")
    assert report.over is False and report.after["nyse", TOPIC].frames == 7
    assert report.forgotten == [
        ForgottenFrames(TOPIC, "broker", 0, 7, "they wait to be sealed, or share a file with frames that do")
    ]
    deliver(realm, [], "alice")
    report = drill(realm, "nyse")
    assert report.over and frames(realm) == 0
    # Admission refused them: who published them was revoked.
    assert read(realm, "alice") == [b"payload %d" % n for n in range(1, 6)]


def test_a_topic_that_keeps_frames_on_purpose_says_so(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, "searchable")
    deliver(realm)
    report = drill(realm, "nyse")
    assert report.over is False and frames(realm) == 1
    assert report.forgotten[0].why == "the topic keeps frames for filters that come later"


def test_the_checker_and_the_next_run_go_on_without_the_frames(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    deliver(realm)
    drill(realm, "nyse")
    report = EndpointAudit(realm, TOPIC).run(lambda done: None)
    assert report.ok and report.unchecked == 1, report.problems
    assert sealcast("check", TOPIC, "--realm", realm.paths.root).code == 0


# --- the layered protection -----------------------------------------------------------------------------


def test_an_inner_broker_of_an_overlay_has_keys_that_must_change(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, "endpoint")
    realm.create_topic("deals", SCHEMA, protection="layered", access="members")
    realm.add_broker("root")
    realm.add_broker("inner")
    realm.place_node("deals", "root")
    realm.place_node("deals", "inner", under="root")
    state = realm.state()
    affected = {each.topic: each.why for each in compromise.plan(state, "inner").topics}
    assert affected == {"deals": "it has a layer key"}
    drill(realm, "inner")
    assert realm.state().topic("deals").epoch == 2
    assert realm.state().layer_key("deals", 2, "inner") is None
    assert compromise.plan(realm.state(), "inner").done


def test_what_lies_on_a_layered_topic_stays_open_and_that_is_said(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection="layered", access="members")
    realm.place_node(TOPIC, "broker")
    realm.enrol("alice")
    assert drill(realm, "alice").over, "nothing lies there yet"
    realm.enrol("bob")
    pieces = realm.paths.topic(TOPIC).hops.pieces
    pieces.mkdir(parents=True)
    (pieces / "delivered.piece").write_bytes(b"under keys that bob has")
    report = drill(realm, "bob")
    assert report.lasting == (TOPIC,) and report.over is False
    result = sealcast("compromise", "bob", "--realm", realm.paths.root)
    assert result.code == 1 and "nobody can seal them again" in result.err and "not over" in result.err


# --- again ----------------------------------------------------------------------------------------------


def test_run_again_later_it_raises_no_false_alarm(tmp_path: Path) -> None:
    """alice lost her right for reasons of her own: that is no harm that the response has done."""
    realm = a_realm(tmp_path)
    deliver(realm)
    first = drill(realm, "bob")
    realm.revoke(TOPIC, "alice", [Right.SUBSCRIBE, Right.PUBLISH])
    again = drill(realm, "bob")
    assert again.unharmed and again.over
    assert again.before["bob", TOPIC] == first.before["bob", TOPIC], "what the thief could do is remembered"
    stale = DrillReport("bob", again.response, (TOPIC,), before=first.before, after=again.after)
    assert not stale.unharmed, "compared with the first run's table, it would be an alarm"


# --- as it is typed -------------------------------------------------------------------------------------


def snapshot(realm: Realm) -> dict[Path, bytes]:
    """All files but the database, whose version is compared, and what readers of it remember of its head."""
    said = (path for path in realm.paths.root.rglob("*") if path.suffix != ".head" and ".sqlite" not in path.name)
    return {path: path.read_bytes() for path in said if path.is_file()}


@pytest.mark.parametrize("name", ["nyse", "center", "broker", "bob"])
def test_a_dry_run_shows_it_and_does_nothing(tmp_path: Path, name: str) -> None:
    realm = a_realm(tmp_path)
    deliver(realm)
    before, version = snapshot(realm), realm.registry.version()
    result = sealcast("compromise", name, "--dry-run", "--json", "--realm", realm.paths.root)
    assert result.code == 0, result.err
    shown = result.document
    assert snapshot(realm) == before and realm.registry.version() == version
    report = drill(realm, name)
    assert [each["topic"] for each in shown["topics"]] == [each.topic for each in report.response.plan.topics]
    assert shown["pieces"] == {TOPIC: sum(done.pieces for done in report.resealed)}
    assert shown["frames"] == ({} if name == "bob" else {TOPIC: 5})
    assert shown["new_center"] == ("center-2" if name == "center" else "")
    assert sealcast("compromise", name, "--dry-run", "--realm", realm.paths.root).out == ""


def test_what_cannot_be_undone_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = a_realm(tmp_path)
    deliver(realm)
    version = realm.registry.version()
    result = sealcast("compromise", "nyse", "--realm", realm.paths.root)
    assert result.code == 1 and "cannot be undone" in result.err and "--yes" in result.err
    assert "frames with 5 messages removed" in result.err and "'nyse' is revoked, for good" in result.err
    assert realm.registry.version() == version
    done = sealcast("compromise", "nyse", "--yes", "--json", "--realm", realm.paths.root)
    assert done.code == 0 and done.document["forgotten"][0]["removed"] == 1
    assert sealcast("compromise", "nyse", "--realm", realm.paths.root).code == 0, "nothing is left to ask about"


def test_a_center_that_would_be_made_takes_over_in_the_preview(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    assert preview(realm, "center").plan.topics[0].center == "center-2"
    with pytest.raises(Misuse, match="is no other key center"):
        preview(realm, "center", center="nobody")
    assert matrix.ADMITTED == "admitted"
