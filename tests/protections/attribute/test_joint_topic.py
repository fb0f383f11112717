"""A topic whose numbers share one space, from end to end; and schemas that no topic of peers can have."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast import Event, EventRejected, Publisher, Realm, Right, Schema, Subscriber, carry
from sealcast.errors import FilterRejected, ParameterRejected, SchemaRejected
from sealcast.model.protection import AttributeBased, from_json, to_json
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.scheme import SubscriptionKey
from tests.cli.shell import sealcast

TOPIC = "vitals"
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "pulse", "type": "int", "min": 0, "max": 250},
            {"name": "fever", "type": "bool"},
            {"name": "ward", "type": "string", "max_length": 3},
        ]
    }
)
EVENTS: list[dict[str, object]] = [
    {"pulse": 40, "fever": True, "ward": "icu"},
    {"pulse": 41, "fever": True, "ward": "icu"},
    {"pulse": 30, "ward": "icu"},
    {"fever": True, "ward": "er"},
    {"pulse": 20, "fever": True},
]


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection=AttributeBased(joint=True), access="members")
    realm.enrol_many(["monitor", "nurse", "doctor"])
    return realm


def read(realm: Realm, who: str) -> list[int]:
    with Subscriber(realm, TOPIC, as_=who, from_=0) as subscriber:
        return [int(event.payload) for event in subscriber]


def test_numbers_that_share_a_space_are_matched_all_the_same(realm: Realm) -> None:
    realm.subscribe(TOPIC, "nurse", "pulse BETWEEN 10 AND 40 AND ward LIKE 'i%'")
    realm.subscribe(TOPIC, "doctor", "fever OR pulse = 30")
    with Publisher(realm, TOPIC, as_="monitor") as monitor:
        monitor.publish([Event(event, str(number).encode()) for number, event in enumerate(EVENTS)])
    carry(realm)
    assert read(realm, "nurse") == [0, 2]
    assert read(realm, "doctor") == [0, 1, 2, 3, 4]
    with CredentialRing(realm, TOPIC, realm.identity("nurse")) as ring:
        (key,) = [SubscriptionKey.parse(key) for given in ring.subscribing(1) for key in given.keys]
    # Three spaces instead of four, and so two pairings fewer.
    assert {one.attribute for one in key.credentials} == {"[joint]", "ward", "ward[ending]"}


def test_a_right_for_some_events_is_one_for_subspaces(realm: Realm) -> None:
    realm.grant(TOPIC, "monitor", [Right.PUBLISH], template="fever=true")
    realm.subscribe(TOPIC, "doctor", "pulse > 0")
    with Publisher(realm, TOPIC, as_="monitor") as monitor:
        monitor.publish([Event({"pulse": 7, "fever": True}, b"7")])
        with pytest.raises(EventRejected, match="may not publish an event with this value of 'pulse' or 'fever'"):
            monitor.publish([Event({"pulse": 7, "fever": False})])
    carry(realm)
    assert read(realm, "doctor") == [7]


def test_the_setting_is_kept_and_shown(tmp_path: Path) -> None:
    assert from_json(to_json(AttributeBased(joint=True))) == AttributeBased(joint=True)
    assert from_json({"name": "attribute", "profile": "P"}) == AttributeBased("P")
    with pytest.raises(ParameterRejected, match="joint is true or false"):
        AttributeBased(joint=1)  # type: ignore[arg-type]
    at = ("--realm", tmp_path / "realm")
    assert sealcast("init", tmp_path / "realm").code == 0
    (tmp_path / "schema.json").write_text('{"attributes": [{"name": "n", "type": "int", "min": 0, "max": 9}]}')
    made = sealcast(
        "topic",
        "create",
        "t",
        "--schema",
        tmp_path / "schema.json",
        "--protection",
        "attribute",
        "--joint",
        *at,
        "--access",
        "members",
    )
    assert made.code == 0 and "profile A, one space for all numbers" in made.out, made.err
    refused = sealcast(
        "topic", "create", "u", "--schema", tmp_path / "schema.json", "--joint", *at, "--access", "members"
    )
    assert refused.code == 1 and "--joint is for attribute topics" in refused.err


# --- what no topic of peers can have --------------------------------------------------------------------------------


def schema(*attributes: dict[str, object]) -> Schema:
    return Schema.from_json({"attributes": list(attributes)})


@pytest.mark.parametrize(
    ("wide", "joint", "said"),
    [
        (schema({"name": "a", "type": "int"}, {"name": "b", "type": "int"}), True, "take 130 bits together, and 127"),
        (schema({"name": "ä" * 124, "type": "int"}), False, "names have at most 247 bytes"),
        (schema(*({"name": f"s{i}", "type": "string"} for i in range(128))), False, "at most 255 attributes"),
    ],
)
def test_a_schema_whose_labels_have_no_place_is_refused_when_the_topic_is_made(
    tmp_path: Path, wide: Schema, joint: bool, said: str
) -> None:
    realm = Realm.create(tmp_path / "realm")
    with pytest.raises(SchemaRejected, match=said):
        realm.create_topic(TOPIC, wide, protection=AttributeBased(joint=joint), access="members")
    realm.create_topic(TOPIC, wide, access="members")  # on other topics it is fine


def test_a_filter_with_a_large_surface_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    fine = schema(*({"name": name, "type": "int", "min": 0, "max": 2**20 - 2} for name in ("x", "y", "z")))
    realm.create_topic(TOPIC, fine, protection=AttributeBased(joint=True), access="members")
    realm.enrol_many(["nurse"])
    box = " AND ".join(f"{name} BETWEEN 12345 AND 987654" for name in ("x", "y", "z"))
    with pytest.raises(
        FilterRejected, match="in the joint space of x, y, z, the filter takes more than 4096"
    ) as refused:
        realm.subscribe(TOPIC, "nurse", box)
    assert refused.value.hint is not None and "keep the topic's attributes apart" in refused.value.hint
