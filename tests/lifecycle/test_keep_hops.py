"""Retention on layered topics: every broker removes what is old in what it handed on, and nothing that a broker below
has not taken. Statements of how far those below are cannot be forged, replayed or taken from another ledger."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.lab.forgetting import Forgotten, forget
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.tries import Tries
from sealcast.log.hop_notes import TakenRecords, write_taken
from sealcast.log.reseals import Removal
from sealcast.model.protection import protection_of
from sealcast.pipeline.retention import Retainer, kept_steps
from sealcast.protections import steps, withdrawing
from sealcast.protections.layered import above
from sealcast.protections.layered import taken as statements
from sealcast.protections.layered.node import HOPS, HopStep
from sealcast.protections.steps import StepName
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.layer_keys import own_identity
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.wire.taken import TakenHeader
from tests.children import run
from tests.cli.shell import sealcast
from tests.copies import copy_realm
from tests.lifecycle.dying import die_at
from tests.pipeline.layered_world import HopLoop, LayeredWorld
from tests.soak.small_realm import SCHEMA, TOPIC, carried

DAY_US = 86_400_000_000
READERS = {"alice": "price >= 0", "bob": "price >= 2"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain of three brokers, a reader at its end and one in the middle; two batches."""
    root = tmp_path_factory.mktemp("keep") / "realm"
    realm = Realm.create(root)
    about = KeyParameters.parse({"token_lifetime_s": 200 * 86_400, "pieces_kept_s": 10 * 86_400})
    realm.create_topic(TOPIC, SCHEMA, protection=protection_of("layered"), access="members", parameters=about, nodes=1)
    root_broker = realm.state().overlay(TOPIC).roots[0]
    realm.enrol_many(["nyse", *READERS])
    for name, parent in (("middle", root_broker), ("last", "middle")):
        realm.place_node(TOPIC, name, under=parent)
    realm.subscribe(TOPIC, "alice", READERS["alice"], broker="last")
    realm.subscribe(TOPIC, "bob", READERS["bob"], broker="middle")
    publish(realm, b"a1", b"b2")
    publish(realm, b"c3")
    return root


@pytest.fixture
def realm(made: Path, tmp_path: Path) -> Iterator[Realm]:
    copy_realm(made, tmp_path / "realm")
    steps._open.cache_clear()
    yield Realm(tmp_path / "realm")
    steps._open.cache_clear()


def append(realm: Realm, *payloads: bytes) -> None:
    """A payload's last digit is its price."""
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": int(payload[-1:])}, payload) for payload in payloads])


def publish(realm: Realm, *payloads: bytes) -> None:
    append(realm, *payloads)
    carried(realm)


def retainer(realm: Realm, *brokers: str) -> Retainer:
    here = brokers or tuple(realm.state().overlay(TOPIC).parents)
    return Retainer(BrokerRealm(realm.paths.root), kept_steps(realm, [TOPIC], here))


def retain(realm: Realm, days: float, *brokers: str) -> None:
    with retainer(realm, *brokers) as kept:
        kept.drained(realm.clock() + int(days * DAY_US))
        assert not kept._failed


def read(realm: Realm, name: str, **options: object) -> tuple[list[bytes], int, int]:
    with Subscriber(realm, TOPIC, name, **options) as reader:  # type: ignore[arg-type]
        found = sorted(event.payload for event in reader)
        return found, reader.dropped.missed, reader.dropped.perhaps_missed


def step(realm: Realm, broker: str) -> HopStep:
    return HopStep.of(StepName(str(realm.paths.root), TOPIC, broker, HOPS))


def left(realm: Realm) -> dict[str, int]:
    """How many records with events each broker has, of what it handed on."""
    found = dict[str, int]()
    for broker in realm.state().overlay(TOPIC).parents:
        ledger = step(realm, broker).ledger
        found[broker] = sum(not ledger.at(index).is_emptied for index in range(ledger.end()))
    return found


def check(realm: Realm) -> dict[str, object]:
    found = sealcast("check", TOPIC, "--json", "--realm", realm.paths.root)
    assert found.code == 0, found.out + found.err
    return found.document


