"""What an administrator does about epochs, terms, certificates and tokens; what is refused, and what a kill leaves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sealcast.errors import CertificateRejected, Corrupt, Misuse, NotFound, Rejected, RevocationRejected, TokenRejected
from sealcast.model import Schema
from sealcast.model.subscription import Subscription
from sealcast.trust import layout
from sealcast.trust.admin.compromise import respond
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.authority import DAY_US, LIFETIME_US, Authority
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.certificates.revocation import RevocationStore
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.filter_texts import FilterSealer
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.changes import (
    AddSubscription,
    EnrolEntity,
    RenewCertificate,
    RenewSubscription,
    RevokeCertificates,
    Right,
)
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.realm.state import RealmState
from sealcast.trust.registry import now_us
from sealcast.trust.tokens import gates
from tests.children import run
from tests.copies import copy_realm
from tests.trust.certified import issue

SCHEMA = Schema.from_json(
    {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 100}, {"name": "symbol", "type": "string"}]}
)
SECOND = 1_000_000
BEGINNING = now_us()


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = BEGINNING

    def __call__(self) -> int:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def realm(tmp_path: Path, clock: Clock) -> Realm:
    made = Realm.create(tmp_path / "market", clock=clock)
    made.enrol_many(["alice", "bob", "nyse"])
    made.create_topic("quotes", SCHEMA, access="members")
    made.create_topic("orders", SCHEMA, access="granted")
    return made


def verified(realm: Realm, token: bytes, topic: str, right: Right, who: str) -> frozenset[Right]:
    state = realm.state()
    key = state.entity(who).verify_key
    found = gates.gate_of(state).verify(token, state.topic(topic), realm.clock(), right, key, holder=who)
    return found.claims.rights


# --- founding -----------------------------------------------------------------------------------------------


def test_a_realm_is_founded_whole(realm: Realm) -> None:
    state = realm.state()
    trust = realm.trust(state)
    roles = {"center": Role.KEY_CENTER, "broker": Role.BROKER}
    roles |= dict.fromkeys(layout.FIRST_DISCOVERY_NODES, Role.DISCOVERY)
    for name, role in roles.items():
        found = trust.verify(state.entity(name).certificate, realm.clock(), state.revoked, role=role, name=name)
        assert found.realm == realm.id
    assert realm.center().name == "center" and realm.broker().name == "broker"
    assert realm.discovery_node("discovery-1").public_keys.verify_key == state.entity("discovery-1").verify_key
    alice = certificates.parse(state.entity("alice").certificate)
    assert alice.keys == realm.identity("alice").public_keys
    assert alice.roles == {Role.ENTITY}


def test_another_root_in_the_registry_is_noticed(realm: Realm, tmp_path: Path) -> None:
    """Whoever can write the registry could found another realm in it; the mark says which root was meant."""
    other = Realm.create(tmp_path / "other")
    mark = layout.read_mark(realm.paths)
    realm.paths.mark.write_bytes(replace(mark, root=layout.read_mark(other.paths).root).to_bytes())
    with pytest.raises(Corrupt, match="names another root than"):
        Realm(realm.paths.root).trust()


def test_more_centers_brokers_and_nodes(realm: Realm) -> None:
    realm.add_center("center-2")
    topic = realm.create_topic("far", SCHEMA, center="center-2", access="members")
    state = realm.state()
    assert topic.center == "center-2"
    expected = realm.center("center-2").topic_keys(topic).pair_key("alice")
    assert realm.identity("alice").pair_key(state, "far") == expected
    realm.add_broker("broker-2", ["quotes"])
    state = realm.state()
    second = realm.broker("broker-2")
    ours = realm.broker().topic_keys(state, state.topic("quotes"))
    assert second.topic_keys(state, state.topic("quotes")).content_root() == ours.content_root()
    with pytest.raises(NotFound, match="broker 'broker-2' was not handed the key of topic 'far'"):
        second.topic_keys(state, state.topic("far"))
    state = realm.serve("far", "broker-2")
    assert realm.serve("far", "broker-2").version == state.version, "serving twice is serving once"
    assert second.topic_keys(state, state.topic("far")).epoch == 1
    realm.add_discovery_node("discovery-3")
    assert realm.discovery_node("discovery-3").name == "discovery-3"
    with pytest.raises(Misuse, match="'broker-2' is enrolled already"):
        realm.add_broker("broker-2")
    with pytest.raises(Misuse, match="'alice' is no key-center"):
        realm.create_topic("nowhere", SCHEMA, center="alice", access="members")


def test_a_broker_that_comes_late_gets_every_epoch_that_has_its_grace(realm: Realm, clock: Clock) -> None:
    for _ in range(3):
        realm.rotate("quotes")
    realm.add_broker("late", ["quotes"])
    late = realm.broker("late")

    def epochs(state: RealmState) -> list[int]:
        return [epoch for epoch in range(1, 9) if state.topic_key("quotes", epoch, "late") is not None]

    state = realm.state()
    assert epochs(state) == [1, 2, 3, 4]
    for epoch in epochs(state):
        ours = realm.broker().topic_keys(state, state.topic("quotes"), epoch)
        assert late.topic_keys(state, state.topic("quotes"), epoch).pair_key("alice") == ours.pair_key("alice")
    realm.add_broker("later")
    clock.now += (realm.state().topic("quotes").parameters.grace_s + 1) * SECOND
    state = realm.serve("quotes", "later")
    assert [epoch for epoch in range(1, 5) if state.topic_key("quotes", epoch, "later") is not None] == [3, 4]


# --- epochs -------------------------------------------------------------------------------------------------


def test_rotation_gives_new_keys_to_all_who_may_and_leaves_the_old_ones(realm: Realm, clock: Clock) -> None:
    realm.grant("orders", "alice", [Right.SUBSCRIBE])
    realm.grant("orders", "bob", until_us=clock.now + 10 * SECOND)
    before = {n: realm.identity(n).pair_key(realm.state(), "orders") for n in ("alice", "bob")}
    clock.wait(20)
    topic = realm.rotate("orders")
    state, broker = realm.state(), realm.broker()
    assert (topic.epoch, topic.epoch_starts[-1]) == (2, clock.now)
    for epoch in (1, 2):
        keys = broker.topic_keys(state, topic, epoch)
        assert realm.identity("alice").pair_key(state, "orders", epoch) == keys.pair_key("alice")
    assert realm.identity("alice").pair_key(state, "orders", 1) == before["alice"]
    assert realm.identity("bob").pair_key(state, "orders", 1) == before["bob"], "what one could read stays readable"
    with pytest.raises(NotFound, match=r"\(epoch 2\) was issued to entity 'bob'"):
        realm.identity("bob").pair_key(state, "orders")
    realm.grant("orders", "bob")
    assert realm.state().pair_key("orders", 2, "bob") is not None
    assert realm.state().topic("quotes").epoch == 1, "the others were left alone"


def test_a_revoked_entity_gets_no_key_of_the_next_epoch(realm: Realm) -> None:
    realm.revoke_entity("bob")
    realm.rotate("quotes")
    assert realm.state().pair_key("quotes", 2, "bob") is None
    assert realm.state().pair_key("quotes", 2, "alice") is not None


def test_a_broker_that_was_revoked_is_handed_nothing_more(realm: Realm) -> None:
    realm.add_broker("broker-2", ["quotes"])
    realm.revoke_entity("broker-2")
    realm.rotate("quotes")
    assert realm.state().topic_key("quotes", 2, "broker-2") is None
    assert realm.state().topic_key("quotes", 2, "broker") is not None


def test_rotation_by_age_and_by_use(realm: Realm, clock: Clock) -> None:
    limits = KeyParameters(key_lifetime_s=100, messages_per_key=1_000, grace_s=1)
    realm.create_topic("short", SCHEMA, parameters=limits, access="members")
    assert realm.rotate_due(counts={"short": 999}) == {}
    assert realm.rotate_due(counts={"short": 1_000}) == {"short": "its key has sealed 1000 messages of 1000"}
    clock.wait(100)
    assert list(realm.rotate_due()) == ["short"]
    assert realm.rotate_due() == {}
    assert realm.state().topic("short").epoch == 3


def test_several_topics_rotate_together_or_not_at_all(realm: Realm) -> None:
    with pytest.raises(NotFound):
        realm.rotate_many(["quotes", "nothing"])
    assert realm.state().topic("quotes").epoch == 1
    assert [t.epoch for t in realm.rotate_many(["quotes", "orders"])] == [2, 2]


def test_a_clock_that_stepped_back_starts_no_epoch_before_the_last(realm: Realm, clock: Clock) -> None:
    realm.rotate("quotes")
    clock.wait(-60)
    assert realm.rotate("quotes").epoch_starts[1] == realm.state().topic("quotes").epoch_starts[2]


# --- tokens -------------------------------------------------------------------------------------------------


def test_a_token_gives_what_was_granted_and_not_a_second_more(realm: Realm, clock: Clock) -> None:
    until = clock.now + 3_600 * SECOND + 999_999
    realm.grant("orders", "alice", [Right.PUBLISH], until_us=until, template="symbol=IBM")
    token = realm.token("orders", "alice")
    assert verified(realm, token, "orders", Right.PUBLISH, "alice") == {Right.PUBLISH}
    claims = gates.gate_of(realm.state()).tokens.token(token).claims
    assert str(claims.template) == "symbol=IBM"
    assert clock.now - SECOND < claims.not_before_us <= clock.now, "valid at once"
    assert claims.expires_us <= until < claims.expires_us + SECOND
    with pytest.raises(Rejected, match="may not subscribe"):
        realm.token("orders", "alice", Right.SUBSCRIBE)
    with pytest.raises(Rejected, match="'bob' may not publish"):
        realm.token("orders", "bob")
    clock.wait(3_601)
    with pytest.raises(Rejected, match="its right has ended"):
        realm.token("orders", "alice")


def test_rights_of_the_same_terms_share_a_token(realm: Realm, clock: Clock) -> None:
    assert verified(realm, realm.token("quotes", "alice"), "quotes", Right.SUBSCRIBE, "alice") == set(Right)
    realm.grant("quotes", "alice", [Right.SUBSCRIBE], until_us=clock.now + 60 * SECOND)
    assert verified(realm, realm.token("quotes", "alice"), "quotes", Right.PUBLISH, "alice") == {Right.PUBLISH}
    sub = realm.token("quotes", "alice", Right.SUBSCRIBE)
    assert verified(realm, sub, "quotes", Right.SUBSCRIBE, "alice") == {Right.SUBSCRIBE}


def test_no_token_outlives_its_holders_certificate(realm: Realm, clock: Clock) -> None:
    expires = realm.state().entity("alice").expires_us
    clock.now = expires - 100 * SECOND
    claims = gates.gate_of(realm.state()).tokens.token(realm.token("quotes", "alice")).claims
    assert claims.expires_us == expires
    clock.now = expires
    with pytest.raises(Rejected, match="its right or its certificate ends this second"):
        realm.token("quotes", "alice")


def test_the_hash_is_the_topics(realm: Realm) -> None:
    realm.create_topic("wide", SCHEMA, parameters=KeyParameters(token_hash="sha-512"), access="members")
    assert verified(realm, realm.token("wide", "alice"), "wide", Right.PUBLISH, "alice")


def test_subscriptions_live_by_tokens_and_are_renewed_at_half_life(realm: Realm, clock: Clock) -> None:
    realm.subscribe_many(
        "quotes", [("alice", "price > 1", None), ("alice", "price > 2", None), ("bob", "price > 3", None)]
    )
    first = realm.state().credentials_of("quotes")
    assert list(first) == ["alice-1", "alice-2", "bob-1"]
    assert first["alice-1"].token == first["alice-2"].token != first["bob-1"].token
    assert realm.renew_subscriptions() == 0, "none has had half of its life"
    clock.wait(43_201)
    realm.revoke("quotes", "bob", [Right.SUBSCRIBE])
    assert realm.renew_subscriptions() == 1
    then = realm.state().credentials_of("quotes")
    assert then["alice-2"].expires_us > first["alice-2"].expires_us
    assert then["bob-1"] == first["bob-1"], "who may not any more gets no new token"


def test_rotation_and_grants_renew_tokens_at_once(realm: Realm, clock: Clock) -> None:
    realm.subscribe("quotes", "alice", "price > 1")
    realm.rotate("quotes")
    assert realm.state().credentials_of("quotes")["alice-1"].epoch == 2
    realm.grant("quotes", "alice", [Right.SUBSCRIBE], template="symbol=IBM")
    assert realm.state().credentials_of("quotes")["alice-1"].template == "symbol=IBM"


@pytest.mark.parametrize(
    ("template", "error", "words"),
    [
        ("colour=red", Rejected, "colour"),
        ("market.*; symbol=IBM", Rejected, "admits topics 'market.*', and this is 'orders'"),
        ("symbol", Rejected, "admits topics 'symbol'"),
        ("price=cheap", Rejected, "price"),
        ("", Rejected, "template"),
    ],
)
def test_a_right_that_could_admit_nothing_is_refused(
    realm: Realm, template: str, error: type[Rejected], words: str
) -> None:
    before = realm.registry.version()
    with pytest.raises(error, match=words):
        realm.grant("orders", "alice", template=template)
    assert realm.registry.version() == before


# --- certificates -------------------------------------------------------------------------------------------


def test_renewal_at_half_life_keeps_the_keys(realm: Realm, clock: Clock) -> None:
    assert realm.renew_due() == []
    clock.now += LIFETIME_US // 2
    before = realm.state()
    realm.subscribe("quotes", "alice", "price > 1")
    renewed = {e.name for e in realm.renew_due()}
    assert renewed == set(before.entities)
    after = realm.state()
    for name in renewed:
        old, new = (certificates.parse(s.entity(name).certificate) for s in (before, after))
        assert (old.keys, old.roles) == (new.keys, new.roles) and old.serial != new.serial
        assert realm.trust().verify(new.der, clock.now, after.revoked)
    token = after.credentials_of("quotes")["alice-1"].token
    assert verified(realm, token, "quotes", Right.SUBSCRIBE, "alice"), "what the center signed before still counts"
    assert realm.renew_due() == []
    assert [e.name for e in [realm.renew("alice")]] == ["alice"]


def test_revocation_is_signed_numbered_and_for_every_certificate_one_had(realm: Realm, clock: Clock) -> None:
    clock.now += LIFETIME_US // 2
    realm.renew("bob")
    token = realm.token("quotes", "bob")
    version = realm.revoke_entity("bob", Cause.KEY_COMPROMISE)
    state = realm.state()
    bob = state.entity("bob")
    assert bob.revoked_at_version == version == state.version
    assert state.revoked.number == 1 and len(bob.serials) == 2
    assert all(state.revoked.entries[serial].cause is Cause.KEY_COMPROMISE for serial in bob.serials)
    with pytest.raises(TokenRejected) as refusal:
        verified(realm, token, "quotes", Right.PUBLISH, "bob")
    assert refusal.value.reason == "revoked"
    with pytest.raises(CertificateRejected) as gone:
        realm.trust().verify(bob.certificate, clock.now, state.revoked)
    assert gone.value.reason == "revoked"
    with pytest.raises(Misuse, match="was revoked before"):
        realm.revoke_entity("bob")
    with pytest.raises(Misuse, match="gets no certificate"):
        realm.renew("bob")
    assert realm.authority().lists.view.number == 1, "the authority's own copy followed"


def test_many_are_revoked_by_one_list(realm: Realm) -> None:
    realm.enrol_many([f"e{i}" for i in range(20)])
    with pytest.raises(NotFound):
        realm.revoke_entities(["e1", "nobody"])
    assert not realm.state().entity("e1").revoked and realm.state().revoked.number == 0
    realm.revoke_entities([f"e{i}" for i in range(20)])
    state = realm.state()
    assert state.revoked.number == 1 and len(state.revoked.entries) == 20


def test_a_broker_keeps_the_lists_and_fetches_only_what_is_new(realm: Realm) -> None:
    realm.revoke_entity("bob")
    assert realm.revocations().view.number == 1
    realm.revoke_entity("alice")
    store = RevocationStore(realm.paths.revocations("broker"), realm.trust())
    assert store.view.number == 1, "on stable storage"
    fetched = store.update(realm.state())
    assert (fetched.before, fetched.after, fetched.lists) == (1, 2, 1)
    assert realm.revocations("another").view == realm.state().revoked, "a newcomer gets them all"


# --- what is not what it says is not stored ------------------------------------------------------------------


def enrolment(realm: Realm, authority: Authority | None = None, **changed: object) -> EnrolEntity:
    who = Identity.generate("eve")
    issued = issue(authority or realm.authority(), who.name, who.public_keys, {Role.ENTITY}, at_us=realm.clock())
    made = EnrolEntity(
        who.name, issued.verify_key, issued.kem_public, (Role.ENTITY,), issued.der, issued.serial, issued.not_after_us
    )
    return replace(made, **changed)  # type: ignore[arg-type]


LIES: list[tuple[str, dict[str, object], type[Rejected], str]] = [
    ("another name", {"name": "mallory"}, CertificateRejected, "it is 'eve''s, not 'mallory''s"),
    ("another frame key", {"verify_key": Identity.generate("x").public_keys.verify_key}, Rejected, "other keys"),
    ("another receiving key", {"kem_public": bytes(32)}, Rejected, "other keys or other roles"),
    ("a role of its own", {"roles": (Role.BROKER,)}, Rejected, "other keys or other roles"),
    ("another serial", {"serial": 7}, Rejected, "another serial number"),
    ("a longer life", {"expires_us": 2**62}, Rejected, "another serial number or another end"),
    ("junk", {"certificate": b"junk"}, CertificateRejected, "refused"),
]


@pytest.mark.parametrize(("changed", "error", "words"), [lie[1:] for lie in LIES], ids=[lie[0] for lie in LIES])
def test_an_enrolment_says_what_its_certificate_says(
    realm: Realm, changed: dict[str, object], error: type[Rejected], words: str
) -> None:
    before = realm.registry.version()
    with pytest.raises(error, match=words):
        realm.registry.apply(enrolment(realm, **changed))
    assert realm.registry.version() == before
    realm.registry.apply(enrolment(realm))


def test_only_this_realms_authority_enrols(realm: Realm, clock: Clock) -> None:
    stranger = Authority.generate(realm.id, clock.now)
    with pytest.raises(CertificateRejected, match="nobody known here issued it"):
        realm.registry.apply(enrolment(realm, authority=stranger))
    stale = enrolment(realm)
    clock.now += LIFETIME_US + DAY_US
    with pytest.raises(CertificateRejected, match="its time is over"):
        realm.registry.apply(stale)


def test_a_renewal_is_for_the_same_keys_and_longer(realm: Realm, clock: Clock) -> None:
    authority, state = realm.authority(), realm.state()
    other = issue(authority, "alice", Identity.generate("alice").public_keys, {Role.ENTITY}, at_us=clock.now)
    own = certificates.parse(state.entity("alice").certificate)
    shorter = issue(authority, "alice", own.keys, {Role.ENTITY}, at_us=clock.now, lifetime_us=DAY_US)
    broker = issue(authority, "alice", own.keys, {Role.BROKER}, at_us=clock.now, lifetime_us=2 * LIFETIME_US)
    for issued, words in (
        (other, "same keys"),
        (broker, "same keys and roles"),
        (shorter, "ends before the one it has"),
    ):
        with pytest.raises(Rejected, match=words):
            realm.registry.apply(RenewCertificate("alice", issued.der, issued.serial, issued.not_after_us))


def test_a_revocation_list_is_the_authoritys(realm: Realm, clock: Clock) -> None:
    serial = realm.state().entity("alice").serials[0]
    stranger = Authority.generate(realm.id, clock.now)
    forged = stranger.revoke([serial], Cause.UNSPECIFIED, clock.now)
    with pytest.raises(RevocationRejected) as refusal:
        realm.registry.apply(RevokeCertificates(forged.raw))
    assert refusal.value.reason == "signer"
    assert not realm.state().revoked.is_revoked(serial)


def test_a_subscription_says_what_its_token_says_and_the_token_is_the_subscribers(realm: Realm, clock: Clock) -> None:
    issuer, state, now = realm.issuer(), realm.state(), realm.clock()
    good = issuer.credential(state, "quotes", "alice", now)
    altered = bytearray(good.token)
    altered[-1] ^= 1
    realm.grant("orders", "alice")
    elsewhere = issuer.credential(realm.state(), "orders", "alice", now)
    cases = [
        (replace(good, expires_us=2**60), Rejected, "does not say what is said of it"),
        (replace(good, template="symbol=IBM"), Rejected, "does not say what is said of it"),
        (replace(good, serial=1), Rejected, "does not say what is said of it"),
        (replace(good, token=bytes(altered)), TokenRejected, "did not sign this"),
        (issuer.credential(state, "quotes", "bob", now), TokenRejected, "belongs to another key"),
        (elsewhere, TokenRejected, "for another topic"),
        (replace(good, token=b"x"), TokenRejected, "refused"),
    ]
    sealer, keys = FilterSealer.fresh(realm.state(), "quotes")
    realm.registry.apply_many(keys)
    sealed = sealer.seal(Subscription("s", "quotes", "alice", "price > 1"))
    before = realm.registry.version()
    for bad, error, words in cases:
        with pytest.raises(error, match=words):
            realm.registry.apply(AddSubscription("s", "quotes", "alice", sealed, bad))
    with pytest.raises(Rejected, match="came without a token"):
        realm.registry.apply(AddSubscription("s", "quotes", "alice", sealed))
    assert realm.registry.version() == before
    realm.registry.apply(AddSubscription("s", "quotes", "alice", sealed, good))
    with pytest.raises(TokenRejected, match="belongs to another key"):
        realm.registry.apply(RenewSubscription(("s",), issuer.credential(state, "quotes", "bob", now)))
    clock.wait(86_400 + 301)
    with pytest.raises(TokenRejected, match="its time is over"):
        realm.registry.apply(RenewSubscription(("s",), good))


# --- killed at any moment ------------------------------------------------------------------------------------


def some_realm(root: Path) -> Realm:
    realm = Realm.create(root)
    realm.enrol_many(["alice", "bob"])
    realm.create_topic("quotes", SCHEMA, access="members")
    realm.subscribe("quotes", "alice", "price > 1")
    return realm


def warm_up() -> None:
    """Whatever the first of its kind makes ready for the next, where children come from (`tests.children`)."""
    with TemporaryDirectory() as directory:
        some_realm(Path(directory) / "realm")


def dies_at(root: Path, name: str, at: int) -> None:
    """Does the act, and is killed (SIGKILL) at its nth touch of the disk."""
    touched = 0

    def watched(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal touched
            touched += 1
            if touched == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for touch in ("fsync", "link", "replace", "rename", "mkdir", "open"):
        setattr(os, touch, watched(getattr(os, touch)))
    act, _ = ACTS[name]
    act(Realm(root))


ACTS: dict[str, tuple[Callable[[Realm], object], Callable[[RealmState], bool]]] = {
    "enrol": (
        lambda realm: realm.enrol_many(["carol", "dave"]),
        lambda state: {"carol", "dave"} <= set(state.entities),
    ),
    "create": (lambda realm: realm.create_topic("new", SCHEMA, access="members"), lambda state: "new" in state.topics),
    "rotate": (lambda realm: realm.rotate("quotes"), lambda state: state.topic("quotes").epoch == 2),
    "revoke": (lambda realm: realm.revoke_entity("bob"), lambda state: state.entity("bob").revoked),
    "compromise": (
        lambda realm: respond(realm, "bob"),
        lambda state: state.entity("bob").revoked and state.topic("quotes").epoch == 2,
    ),
    "renew": (lambda realm: realm.renew("alice"), lambda state: len(state.entity("alice").serials) == 2),
    "broker": (lambda realm: realm.add_broker("broker-2", ["quotes"]), lambda state: "broker-2" in state.entities),
}


def is_whole(state: RealmState) -> None:
    """Every act left all of its parts or none."""
    for found in state.topics.values():
        about = found.topic
        assert (about.epoch, "broker") in found.topic_keys
        for entity in state.entitled(about.name, now_us()):
            assert (about.epoch, entity.name) in found.pair_keys, (about.name, entity.name)
        for each in found.credentials.values():
            assert each.epoch == about.epoch
    for entity in state.entities.values():
        assert entity.revoked == all(state.revoked.is_revoked(serial) for serial in entity.serials)


@pytest.mark.parametrize("name", ACTS)
def test_an_administrator_killed_at_any_moment_has_done_an_act_or_has_not(tmp_path: Path, name: str) -> None:
    act, done = ACTS[name]
    first = some_realm(tmp_path / "first")
    before = first.registry.version()
    for at in range(1, 200):
        realm = Realm(copy_realm(first.paths.root, tmp_path / str(at)))
        finished = run(dies_at, realm.paths.root, name, at) == 0
        state = Realm(realm.paths.root).state()
        is_whole(state)
        assert done(state) == (state.version > before)
        if finished:
            assert done(state)
            break
        if not done(state):
            act(Realm(realm.paths.root))
            is_whole(realm.state())
            assert done(realm.state())
        elif name == "revoke":
            assert realm.authority().lists.view.number <= 1
            realm.revoke_entity("alice")
            assert realm.authority().lists.view.number == 2, "an authority that was behind has caught up"
    else:
        pytest.fail("the act never came to its end")
