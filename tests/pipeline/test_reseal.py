"""What was delivered before a compromise, sealed again: opened by none who may not, read once by everyone else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import CannotOpen, Corrupt, Rejected
from sealcast.log.ledger import LedgerReader
from sealcast.log.mailbox import slot_mailbox
from sealcast.log.piece_reader import sealed_reader
from sealcast.model import Event, OpenedEvent, Schema
from sealcast.model.event import Position
from sealcast.pipeline import reseal
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.endpoint.audit import EndpointAudit
from sealcast.protections.endpoint.broker import EndpointStep
from sealcast.protections.endpoint.open import Opener
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.protections.withdrawing import remove_superseded
from sealcast.protections.witness.answer import Verdict
from sealcast.protections.witness.mailboxes import received
from sealcast.protections.witness.reasons import Reasons
from sealcast.protections.witness.report import Kind
from sealcast.trust.admin.compromise import respond
from sealcast.trust.deployment import Realm
from sealcast.wire import sealed
from tests.clients.pump import pump
from tests.copies import copy_realm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema.from_json({"attributes": [{"name": "number", "type": "int", "min": 0}]})
FILTERS = {"alice": "number >= 0", "bob": "number % 2 = 0", "carol": "number > 20", "mallory": "number % 3 = 0"}
TOPIC = "t"
ROUNDS, EACH = 4, 10
EVERYTHING = list(range(ROUNDS * EACH))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four batches in two partitions: alice has read some of them, bob to the middle of a piece, carol nothing."""
    realm = Realm.create(tmp_path_factory.mktemp("reseal") / "realm")
    realm.create_topic(TOPIC, SCHEMA, partitions=2, access="members")
    realm.enrol_many([*FILTERS, "p0", "p1"])
    realm.subscribe_many(TOPIC, [(name, text, None) for name, text in FILTERS.items()])
    for batch in range(ROUNDS):
        for half, name in enumerate(("p0", "p1")):
            with Publisher(realm, TOPIC, name) as publisher:
                numbers = range(batch * EACH, (batch + 1) * EACH)
                publisher.publish([Event({"number": n}, b"secret %d" % n) for n in numbers if n % 2 == half])
        pump(realm, TOPIC)
    take(realm, "alice", 25)
    take(realm, "bob", 6)
    return realm.paths.root


@pytest.fixture
def realm(pristine: Path, tmp_path: Path) -> Realm:
    copy_realm(pristine, tmp_path / "realm")
    return Realm(tmp_path / "realm")


def take(realm: Realm, name: str, count: int) -> list[int]:
    with Subscriber(realm, TOPIC, name) as reader:
        events = reader.poll(count)
        reader.ack()
    return numbers(events)


def numbers(events: list[OpenedEvent]) -> list[int]:
    return [event.attributes["number"] for event in events]  # type: ignore[misc]


def everything(realm: Realm, name: str) -> list[int]:
    with Subscriber(realm, TOPIC, name, from_=0) as reader:
        return numbers(list(reader))


def wanted_by(name: str) -> list[int]:
    return {"alice": EVERYTHING, "bob": EVERYTHING[::2], "carol": EVERYTHING[21:]}[name]


def opened(realm: Realm) -> FramesStep:
    return FramesStep.of(StepName(str(realm.paths.root), TOPIC))


def drill(realm: Realm, who: str = "mallory", spark: SparkSession | None = None) -> reseal.Done:
    respond(realm, who)
    topic = opened(realm)
    return reseal.run(topic, reseal.wanted(topic, f"{who} was compromised", [who]), spark)


class Thief:
    """Has copied mallory's key file and every key it had, and reads the realm's public files."""

    def __init__(self, realm: Realm, name: str = "mallory") -> None:
        self.realm = realm
        state = realm.state()
        self.slot = state.slot_of(TOPIC, name)
        epochs = range(1, state.topic(TOPIC).epoch + 1)
        identity = realm.identity(name)
        self.pairs: list[tuple[int, Secret]] = [(e, identity.pair_key(state, TOPIC, e)) for e in epochs]

    def loot(self) -> list[Position]:
        """Every event of every file among the pieces that opens by any way of reading it."""
        state = self.realm.state()
        about = state.topic(TOPIC)
        found = set[Position]()
        for path in sorted(self.realm.paths.topic(TOPIC).pieces.iterdir()):
            piece = sealed.parse(path.read_bytes())
            for slot in {self.slot or 0, *range(len(state.slots_of(TOPIC)))}:
                for epoch, pair in self.pairs:
                    opener = Opener(about.schema, about.id, epoch, slot, pair, self._verify)
                    for event, use in zip(*(a.tolist() for a in piece.rows_for(slot)), strict=True):
                        try:
                            found.add(opener.open(piece, event, use).position)
                        except CannotOpen:
                            continue
        return sorted(found)

    def _verify(self, name: str) -> VerifyKey:
        return VerifyKey(self.realm.state().entity(name).verify_key)


