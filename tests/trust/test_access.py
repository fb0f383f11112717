"""Whom a topic lets in: those who were granted a right, unless it was asked for otherwise; and that can be changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Misuse, NotFound, Rejected
from sealcast.model import Event, Schema
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.audit import history
from sealcast.trust.realm.changes import Access, AlterTopic, Right
from sealcast.trust.realm.stored import from_json, to_json
from tests.clients.pump import pump

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})
TOPIC = "quotes"


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["ann", "ben", "cid"])
    return realm


def may(realm: Realm) -> list[str]:
    state = realm.state()
    return [name for name in ("ann", "ben", "cid") if state.rights_of(TOPIC, name)]


def publish(realm: Realm, name: str, price: int) -> None:
    with Publisher(realm, TOPIC, name) as publisher:
        publisher.publish([Event({"price": price}, b"%d" % price)])


def read(realm: Realm, name: str) -> list[int]:
    with Subscriber(realm, TOPIC, name, from_=0) as subscriber:
        return [int(event.payload) for event in subscriber]


def test_a_new_topic_is_for_those_who_were_granted_a_right(realm: Realm) -> None:
    assert realm.create_topic(TOPIC, SCHEMA).access is Access.GRANTED
    assert may(realm) == []
    with pytest.raises(Rejected, match="may not"):
        publish(realm, "ann", 1)
    with pytest.raises(Rejected, match="may not"):
        realm.subscribe(TOPIC, "ben", "price > 0")
    realm.grant(TOPIC, "ann", [Right.PUBLISH])
    assert may(realm) == ["ann"]
    # On a topic that was asked to be open, anybody may.
    realm.create_topic("open", SCHEMA, access="members")
    assert realm.state().rights_of("open", "cid") == set(Right)


@pytest.mark.parametrize("protection", ["endpoint", "payload"])
def test_closing_a_topic_counts_from_the_next_batch_on(realm: Realm, protection: str) -> None:
    realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members")
    realm.grant(TOPIC, "ann")
    realm.revoke(TOPIC, "cid")
    for name in ("ann", "ben"):
        realm.subscribe(TOPIC, name, "price > 0")
    publish(realm, "ben", 1)
    pump(realm, TOPIC)
    before = realm.state()
    kept = realm.identity("ben").topic_keys(before, TOPIC) if protection == "payload" else None
    realm.alter_topic(TOPIC, "granted")
    assert may(realm) == ["ann"]
    with pytest.raises(Rejected, match="may not"):
        publish(realm, "ben", 2)
    publish(realm, "ann", 3)
    pump(realm, TOPIC)
    assert read(realm, "ann") == [1, 3]
    with pytest.raises(Rejected, match="may not subscribe"):
        read(realm, "ben")
    after = realm.state()
    if kept is not None:
        assert after.topic(TOPIC).epoch == before.topic(TOPIC).epoch + 1, "who is shut out holds no key of now"
        with pytest.raises(NotFound):
            realm.identity("ben").topic_keys(after, TOPIC)
    # It opens again, with what was decided by name, and with keys for everyone.
    realm.alter_topic(TOPIC, Access.MEMBERS)
    assert may(realm) == ["ann", "ben"]
    publish(realm, "ben", 4)
    pump(realm, TOPIC)
    assert read(realm, "ben") == [1, 4], "what was sealed while it was shut out is not for it"


def test_altered_twice_is_altered_once_and_audit_says_when(realm: Realm) -> None:
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.alter_topic(TOPIC, "granted")
    version = realm.state().version
    realm.alter_topic(TOPIC, "granted")
    assert realm.state().version == version
    held = history(realm.registry.changes(), entity="ben", topic=TOPIC).rights
    assert {right.right for right in held} == set(Right)
    assert all(right.span.until is not None and right.span.until.what == "alter-topic" for right in held)
    with pytest.raises(Misuse, match="access is one of"):
        realm.alter_topic(TOPIC, "everyone")
    change = AlterTopic(TOPIC, Access.GRANTED)
    assert from_json(change.kind, to_json(change)) == change
