"""Forgetting on layered topics, where no broker can seal anything again: events are taken out of every piece at every
broker on their way, and all keys that were ever on disk find nothing of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.errors import Locked, Misuse, Rejected
from sealcast.lab import forgetting, taking_out
from sealcast.lab.forgetting import Forgotten, forget, preview
from sealcast.lab.theft.hops import hop_pieces
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.tries import Tries
from sealcast.model.protection import protection_of
from sealcast.pipeline import cutting, sources
from sealcast.protections import steps
from sealcast.protections.layered.node import HopStep
from sealcast.protections.steps import StepName
from sealcast.trust.keys.layer_keys import held
from sealcast.trust.keys.ratchet import DAY_US
from sealcast.wire import hops
from sealcast.wire.emptied import without
from tests.cli.shell import sealcast
from tests.copies import copy_realm
from tests.lifecycle.attackers import opened, with_keys_of
from tests.pipeline.layered_world import LayeredWorld
from tests.soak.small_realm import SCHEMA, TOPIC, carried

READERS = {"alice": "price >= 0", "bob": "price >= 2"}
PUBLISHERS = ("nyse", "lse")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two publishers, two readers, three batches in two epochs: making it takes longer than most tests."""
    root = tmp_path_factory.mktemp("forget") / "realm"
    realm = Realm.create(root)
    realm.create_topic(TOPIC, SCHEMA, protection=protection_of("layered"), access="members", nodes=3)
    realm.enrol_many([*PUBLISHERS, *READERS])
    for name, text in READERS.items():
        realm.subscribe(TOPIC, name, text)
    publish(realm, nyse=[b"a1", b"b2"], lse=[b"x1", b"y2"])
    publish(realm, lse=[b"z2"])
    realm.rotate(TOPIC)
    publish(realm, nyse=[b"c3"])
    return root


@pytest.fixture
def realm(made: Path, tmp_path: Path) -> Iterator[Realm]:
    copy_realm(made, tmp_path / "realm")
    steps._open.cache_clear()
    yield Realm(tmp_path / "realm")
    steps._open.cache_clear()


def publish(realm: Realm, **payloads: list[bytes]) -> None:
    """One batch; a payload's last digit is its price."""
    for publisher, each in payloads.items():
        with Publisher(realm, TOPIC, publisher) as writing:
            writing.publish([Event({"price": int(payload[-1:])}, payload) for payload in each])
    carried(realm)


def read(realm: Realm, name: str, **options: object) -> tuple[list[bytes], int]:
    with Subscriber(realm, TOPIC, name, **options) as reader:  # type: ignore[arg-type]
        return sorted(event.payload for event in reader), reader.dropped.missed


def whoever(realm: Realm) -> list[str]:
    return [*realm.state().overlay(TOPIC).parents, "center", *PUBLISHERS, *READERS]


def bodies(realm: Realm) -> set[bytes]:
    """The ids of all events in any file of a piece."""
    return {piece.event_id(event) for piece in hop_pieces(realm, realm.state(), TOPIC) for event in range(len(piece))}


# --- the attacks ----------------------------------------------------------------------------------------------


def test_all_keys_that_were_ever_on_disk_open_nothing_of_a_topic(realm: Realm, tmp_path: Path) -> None:
    root, before = realm.paths.root, tmp_path / "before"
    shutil.copytree(root, before)
    assert opened(Realm(before), TOPIC, *READERS) == 10 and len(bodies(realm)) == 6
    planned, done = preview(realm, Forgotten(TOPIC)), forget(realm, Forgotten(TOPIC))
    assert done.over and set(whoever(realm)) <= done.attack.keys()
    assert planned.batches == done.batches == 3 and planned.deliveries == done.deliveries == 10
    assert done.frames > 0 and not bodies(realm)
    steps._open.cache_clear()
    assert opened(with_keys_of(root, before, tmp_path / "old keys"), TOPIC, *whoever(realm)) == 0
    assert read(realm, "alice") == ([], 6) and read(realm, "bob") == ([], 4)
    publish(realm, nyse=[b"d2"])
    assert read(realm, "alice", from_=0)[0] == read(realm, "bob", from_=0)[0] == [b"d2"], "and it goes on"
    check = sealcast("check", "--json", "--realm", root)
    assert check.code == 0 and check.document["removed_deliveries"] == 10, check.out


