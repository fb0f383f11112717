"""`compromise` and what it proves: frames are tried as well as pieces, what cannot be taken back is said, and a proof
that is made again compares with nothing stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Right, Schema, Subscriber
from sealcast.errors import Misuse
from sealcast.lab import drill as drills
from sealcast.lab.drill import DrillReport, ForgottenFrames, drill, preview
from sealcast.lab.matrix import AccessCell
from sealcast.lab.theft.hops import LayerThief
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.presumes import Presumes
from sealcast.lab.theft.reads import Reads
from sealcast.lab.theft.tries import Tries
from sealcast.log.embedded import EmbeddedLog, EmbeddedTopic
from sealcast.model.protection import Layered
from sealcast.mqtt import feed
from sealcast.mqtt.direct import DirectCarrier
from sealcast.primitives.x25519 import AgreementKey
from sealcast.protections import steps
from sealcast.protections.endpoint.audit import EndpointAudit
from sealcast.protections.layered.interests import LayeredInterests
from sealcast.protections.steps import StepName
from sealcast.trust.realm import compromise
from tests.cli.shell import sealcast
from tests.clients.layered_pump import pump as layered_pump
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
    monkeypatch.setattr(drills, "_forget", lambda realm, thief, step: ForgottenFrames(TOPIC, "broker", 0, 5, "weak"))
    report = drill(realm, "nyse")
    assert report.after["nyse", TOPIC].frames == 5 and report.over is False


@pytest.mark.parametrize("protection", ["endpoint", "payload", "searchable"])
def test_publishing_is_tried_up_to_the_last_check(tmp_path: Path, protection: str) -> None:
    """Also where brokers take no event that is not sealed for readers: a thief that is refused for its event alone
    would publish, and nobody's keys must be called harmless for that."""
    realm = a_realm(tmp_path, protection)
    deliver(realm)
    report = drill(realm, "nyse")
    assert report.before["nyse", TOPIC].publishes == "admitted", "with the same keys, before it is revoked"
    assert report.after["nyse", TOPIC].publishes == "revoked"
    assert report.before["alice", TOPIC].publishes == report.after["alice", TOPIC].publishes == "admitted"


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


INNER = f"{TOPIC}-node-2"


@pytest.fixture
def layered(tmp_path: Path) -> Realm:
    """A root with two brokers below it, a reader at each of the two, and three events that reached both."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection=Layered(2), nodes=3, access="members")
    realm.enrol_many(["nyse", "alice", "bob"])
    for name, broker in (("alice", INNER), ("bob", f"{TOPIC}-node-3")):
        realm.place_subscriber(TOPIC, name, broker)
        with LayeredInterests(realm, TOPIC, name) as interests:
            interests.add("price < 100")
    route(realm, 3)
    return realm


def route(realm: Realm, events: int) -> None:
    with Publisher(realm, TOPIC, "nyse") as out:
        out.publish(EVENTS[:events])
    layered_pump(realm, TOPIC)


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
    assert drill(realm, "inner").over, "nothing was routed yet"
    assert realm.state().topic("deals").epoch == 2
    assert realm.state().layer_key("deals", 2, "inner") is None
    assert compromise.plan(realm.state(), "inner").done


def test_a_layer_key_of_an_earlier_epoch_counts(tmp_path: Path) -> None:
    """Its right ended, and the topic has a new epoch without it: what was routed before is still under its keys."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection=Layered(2), nodes=2, access="granted")
    realm.enrol_many(["alice", "bob"])
    realm.grant(TOPIC, "alice", [Right.SUBSCRIBE])
    realm.place_subscriber(TOPIC, "alice", INNER)
    with LayeredInterests(realm, TOPIC, "alice") as interests:
        interests.add("price < 100")
    realm.revoke(TOPIC, "alice", [Right.SUBSCRIBE])
    realm.rotate(TOPIC)
    state = realm.state()
    epoch = state.topic(TOPIC).epoch
    assert state.layer_key(TOPIC, epoch, "alice") is None and state.pair_key(TOPIC, epoch, "alice") is None
    affected = compromise.plan(state, "alice").topics
    assert [(each.topic, each.why) for each in affected] == [(TOPIC, "it has a layer key of an earlier epoch")]
    drill(realm, "alice")
    assert realm.state().topic(TOPIC).epoch == epoch + 1 and compromise.plan(realm.state(), "alice").done
    assert TOPIC not in compromise.touched(state, "bob")


def test_a_reader_of_a_layered_topic_opens_what_lies_there_and_that_is_said(layered: Realm) -> None:
    report = drill(layered, "bob")
    assert (report.before["bob", TOPIC].opened, report.before["bob", TOPIC].tried) == (3, 3), "the keys are tried"
    assert report.after["bob", TOPIC].opened == 3, "no broker can seal it again"
    assert report.lasting == (TOPIC,) and not report.over
    result = sealcast("compromise", "bob", "--realm", layered.paths.root)
    assert result.code == 1 and "nobody can seal it again" in result.err and "not over" in result.err
    assert "(3 deliveries)" in result.err


def test_other_readers_of_a_layered_topic_read_before_and_after(layered: Realm) -> None:
    report = drill(layered, "bob")
    for matrix in (report.before, report.after):
        assert (matrix["alice", TOPIC].opened, matrix["alice", TOPIC].tried) == (3, 3)
    assert report.unharmed