def test_stolen_keys_open_what_was_delivered_and_nothing_once_it_is_sealed_again(realm: Realm) -> None:
    thief = Thief(realm)
    assert len(thief.loot()) == len([n for n in EVERYTHING if n % 3 == 0])
    done = drill(realm)
    assert thief.loot() == []
    assert done.epoch == 2 and done.pieces == done.removed == 2 * ROUNDS and not done.kept


def test_the_attack_succeeds_without_resealing_and_without_rotation(realm: Realm) -> None:
    thief = Thief(realm)
    realm.revoke_entity("mallory")
    topic = opened(realm)
    want = reseal.wanted(topic, "no new epoch", ["mallory"])
    assert not want.places, "nothing is of an earlier epoch"
    assert thief.loot(), "revoked, and its old keys still open what lies there"
    respond(realm, "mallory")
    assert thief.loot(), "a new epoch is for what is to come"


def test_every_reader_goes_on_where_it_was(realm: Realm) -> None:
    before = {name: everything(realm, name) for name in ("alice", "bob", "carol")}
    drill(realm)
    assert take(realm, "alice", 1000) == before["alice"][25:]
    assert take(realm, "bob", 1000) == before["bob"][6:]
    assert take(realm, "carol", 1000) == before["carol"]
    for name in ("alice", "bob", "carol"):
        assert everything(realm, name) == before[name] and sorted(before[name]) == wanted_by(name)
    report = EndpointAudit(realm, TOPIC, by_reference=True).run()
    assert report.ok, report.problems
    with pytest.raises(Rejected, match="was revoked"):
        everything(realm, "mallory")
    got = received(sealed_reader(realm.paths.topic(TOPIC).root), list(realm.state().slots_of(TOPIC)))
    assert got["mallory"].withdrawn == len(EVERYTHING[::3]) and not got["mallory"].deliveries
    assert got["carol"].deliveries == len(before["carol"]) and not got["carol"].withdrawn


def test_a_reader_in_the_middle_of_its_mailbox_notices_nothing(realm: Realm) -> None:
    with Subscriber(realm, TOPIC, "alice", from_=0) as reader:
        first = numbers(reader.poll(17))
        drill(realm)
        rest = numbers(list(reader))
    assert sorted(first + rest) == EVERYTHING and len(first) == 17
    mailbox = slot_mailbox(realm.paths.topic(TOPIC).root, realm.state().slots_of(TOPIC)["carol"], "carol")
    deliveries = mailbox.deliveries()
    next(deliveries)
    drill(realm, "bob")
    assert len(list(deliveries)) == len(wanted_by("carol")) - 1, "in the middle of a loop over it"


def test_what_comes_later_follows_what_was_resealed(realm: Realm) -> None:
    before = {name: everything(realm, name) for name in ("alice", "carol")}
    drill(realm)
    with Publisher(realm, TOPIC, "p0") as publisher:
        publisher.publish([Event({"number": 40}, b"new")])
    pump(realm, TOPIC)
    assert take(realm, "carol", 1000) == [*before["carol"], 40]
    drill(realm, "bob")
    assert take(realm, "alice", 1000) == [*before["alice"][25:], 40]
    assert everything(realm, "carol") == [*before["carol"], 40]


def test_a_reader_whose_right_was_taken_meanwhile_gets_nothing_of_it(realm: Realm) -> None:
    realm.revoke(TOPIC, "bob")
    drill(realm)
    realm.grant(TOPIC, "bob")
    slot = realm.state().slot_of(TOPIC, "bob")
    assert slot is not None
    assert everything(realm, "bob") == []
    assert sorted(everything(realm, "carol")) == wanted_by("carol")