# --- what is old goes ------------------------------------------------------------------------------------------


def test_every_broker_removes_what_is_old(realm: Realm) -> None:
    thieves = [Tries(realm, steal(realm, name, tokens=False)) for name in ("nyse", *READERS)]
    with Subscriber(realm, TOPIC, "alice", peek=True) as reader:
        first = next(iter(reader)).position
    retain(realm, 9)
    assert read(realm, "alice", from_=0) == ([b"a1", b"b2", b"c3"], 0, 0), "not yet"
    assert sum(thief.reads(TOPIC).opened for thief in thieves) > 0
    retain(realm, 11)
    assert set(left(realm).values()) == {0}
    assert sum(thief.reads(TOPIC).opened for thief in thieves) == 0, "no key opens anything"
    assert read(realm, "alice", from_=0) == ([], 3, 0) and read(realm, "bob", from_=0) == ([], 2, 0)
    publish(realm, b"d2")
    assert read(realm, "alice", from_=0) == ([b"d2"], 3, 0), "and it goes on"
    found = check(realm)
    assert found["removed_deliveries"] == 5
    at = ("--realm", realm.paths.root)
    why = sealcast("why", f"{TOPIC}/{first}", "alice", *at)
    assert why.code == 0 and "removed since" in why.out, why.out + why.err
    shown = sealcast("status", *at)
    assert shown.code == 0 and "KEPT LONGER" not in shown.out and "MISSED" not in shown.out


def test_the_oldest_go_when_there_are_too_many_bytes(realm: Realm) -> None:
    sizes = [ref.size for ref in step(realm, "last").ledger.at(1).entry.pieces]
    realm.alter_topic(TOPIC, pieces_kept_bytes=sum(sizes))
    retain(realm, 0)
    assert left(realm)["last"] == 1 and left(realm)["middle"] <= 1
    assert read(realm, "alice", from_=0)[:2] == ([b"c3"], 2)
    check(realm)
    realm.alter_topic(TOPIC, pieces_kept_bytes=0)
    retain(realm, 0)
    assert set(left(realm).values()) == {0} and read(realm, "alice", from_=0) == ([], 3, 0)
    publish(realm, b"d2")
    assert read(realm, "alice", from_=0) == ([b"d2"], 3, 0), "until the next turn"


def test_a_broker_on_the_way_may_have_removed_it_before_its_root(realm: Realm) -> None:
    retain(realm, 11)
    publish(realm, b"d2")
    with Subscriber(realm, TOPIC, "alice", peek=True) as reader:
        event = next(iter(reader)).position
    middle = step(realm, "middle")
    withdrawing.withdraw(middle, [middle.ledger.end() - 1], "test", Removal.RETENTION)
    why = sealcast("why", f"{TOPIC}/{event}", "alice", "--realm", realm.paths.root)
    assert why.code == 0 and "'middle' handed on of it was removed since" in why.out, why.out + why.err
    check(realm)


# --- nothing that is still to be handed on ----------------------------------------------------------------------


def at_last_only(realm: Realm) -> None:
    """Lets all brokers but the last take what there is."""
    world = object.__new__(LayeredWorld)
    world.realm = realm
    world.admit()
    loop = HopLoop(tuple(name for name in world.names if name.broker != "last"))
    while loop.step():
        pass


def test_what_a_broker_below_has_not_taken_is_kept_and_status_says_for_whom(realm: Realm) -> None:
    append(realm, b"d2", b"e3")
    at_last_only(realm)
    retain(realm, 50, *(name for name in realm.state().overlay(TOPIC).parents if name != "last"))
    root = realm.state().overlay(TOPIC).roots[0]
    assert left(realm) == {root: 0, "middle": 3, "last": 2}, "it has not said anything yet"
    retain(realm, 50)
    assert left(realm) == {root: 0, "middle": 1, "last": 0}, "what it has taken goes, and no more"
    realm.alter_topic(TOPIC, pieces_kept_bytes=0)
    retain(realm, 50)
    shown = sealcast("status", "--json", "--realm", realm.paths.root).document
    (middle,) = (each for each in shown["topics"] if each.get("broker") == "middle")
    assert middle["retention"] == {"due_records": 1, "awaits": ["last"]}
    assert "waits for the word of last" in sealcast("status", "--realm", realm.paths.root).out
    check(realm)
    carried(realm)
    assert read(realm, "alice") == ([b"d2", b"e3"], 3, 0), "and so it is not lost"
    retain(realm, 50)
    assert set(left(realm).values()) == {0}
    assert check(realm)["removed_deliveries"] == 9


