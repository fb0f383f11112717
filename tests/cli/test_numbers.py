"""The same thing has the same number, whichever command says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sealcast import Event, Publisher, Realm, Schema
from sealcast.model.protection import PROTECTIONS
from tests.cli.shell import sealcast
from tests.clients.test_group_soak import carried

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023}]})


def asked(realm: Realm, *command: str) -> Any:
    found = sealcast(*command, "--json", "--realm", realm.paths.root)
    assert found.code == 0, found.err
    return found.document


def total(documents: list[dict[str, Any]], name: str) -> int:
    """Over a topic's brokers or peers, and both steps of a topic that has two."""
    parts = [document.get(part) or {} for document in documents for part in ("events", "hops")]
    return sum(part.get(name) or 0 for part in parts)


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_numbers_agree(tmp_path: Path, protection: str) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members")
    realm.enrol_many(["nyse", "alice", "bob"])
    realm.subscribe(TOPIC, "alice", "price < 100")
    realm.subscribe(TOPIC, "alice", "price > 500")
    realm.subscribe(TOPIC, "bob", "price >= 0")
    carried(realm)
    with Publisher(realm, TOPIC, as_="nyse") as publisher:
        publisher.publish([Event({"price": n * 100}, b"") for n in range(8)])
    carried(realm)
    realm.revoke_entity("bob")
    status = [each for each in asked(realm, "status")["topics"] if each["topic"] == TOPIC]
    check = asked(realm, "check")
    (listed,) = asked(realm, "topic", "list")["topics"]
    shown = asked(realm, "topic", "show", TOPIC)
    assert listed == shown
    assert check["topics"][TOPIC]["events"] == check["events"] == 8
    admitted = total(status, "admitted")
    assert admitted == check["events"]
    # What is not checked is named: peers have their own keys, and who was revoked opens nothing any more.
    unchecked = sum((each.get("lag") or {}).get("total") or 0 for each in status if each["broker"] == "bob")
    assert total(status, "deliveries") == check["deliveries"] + unchecked
    assert bool(unchecked) == any("was revoked" in words for words in check["topics"][TOPIC]["not_judged"])
    assert sum(each.get("backlog") or 0 for each in status) == check["waiting_frames"] == 0
    for name in ("subscribers", "subscriptions", "authorised"):
        counted = [each[name] for each in status]
        assert shown[name] == (None if None in counted else sum(counted)), name