def test_the_checker_finds_a_resealed_piece_that_delivers_too_little(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = reseal.bench

    def forgetful(topic: FramesStep, version: int, time_us: int, keys: reseal.KeysOf | None) -> reseal.Bench:
        at = honest(topic, version, time_us)
        at.allowed[realm.state().slots_of(TOPIC)["carol"]] = False
        return at

    monkeypatch.setattr(reseal, "bench", forgetful)
    drill(realm)
    report = EndpointAudit(realm, TOPIC).run()
    assert report.found[Kind.LOST] == len(wanted_by("carol"))


def test_why_says_that_it_was_sealed_again(realm: Realm) -> None:
    with Subscriber(realm, TOPIC, "mallory", from_=0) as reader:
        event = reader.poll(1)[0].position
    drill(realm)
    reasons = Reasons(realm, TOPIC)
    answer = reasons.why(event, "mallory")
    assert answer.verdict is Verdict.NOT_AUTHORISED and "sealed again (mallory was compromised)" in answer.because
    assert reasons.why(event, "alice").verdict is Verdict.DELIVERED
    reasons.close()


def test_doing_it_again_does_nothing(realm: Realm) -> None:
    drill(realm)
    topic = opened(realm)
    before = sorted(topic.pieces.names())
    again = drill(realm)
    assert (again.pieces, again.removed) == (0, 0) and sorted(topic.pieces.names()) == before


def test_pieces_that_everybody_has_read_and_the_thief_never_got_stay(realm: Realm) -> None:
    for name in FILTERS:
        take(realm, name, 1000)
    respond(realm, "p1")
    topic = opened(realm)
    # A cursor stands behind the last event of the last piece, in that piece.
    assert {record for record, _ in reseal.wanted(topic, "p1 was compromised", ["p1"]).places} == {ROUNDS - 1}
    all_of_them = reseal.wanted(topic, "the broker was compromised")
    assert len(all_of_them.places) == 2 * ROUNDS


def test_frames_of_the_earlier_epoch_that_come_within_the_grace_open_in_the_new_one(realm: Realm) -> None:
    with Publisher(realm, TOPIC, "p0") as publisher:
        publisher.publish([Event({"number": 99}, b"on its way")])
    drill(realm)
    pump(realm, TOPIC)
    assert everything(realm, "carol")[-1] == 99


@pytest.mark.parametrize("name", ["reseals", "pieces"])
def test_notes_and_pieces_that_were_altered_are_found(realm: Realm, name: str) -> None:
    drill(realm)
    root = realm.paths.topic(TOPIC).root / name
    path = max(p for p in root.iterdir() if p.suffix in (".log", ".piece", ".seg") or p.stat().st_size > 500)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(Corrupt):
        everything(realm, "alice")


def test_a_note_that_nobody_with_the_key_wrote_is_refused_by_the_broker(realm: Realm) -> None:
    drill(realm)
    paths, about = realm.paths.topic(TOPIC), realm.state().topic(TOPIC)
    other = LedgerReader(paths.ledger, realm.broker().journal_key(bytes(16)))
    with pytest.raises(Corrupt, match="not written by this broker"):
        other.reseals.of(0)
    assert LedgerReader(paths.ledger, realm.broker().journal_key(about.id)).verify() == ROUNDS


def test_killed_at_any_of_its_steps_it_is_finished_by_the_next_run(realm: Realm, tmp_path: Path) -> None:
    """A child is killed before its k-th piece is staged or noted; what is left is found, done, and read once."""
    respond(realm, "mallory")
    thief_slot = realm.state().slot_of(TOPIC, "mallory")
    assert thief_slot is not None
    # In a process of its own: it forks, which a process with threads must not.
    command = [sys.executable, "-m", "tests.pipeline.test_reseal", str(realm.paths.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as deaths:
        assert deaths.stdin is not None and deaths.stdout is not None
        for k in range(1, 6):
            print(k, file=deaths.stdin, flush=True)
            assert int(deaths.stdout.readline()) == -signal.SIGKILL
            assert sorted(everything(realm, "carol")) == wanted_by("carol")
        deaths.stdin.close()
    topic = opened(realm)
    done = reseal.run(topic, reseal.wanted(topic, "again", ["mallory"]))
    assert not reseal.wanted(topic, "again", ["mallory"]).places
    assert done.pieces < 2 * ROUNDS, "some were done before"
    names = {ref.name for committed in topic.ledger.entries() for ref in committed.entry.pieces}
    remove_superseded(topic)
    topic.collect_garbage(2**60)
    assert set(topic.pieces.names()) == names
    assert take(realm, "bob", 1000) == everything(realm, "bob")[6:]
    assert not any(slot_mailbox(topic.paths.root, thief_slot, "mallory").deliveries())


def _die_at(realm: Realm, k: int) -> None:
    left = [k]

    def count(real: object) -> object:
        def call(*arguments: object) -> object:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments)  # type: ignore[operator]

        return call

    topic = EndpointStep(StepName(str(realm.paths.root), TOPIC))
    topic.pieces.stage = count(topic.pieces.stage)  # type: ignore[method-assign,assignment]
    topic.ledger.reseal = count(topic.ledger.reseal)  # type: ignore[method-assign,assignment]
    topic.pieces.remove = count(topic.pieces.remove)  # type: ignore[method-assign,assignment]
    reseal.run(topic, reseal.wanted(topic, "killed", ["mallory"]))
    os._exit(0)


def test_as_a_job_of_spark_it_makes_the_very_same_pieces(realm: Realm, tmp_path: Path, spark: SparkSession) -> None:
    respond(realm, "mallory")
    copy_realm(realm.paths.root, tmp_path / "twin")
    twin = Realm(tmp_path / "twin")
    topics = [opened(realm), opened(twin)]
    want = reseal.wanted(topics[0], "once", ["mallory"])
    done = [reseal.run(topic, want, with_) for topic, with_ in zip(topics, (None, spark), strict=True)]
    assert done[0] == done[1]
    assert topics[0].pieces.names() == topics[1].pieces.names()
    assert sorted(everything(twin, "carol")) == wanted_by("carol")


if __name__ == "__main__":
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _die_at(Realm(sys.argv[1]), int(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
