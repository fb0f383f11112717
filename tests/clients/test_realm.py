"""The public handle on a realm: one way to subscribe, to list, to end and to read, whatever protects the topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sealcast
from sealcast.clients.realm import side_of, unsubscribe
from sealcast.errors import FilterRejected, Misuse, NotFound
from sealcast.model.protection import PROTECTIONS
from sealcast.protections.port import Interest

SCHEMA = sealcast.Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})
#: A topic of each protection, by the protection's name.
TOPICS = tuple(PROTECTIONS)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sealcast.Realm]:
    made = sealcast.Realm.create(tmp_path_factory.mktemp("public") / "realm")
    for name in TOPICS:
        made.create_topic(name, SCHEMA, protection=name, access="members")
    made.enrol_many(["nyse", "alice", "bob", "carol"])
    yield made


def ids(found: list[Interest]) -> list[str | None]:
    return [each.id for each in found]


@pytest.mark.parametrize("topic", TOPICS)
def test_subscribing_is_one_act_on_every_topic(realm: sealcast.Realm, topic: str) -> None:
    side = side_of(realm, topic)
    made = realm.subscribe(topic, "alice", "price > 100", f"{topic}-mine")
    assert (made.id, made.topic, made.subscriber, made.filter) == (f"{topic}-mine", topic, "alice", "price > 100")
    many = realm.subscribe_many(topic, [("bob", "price < 10", None), ("alice", "price = 7", None)])
    assert sorted(each.subscriber for each in many) == ["alice", "bob"]
    assert ids(side.listed(realm, topic, "bob")) == [each.id for each in many if each.subscriber == "bob"]
    with side.interests(realm, topic, "alice") as own:
        added = own.add("price BETWEEN 3 AND 5")
        assert ids(own.filters())[-1] == added.id and added.broker is not None and own.trouble is None
        own.remove([str(added.id)])
        assert added.id not in ids(own.filters())
    with pytest.raises(FilterRejected):
        side.vet("price >", realm.state().topic(topic))
    with sealcast.Subscriber(realm, topic, as_="bob") as reader:
        assert reader.poll() == [] and reader.lag() == 0 and reader.trouble is None
    with pytest.raises(NotFound, match="no subscription on topic"):
        sealcast.Subscriber(realm, topic, as_="carol")
    with pytest.raises(NotFound, match="no subscription on topic"):
        side.mail(realm, topic, "carol")


def test_ids_end_wherever_they_are_and_all_or_none(realm: sealcast.Realm) -> None:
    made = [realm.subscribe(topic, "carol", "price > 1").id for topic in TOPICS]
    with pytest.raises(NotFound, match="nobody"):
        realm.unsubscribe(*made, "nobody")
    for topic, id in zip(TOPICS, made, strict=True):
        assert id in ids(side_of(realm, topic).listed(realm, topic, "carol"))
    with pytest.raises(NotFound, match="another topic"):
        unsubscribe(realm, made[:1], topic="layered")
    with pytest.raises(NotFound, match="somebody else's"):
        unsubscribe(realm, made[:1], subscriber="alice")
    assert unsubscribe(realm, made).troubles == []
    for topic in TOPICS:
        assert not side_of(realm, topic).listed(realm, topic, "carol")


def test_one_id_of_two_owners_must_be_told_apart(realm: sealcast.Realm) -> None:
    for name in ("alice", "bob"):
        realm.subscribe("layered", name, "price > 2", "same")
    with pytest.raises(Misuse, match="alice on layered, bob on layered"):
        realm.unsubscribe("same")
    unsubscribe(realm, ["same"], subscriber="alice")
    realm.unsubscribe("same")
    with pytest.raises(NotFound):
        realm.unsubscribe("same")


def test_a_filter_on_what_brokers_do_not_see_is_refused(realm: sealcast.Realm) -> None:
    text = "xpath:/quote[@venue='nyse']"
    side_of(realm, "endpoint").vet(text, realm.state().topic("endpoint"))
    for topic in ("payload", "layered"):
        with pytest.raises(FilterRejected):
            side_of(realm, topic).vet(text, realm.state().topic(topic))
