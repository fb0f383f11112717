"""The rules, as a table that reads like them: what is refused, with which class and which words."""

from __future__ import annotations

import json

import pytest

from sealcast.errors import Misuse, NotFound, Rejected, SealcastError
from sealcast.model import Schema
from sealcast.trust import changes as stored
from sealcast.trust.changes import (
    Access,
    AddSubscription,
    Change,
    CreateTopic,
    EnrolEntity,
    Grant,
    PublishPairKey,
    RemoveSubscription,
    Revoke,
    RevokeEntity,
    Right,
)
from sealcast.trust.realm import EMPTY, Fold, apply, apply_all

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "decimal", "step": "0.01", "min": "0.00"}]})
BOTH = (Right.PUBLISH, Right.SUBSCRIBE)


def enrol(name: str) -> EnrolEntity:
    return EnrolEntity(name, bytes([1]) * 32, bytes([2]) * 32)


def topic(name: str, access: Access = Access.MEMBERS) -> CreateTopic:
    return CreateTopic(name, name.encode().ljust(16, b"\0"), SCHEMA, access=access)


BASE = apply_all(
    EMPTY,
    [
        enrol("alice"),
        enrol("bob"),
        enrol("mallory"),
        topic("quotes"),
        topic("orders", Access.GRANTED),
        AddSubscription("a1", "quotes", "alice", "price > 1"),
        AddSubscription("a2", "quotes", "alice", "price > 2"),
        RemoveSubscription("a1"),
        RevokeEntity("mallory"),
    ],
)

REFUSED: list[tuple[Change, type[SealcastError], str]] = [
    (enrol("alice"), Misuse, "entity 'alice' is enrolled already"),
    (enrol("mallory"), Rejected, "belonged to a revoked entity"),
    (enrol(""), Misuse, "'' is no entity name"),
    (enrol(".."), Misuse, "'..' is no entity name"),
    (enrol("-rf"), Misuse, "'-rf' is no entity name"),
    (enrol("a/b"), Misuse, "'a/b' is no entity name"),
    (enrol("a\n"), Misuse, "is no entity name"),
    (enrol("é"), Misuse, "is no entity name"),
    (enrol("x" * 65), Misuse, "is no entity name"),
    (EnrolEntity("carol", b"short", bytes(32)), Rejected, "both public keys have 32 bytes"),
    (RevokeEntity("alise"), NotFound, "there is no entity 'alise'"),
    (RevokeEntity("mallory"), Misuse, "was revoked before, at version 9"),
    (topic("quotes"), Misuse, "topic 'quotes' exists already"),
    (topic("../x"), Misuse, "is no topic name"),
    (CreateTopic("t", bytes(16), SCHEMA, partitions=0), Misuse, "1 to 1024 partitions, not 0"),
    (CreateTopic("t", bytes(16), SCHEMA, partitions=1025), Misuse, "not 1025"),
    (CreateTopic("t", bytes(16), SCHEMA, protection="rot13"), Misuse, "protection is one of endpoint, not 'rot13'"),
    (CreateTopic("t", bytes(15), SCHEMA), Misuse, "id has 16 bytes, not 15"),
    (Grant("quotes", "alice", ()), Misuse, "no right was named"),
    (Grant("quotes", "carol", BOTH), NotFound, "there is no entity 'carol'"),
    (Grant("quote", "alice", BOTH), NotFound, "there is no topic 'quote'"),
    (Grant("orders", "mallory", BOTH), Rejected, "it gets no rights"),
    (Revoke("quote", "alice", BOTH), NotFound, "there is no topic 'quote'"),
    (AddSubscription("a2", "quotes", "bob", "price > 1"), Misuse, "was given before"),
    (AddSubscription("a1", "quotes", "bob", "price > 1"), Misuse, "was given before"),
    (AddSubscription("a/3", "quotes", "bob", "price > 1"), Misuse, "is no subscription name"),
    (AddSubscription("a3", "quotes", "bob", ""), Rejected, "a filter has 1 to 65536 characters"),
    (AddSubscription("a3", "quotes", "bob", "p" * 65_537), Rejected, "a filter has 1 to 65536 characters"),
    (AddSubscription("a3", "quotes", "bob", "p = '\ud800'"), Rejected, "a lone surrogate"),
    (AddSubscription("a3", "orders", "bob", "price > 1"), Rejected, "'bob' may not subscribe on topic 'orders'"),
    (AddSubscription("a3", "quotes", "mallory", "price > 1"), Rejected, "was revoked (at version 9)"),
    (RemoveSubscription("a1"), NotFound, "subscription 'a1' was removed"),
    (RemoveSubscription("a9"), NotFound, "there is no subscription 'a9'"),
    (PublishPairKey("quotes", 1, "mallory", b"x"), Rejected, "it gets no keys"),
    (PublishPairKey("quotes", 2, "alice", b"x"), Misuse, "is in epoch 1, not 2"),
    (PublishPairKey("quotes", 1, "alice", b""), Misuse, "a sealed pair key has 1 to"),
    (PublishPairKey("quotes", 1, "alice", bytes(513)), Misuse, "not 513"),
]