def test_a_broker_that_is_taken_out_is_not_waited_for(realm: Realm) -> None:
    append(realm, b"d2")
    at_last_only(realm)
    realm.remove_node(TOPIC, "last")
    retain(realm, 50)
    assert left(realm)["middle"] == 0


# --- statements --------------------------------------------------------------------------------------------------


def say(realm: Realm, records: int, *, by: str = "last", to: str = "middle", **changed: object) -> None:
    """Posts a statement as that broker would, or as somebody who lies would."""
    ledger, topic = step(realm, to).ledger, realm.state().topic(TOPIC).id
    at = TakenRecords(records, changed.get("tag", ledger.at(min(records, ledger.end()) - 1).tag))  # type: ignore[arg-type]
    signer = realm.broker(str(changed.get("signed_by", by))).identity
    if signer.name != by:
        signer = Identity(by, signer.signer, signer.kem, signer.key)
    made = statements.statement(topic, signer, str(changed.get("receiver", to)), at)
    with realm.site.posts(TOPIC, to) as log:
        log.append([made])
    step(realm, to).keeper.turn()


def refusals(realm: Realm) -> list[str]:
    found = sealcast("rejected", "list", "--json", "--realm", realm.paths.root).document
    return [each["reason"] for each in found["rejected"]]


LIES: dict[str, dict[str, object]] = {
    "signature": {"signed_by": "middle", "records": 3},
    "receiver": {"receiver": "last", "records": 3},
    "ledger": {"records": 9},
}


@pytest.mark.parametrize("reason", [*LIES, "tag"])
def test_lies_about_what_was_taken_are_refused(realm: Realm, reason: str) -> None:
    append(realm, b"d2", b"e3")
    at_last_only(realm)
    lie = LIES.get(reason) or {"records": 3, "tag": step(realm, "last").ledger.at(0).tag}
    say(realm, **lie)  # type: ignore[arg-type]
    assert refusals(realm) == [reason if reason in LIES else "ledger"]
    retain(realm, 50)
    assert left(realm)["middle"] == 1
    carried(realm)
    assert read(realm, "alice") == ([b"d2", b"e3"], 3, 0)


def test_a_reader_cannot_speak_for_a_broker(realm: Realm) -> None:
    reader = own_identity(realm, realm.state(), "alice")
    ledger = step(realm, "middle").ledger
    said = TakenRecords(2, ledger.at(1).tag)
    with realm.site.posts(TOPIC, "middle") as log:
        log.append([statements.statement(realm.state().topic(TOPIC).id, reader, "middle", said)])
    step(realm, "middle").keeper.turn()
    assert refusals(realm) == ["sender"]


def test_an_older_statement_changes_nothing(realm: Realm) -> None:
    middle = step(realm, "middle")
    say(realm, 2)
    say(realm, 1)
    assert middle._below.records(middle.ledger) == {"last": 2} and refusals(realm) == []
    assert middle.keeper._log.fold().refused["seen"] == 1


