"""Who could do what, when and why: spans out of the registry's history, against asking every version itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import SealcastError
from sealcast.model import Schema
from sealcast.trust.admin.compromise import respond
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.realm import audit
from sealcast.trust.realm.changes import (
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
    RotateTopic,
)
from sealcast.trust.realm.machine import EMPTY, Fold, RealmState
from tests.effort import examples

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 100}]})
NAMES, TOPICS = ("alice", "bob", "broker"), ("quotes", "orders")
RIGHTS = st.lists(st.sampled_from(list(Right)), min_size=1, max_size=2, unique=True).map(tuple)
MOMENTS = st.integers(0, 60)


def _term(draw: tuple[int, int | None]) -> tuple[int, int | None]:
    begins, length = draw
    return begins, None if length is None else begins + length


CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(
        lambda name: EnrolEntity(
            name, bytes([1]) * 32, bytes([2]) * 32, (Role.BROKER,) * (name == "broker") or (Role.ENTITY,)
        ),
        st.sampled_from(NAMES),
    ),
    st.builds(
        lambda name, access: CreateTopic(name, name.encode().ljust(16, b"\0"), SCHEMA, access=access),
        st.sampled_from(TOPICS),
        st.sampled_from(list(Access)),
    ),
    st.builds(
        lambda topic, name, rights, term, template: Grant(topic, name, rights, *_term(term), template),
        st.sampled_from(TOPICS),
        st.sampled_from(NAMES),
        RIGHTS,
        st.tuples(MOMENTS, st.none() | st.integers(1, 30)),
        st.sampled_from(["*", "price=3"]),
    ),
    st.builds(Revoke, st.sampled_from(TOPICS), st.sampled_from(NAMES), RIGHTS),
    st.builds(RevokeEntity, st.sampled_from(NAMES)),
    st.builds(lambda topic, epoch: RotateTopic(topic, epoch, epoch), st.sampled_from(TOPICS), st.integers(2, 4)),
    st.builds(
        lambda topic, epoch, name: PublishPairKey(topic, epoch, name, b"sealed"),
        st.sampled_from(TOPICS),
        st.integers(1, 3),
        st.sampled_from(NAMES),
    ),
    st.builds(
        lambda id, topic, name: AddSubscription(id, topic, name, "price > 1"),
        st.sampled_from(["s1", "s2", "s3"]),
        st.sampled_from(TOPICS),
        st.sampled_from(NAMES),
    ),
    st.builds(RemoveSubscription, st.sampled_from(["s1", "s2", "s3"])),
)


def _enrol(name: str) -> EnrolEntity:
    return EnrolEntity(name, bytes([1]) * 32, bytes([2]) * 32)


def _topic(name: str, access: Access) -> CreateTopic:
    return CreateTopic(name, name.encode().ljust(16, b"\0"), SCHEMA, access=access)


#: Most random changes are about somebody and something: begin with both, or with half of it.
BEGUN: list[Change] = [
    _enrol("alice"),
    _topic("quotes", Access.MEMBERS),
    _enrol("bob"),
    _topic("orders", Access.GRANTED),
]
HISTORIES = st.builds(
    lambda begun, then: [*((change, 1) for change in BEGUN[:begun]), *then],
    st.integers(1, len(BEGUN)),
    st.lists(st.tuples(CHANGES, st.integers(0, 5)), max_size=60),
)


def admitted(wanted: list[tuple[Change, int]]) -> tuple[list[tuple[int, int, Change]], list[RealmState]]:
    """Those that the rules admit, numbered, at times that never go back; and the state at every version."""
    fold, now, made, states = Fold(EMPTY), 0, list[tuple[int, int, Change]](), [EMPTY]
    for change, pause in wanted:
        try:
            fold.apply(change)
        except SealcastError:
            continue
        now += pause
        made.append((fold.version, now, change))
        states.append(fold.state())
    return made, states


@given(HISTORIES)
@examples(37, soak=150)
def test_spans_say_what_every_version_says_itself(wanted: list[tuple[Change, int]]) -> None:
    made, states = admitted(wanted)
    found = audit.history(made)
    for version, state in enumerate(states):
        for at_us in (0, 1, 10, 25, 61, 200):
            for topic in state.topics:
                for right in Right:
                    truth = {name for name in state.entities if state.may(right, topic, name, at_us)}
                    held = [h for h in found.rights if h.right is right and h.topic == topic]
                    assert {h.entity for h in held if h.allows(version, at_us)} == truth
        live = {s.id for topic in state.topics for s in state.subscriptions_of(topic)}
        assert {s.id for s in found.subscriptions if s.span.includes(version)} == live


@given(HISTORIES, st.integers(0, 120))
@examples(25, soak=100)
def test_a_time_is_the_version_that_was_in_force_then(wanted: list[tuple[Change, int]], at_us: int) -> None:
    made, states = admitted(wanted)
    found = audit.history(made)
    version = max((v for v, at, _ in made if at <= at_us), default=0)
    assert found.version_at(at_us) == version
    state = states[version]
    for topic in state.topics:
        by_times = {
            held.entity
            for held in found.rights
            if held.right is Right.SUBSCRIBE
            and held.topic == topic
            and held.span.since.at_us <= at_us
            and held.from_us <= at_us
            and (held.until_us is None or at_us < held.until_us)
        }
        assert by_times == {name for name in state.entities if state.may_subscribe(topic, name, at_us)}


@given(HISTORIES)
@settings(max_examples=60)
def test_asking_for_one_entity_or_topic_gives_its_part_of_the_whole(wanted: list[tuple[Change, int]]) -> None:
    made, _ = admitted(wanted)
    whole = audit.history(made)
    for name in NAMES:
        one = audit.history(made, entity=name)
        assert one.rights == [held for held in whole.rights if held.entity == name]
        assert one.keys == [key for key in whole.keys if key.entity == name]
        assert one.subscriptions == [made for made in whole.subscriptions if made.entity == name]
    for topic in TOPICS:
        assert audit.history(made, topic=topic).rights == [held for held in whole.rights if held.topic == topic]


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    now = [1_800_000_000_000_000]

    def clock() -> int:
        now[0] += 1_000_000
        return now[0]

    realm = Realm.create(tmp_path / "market", clock=clock)
    realm.enrol_many(["alice", "mallory"])
    realm.create_topic("quotes", SCHEMA, access="members")
    realm.create_topic("orders", SCHEMA, access="granted")
    realm.grant("orders", "mallory", [Right.SUBSCRIBE], template="price=3")
    realm.subscribe("quotes", "mallory", "price > 1")
    realm.subscribe("quotes", "alice", "price > 1")
    return realm


def test_what_it_tells_of_a_compromise(realm: Realm) -> None:
    done = respond(realm, "mallory")
    found = audit.history(realm.registry.changes())
    (read,) = [h for h in found.rights if (h.entity, h.topic, h.right) == ("mallory", "quotes", Right.SUBSCRIBE)]
    assert read.why == "access=members" and read.span.since.what == "create-topic"
    assert read.span.until is not None and read.span.until.what == "revoke-entity"
    assert read.span.until.version <= done.version
    (granted,) = [h for h in found.rights if (h.entity, h.topic) == ("mallory", "orders")]
    assert granted.why == "grant" and granted.term.template == "price=3"
    keys = {(k.topic, k.epoch): k for k in found.keys if k.entity == "mallory"}
    assert set(keys) == {("quotes", 1), ("orders", 1)}
    assert all(k.ended is not None and k.ended.what == "rotate-topic" for k in keys.values())
    mine, hers = (next(s for s in found.subscriptions if s.entity == name) for name in ("mallory", "alice"))
    assert mine.span.until is not None and mine.span.until.what == "remove-subscription"
    assert [token.credential.epoch for token in hers.tokens] == [1, 2]
    assert hers.tokens[0].span.until == hers.tokens[1].span.since
    assert [gone.entity for gone in found.revoked] == ["mallory"]


def test_a_right_that_is_taken_and_given_again_is_two_spans(realm: Realm) -> None:
    realm.revoke("quotes", "alice", [Right.PUBLISH])
    realm.grant("quotes", "alice", [Right.PUBLISH])
    found = audit.history(realm.registry.changes(), entity="alice", topic="quotes")
    spans = [(h.right, h.why, h.span.until is None) for h in found.rights]
    assert spans == [
        (Right.PUBLISH, "access=members", False),
        (Right.SUBSCRIBE, "access=members", True),
        (Right.PUBLISH, "grant", True),
    ]
