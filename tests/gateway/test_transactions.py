"""Transactions that were made and signed elsewhere: judged as if they had been made here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sealcast.trust import history
from sealcast.trust.deployment import Realm
from sealcast.trust.history import KnownVersion, StatingKeys
from sealcast.trust.realm.changes import Change, PlaceSubscriber, RemoveSubscription
from sealcast.trust.registry import now_us
from sealcast.trust.statements import NOBODY, Author, Judge
from sealcast.trust.storage.rows import ChangeRow
from tests.gateway.world import TOPIC, RunningGateway

PATH = "/v1/registry/transactions"


class _Kept:
    """Stands for the rows of a copy of the registry."""

    def __init__(self) -> None:
        self.rows: list[ChangeRow] = []

    def signed_from(self, version: int) -> int:
        return version

    def add(self, rows: Sequence[ChangeRow]) -> None:
        self.rows += rows


def made(realm: Realm, author: str, *changes: Change, at_us: int | None = None) -> dict[str, Any]:
    """A transaction as a client makes it on its own copy, signed with the author's own key."""
    head, kept = realm.registry.head(), _Kept()
    founding = realm.state().founding
    assert founding is not None
    import hashlib

    judge = Judge(realm.id, hashlib.sha256(founding.root).digest())
    key = Author(author, realm.identity(author).signer)
    before = KnownVersion(realm.state(), head.chain)
    history.add(kept, before, changes, at_us or now_us(), judge, StatingKeys((key,), NOBODY))  # type: ignore[arg-type]
    return {"after": head.version, "chain": head.chain, "rows": [list(row) for row in kept.rows]}


def own_subscription(realm: Realm, name: str) -> str:
    return next(each.id for each in realm.state().subscriptions_of(TOPIC) if each.subscriber == name)


def test_whoever_may_states_it_and_once(served: RunningGateway, realm: Realm) -> None:
    id, alice = own_subscription(realm, "alice"), served.client("alice")
    body = made(realm, "alice", RemoveSubscription(id))
    first = alice.post(PATH, body)
    assert first.status == 200 and first.value["version"] == realm.state().version
    assert id not in {each.id for each in realm.state().subscriptions_of(TOPIC)}
    assert alice.post(PATH, body).value == first.value, "a lost answer is asked for again"
    assert int(first.headers["sealcast-version"]) >= first.value["version"]
    realm.subscribe(TOPIC, "alice", "price > 100")


def test_one_that_is_behind_is_told_how_far(served: RunningGateway, realm: Realm) -> None:
    body = made(realm, "bob", RemoveSubscription(own_subscription(realm, "bob")))
    realm.enrol("newcomer")
    found = served.client("bob").post(PATH, body)
    assert found.status == 409 and found.value["newest"] == realm.state().version


def test_nobody_states_what_is_anothers(served: RunningGateway, realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mallory signs the end of bob's subscription with her own key. A client of hers would refuse to make it."""
    from sealcast.trust import statements

    monkeypatch.setattr(statements, "may", lambda wanted, author, is_broker: True)
    monkeypatch.setattr(statements.AuthorKeys, "choose", lambda self, wanted, own, is_broker: list(own))
    body = made(realm, "mallory", RemoveSubscription(own_subscription(realm, "bob")))
    monkeypatch.undo()
    before = realm.state().version
    assert served.client("mallory").post(PATH, body).problem == "statement:voice"
    assert served.client("bob").post(PATH, body).problem == "forbidden", "who did not sign it does not bring it"
    assert realm.state().version == before


def _row(body: dict[str, Any], place: int, value: object) -> dict[str, Any]:
    return body | {"rows": [[*row[:place], value, *row[place + 1 :]] for row in body["rows"]]}


def test_what_was_altered_is_refused(served: RunningGateway, realm: Realm) -> None:
    mallory, good = served.client("bob"), made(realm, "bob", RemoveSubscription(own_subscription(realm, "bob")))
    version, at_us, _, text, chain, signed = good["rows"][0]
    wrong = [
        good | {"chain": bytes(32)},
        _row(good, 0, version + 1),
        _row(good, 1, at_us + 10**9),
        _row(good, 2, "enrol-entity"),
        _row(good, 3, json.dumps({"id": 7}, separators=(",", ":"))),
        _row(good, 3, text + " "),
        _row(good, 4, bytes(32)),
        _row(good, 5, ""),
        _row(good, 5, signed.replace("a", "b")),
        _row(good, 5, json.dumps({"bob": "00" * 64})),
        good | {"rows": good["rows"] * 2},
    ]
    before = realm.state().version
    for body in wrong:
        found = mallory.post(PATH, body)
        assert 400 <= found.status < 500, (found, body)
    assert realm.state().version == before
    assert chain and served.client("bob").post(PATH, good).status == 200
    realm.subscribe(TOPIC, "bob", "price > 100")


def test_the_clock_of_a_writer_is_bounded(served: RunningGateway, realm: Realm) -> None:
    late = made(realm, "bob", RemoveSubscription(own_subscription(realm, "bob")), at_us=now_us() - 3_600 * 10**6)
    assert served.client("bob").post(PATH, late).status == 400


@pytest.mark.parametrize(
    "body", ["{}", "[]", "null", '{"topic":[],"subscriber":"bob","broker":null,"at_us":0}', "{" * 9_000, '"x"']
)
def test_changes_of_other_types_never_reach_the_rules(body: str) -> None:
    from sealcast.errors import Misuse
    from sealcast.trust.realm import strict

    with pytest.raises(Misuse):
        strict.read("place-subscriber", body)


def test_what_we_write_reads_back() -> None:
    from sealcast.trust.realm import strict

    change = PlaceSubscriber(TOPIC, "bob", None, 5)
    assert strict.read(change.kind, strict.written(change)) == change