def test_brokers_and_publishers_open_nothing_of_a_copy_from_before(realm: Realm, tmp_path: Path) -> None:
    """Together they would open everything: their agreement keys of all epochs before are destroyed. Readers keep
    theirs."""
    root, before = realm.paths.root, tmp_path / "before"
    shutil.copytree(root, before)
    forget(realm, Forgotten(TOPIC, "nyse"))
    state, about = realm.state(), realm.state().topic(TOPIC)
    for name in (*state.overlay(TOPIC).parents, *PUBLISHERS):
        assert [epoch for epoch in held(realm, state, about, name) if epoch < about.epoch] == [], name
    copy = with_keys_of(before, root, tmp_path / "copy")
    brokers, then = list(state.overlay(TOPIC).parents), Realm(before)
    found = [Tries(copy, steal(copy, name, tokens=False)).reads(TOPIC) for name in brokers]
    assert not any(each.opened or each.routed for each in found)
    assert any(Tries(then, steal(then, name, tokens=False)).reads(TOPIC).routed for name in brokers)
    assert opened(copy, TOPIC, "alice") == 6, "said: entities keep what they were given"


@pytest.mark.parametrize("skipped", ["files", "frames"])
def test_the_attack_finds_what_was_left_out(realm: Realm, monkeypatch: pytest.MonkeyPatch, skipped: str) -> None:
    """The weakened variants: events that are only noted as gone, and frames that stay."""
    if skipped == "files":
        monkeypatch.setattr(cutting, "remove_superseded", lambda step: 0)
    else:
        monkeypatch.setattr(forgetting, "_drop_frames", lambda *a: 0)
    done = forget(realm, Forgotten(TOPIC, "nyse"))
    assert not done.over
    bad = {name for name, each in done.attack.items() if each.opened or each.frames}
    assert bad >= ({"alice"} if skipped == "files" else {"center"})


# --- one publisher, one span of time --------------------------------------------------------------------------


def test_one_publishers_events_are_taken_out_exactly(realm: Realm) -> None:
    with Subscriber(realm, TOPIC, "bob") as bob:
        first = [event.payload for event in bob.poll(2)]
        bob.ack()
    ids = bodies(realm)
    done = forget(realm, Forgotten(TOPIC, "nyse"))
    assert done.over and done.deliveries == 5 and (done.resealed, done.kept) == (0, 0)
    assert len(bodies(realm)) == 3 and bodies(realm) < ids and len(done.ids or ()) == 3
    assert read(realm, "alice", from_=0)[0] == [b"x1", b"y2", b"z2"], "the others' stay"
    rest, _ = read(realm, "bob")
    assert sorted([*(each for each in first if each[:1] in b"xyz"), *rest]) == [b"y2", b"z2"], "each once"
    publish(realm, nyse=[b"d3"], lse=[b"w3"])
    again = forget(realm, Forgotten(TOPIC, "lse"))
    assert again.over and read(realm, "alice", from_=0)[0] == [b"d3"], "a record can lose events twice"
    assert sealcast("check", "--realm", realm.paths.root).code == 0


