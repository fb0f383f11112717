"""The rules, as a table that reads like them: what is refused, with which class and which words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sealcast.errors import FilterRejected, Misuse, NotFound, Rejected, RevocationRejected, SealcastError
from sealcast.model import Schema
from sealcast.model.protection import Endpoint
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm import stored
from sealcast.trust.realm.changes import (
    Access,
    AddAuthority,
    AddSubscription,
    AttachSubscriber,
    Change,
    CreateTopic,
    Credential,
    EnrolEntity,
    FoundRealm,
    Grant,
    HandFilterKey,
    PublishPairKey,
    PublishTopicKey,
    RemoveSubscription,
    RenewCertificate,
    RenewSubscription,
    Revoke,
    RevokeCertificates,
    RevokeEntity,
    Right,
    RotateTopic,
)
from sealcast.trust.realm.machine import EMPTY, Fold, RealmState, apply, apply_all
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.realm.topics import Topic
from sealcast.wire.sealed_texts import SealedText

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "decimal", "step": "0.01", "min": "0.00"}]})
BOTH = (Right.PUBLISH, Right.SUBSCRIBE)


def enrol(name: str) -> EnrolEntity:
    return EnrolEntity(name, bytes([1]) * 32, bytes([2]) * 32)


def holder(name: str, role: Role) -> EnrolEntity:
    return EnrolEntity(name, bytes([1]) * 32, bytes([2]) * 32, (role,))


def credential(epoch: int = 1, begins: int = 0, ends: int = 100, template: str = "*") -> Credential:
    return Credential(b"token", begins, ends, template, epoch, 7, bytes(32))


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
        holder("broker", Role.BROKER),
        holder("old-broker", Role.BROKER),
        RevokeEntity("old-broker"),
        holder("center", Role.KEY_CENTER),
        PublishTopicKey("quotes", 1, "broker", b"sealed"),
    ],
)

#: The name of a filter key, and a sealed text that names it.
FILTER_KEY = b"k" * 16
SEALED_TEXT = SealedText(FILTER_KEY, bytes(16), bytes(80), bytes(32), bytes(128 + 16)).to_text()

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
    (EnrolEntity("carol", b"short", bytes(32)), Rejected, "its keys have 32 bytes to sign, 32 or 1216 to receive by"),
    (RevokeEntity("alise"), NotFound, "there is no entity 'alise'"),
    (RevokeEntity("mallory"), Misuse, "was revoked before, at version 9"),
    (topic("quotes"), Misuse, "topic 'quotes' exists already"),
    (topic("../x"), Misuse, "is no topic name"),
    (CreateTopic("t", bytes(16), SCHEMA, partitions=0), Misuse, "1 to 1024 partitions, not 0"),
    (CreateTopic("t", bytes(16), SCHEMA, partitions=1025), Misuse, "not 1025"),
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
    (holder("root", Role.AUTHORITY), Misuse, "the authority is none of the realm's"),
    (EnrolEntity("carol", bytes(32), bytes(32), ()), Misuse, "an entity has a role"),
    (RenewCertificate("mallory", b"x", 1, 1), Rejected, "it gets no certificate"),
    (RenewCertificate("carol", b"x", 1, 1), NotFound, "there is no entity 'carol'"),
    (FoundRealm(bytes(16), b"r", (b"a",)), Misuse, "by its first change, and once"),
    (AddAuthority(b"a"), Misuse, "no root"),
    (RevokeCertificates(b"junk"), RevocationRejected, "this is no revocation list"),
    (CreateTopic("t", bytes(16), SCHEMA, center="nobody"), NotFound, "there is no entity 'nobody'"),
    (CreateTopic("t", bytes(16), SCHEMA, center="alice"), Misuse, "'alice' is no key-center"),
    (CreateTopic("t", bytes(16), SCHEMA, owner="nobody"), NotFound, "there is no entity 'nobody'"),
    (RotateTopic("quotes", 1, 5), Misuse, "is in epoch 1: the next is not 1"),
    (RotateTopic("quotes", 3, 5), Misuse, "the next is not 3"),
    (RotateTopic("quotes", 2, -1), Misuse, "epoch 2 would start before epoch 1 did"),
    (RotateTopic("zzz", 2, 5), NotFound, "there is no topic 'zzz'"),
    (PublishTopicKey("quotes", 1, "broker", b"x"), Misuse, "broker 'broker' has the key of topic 'quotes', epoch 1"),
    (PublishTopicKey("quotes", 2, "broker", b"x"), Misuse, "it has no epoch 2"),
    (PublishTopicKey("orders", 0, "broker", b"x"), Misuse, "it has no epoch 0"),
    (PublishTopicKey("orders", 1, "alice", b"x"), Misuse, "'alice' is no broker"),
    (PublishTopicKey("orders", 1, "old-broker", b"x"), Rejected, "broker 'old-broker' was revoked"),
    (PublishTopicKey("orders", 1, "broker", b""), Misuse, "a sealed topic key has 1 to"),
    (HandFilterKey("quotes", FILTER_KEY, "alice", bytes(80)), Misuse, "'alice' is no broker"),
    (HandFilterKey("quotes", FILTER_KEY, "old-broker", bytes(80)), Rejected, "broker 'old-broker' was revoked"),
    (HandFilterKey("orders", FILTER_KEY, "broker", bytes(80)), Rejected, "does not serve topic 'orders'"),
    (HandFilterKey("quotes", bytes(16), "broker", bytes(80)), Misuse, "not all zero"),
    (HandFilterKey("quotes", FILTER_KEY[1:], "broker", bytes(80)), Misuse, "an id of 16 bytes"),
    (HandFilterKey("quotes", FILTER_KEY, "broker", bytes(79)), Misuse, "is sealed in 80 or 1168 bytes"),
    (AddSubscription("a3", "quotes", "bob", SEALED_TEXT), Rejected, "'broker' was not handed the key of"),
    (AddSubscription("a3", "quotes", "bob", "sealed-text:QUJD"), FilterRejected, "does not begin as one"),
    (AddSubscription("a3", "quotes", "bob", SEALED_TEXT + "A" * 87_782), Rejected, "1 to 87782 characters"),
    (Grant("orders", "bob", BOTH, 5, 5), Misuse, "ends before it begins"),
    (Grant("orders", "bob", BOTH, template=""), Misuse, "a template that is empty"),
    (RenewSubscription((), credential()), Misuse, "of one subscriber on one topic"),
    (RenewSubscription(("a1",), credential()), NotFound, "subscription 'a1' was removed"),
    (AddSubscription("a3", "quotes", "bob", "x", credential(begins=9, ends=9)), Misuse, "never valid"),
    (AddSubscription("a3", "quotes", "bob", "x", credential(template="")), Misuse, "for nothing"),
    (PublishPairKey("quotes", 1, "mallory", b"x"), Rejected, "it gets no keys"),
    (PublishPairKey("quotes", 2, "alice", b"x"), Misuse, "is in epoch 1, not 2"),
    (PublishPairKey("quotes", 1, "alice", b""), Misuse, "a sealed pair key has 1 to"),
    (PublishPairKey("quotes", 1, "alice", bytes(1_601)), Misuse, "not 1601"),
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
    assert (middle.version, end.version) == (BASE.version + 1, BASE.version + 4)


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
    assert [(s.id, s.subscriber) for s in again.subscriptions_of("quotes")] == [("b1", "bob"), ("a4", "alice")]
    assert again.slots_of("quotes") == {"alice": 0, "bob": 1}


def test_no_pair_key_is_replaced() -> None:
    once = apply(BASE, PublishPairKey("quotes", 1, "alice", b"sealed"))
    assert once.pair_key("quotes", 1, "alice") == b"sealed"
    with pytest.raises(Misuse, match="has its pair key"):
        apply(once, PublishPairKey("quotes", 1, "alice", b"other"))


def test_a_filter_key_is_handed_once_and_then_its_filters_are_taken() -> None:
    hand = HandFilterKey("quotes", FILTER_KEY, "broker", bytes(80))
    handed = apply(BASE, hand)
    with pytest.raises(Misuse, match="was handed this filter key before"):
        apply(handed, hand)
    taken = apply(handed, AddSubscription("b1", "quotes", "bob", SEALED_TEXT))
    # A broker that comes later: nobody moves there before it can read what the subscriber asks for.
    later = apply_all(taken, [holder("late", Role.BROKER), PublishTopicKey("quotes", 1, "late", b"sealed")])
    with pytest.raises(Rejected, match="'late' was not handed the key of subscription 'b1'"):
        apply(later, AttachSubscriber("quotes", "bob", "late"))
    moved = apply_all(later, [replace(hand, broker="late"), AttachSubscriber("quotes", "bob", "late")])
    assert moved.home_of("quotes", "bob") == "late"
    # While it moves both serve it: a new filter has to be for both.
    other = b"o" * 16
    only = apply(moved, replace(hand, id=other, broker="late"))
    sealed = SealedText(other, bytes(16), bytes(80), bytes(32), bytes(128 + 16)).to_text()
    with pytest.raises(Rejected, match="'broker' was not handed the key of subscription 'b2'"):
        apply(only, AddSubscription("b2", "quotes", "bob", sealed))


@pytest.mark.parametrize(
    "change",
    [
        enrol("alice"),
        RevokeEntity("alice"),
        CreateTopic("t", bytes(16), SCHEMA, 3, Endpoint(), Access.GRANTED),
        Grant("t", "alice", BOTH),
        Revoke("t", "alice", (Right.PUBLISH,)),
        AddSubscription("s", "t", "alice", "name LIKE 'Zoë%'"),
        RemoveSubscription("s"),
        PublishPairKey("t", 1, "alice", b"\x00\xff"),
        EnrolEntity("b", bytes(32), bytes(32), (Role.BROKER, Role.ENTITY), b"der", 2**120, 5),
        RenewCertificate("alice", b"der", 2**120, 10**15),
        RevokeCertificates(b"\xd2"),
        FoundRealm(bytes(16), b"root", (b"one", b"two")),
        AddAuthority(b"three"),
        CreateTopic("t", bytes(16), SCHEMA, center="c", parameters=KeyParameters(key_bits=128), owner="o", at_us=9),
        RotateTopic("t", 2, 10**15),
        PublishTopicKey("t", 2, "b", b"\x00"),
        Grant("t", "alice", BOTH, 5, 10, "symbol=IBM"),
        AddSubscription("s", "t", "alice", "x", credential()),
        HandFilterKey("t", bytes(16), "b", b"\x00\xff"),
        RenewSubscription(("s", "t"), credential()),
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


# --- epochs -----------------------------------------------------------------------------------------------------------


def test_frames_of_an_earlier_epoch_have_their_grace_by_the_logs_clock() -> None:
    grace = KeyParameters(grace_s=10)
    state = apply_all(
        EMPTY,
        [
            CreateTopic("t", bytes(16), SCHEMA, parameters=grace, at_us=1_000),
            RotateTopic("t", 2, 50_000_000),
            RotateTopic("t", 3, 90_000_000),
        ],
    )
    about = state.topic("t")
    assert (about.epoch, about.epoch_starts) == (3, (1_000, 50_000_000, 90_000_000))
    admitted = [
        (1, 0, True),
        (1, 50_000_000, True),
        (1, 60_000_000, True),
        (1, 60_000_001, False),
        (2, 60_000_001, True),
        (2, 100_000_000, True),
        (2, 100_000_001, False),
        (3, 0, True),
        (3, 10**15, True),
        (4, 0, False),
        (0, 0, False),
        (-1, 0, False),
    ]
    for epoch, at, expected in admitted:
        assert about.epoch_admissible(epoch, at) is expected, (epoch, at)


def test_keys_of_earlier_epochs_stay_and_new_ones_are_for_the_current_epoch() -> None:
    state = apply_all(
        BASE,
        [
            PublishPairKey("quotes", 1, "alice", b"first"),
            RotateTopic("quotes", 2, 5),
            PublishPairKey("quotes", 2, "alice", b"second"),
            PublishTopicKey("quotes", 2, "broker", b"new"),
        ],
    )
    assert [state.pair_key("quotes", e, "alice") for e in (1, 2, 3)] == [b"first", b"second", None]
    assert [state.topic_key("quotes", e, "broker") for e in (1, 2)] == [b"sealed", b"new"]
    with pytest.raises(Misuse, match="is in epoch 2, not 1"):
        apply(state, PublishPairKey("quotes", 1, "bob", b"late"))


def test_a_broker_that_comes_later_may_be_handed_the_epoch_that_has_its_grace() -> None:
    later = apply_all(BASE, [holder("late-broker", Role.BROKER), RotateTopic("quotes", 2, 5)])
    handed = apply(later, PublishTopicKey("quotes", 1, "late-broker", b"earlier"))
    assert handed.topic_key("quotes", 1, "late-broker") == b"earlier"


@pytest.mark.parametrize(
    ("now_s", "messages", "why"),
    [(99, 9, None), (100, 0, "its key is 100 s old, of 100 s"), (0, 10, "its key has sealed 10 messages of 10")],
)
def test_a_key_is_replaced_by_age_or_by_use(now_s: int, messages: int, why: str | None) -> None:
    limits = KeyParameters(key_lifetime_s=100, messages_per_key=10, grace_s=1)
    about = Topic("t", bytes(16), SCHEMA, 1, Endpoint(), 1, Access.MEMBERS, parameters=limits)
    assert about.rotation_due(now_s * 1_000_000, messages) == why


# --- terms ------------------------------------------------------------------------------------------------------------


def test_a_right_is_held_for_a_time() -> None:
    state = apply(BASE, Grant("orders", "bob", (Right.SUBSCRIBE,), 10, 20, "price=1"))
    assert [state.may_subscribe("orders", "bob", at) for at in (9, 10, 19, 20)] == [False, True, True, False]
    assert state.may_subscribe("orders", "bob"), "without a time: whether it was decided at all"
    assert not state.may_publish("orders", "bob", 15)
    assert state.rights_of("orders", "bob", 15) == {Right.SUBSCRIBE}
    assert state.rights_of("orders", "bob", 25) == frozenset()
    for at, word in ((9, "has not begun"), (20, "has ended")):
        with pytest.raises(Rejected, match=word):
            state.require(Right.SUBSCRIBE, "orders", "bob", at)
    assert [e.name for e in state.entitled("orders", 5)] == ["bob"], "who will have a right gets the key for it"
    assert list(state.entitled("orders", 20)) == []


def test_each_right_has_its_own_term() -> None:
    state = apply_all(
        BASE, [Grant("orders", "bob", (Right.PUBLISH,), 0, 10), Grant("orders", "bob", (Right.SUBSCRIBE,))]
    )
    assert not state.may_publish("orders", "bob", 10) and state.may_subscribe("orders", "bob", 10)
    again = apply(state, Grant("orders", "bob", (Right.PUBLISH,)))
    assert again.may_publish("orders", "bob", 10**15), "a new grant gives the right new terms"


def test_a_member_whose_right_was_given_terms_keeps_the_other_as_it_was() -> None:
    state = apply(BASE, Grant("quotes", "bob", (Right.PUBLISH,), 0, 10))
    assert not state.may_publish("quotes", "bob", 11) and state.may_subscribe("quotes", "bob", 11)


def test_those_who_run_the_realm_are_no_members() -> None:
    for name in ("broker", "center"):
        assert not BASE.may_publish("quotes", name) and not BASE.may_subscribe("quotes", name)
        assert apply(BASE, Grant("quotes", name, (Right.PUBLISH,))).may_publish("quotes", name), "unless by name"
    assert [e.name for e in BASE.holders(Role.BROKER)] == ["broker"], "the revoked one is none"


# --- a founded realm --------------------------------------------------------------------------------------------------

FOUNDED = apply_all(
    EMPTY,
    [
        FoundRealm(bytes(16), b"root", (b"first",)),
        EnrolEntity("center", bytes(32), bytes(32), (Role.KEY_CENTER,), b"c1", 1, 100),
        EnrolEntity("alice", bytes(32), bytes(32), certificate=b"a1", serial=2, expires_us=100),
        CreateTopic("t", bytes(16), SCHEMA, center="center"),
    ],
)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (enrol("bob"), Rejected, "entity 'bob' has no certificate"),
        (RenewCertificate("alice", b"", 3, 200), Rejected, "has no certificate"),
        (RenewCertificate("alice", b"a1", 2, 100), Misuse, "has this certificate already"),
        (topic("u"), Misuse, "is registered with one key center"),
        (AddSubscription("s", "t", "alice", "price > 1"), Rejected, "subscription 's' came without a token"),
        (AddAuthority(b"first"), Misuse, "known already"),
        (AddAuthority(b""), Misuse, "or there is none"),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_once_founded_nothing_goes_without_certificate_center_or_token(
    change: Change, error: type[SealcastError], words: str
) -> None:
    with pytest.raises(error, match=words):
        apply(FOUNDED, change)


def test_a_renewed_certificate_leaves_the_former_ones_known() -> None:
    state = apply(FOUNDED, RenewCertificate("alice", b"a2", 3, 200))
    alice = state.entity("alice")
    assert (alice.certificate, alice.former, alice.serials, alice.expires_us) == (b"a2", (b"a1",), (2, 3), 200)
    with pytest.raises(Misuse, match="already"):
        apply(state, RenewCertificate("alice", b"a1", 2, 100))


def test_tokens_come_with_subscriptions_are_renewed_and_go_with_them() -> None:
    def held(state: RealmState) -> dict[str, int]:
        return {id: each.expires_us for id, each in state.credentials_of("t").items()}

    one = apply_all(
        FOUNDED,
        [AddSubscription(id, "t", "alice", "price > 1", credential(ends=ends)) for id, ends in (("s", 5), ("r", 6))],
    )
    assert held(one) == {"s": 5, "r": 6}
    two = apply(one, RenewSubscription(("s",), credential(ends=9)))
    assert held(two) == {"s": 9, "r": 6} and held(one) == {"s": 5, "r": 6}
    assert held(apply(two, RemoveSubscription("s"))) == {"r": 6}


def test_the_next_authority_is_believed_as_well() -> None:
    assert FOUNDED.founding is not None
    state = apply(FOUNDED, AddAuthority(b"second"))
    assert state.founding is not None and state.founding.authorities == (b"first", b"second")
    assert FOUNDED.founding.authorities == (b"first",)