@pytest.mark.parametrize("unchecked", ["signature", "ledger"])
def test_without_these_checks_a_lie_loses_events(realm: Realm, monkeypatch: pytest.MonkeyPatch, unchecked: str) -> None:
    """The weakened variants: the same lies, and the reader misses what nobody can name any more."""
    if unchecked == "signature":
        monkeypatch.setattr("sealcast.primitives.sign.VerifyKey.verify", lambda *a: True)
        lie: dict[str, object] = LIES["signature"]
    else:
        lie = {"records": 3, "tag": bytes(32)}
        monkeypatch.setattr(statements.TakenBelow, "note", lambda self, said, ledger: said_and_believed(self, said))
        monkeypatch.setattr(statements, "_is_of", lambda known, ledger: True)
    append(realm, b"d2", b"e3")
    at_last_only(realm)
    say(realm, **lie)  # type: ignore[arg-type]
    retain(realm, 50, realm.state().overlay(TOPIC).roots[0], "middle")
    assert left(realm)["middle"] == 0
    monkeypatch.undo()
    carried(realm)
    assert read(realm, "alice") == ([b"a1", b"b2", b"c3"], 0, 2), "but told: two events that its broker never saw"


def said_and_believed(below: statements.TakenBelow, said: TakenHeader) -> None:
    write_taken(below._root, {said.sender: TakenRecords(said.records, said.tag)})


# --- told, whatever happened -------------------------------------------------------------------------------------


def test_a_broker_put_back_from_a_copy_says_what_it_can_not_hand_on(realm: Realm, tmp_path: Path) -> None:
    """It said that it took something, and has it no more: those who read below are told how much that may be."""
    home = realm.paths.topic(TOPIC, "middle").root
    root = realm.state().overlay(TOPIC).roots[0]
    append(realm, b"d2", b"e3")
    world = object.__new__(LayeredWorld)
    world.realm = realm
    world.admit()
    while HopLoop(tuple(name for name in world.names if name.broker == root)).step():
        pass
    shutil.copytree(home, tmp_path / "copy")
    carried(realm)
    # The reader's own broker, too, or it would find that the middle one has fewer records than it took.
    retain(realm, 50)
    assert left(realm)[root] == 0
    last = realm.paths.topic(TOPIC, "last").root
    shutil.rmtree(home)
    shutil.rmtree(last)
    shutil.copytree(tmp_path / "copy", home)
    steps._open.cache_clear()
    above._reader.cache_clear()
    carried(realm)
    shown = sealcast("status", "--realm", realm.paths.root)
    assert "2 events that a broker above removed before they were taken" in shown.out
    assert read(realm, "bob", from_=0)[2] == 2 and read(realm, "alice", from_=0)[2] == 2, "and further down, too"
    sub = sealcast("sub", TOPIC, "--as", "bob", "--from", "0", "--realm", realm.paths.root)
    assert "up to 2 events more may be missing" in sub.err
    check(realm)


def retain_and_die(root: Path, moment: str) -> None:
    die_at(moment)
    retain(Realm(root), 50)


@pytest.mark.parametrize("killed", ["notes", "files"])
def test_killed_at_any_moment_it_is_finished_by_doing_it_again(realm: Realm, killed: str) -> None:
    """In a child that dies after the first note, or before any file is removed."""
    assert run(retain_and_die, realm.paths.root, killed) == -signal.SIGKILL
    steps._open.cache_clear()
    check(realm)
    retain(realm, 50)
    assert set(left(realm).values()) == {0}
    assert Tries(realm, steal(realm, "alice", tokens=False)).reads(TOPIC).opened == 0
    assert read(realm, "alice") == ([], 3, 0)
    check(realm)


def test_a_note_of_retention_comes_after_one_of_forgetting(realm: Realm) -> None:
    """What forgetting left in a record is removed with the rest."""
    publish(realm, b"d2", b"e3")
    for payload in (b"early3", b"x3"):
        with Publisher(realm, TOPIC, "alice") as other:
            read(realm, "bob")  # so that its filters are in this publisher's tree, too
            other.publish([Event({"price": 3}, payload)])
    append(realm, b"y3")
    carried(realm)
    forget(realm, Forgotten(TOPIC, "alice"))
    assert read(realm, "bob", from_=0) == ([b"b2", b"c3", b"d2", b"e3", b"y3"], 2, 0)
    retain(realm, 50)
    assert set(left(realm).values()) == {0} and read(realm, "bob", from_=0) == ([], 7, 0)
    check(realm)
