"""Clients across epochs: publishers follow, readers read on and back, and what came too late is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import CannotOpen, Rejected
from sealcast.log.embedded import EmbeddedTopic
from sealcast.model import Event, Schema
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.wire import frame
from tests.clients.pump import pump

SCHEMA = Schema.from_json({"attributes": [{"name": "n", "type": "int"}]})


def made(tmp_path: Path, parameters: KeyParameters) -> Realm:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["nyse", "alice", "bob"])
    realm.create_topic("quotes", SCHEMA, parameters=parameters, access="members")
    realm.subscribe_many("quotes", [("alice", "n >= 0", None), ("bob", "n >= 0", None)])
    return realm


def events(*numbers: int) -> list[Event]:
    return [Event({"n": n}) for n in numbers]


def read(realm: Realm, name: str) -> list[object]:
    with Subscriber(realm, "quotes", name) as subscriber:
        return [event.attributes["n"] for event in subscriber]


def frames(realm: Realm) -> list[frame.Frame]:
    with EmbeddedTopic(realm.paths.topic("quotes").frames_root, read_only=True) as log:
        return [frame.parse(record.data) for record in log.partition(0).read(0)]


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_events_of_every_epoch_are_read_under_keys_of_every_size(tmp_path: Path, bits: int) -> None:
    realm = made(tmp_path, KeyParameters(key_bits=bits))
    with Publisher(realm, "quotes", "nyse") as publisher:
        publisher.publish(events(1, 2))
        pump(realm, "quotes")
        realm.rotate("quotes")
        publisher.publish(events(3))
        realm.rotate("quotes")
        publisher.publish(events(4))
        assert pump(realm, "quotes")["admitted"] == 2
    assert [(f.header.epoch, f.key_bits) for f in frames(realm)] == [(1, bits), (2, bits), (3, bits)]
    assert read(realm, "alice") == read(realm, "bob") == [1, 2, 3, 4]


def test_a_frame_that_says_another_key_size_than_the_topics_is_refused(tmp_path: Path) -> None:
    realm = made(tmp_path, KeyParameters(key_bits=256))
    with Publisher(realm, "quotes", "nyse") as publisher:
        (sealed,) = publisher.seal(events(1))
        # The publisher lies about the algorithm, and seals the lie: its body would open.
        got = frame.parse(sealed)
        key = publisher._lanes[0].sealing._key
        body = key.open(got.nonce, got.commitment, got.ciphertext, got.body_aad)
        lie = key.seal(got.nonce, body, frame.body_aad(got.signed, got.commitment, 128))
        forged = frame.encode(got.signed, got.commitment, lie, 128, token=got.token)
        with EmbeddedTopic(realm.paths.topic("quotes").frames_root, 1) as log:
            log.partition(0).append([forged])
    counts = pump(realm, "quotes")
    assert counts["admitted"] == 0 and counts["rejected_seal"] == 1


def test_frames_on_their_way_during_a_rotation_have_their_grace_and_no_longer(tmp_path: Path) -> None:
    for grace, admitted in ((3_600, 1), (0, 0)):
        realm = made(tmp_path / str(grace), KeyParameters(grace_s=grace))
        with Publisher(realm, "quotes", "nyse") as publisher:
            (sealed,) = publisher.seal(events(1))
            realm.rotate("quotes")
            with EmbeddedTopic(realm.paths.topic("quotes").frames_root, 1) as log:
                log.partition(0).append([sealed])
        counts = pump(realm, "quotes")
        assert (counts["admitted"], counts.get("rejected_epoch", 0)) == (admitted, 1 - admitted)
        assert read(realm, "alice") == [1] * admitted


def test_who_was_left_out_of_an_epoch_reads_what_came_before_and_nothing_of_it(tmp_path: Path) -> None:
    realm = made(tmp_path, KeyParameters())
    with Publisher(realm, "quotes", "nyse") as publisher:
        publisher.publish(events(1))
        pump(realm, "quotes")
        realm.revoke("quotes", "bob", [Right.SUBSCRIBE])
        realm.revoke("quotes", "bob", [Right.PUBLISH])
        realm.rotate("quotes")
        publisher.publish(events(2))
        pump(realm, "quotes")
    with pytest.raises(Rejected, match="'bob' may not subscribe"):
        read(realm, "bob")
    state, bob = realm.state(), realm.identity("bob")
    assert state.pair_key("quotes", 2, "bob") is None
    # What was sealed to alice for the new epoch is no use to bob.
    stolen = state.pair_key("quotes", 2, "alice")
    assert stolen is not None
    with pytest.raises(CannotOpen):
        bob.kem.open(stolen, b"sealcast pair key", state.topic("quotes").id + (2).to_bytes(8, "big") + b"bob")
    realm.grant("quotes", "bob")
    assert read(realm, "bob") == [1], "what it could read before, it reads again"
    assert read(realm, "alice") == [1, 2]


def test_a_right_that_ends_is_noticed_by_the_client(tmp_path: Path) -> None:
    realm = made(tmp_path, KeyParameters())
    start, now = realm.clock(), [0]
    later = Realm(realm.paths.root, clock=lambda: start + now[0])
    realm.grant("quotes", "nyse", [Right.PUBLISH], until_us=start + 60_000_000)
    realm.grant("quotes", "alice", [Right.SUBSCRIBE], until_us=start + 60_000_000)
    with Publisher(later, "quotes", "nyse") as publisher, Subscriber(later, "quotes", "alice") as subscriber:
        publisher.publish(events(1))
        pump(realm, "quotes")
        assert len(subscriber.poll()) == 1
        now[0] = 60_000_000
        with pytest.raises(Rejected, match="its right has ended"):
            publisher.publish(events(2))
        with pytest.raises(Rejected, match="its right has ended"):
            subscriber.poll()
