"""Brokers forget keys of past epochs where the topic says so: whoever takes their files later opens nothing old."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sealcast import Event, Publisher, Realm, Schema, Subscriber
from sealcast.errors import CannotOpen, Misuse, NotFound, ParameterRejected, Rejected, Unavailable
from sealcast.lab.drill import drill
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.reads import Reads
from sealcast.lab.theft.tries import Tries
from sealcast.model.protection import PROTECTIONS
from sealcast.pipeline.retention import Retainer, first_kept, kept_steps
from sealcast.primitives import hybrid
from sealcast.primitives.hybrid import HybridKey
from sealcast.protections import steps
from sealcast.protections.endpoint.key_answers import KeyAnswers
from sealcast.protections.endpoint.key_requests import KeyRequest
from sealcast.protections.port import witness_side
from sealcast.protections.steps import StepName
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys import receiving
from sealcast.trust.keys.topic_keys import NUMBER_BYTES, received_by
from sealcast.trust.realm.changes import AnnounceReceivingKey, PublishTopicKey
from sealcast.trust.realm.parameters import FOR_EVER_S, KeyParameters
from sealcast.trust.realm.rules.topics import RECEIVED_KEY_BYTES, RECEIVING_KEY_BYTES
from sealcast.trust.vault import keyfile
from tests.cli.shell import sealcast
from tests.clients import pump as pumping

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1_000}]})
DAY_US = 86_400_000_000

Deliver = Callable[..., None]


@pytest.fixture
def deliver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deliver]:
    """Publishes, and has the broker commit it so many days from now."""

    def deliver(realm: Realm, *prices: int, days: float = 0) -> None:
        with Publisher(realm, TOPIC, "nyse") as writing:
            writing.publish([Event({"price": n}, b"%d" % n) for n in prices])
        steps._open.cache_clear()
        StepName(str(realm.paths.root), TOPIC).open().begin()
        ahead = SimpleNamespace(time_ns=lambda: time.time_ns() + int(days * DAY_US) * 1000)
        monkeypatch.setattr(pumping, "time", ahead)
        pumping.pump(realm, TOPIC)

    yield deliver
    steps._open.cache_clear()


def a_realm(directory: Path, past_keys: str = "forgotten", **parameters: object) -> Realm:
    realm = Realm.create(directory / "realm")
    about = KeyParameters.parse({"past_keys": past_keys, "grace_s": 0, "token_lifetime_s": 200 * 86_400, **parameters})
    realm.create_topic(TOPIC, SCHEMA, access="members", parameters=about)
    realm.enrol_many(["nyse", "alice", "bob"])
    for name in ("alice", "bob"):
        realm.subscribe(TOPIC, name, "price > 0")
    return realm


def later(realm: Realm, days: float) -> None:
    """What a run some days later removes: frames, and then keys."""
    retainer = Retainer(BrokerRealm(realm.paths.root), kept_steps(realm, [TOPIC], ["broker"]))
    retainer.once(realm.clock() + int(days * DAY_US))
    assert not retainer._failed


def two_epochs(realm: Realm, deliver: Deliver) -> None:
    """Three events in the first epoch, one a day later in the second, and three weeks more."""
    deliver(realm, 1, 2, 3)
    realm.maintain()
    realm.rotate(TOPIC)
    deliver(realm, 4, days=1)
    realm.maintain()
    later(realm, 21)


def stolen(realm: Realm) -> Reads:
    """What a thief of the broker's files, of the registry and of all other files reads, but of nobody else's keys."""
    return Tries(realm, steal(realm, "broker", tokens=False)).reads(TOPIC)


def numbers(realm: Realm) -> list[int]:
    return realm.broker().receiving.numbers(realm.state().topic(TOPIC))


# --- the attack -------------------------------------------------------------------------------------------


def test_a_broker_that_is_stolen_later_opens_nothing_of_past_epochs(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, 1, 2, 3)
    assert stolen(realm).opened == 3, "the present epoch is what a broker is trusted with"
    realm.maintain()
    realm.rotate(TOPIC)
    deliver(realm, 4, days=1)
    later(realm, 21)
    assert (stolen(realm).opened, numbers(realm)) == (1, [2])
    with pytest.raises(NotFound, match="forgotten what opens them"):
        realm.broker().topic_keys(realm.state(), realm.state().topic(TOPIC), 1)
    # Nobody else notices: readers have their keys, the present epoch goes on, and the ledger is as good as it was.
    with Subscriber(realm, TOPIC, "alice", from_=0) as reader:
        assert [event.payload for event in reader] == [b"1", b"2", b"3", b"4"]
    deliver(realm, 5, days=22)
    (report,) = [audit.run(lambda done: None) for audit in audits(realm)]
    assert report.ok and report.deliveries == 10
    assert report.gaps == ["the broker has forgotten keys of past epochs: who holds them, and what opens, is not known"]


def test_a_broker_with_the_key_of_its_certificate_opens_everything(tmp_path: Path, deliver: Deliver) -> None:
    """The weakened variant, and what topics do that do not ask for more."""
    realm = a_realm(tmp_path, "kept")
    two_epochs(realm, deliver)
    assert stolen(realm).opened == 4 and numbers(realm) == []


def test_a_broker_that_keeps_its_receiving_keys_opens_everything(
    tmp_path: Path, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving.ReceivingKeys, "forget", lambda *about, **more: [])
    realm = a_realm(tmp_path)
    two_epochs(realm, deliver)
    assert stolen(realm).opened == 4


def audits(realm: Realm) -> Iterator[Any]:
    steps._open.cache_clear()
    return iter(witness_side(realm.state().topic(TOPIC).protection).audits(realm, TOPIC, by_reference=False))


def test_a_desk_refuses_what_its_broker_has_forgotten(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path)
    two_epochs(realm, deliver)
    answers = KeyAnswers(realm, TOPIC, realm.broker())
    about, alice = realm.state().topic(TOPIC), realm.identity("alice")
    asked = [
        KeyRequest("alice", about.id, e, 0, ((e - 1, 0),), False, realm.clock()).signed(alice.signer) for e in (1, 2)
    ]
    with pytest.raises(Unavailable, match="no more, of the epoch"):
        answers.reply(asked[0], realm.clock())
    assert answers.reply(asked[1], realm.clock()), "and need not wait for it"
    answers.close()


def test_what_was_forgotten_is_in_no_file(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, 1)
    private = realm.broker().receiving.own(realm.state().topic(TOPIC), 1).private.reveal()
    sealed = (realm.paths.broker_key.with_suffix(".receiving")).rglob("1.key")
    held = [keyfile.look(path).sealed for path in sealed]
    assert held and not any(private in path.read_bytes() for path in realm.paths.root.rglob("*") if path.is_file())
    realm.maintain()
    realm.rotate(TOPIC)
    deliver(realm, 2, days=1)
    later(realm, 21)
    files = [path.read_bytes() for path in realm.paths.root.rglob("*") if path.is_file()]
    assert not any(each.hex().encode() in content for each in held for content in files)


# --- what is needed stays ---------------------------------------------------------------------------------


def test_frames_that_wait_keep_their_keys(tmp_path: Path, deliver: Deliver) -> None:
    """A broker that was down for weeks takes in what was published before its epoch was over."""
    realm = a_realm(tmp_path)
    deliver(realm, 1)
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": 2}, b"2")])
    realm.maintain()
    realm.rotate(TOPIC)
    later(realm, 60)
    assert numbers(realm) == [1, 2]
    deliver(realm, 3, days=60)
    with Subscriber(realm, TOPIC, "alice", from_=0) as reader:
        assert [event.payload for event in reader] == [b"1", b"2", b"3"]
    later(realm, 61)
    assert numbers(realm) == [1, 2], "frames of the first epoch are in the log yet"
    deliver(realm, 4, days=61)
    later(realm, 90)
    assert numbers(realm) == [2]


def test_a_recording_keeps_its_keys(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path, frames_kept_s=FOR_EVER_S)
    two_epochs(realm, deliver)
    assert stolen(realm).opened == 4


def test_the_first_epoch_that_is_needed_goes_by_looks_and_not_by_times_of_frames(
    tmp_path: Path, deliver: Deliver
) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, 1)
    realm.rotate(TOPIC)
    deliver(realm, 2, days=1)
    about, now = realm.state().topic(TOPIC), realm.clock() + 60 * DAY_US
    from sealcast.log.ledger import LedgerReader

    ledger = LedgerReader(realm.paths.topic(TOPIC).ledger)
    assert [first_kept(about, ledger, {0: start}, now) for start in (0, 1, 2)] == [1, 1, 2]
    assert first_kept(about, ledger, {0: 2}, realm.clock()) == 1, "its frames are to be kept yet"
    ledger.close()


def test_rotations_in_a_row_share_a_key_and_keep_it(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path)
    realm.rotate(TOPIC)
    realm.rotate(TOPIC)
    assert [received_by(realm.state().topic_key(TOPIC, epoch, "broker") or b"") for epoch in (1, 2, 3)] == [1, 1, 1]
    assert realm.maintain().receiving == (TOPIC,) and realm.maintain().receiving == ()
    realm.rotate(TOPIC)
    deliver(realm, 1, days=1)
    later(realm, 21)
    assert numbers(realm) == [2]


def test_a_compromise_names_what_a_forgetful_broker_cannot_seal_again(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path)
    two_epochs(realm, deliver)
    report = drill(realm, "bob")
    assert not report.over, "bob's keys of the first epoch open what lies there"


def test_a_broker_that_lost_its_keys_comes_back_with_the_next_epoch(tmp_path: Path, deliver: Deliver) -> None:
    realm = a_realm(tmp_path)
    for path in realm.paths.broker_key.with_suffix(".receiving").rglob("*.key"):
        path.unlink()
    state = realm.state()
    with pytest.raises(NotFound) as refused:
        realm.broker().topic_keys(state, state.topic(TOPIC))
    assert "sealcast maintain" in str(refused.value.hint)
    assert realm.maintain().receiving == (TOPIC,)
    realm.rotate(TOPIC)
    deliver(realm, 1)
    with Subscriber(realm, TOPIC, "alice", from_=0) as reader:
        assert [event.payload for event in reader] == [b"1"]


# --- by commands ------------------------------------------------------------------------------------------


def test_commands_say_who_cannot_forget_yet(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, "kept")
    at = ("--realm", realm.paths.root)
    assert "steals a broker's files" in sealcast("explain", TOPIC, *at).out
    altered = sealcast("topic", "alter", TOPIC, "--past-keys", "forgotten", *at)
    assert "but not those of the present one: broker" in altered.out
    assert sealcast("topic", "show", TOPIC, "--json", *at).document["lasting_keys"] == ["broker"]
    assert "never forgotten by broker: rotate" in sealcast("explain", TOPIC, *at).out
    sealcast("topic", "rotate", TOPIC, *at)
    shown = sealcast("topic", "show", TOPIC, *at).out
    assert "forget keys of past epochs" in shown and "present one" not in shown
    assert sealcast("topic", "show", TOPIC, "--json", *at).document["lasting_keys"] == []


# --- who may state what -----------------------------------------------------------------------------------


def test_what_the_registry_takes(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    public = HybridKey.generate().public
    with pytest.raises(Misuse, match="number 2, not 3"):
        realm.registry.apply(AnnounceReceivingKey(TOPIC, "broker", 3, public))
    with pytest.raises(Misuse, match="has 1216 bytes, not 3"):
        realm.registry.apply(AnnounceReceivingKey(TOPIC, "broker", 2, b"key"))
    with pytest.raises(Misuse, match="'alice' is no"):
        realm.registry.apply(AnnounceReceivingKey(TOPIC, "alice", 1, public))
    with pytest.raises(Rejected, match="nothing can be sealed"):
        realm.registry.apply(AnnounceReceivingKey(TOPIC, "broker", 2, public[:-32] + bytes(32)))
    realm.create_topic("kept", SCHEMA)
    with pytest.raises(Misuse, match="keep their keys"):
        realm.registry.apply(AnnounceReceivingKey("kept", "broker", 1, public))
    with pytest.raises(Misuse, match="no brokers that could forget"):
        about = KeyParameters(past_keys="forgotten")
        realm.create_topic("carried", SCHEMA, protection="attribute", parameters=about)
    with pytest.raises(ParameterRejected, match="past_keys"):
        KeyParameters(past_keys="sometimes")
    assert RECEIVING_KEY_BYTES == hybrid.PUBLIC_BYTES


def test_a_key_that_is_moved_to_another_epoch_or_number_does_not_open(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    realm.maintain()
    realm.rotate(TOPIC)
    state = realm.state()
    about, broker = state.topic(TOPIC), realm.broker()
    keys = realm.center().topic_keys(about)
    handed = keys.for_broker(about, state.entity("broker"), state.receiving_key(TOPIC, "broker"))
    assert isinstance(handed, PublishTopicKey) and len(handed.sealed) == RECEIVED_KEY_BYTES
    for epoch, sealed in ((1, handed.sealed), (2, (1).to_bytes(NUMBER_BYTES, "big") + handed.sealed[NUMBER_BYTES:])):
        moved = SimpleNamespace(topic_key=lambda *asked, sealed=sealed: sealed)
        with pytest.raises(CannotOpen):
            broker.topic_keys(moved, about, epoch)  # type: ignore[arg-type]
    assert broker.topic_keys(state, about)._key == keys._key


@pytest.mark.parametrize("protection", [name for name, made in PROTECTIONS.items() if not made().peers])
def test_every_protection_with_brokers_goes_on_through_epochs(tmp_path: Path, protection: str) -> None:
    """What a broker forgets nobody misses: events of both epochs are read, and the retention has nothing to say."""
    from tests.soak.small_realm import FILTERS, carried, publish

    realm = Realm.create(tmp_path / "realm")
    about = KeyParameters(past_keys="forgotten", grace_s=0)
    realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members", parameters=about)
    realm.enrol_many(["ann", *FILTERS])
    realm.subscribe(TOPIC, "low", FILTERS["low"])
    for _ in range(2):
        publish(realm, [0, 1])
        carried(realm)
        assert realm.maintain().receiving == (TOPIC,)
        realm.rotate(TOPIC)
    state = realm.state()
    assert all(received_by(sealed) for sealed in state.topic_state(TOPIC).topic_keys.values())
    retainer = Retainer(BrokerRealm(realm.paths.root), kept_steps(realm, [TOPIC], state.serving(TOPIC)))
    retainer.once(realm.clock() + 21 * DAY_US)
    assert not retainer._failed
    with Subscriber(realm, TOPIC, "low", from_=0) as reader:
        assert [event.payload for event in reader] == [b"0", b"1"] * 2
