"""A compromised entity, center or broker: what one transaction changes, what it leaves alone, and doing it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.errors import Misuse, NotFound, Rejected
from sealcast.model import Schema
from sealcast.trust.admin.compromise import respond
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.deployment import Realm
from sealcast.trust.realm import compromise
from sealcast.trust.realm.changes import Right
from sealcast.trust.tokens.gates import gate_of
from sealcast.trust.tokens.reasons import TokenReason
from sealcast.trust.tokens.token import TokenRejected

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 100}]})


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    """Two topics for members and two for those who are let in; of these, mallory is in one."""
    realm = Realm.create(tmp_path / "market")
    realm.enrol_many(["alice", "bob", "mallory"])
    for name in ("quotes", "news"):
        realm.create_topic(name, SCHEMA, access="members")
    for name in ("orders", "vault"):
        realm.create_topic(name, SCHEMA, access="granted")
    realm.grant("orders", "mallory", [Right.PUBLISH])
    realm.grant("vault", "alice")
    for topic, who in [("quotes", "alice"), ("quotes", "mallory"), ("news", "mallory"), ("vault", "alice")]:
        realm.subscribe(topic, who, "price > 10")
    return realm


def test_every_topic_that_it_could_use_and_no_other_gets_a_new_epoch(realm: Realm) -> None:
    stolen = realm.identity("mallory")
    done = respond(realm, "mallory")
    state = realm.state()
    assert {t: state.topic(t).epoch for t in state.topics} == {"quotes": 2, "news": 2, "orders": 2, "vault": 1}
    assert [each.topic for each in done.plan.topics] == ["quotes", "news", "orders"]
    for topic in ("quotes", "news", "orders"):
        with pytest.raises(NotFound):
            stolen.pair_key(state, topic)
    for name in ("alice", "bob"):
        pair = realm.identity(name).pair_key(state, "quotes")
        assert pair == realm.broker().topic_keys(state, state.topic("quotes")).pair_key(name)


def test_its_certificate_its_name_and_its_subscriptions_end_together(realm: Realm) -> None:
    before = realm.registry.version()
    done = respond(realm, "mallory")
    state, gone = realm.state(), realm.state().entity("mallory")
    assert gone.revoked and all(map(state.revoked.is_revoked, gone.serials))
    entry = state.revoked.entries[gone.serials[0]]
    assert entry.cause is Cause.KEY_COMPROMISE
    assert {s.subscriber for topic in state.topics for s in state.subscriptions_of(topic)} == {"alice"}
    assert done.brokers == {"broker": state.revoked.number}
    # One transaction: whoever read any version in between saw what was there before, or all of it.
    times = {at for version, at, _ in realm.registry.changes(before + 1)}
    assert len(times) == 1


def test_live_subscriptions_go_on_by_new_tokens(realm: Realm) -> None:
    """A token says its epoch, and is refused after the grace: without a new one a rotation would starve everybody."""
    before = realm.state().credentials_of("quotes")["alice-1"]
    respond(realm, "mallory")
    state = realm.state()
    after = state.credentials_of("quotes")["alice-1"]
    assert (before.epoch, after.epoch) == (1, 2)
    late = realm.clock() + 2 * state.topic("quotes").parameters.grace_s * 1_000_000
    late = min(late, after.expires_us - 1)
    alice = state.entity("alice")
    gate_of(state).verify(after.token, state.topic("quotes"), late, Right.SUBSCRIBE, alice.verify_key)
    with pytest.raises(TokenRejected) as refused:
        gate_of(state).verify(before.token, state.topic("quotes"), late, Right.SUBSCRIBE, alice.verify_key)
    assert refused.value.reason in (TokenReason.EPOCH_ENDED, TokenReason.EXPIRED)


def test_one_whose_certificate_has_ended_does_not_hold_up_the_others(tmp_path: Path) -> None:
    now = [1_800_000_000_000_000]
    realm = Realm.create(tmp_path / "market", clock=lambda: now[0])
    realm.enrol_many(["mallory", "alice"])
    realm.enrol_many(["brief"], lifetime_us=3_600_000_000)
    realm.create_topic("quotes", SCHEMA, access="members")
    for who in ("alice", "brief"):
        realm.subscribe("quotes", who, "price > 10")
    now[0] += 7_200_000_000
    respond(realm, "mallory")
    tokens = realm.state().credentials_of("quotes")
    assert (tokens["alice-1"].epoch, tokens["brief-1"].epoch) == (2, 1)


def test_doing_it_again_changes_nothing(realm: Realm) -> None:
    respond(realm, "mallory")
    version = realm.registry.version()
    again = respond(realm, "mallory")
    assert again.plan.done and realm.registry.version() == version == again.version


def test_an_entity_that_was_only_revoked_still_has_keys_that_must_change(realm: Realm) -> None:
    realm.revoke_entity("mallory")
    left = compromise.plan(realm.state(), "mallory")
    assert not left.revoke and len(left.topics) == 3 and left.subscriptions
    respond(realm, "mallory")
    assert compromise.plan(realm.state(), "mallory").done


def test_a_right_that_was_taken_away_leaves_a_key_behind(realm: Realm) -> None:
    realm.revoke("orders", "mallory")
    assert "orders" in [each.topic for each in compromise.plan(realm.state(), "mallory").topics]
    realm.rotate("orders")
    assert "orders" not in [each.topic for each in compromise.plan(realm.state(), "mallory").topics]


def test_a_key_centers_topics_move_to_another_whose_keys_it_cannot_make(realm: Realm) -> None:
    stolen, before = realm.center(), realm.state()
    token = realm.token("quotes", "alice")
    done = respond(realm, "center")
    state = realm.state()
    assert {state.topic(t).center for t in state.topics} == {"center-2"}
    assert all(state.topic(t).epoch == 2 for t in state.topics) and not done.unserved
    about = state.topic("quotes")
    with pytest.raises(Misuse, match="managed by center 'center-2'"):
        stolen.topic_keys(about)
    forged = stolen.topic_keys(before.topic("quotes"), epoch=2)  # what whoever has its secret derives all the same
    assert forged.pair_key("alice") != realm.identity("alice").pair_key(state, "quotes")
    with pytest.raises(TokenRejected):
        gate_of(state).verify(token, about, realm.clock(), Right.PUBLISH, state.entity("alice").verify_key)
    gate_of(state).verify(
        state.credentials_of("quotes")["alice-1"].token,
        about,
        realm.clock(),
        Right.SUBSCRIBE,
        state.entity("alice").verify_key,
    )
    with pytest.raises(Misuse, match=r"was another center's"):
        realm.center("center-2").topic_keys(about, 1)
    assert compromise.plan(state, "center").done


def test_a_center_that_is_named_takes_over(realm: Realm) -> None:
    realm.add_center("north")
    realm.add_center("south")
    with pytest.raises(Misuse, match="no other key center"):
        respond(realm, "center", center="center")
    assert realm.state().topic("quotes").epoch == 1
    respond(realm, "center", center="south")
    assert realm.state().topic("quotes").center == "south"
    realm.enrol("late")
    assert realm.state().pair_key("quotes", 2, "late") is not None


def test_a_broker_is_handed_no_key_any_more_and_the_others_are(realm: Realm) -> None:
    realm.add_broker("east", ["quotes"])
    done = respond(realm, "east")
    state = realm.state()
    assert [each.topic for each in done.plan.topics] == ["quotes"]
    assert state.topic_key("quotes", 2, "east") is None and state.topic_key("quotes", 2, "broker") is not None
    assert not done.unserved
    last = respond(realm, "broker")
    assert set(last.unserved) == set(state.topics)
    with pytest.raises(Rejected, match="was revoked"):
        realm.serve("quotes", "broker")
    realm.add_broker("west", ["quotes"])
    assert compromise.unserved(realm.state(), last.plan.topics) == [t for t in state.topics if t != "quotes"]


def test_a_name_that_nobody_has_is_refused(realm: Realm) -> None:
    with pytest.raises(NotFound, match="did you mean 'mallory'"):
        respond(realm, "malory")