def test_a_reader_to_whom_nothing_came_has_nothing_that_lasts(layered: Realm) -> None:
    layered.enrol("carol")
    layered.place_subscriber(TOPIC, "carol", INNER)
    report = drill(layered, "carol")
    assert report.over and not report.lasting and report.after["carol", TOPIC].tried == 0


def test_an_inner_broker_opens_nothing_and_follows_everything(layered: Realm) -> None:
    report = drill(layered, INNER)
    cell = report.before[INNER, TOPIC]
    assert (cell.opened, cell.tried, cell.routed) == (0, 3, 3)
    assert report.after[INNER, TOPIC].routed == 3 and report.lasting == (TOPIC,) and not report.over
    result = sealcast("compromise", INNER, "--realm", layered.paths.root)
    assert result.code == 1 and "which way events of earlier epochs went (3 events)" in result.err


@pytest.mark.parametrize("name", ["center", "nyse", f"{TOPIC}-node-1"])
def test_frames_at_the_root_of_a_layered_topic_go_as_well(layered: Realm, name: str) -> None:
    """They carry no payload that their keys open, but whose events they are, and which way these go."""
    report = drill(layered, name)
    assert report.before[name, TOPIC].frames == 6, "two messages an event"
    assert report.after[name, TOPIC].frames == 0
    assert [(gone.broker, gone.removed, gone.left) for gone in report.forgotten] == [(f"{TOPIC}-node-1", 1, 0)]
    assert report.over is not (name == f"{TOPIC}-node-1"), "a root's layer key still follows what it routed"


def test_keys_of_somebody_else_follow_and_open_nothing(layered: Realm) -> None:
    """The attempt is one that can fail: agreement keys that are not the victim's."""
    other = {epoch: AgreementKey.generate() for epoch in (1,)}
    broker = LayerThief(layered, TOPIC, layered.broker(INNER).identity, other)
    assert broker.routed() == 0 and broker.opened_as_broker() == (0, 3)
    assert LayerThief(layered, TOPIC, layered.identity("bob"), other).opened() == (0, 3)
    assert LayerThief(layered, TOPIC, layered.identity("bob"), {}).opened() == (0, 3)


# --- keys that are not here -----------------------------------------------------------------------------


def test_frames_of_a_publisher_whose_keys_are_elsewhere_go_as_well(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    deliver(realm)
    deliver(realm, EVENTS[:1], "alice")
    realm.paths.entity_key("nyse").unlink()
    report = drill(realm, "nyse")
    assert report.untried and report.before["nyse", TOPIC].frames == 5, "by its name, and not those of alice"
    assert report.over and report.after["nyse", TOPIC] == AccessCell(publishes="revoked")
    assert [gone.left for gone in report.forgotten] == [0]
    assert len(read(realm, "bob")) == 6


def test_what_cannot_be_taken_from_keys_that_are_elsewhere_is_said(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    deliver(realm)
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish(EVENTS[:2])
    realm.paths.entity_key("nyse").unlink()
    result = sealcast("compromise", "nyse", "--yes", "--json", "--realm", realm.paths.root)
    assert result.code == 1 and result.document["over"] is False and not result.document["tried"]
    assert result.document["forgotten"][0]["left"] == 7
    deliver(realm, [], "alice")
    again = sealcast("compromise", "nyse", "--yes", "--json", "--realm", realm.paths.root)
    assert again.code == 0 and again.document["over"] and frames(realm) == 0


@pytest.mark.parametrize("name", ["bob", "center", "broker"])
def test_what_is_presumed_is_what_the_keys_open(tmp_path: Path, name: str) -> None:
    realm = a_realm(tmp_path)
    deliver(realm)
    tried, presumed = Tries(realm, steal(realm, name, tokens=False)), Presumes(realm, name)
    assert tried.reads(TOPIC) == presumed.reads(TOPIC)._replace(tried=tried.reads(TOPIC).tried)
    assert tried.reads(TOPIC).opened == 5
    drill(realm, name)
    assert Presumes(realm, name).reads(TOPIC) == Reads()


def test_layered_keys_that_are_elsewhere_open_all_that_was_sent_to_them(layered: Realm) -> None:
    layered.paths.entity_key("bob").unlink()
    layered.paths.broker_key_of(INNER).unlink()
    for name, opened, routed in (("bob", 3, 0), (INNER, 0, 3)):
        report = drill(layered, name)
        cell = report.after[name, TOPIC]
        assert report.untried and (cell.opened, cell.routed) == (opened, routed)
        assert report.lasting == (TOPIC,) and not report.over


# --- what waits in MQTT brokers' logs -------------------------------------------------------------------


def test_what_waits_at_an_mqtt_broker_is_tried(tmp_path: Path) -> None:
    """As its publisher sealed it: a reader's content key opens it, and no broker can seal it again."""
    realm = a_realm(tmp_path, "searchable")
    with DirectCarrier(realm, TOPIC, "nyse", "broker") as carrier:
        messages = [data for event in EVENTS for _, data in carrier.seal(event)]
    with EmbeddedLog(realm.paths.broker("broker") / "mqtt" / "log") as log:
        log.append([feed.record_of(TOPIC, 1, data) for data in messages] + [b"junk"])
    report = drill(realm, "bob")
    assert report.before["bob", TOPIC].queued == report.after["bob", TOPIC].queued == 5
    assert report.lasting == (TOPIC,) and not report.over
    assert Presumes(realm, "bob").reads(TOPIC).queued == 5
    realm.enrol("late")
    assert Tries(realm, steal(realm, "late")).reads(TOPIC).queued == 0, "it was handed no key of that epoch"


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