@pytest.mark.parametrize(("change", "error", "words"), REFUSED, ids=lambda v: v if isinstance(v, str) else None)
def test_refused_with_words(change: Change, error: type[SealcastError], words: str) -> None:
    fold = Fold(BASE)
    with pytest.raises(error) as refusal:
        fold.apply(change)
    assert type(refusal.value) is error
    assert words in refusal.value.message
    assert fold.state() == BASE, "a refusal changes nothing"


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (RevokeEntity("alise"), "did you mean 'alice'?"),
        (Grant("quote", "alice", BOTH), "did you mean 'quotes'?"),
        (Grant("zzz", "alice", BOTH), "make it with `sealcast topic create`"),
        (AddSubscription("a3", "orders", "bob", "price > 1"), "let it: sealcast grant orders bob subscribe"),
        (RemoveSubscription("a3"), "`sealcast subscription list` shows them"),
    ],
)
def test_a_refusal_says_what_next(change: Change, hint: str) -> None:
    with pytest.raises(SealcastError) as refusal:
        apply(BASE, change)
    assert refusal.value.hint == hint


def test_a_state_is_a_value() -> None:
    fold = Fold(BASE)
    fold.apply(enrol("carol"))
    middle = fold.state()
    fold.apply(AddSubscription("c1", "quotes", "carol", "price > 9"))
    fold.apply(RevokeEntity("carol"))
    fold.apply(Grant("orders", "bob", (Right.SUBSCRIBE,)))
    end = fold.state()
    assert "carol" not in BASE.entities
    assert not middle.entities["carol"].revoked
    assert "c1" not in middle.subscription_topics
    assert middle.slots_of("quotes") == {"alice": 0}
    assert not middle.may_subscribe("orders", "bob")
    assert end.slots_of("quotes") == {"alice": 0, "carol": 1}
    assert end.may_subscribe("orders", "bob")
    assert (BASE.version, middle.version, end.version) == (9, 10, 13)


def test_members_and_granted() -> None:
    assert BASE.may_publish("quotes", "bob") and BASE.may_subscribe("quotes", "bob")
    assert not BASE.may_publish("orders", "bob") and not BASE.may_subscribe("orders", "bob")
    assert not BASE.may_publish("quotes", "mallory"), "revoked"
    assert not BASE.may_publish("quotes", "nobody")
    assert not BASE.may_publish("nothing", "bob")
    taken = apply(BASE, Revoke("quotes", "bob", (Right.PUBLISH,)))
    assert not taken.may_publish("quotes", "bob") and taken.may_subscribe("quotes", "bob")
    given = apply(BASE, Grant("orders", "bob", (Right.PUBLISH,)))
    assert given.may_publish("orders", "bob") and not given.may_subscribe("orders", "bob")


def test_interested_is_not_authorised() -> None:
    state = apply_all(
        BASE,
        [
            AddSubscription("b1", "quotes", "bob", "price > 1"),
            enrol("carol"),
            AddSubscription("c1", "quotes", "carol", "price > 1"),
        ],
    )
    assert list(state.authorised_slots("quotes")) == [0, 1, 2]
    assert list(apply(state, Revoke("quotes", "alice", BOTH)).authorised_slots("quotes")) == [1, 2]
    gone = apply(state, RevokeEntity("bob"))
    assert list(gone.authorised_slots("quotes")) == [0, 2]
    assert [s.id for s in gone.subscriptions_of("quotes")] == ["a2", "b1", "c1"], "the table keeps its bits"


def test_slots_are_never_given_to_another() -> None:
    state = apply_all(
        BASE,
        [RemoveSubscription("a2"), AddSubscription("b1", "quotes", "bob", "price > 1")],
    )
    assert state.slots_of("quotes") == {"alice": 0, "bob": 1}
    again = apply(state, AddSubscription("a4", "quotes", "alice", "price > 1"))
    assert again.subscription_table("quotes") == [("b1", 1, "price > 1"), ("a4", 0, "price > 1")]


def test_no_pair_key_is_replaced() -> None:
    once = apply(BASE, PublishPairKey("quotes", 1, "alice", b"sealed"))
    assert once.pair_key("quotes", 1, "alice") == b"sealed"
    with pytest.raises(Misuse, match="has its pair key"):
        apply(once, PublishPairKey("quotes", 1, "alice", b"other"))


@pytest.mark.parametrize(
    "change",
    [
        enrol("alice"),
        RevokeEntity("alice"),
        CreateTopic("t", bytes(16), SCHEMA, 3, "endpoint", Access.GRANTED),
        Grant("t", "alice", BOTH),
        Revoke("t", "alice", (Right.PUBLISH,)),
        AddSubscription("s", "t", "alice", "name LIKE 'Zoë%'"),
        RemoveSubscription("s"),
        PublishPairKey("t", 1, "alice", b"\x00\xff"),
    ],
    ids=lambda c: c.kind,
)
def test_changes_survive_json(change: Change) -> None:
    again = stored.from_json(change.kind, json.loads(json.dumps(stored.to_json(change))))
    assert again == change
    assert type(again) is type(change)


def test_tables_are_copied_once_not_once_a_change() -> None:
    """What makes n changes cost n: counted in copies, which a clock on a busy machine could not."""
    fold, tables = Fold(BASE), []
    for i in range(10_000):
        fold.apply(AddSubscription(f"s{i}", "quotes", "bob", "price > 1"))
        tables.append((id(fold.owners.read), id(fold.open["quotes"].subscriptions.read)))
    assert len(set(tables)) == 1
    assert len(list(fold.state().subscriptions_of("quotes"))) == 10_001
