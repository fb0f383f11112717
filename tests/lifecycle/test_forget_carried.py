"""Forgetting where the topic is on a carrier. What lies there now opens with no key that was ever on disk, and what
somebody copied from the carrier before opens with no key that brokers have now: Kafka keeps removed records in its
files until it removes the segment, so that destroying keys is what counts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.bench.carrier_servers import CarrierServer
from sealcast.lab import forgetting
from sealcast.lab.forgetting import Forgotten, forget
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.tries import Tries
from sealcast.log.carriers import Placement
from sealcast.protections import steps
from sealcast.protections.layered import above
from sealcast.protections.steps import StepName
from sealcast.trust.realm.changes import CarryJournal, CarryTopic
from sealcast.trust.realm.parameters import KeyParameters
from tests.cli.shell import sealcast
from tests.lifecycle.attackers import opened, with_keys_of
from tests.log.carried_world import LOGS, OVERLAY
from tests.soak.small_realm import SCHEMA, TOPIC
from tests.soak.small_realm import carried as run_brokers

READERS = ("alice", "bob")
SOAK = [pytest.param(f"{name}-nats", marks=pytest.mark.soak) for name in ("payload", "searchable", "layered")]
SOAK += [pytest.param(f"{name}-kafka", marks=pytest.mark.soak) for name in ("endpoint", "layered")]


@pytest.fixture(params=["endpoint-nats", *SOAK])
def realm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Realm]:
    """Delivered from the directory, moved, delivered from the carrier, and a new epoch in between."""
    protection, over = request.param.rsplit("-", 1)
    server: CarrierServer = request.getfixturevalue(over)
    made = Realm.create(tmp_path / "realm", f"r{token_hex(6)}")
    about = KeyParameters.parse({"past_keys": "forgotten", "token_lifetime_s": 200 * 86_400})
    nodes = {"nodes": 2} if protection == "layered" else {}
    made.create_topic(TOPIC, SCHEMA, protection=protection, access="members", parameters=about, **nodes)
    made.enrol_many(["nyse", "lse", *READERS])
    for name in READERS:
        made.subscribe(TOPIC, name, "price >= 0")
    made.add_carrier("away", server.address)
    deliver(made, "nyse", b"a", b"b")
    made.move_topic(TOPIC, "away")
    made.rotate(TOPIC)
    deliver(made, "lse", b"c")
    yield made
    forget_open()


def forget_open() -> None:
    steps._open.cache_clear()
    steps.realm_of.cache_clear()
    above._reader.cache_clear()


def deliver(realm: Realm, publisher: str, *payloads: bytes) -> None:
    with Publisher(realm, TOPIC, publisher) as writing:
        writing.publish([Event({"price": 1}, each) for each in payloads])
    forget_open()
    if not realm.state().topic(TOPIC).protection.overlay:
        StepName(str(realm.paths.root), TOPIC).open().begin()
    run_brokers(realm)


def read(realm: Realm, name: str, **options: object) -> tuple[list[bytes], int]:
    with Subscriber(realm, TOPIC, name, **options) as reader:  # type: ignore[arg-type]
        return sorted(event.payload for event in reader), reader.dropped.missed


def brokers(realm: Realm) -> list[str]:
    state = realm.state()
    return list(state.overlay(TOPIC).parents) or ["broker"]


def whoever(realm: Realm) -> list[str]:
    return [*brokers(realm), "center", "nyse", "lse", *READERS]


def copied_before(realm: Realm, to: Path) -> Realm:
    """Somebody's copy of the realm, and of all that the carrier has, under other names."""
    shutil.copytree(realm.paths.root, to)
    copy = Realm(to)
    state = copy.state()
    there, overlay = copy.carriers.carrier(state, "away"), state.topic(TOPIC).protection.overlay
    for (_, broker), at in state.carried.items():
        name = token_hex(6)
        for suffix in ("", *(f".{log}" for log in (*LOGS, *(OVERLAY if overlay else ())))):
            there.create(f"{name}{suffix}", Placement(1))
            source, target = (there.partition(f"{each}{suffix}", 0) for each in (at.name, name))
            first, end = source.bounds()
            stored = [(each.head, each.data) for each in source.fetch(first, end)] if first < end else []
            if stored:
                target.append(stored)
        copy.registry.apply(CarryTopic(TOPIC, broker, "away", name, (0,), at.numbers))
        copy.registry.apply(CarryJournal(TOPIC, broker, "away", name))
    return Realm(to)


def test_forgotten_on_a_carrier(realm: Realm, tmp_path: Path) -> None:
    root, before = realm.paths.root, copied_before(realm, tmp_path / "before")
    assert opened(before, TOPIC, *whoever(before)) > 0, "the attack opens what is there to be opened"
    done = forget(realm, Forgotten(TOPIC))
    assert done.over and done.attack.keys() >= set(whoever(realm))
    assert (done.batches, done.deliveries) == (2, 6) and done.frames >= 2

    # What the carrier has now, with every key from before and with those of now.
    old_keys = with_keys_of(root, before.paths.root, tmp_path / "old keys")
    assert opened(old_keys, TOPIC, *whoever(realm)) == opened(realm, TOPIC, *whoever(realm)) == 0
    # What somebody copied from the carrier before, with the keys that brokers have now. Readers keep theirs.
    now = with_keys_of(before.paths.root, root, tmp_path / "new keys")
    found = [Tries(now, steal(now, name, tokens=False)).reads(TOPIC) for name in brokers(now)]
    assert not any(each.opened or each.routed for each in found)

    assert read(realm, "alice") == ([], 3)
    deliver(realm, "nyse", b"d")
    assert read(realm, "bob", from_=0)[0] == [b"d"], "and it goes on"
    forget_open()
    check = sealcast("check", "--json", "--realm", root)
    assert check.code == 0 and check.document["removed_deliveries"] == 6, check.out


@pytest.mark.soak
@pytest.mark.parametrize("realm", ["endpoint-nats", *SOAK], indirect=True)
def test_the_attack_finds_what_stays_on_the_carrier(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variant: frames are left there, and the command says so."""
    monkeypatch.setattr(forgetting, "_drop_frames", lambda realm, step: 0)
    done = forget(realm, Forgotten(TOPIC))
    frames = {name for name, reads in done.attack.items() if reads.frames}
    assert not done.over and frames


@pytest.mark.soak
@pytest.mark.parametrize("realm", ["endpoint-nats", "layered-nats"], indirect=True)
def test_one_publisher_is_forgotten_and_the_others_stay(realm: Realm) -> None:
    done = forget(realm, Forgotten(TOPIC, "nyse"))
    assert done.over, done.attack
    assert read(realm, "alice") == ([b"c"], 2)
    forget_open()
    check = sealcast("check", "--json", "--realm", realm.paths.root)
    assert check.document["ok"], check.out