def test_a_span_of_time_takes_its_events_out_at_every_broker(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """By when a root took them in, however much later brokers below did."""
    now, days = realm.clock(), [0]
    ahead = SimpleNamespace(time_ns=lambda: time.time_ns() + days[0] * DAY_US * 1000, monotonic=time.monotonic)
    monkeypatch.setattr(sources, "time", ahead)
    world = object.__new__(LayeredWorld)
    world.realm = realm
    for payload in (b"early2", b"late2"):
        with Publisher(realm, TOPIC, "lse") as writing:
            writing.publish([Event({"price": 2}, payload)])
        world.admit()
        days[0] += 1
        world.drain()
    done = forget(realm, Forgotten(TOPIC, until_us=now + DAY_US // 2))
    assert done.over and done.batches == 4 and read(realm, "alice", from_=0)[0] == [b"late2"]
    assert forget(realm, Forgotten(TOPIC, from_us=now + 3 * DAY_US)).deliveries == 0
    assert read(realm, "bob", from_=0)[0] == [b"late2"] and len(bodies(realm)) == 1


def test_killed_half_way_it_is_finished_by_doing_it_again(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    commit, left = cutting._commit, [2]

    def killed(*given: object) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        commit(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(cutting, "_commit", killed)
    with pytest.raises(Killed):
        forget(realm, Forgotten(TOPIC, "nyse"))
    monkeypatch.setattr(cutting, "_commit", commit)
    assert forget(realm, Forgotten(TOPIC, "nyse")).over
    assert read(realm, "alice", from_=0)[0] == [b"x1", b"y2", b"z2"] and len(bodies(realm)) == 3


# --- what is refused ------------------------------------------------------------------------------------------


def test_what_waits_and_what_is_elsewhere_is_refused(realm: Realm, tmp_path: Path) -> None:
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": 1}, b"e1")])
    with pytest.raises(Rejected, match="wait at broker"):
        forget(realm, Forgotten(TOPIC))
    carried(realm)
    below = realm.state().overlay(TOPIC).downwards()[-1]
    ledger = StepName(str(realm.paths.root), TOPIC, below, "hops").open().ledger
    with ledger.exclusive(), pytest.raises(Locked):
        forget(realm, Forgotten(TOPIC))
    realm.paths.broker_key_of(below).rename(tmp_path / "elsewhere.key")
    with pytest.raises(Misuse, match="on another machine"):
        forget(realm, Forgotten(TOPIC))
    assert len(bodies(realm)) == 7


def test_the_command(realm: Realm) -> None:
    at = ("--realm", realm.paths.root)
    shown = sealcast("forget", TOPIC, "--publisher", "nyse", "--dry-run", "--json", *at)
    assert shown.code == 0 and shown.document["deliveries"] == 5 and len(bodies(realm)) == 6, shown.err
    done = sealcast("forget", TOPIC, "--publisher", "nyse", "--yes", *at)
    assert done.code == 0 and "opens anything of it that lies here" in done.out, done.out + done.err
    assert len(bodies(realm)) == 3
    root = realm.state().overlay(TOPIC).roots[0]
    number = realm.state().brokers().index(root)
    why = sealcast("why", f"{TOPIC}/{number}/0/0", "alice", *at)
    assert "were removed since (events of nyse were forgotten)" in why.out + why.err, why.out + why.err


# --- pieces ---------------------------------------------------------------------------------------------------


def test_a_piece_without_some_events_is_what_routing_the_others_makes(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with the hop itself: taking events out above and routing gives what taking them out below gives."""
    compared = 0
    for step in taking_out.steps(realm, TOPIC):
        if not isinstance(step, HopStep):
            continue
        for ref in (ref for committed in step.ledger.entries() for ref in committed.entry.pieces):
            piece = hops.parse(step.pieces.read(ref.name, ref.digest))
            upstream = step.upstream(ref.partition)
            above = list(upstream.pieces(ref.first, ref.end))
            gone = {each.event_id(event) for each in above for event in range(0, len(each), 2)}
            fewer = [without(each, places(each, gone), each.version) for each in above]
            with monkeypatch.context() as instead:
                reader = SimpleNamespace(pieces=lambda first, end, fewer=fewer: fewer, record=upstream.record)
                instead.setattr(step, "upstream", lambda partition, reader=reader: reader)
                routed = step.hop(piece.version, ref.partition, ref.first, ref.end)
            assert hops.encode(routed) == hops.encode(without(piece, places(piece, gone), piece.version))
            compared += len(gone)
    assert compared > 5


def places(piece: hops.HopPiece, ids: set[bytes]) -> set[int]:
    return {event for event in range(len(piece)) if piece.event_id(event) in ids}
