"""Key centers: what owners and entities ask of them over their control topics, and what everybody else does not get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sealcast.control import envelopes
from sealcast.control import requests as ask
from sealcast.control.center import requests, rules
from sealcast.control.center.proofs import MAX_MISSED, ProofRecords
from sealcast.control.center.requests import Authorise, Challenge, Credentials, Proof, Register, Rotate, WantCredentials
from sealcast.control.center.rules import CenterReason, CenterRejected, Rules
from sealcast.control.center.service import KeyCenter
from sealcast.control.correspondence import Correspondent
from sealcast.control.discovery.embedded import verifier
from sealcast.control.envelopes import (
    ControlMessage,
    EnvelopeParty,
    EnvelopeReason,
    EnvelopeRecipient,
    EnvelopeRejected,
)
from sealcast.control.running import Running
from sealcast.control.service import ServiceRefused, unwrap
from sealcast.errors import CannotOpen, Misuse, NotFound, Rejected, Unavailable
from sealcast.log.control_topics import ControlPlane
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.topic_keys import PAIR_KEY_INFO, place
from sealcast.trust.realm.changes import Access, Right
from sealcast.trust.realm.state import Entity, RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.trust.tokens import claims, gates
from sealcast.trust.tokens import token as tokens
from sealcast.wire import cbor
from tests.trust.center_world import DAY, SCHEMA, SECOND, World, served, turning

BOTH = (Right.PUBLISH, Right.SUBSCRIBE)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def owner(world: World) -> Correspondent:
    """Has registered `orders`, and let nobody in yet."""
    made = world.asker("owner")
    ask.register_topic(made, "orders", SCHEMA)
    return made


def refused(reason: CenterReason) -> Any:
    class Refused:
        def __enter__(self) -> Refused:
            self._raises = pytest.raises(ServiceRefused)
            self.caught = self._raises.__enter__()
            return self

        def __exit__(self, *details: Any) -> bool:
            done = self._raises.__exit__(*details)
            assert (self.caught.value.service_code, self.caught.value.reason) == ("center", str(reason))
            return done

    return Refused()


# --- registering --------------------------------------------------------------------------------------


def test_an_owner_registers_a_topic_with_its_parameters(world: World) -> None:
    owner = world.asker("owner")
    given = {"key_bits": 192, "token_hash": "sha-384", "token_lifetime_s": "3600"}
    assert ask.register_topic(owner, "orders", SCHEMA, partitions=2, parameters=given) == 1
    state = world.realm.state()
    topic = state.topic("orders")
    assert (topic.owner, topic.center, topic.partitions, topic.access) == ("owner", "center", 2, Access.GRANTED)
    assert (topic.parameters.key_bits, topic.parameters.token_hash) == (192, "sha-384")
    assert topic.parameters.token_lifetime_s == 3600
    # Its key is with the broker, and it is the center's own.
    ours = world.realm.broker().topic_keys(state, topic).pair_key("alice")
    assert ours == world.realm.center().topic_keys(topic).pair_key("alice")
    assert state.pair_key("orders", 1, "owner") is None, "who registers a topic is not yet one who may use it"


def test_nobody_chooses_the_id_of_anothers_topic(world: World, owner: Correspondent) -> None:
    """Keys and tokens are for an id: a second topic under the first one's id would have its keys."""
    first = world.realm.state().topic("orders")
    for nonce in (first.id, bytes(16)):
        for name in ("mine", "mine-too"):
            wanted = Register(f"{name}-{nonce.hex()[:4]}", nonce, SCHEMA, 1, "granted", {})
            world.asker("mallory").ask_center("center", Register.KIND, wanted.to_bytes())
    ids = [found.topic.id for found in world.realm.state().topics.values()]
    assert len(set(ids)) == len(ids) == 5


def test_a_topic_for_all_members_of_a_large_realm_is_the_administrators(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MAX_MEMBERS", 3)
    owner = world.asker("owner")
    with refused(CenterReason.QUOTA):
        ask.register_topic(owner, "orders", SCHEMA, access="members")
    ask.register_topic(owner, "orders", SCHEMA, access="granted")
    monkeypatch.setattr(rules, "MAX_TOPICS_EACH", 1)
    with refused(CenterReason.QUOTA):
        ask.register_topic(owner, "more", SCHEMA)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("algorithm", "DES"),
        ("key_bits", 64),
        ("key_bits", "many"),
        ("token_hash", "sha-1"),
        ("key_lifetime_s", 1),
        ("messages_per_key", 0),
        ("token_lifetime_s", -1),
        ("grace_s", 10**9),
        ("challenge_every_s", -1),
        ("padding", "PKCS7"),
    ],
)
def test_bad_parameters_are_refused_by_name(world: World, parameter: str, value: object) -> None:
    before = world.realm.state().version
    with refused(CenterReason.PARAMETER) as refusal:
        ask.register_topic(world.asker("owner"), "orders", SCHEMA, parameters={parameter: value})
    assert f"parameter {parameter} " in refusal.caught.value.message
    assert world.realm.state().version == before


def test_one_topic_has_one_center(world: World, owner: Correspondent) -> None:
    world.realm.add_center("center-2")
    with refused(CenterReason.CENTER):
        ask.register_topic(owner, "orders", SCHEMA, center="center-2")
    told = set()
    for center in ("center", "center-2"):
        with refused(CenterReason.TAKEN) as refusal:
            ask.register_topic(world.asker("mallory"), "orders", SCHEMA, center=center)
        told.add(refusal.caught.value.message)
    assert len(told) == 1, "which center manages somebody else's topic is not said"
    with refused(CenterReason.TAKEN):
        ask.register_topic(owner, "orders", SCHEMA, parameters={"key_bits": 128})
    assert ask.register_topic(owner, "others", SCHEMA, center="center-2") == 1
    assert world.realm.state().topic("others").center == "center-2"
    # A center does nothing about another's topic, also for who may use it.
    with refused(CenterReason.ELSEWHERE) as refusal:
        ask.authorise(owner, "center-2", "orders", "alice", BOTH)
    assert refusal.caught.value.hint == "ask 'center'"


class Behind:
    """A realm as someone sees it who has not looked for a while."""

    def __init__(self, realm: Realm) -> None:
        self._realm, self._seen = realm, realm.state()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._realm, name)

    def state(self, version: int | None = None) -> RealmState:
        return self._seen


def test_of_two_centers_that_race_for_a_topic_one_gets_it(world: World) -> None:
    world.realm.add_center("center-2")
    body = Register("orders", bytes(16), SCHEMA, 1, "granted", {}).to_bytes()
    behind: Any = Behind(world.realm)
    late = KeyCenter(behind, world.realm.center("center-2"))
    world.center()[1].handle(world.opened("owner", Register.KIND, body), world.now)
    version = world.realm.state().version
    with pytest.raises(CenterRejected) as refusal:
        late.handle(world.opened("owner", Register.KIND, body), world.now)
    assert refusal.value.reason is CenterReason.CENTER
    assert world.realm.state().version == version
    late.close()


def test_asked_twice_is_done_once(world: World) -> None:
    _, center = world.center()
    body = Register("orders", bytes(16), SCHEMA, 1, "granted", {}).to_bytes()
    grant = Authorise("orders", "alice", frozenset(BOTH), until_us=world.now + DAY).to_bytes()
    asked = [(Register.KIND, body), (Authorise.KIND, grant), (Rotate.KIND, Rotate("orders", 1).to_bytes())]
    for kind, data in asked:
        first = center.handle(world.opened("owner", kind, data), world.now)
        version = world.realm.state().version
        again = center.handle(world.opened("owner", kind, data), world.now)
        assert first.kind == again.kind and world.realm.state().version == version
    assert world.realm.state().topic("orders").epoch == 2
    center.close()


def test_what_is_no_request_changes_nothing(world: World, owner: Correspondent) -> None:
    version = world.realm.state().version
    bodies = [b"", b"\xff", cbor.encode([]), cbor.encode({1: 2}), cbor.encode(["orders", -1]), bytes(99)]
    for kind in sorted(world.center()[1].kinds):
        for body in bodies:
            world.later(1)
            with refused(CenterReason.FORM):
                owner.ask_center("center", kind, body)
    assert world.realm.state().version == version


# --- authorising --------------------------------------------------------------------------------------


def told_to_strangers(world: World) -> dict[str, set[tuple[str, str, str, str | None]]]:
    """All that refusals say, by what is asked, but for the name: of a topic of somebody else's, and of none."""
    mallory = world.asker("mallory")
    acts: dict[str, Callable[[str], object]] = {
        "authorise": lambda t: ask.authorise(mallory, "center", t, "mallory", BOTH),
        "deauthorise": lambda t: ask.deauthorise(mallory, "center", t, "alice", BOTH),
        "rotate": lambda t: ask.rotate(mallory, "center", t, 1),
        "credentials": lambda t: credentials(mallory, t),
    }
    said: dict[str, set[tuple[str, str, str, str | None]]] = {act: set() for act in acts}
    for topic in ("orders", "nothing"):
        for name, act in acts.items():
            world.later(60)
            with pytest.raises(ServiceRefused) as caught:
                act(topic)
            error = caught.value
            hint = None if error.hint is None else error.hint.replace(topic, "TOPIC")
            said[name].add((error.service_code, error.reason, error.message.replace(topic, "TOPIC"), hint))
    return said


def test_only_the_owner_decides_and_others_learn_nothing(world: World, owner: Correspondent) -> None:
    version = world.realm.state().version
    said = told_to_strangers(world)
    assert all(len(answers) == 1 for answers in said.values()), "the words are those for one that does not exist"
    reasons = {act: reason for act, answers in said.items() for _, reason, _, _ in answers}
    assert reasons.pop("credentials") == CenterReason.RIGHT and set(reasons.values()) == {CenterReason.OWNER}
    assert world.realm.state().version == version


def test_a_center_that_looks_the_topic_up_first_is_an_oracle(
    world: World, owner: Correspondent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened variant."""
    owned, authorised = Rules._owned, Rules.authorised

    def known(name: str, state: RealmState) -> None:
        if name not in state.topics:
            raise CenterRejected(CenterReason.OWNER, f"there is no topic {name!r}")

    def telling_owned(rules: Rules, name: str, who: Entity, state: RealmState) -> Topic:
        known(name, state)
        return owned(rules, name, who, state)

    def telling_authorised(
        rules: Rules, topic: str, right: Right, who: Entity, state: RealmState, now_us: int
    ) -> Topic:
        known(topic, state)
        return authorised(rules, topic, right, who, state, now_us)

    monkeypatch.setattr(Rules, "_owned", telling_owned)
    monkeypatch.setattr(Rules, "authorised", telling_authorised)
    assert all(len(answers) == 2 for answers in told_to_strangers(world).values()), "she learns which one exists"


def test_rights_terms_and_templates_come_back_in_the_token(world: World, owner: Correspondent) -> None:
    until = world.now + 600 * SECOND
    ask.authorise(owner, "center", "orders", "alice", [Right.SUBSCRIBE], until_us=until, template="orders; price=7")
    alice = world.wallet("alice")
    held = alice.get("orders", Right.SUBSCRIBE)
    said = held.claims
    assert (said.subject, said.rights, str(said.template)) == ("alice", {Right.SUBSCRIBE}, "orders; price=7")
    assert said.expires_us == until and said.holder_key == bytes(alice.identity.signer.verify_key)
    state = world.realm.state()
    gate, topic = gates.gate_of(state), state.topic("orders")
    gate.verify(held.token, topic, world.now, Right.SUBSCRIBE, said.holder_key, holder="alice")
    assert alice.pair_key(held) == world.realm.broker().topic_keys(state, topic).pair_key("alice")
    with pytest.raises(Rejected, match="may not publish"):
        alice.get("orders", Right.PUBLISH)
    ask.deauthorise(owner, "center", "orders", "alice", [Right.SUBSCRIBE])
    with pytest.raises(Rejected, match="may not subscribe"):
        alice.get("orders", Right.SUBSCRIBE)


def credentials(asker: Correspondent, topic: str, right: Right = Right.SUBSCRIBE) -> Credentials:
    reply = asker.ask_center("center", WantCredentials.KIND, WantCredentials(topic, right).to_bytes())
    assert reply.message.kind == WantCredentials.KIND
    return Credentials.from_bytes(reply.message.body)


def test_who_may_not_gets_nothing_and_does_not_learn_what_exists(world: World, owner: Correspondent) -> None:
    mallory, told = world.asker("mallory"), []
    for topic in ("orders", "nothing"):
        with refused(CenterReason.RIGHT) as refusal:
            credentials(mallory, topic)
        told.append(refusal.caught.value.message.replace(topic, "TOPIC"))
    assert told[0] == told[1]
    ask.register_topic(mallory, "own", SCHEMA)
    for name in ("alic", "zzz"):
        with pytest.raises(ServiceRefused, match=f"there is no entity '{name}'") as caught:
            ask.authorise(mallory, "center", "own", name, BOTH)
        assert caught.value.hint is None, "no name that is nearly the same"
    ask.authorise(owner, "center", "orders", "mallory", [Right.PUBLISH])
    with refused(CenterReason.RIGHT):
        credentials(mallory, "orders", Right.SUBSCRIBE)


def test_a_right_counts_within_its_term(world: World, owner: Correspondent) -> None:
    begins, ends = world.now + 60 * SECOND, world.now + 120 * SECOND
    ask.authorise(owner, "center", "orders", "alice", BOTH, not_before_us=begins, until_us=ends)
    alice = world.asker("alice")
    with refused(CenterReason.TERM) as early:
        credentials(alice, "orders")
    assert "has not begun" in early.caught.value.message
    world.later(61)
    assert claims.parse(credentials(alice, "orders").token).claims.expires_us == ends
    world.later(60)
    with refused(CenterReason.TERM) as late:
        credentials(alice, "orders")
    assert "has ended" in late.caught.value.message


def test_who_was_revoked_is_not_even_answered(world: World, owner: Correspondent) -> None:
    ask.authorise(owner, "center", "orders", "alice", BOTH)
    alice = world.asker("alice")
    credentials(alice, "orders")
    world.realm.revoke_entity("alice")
    with pytest.raises(Unavailable, match="no answer"):
        credentials(alice, "orders")


def test_keys_that_the_registry_does_not_know_are_nobodys(world: World, owner: Correspondent) -> None:
    """A certificate is not enough: the name must be enrolled, with the keys that the certificate is about."""
    ask.authorise(owner, "center", "orders", "alice", BOTH)
    _, center = world.center()
    asked = world.opened("alice", WantCredentials.KIND, WantCredentials("orders", Right.PUBLISH).to_bytes())
    center.handle(asked, world.now)
    for other in (
        replace(asked.sender, name="stranger"),
        replace(asked.sender, verify_key=bytes(32)),
        replace(asked.sender, kem_public=bytes(32)),
    ):
        with pytest.raises(CenterRejected) as refusal:
            center.handle(replace(asked, sender=other), world.now)
        assert refusal.value.reason is CenterReason.SENDER
    center.close()


# --- attacks on the way -------------------------------------------------------------------------------


def envelope(
    world: World, sender: EnvelopeParty, kind: str, body: bytes, reply_topic: bytes
) -> tuple[bytes, ControlMessage]:
    message = ControlMessage.request(kind, body, reply_topic, world.now)
    center = world.realm.state().entity("center")
    return envelopes.seal(sender, world.realm.id, EnvelopeRecipient("center", center.kem_public), message), message


def test_a_replayed_request_is_not_handled_again(world: World, owner: Correspondent) -> None:
    service, center = world.center()
    plane = service._plane
    answers = plane.create(reply=True)
    data, _ = envelope(world, world.party("owner"), Rotate.KIND, Rotate("orders", 1).to_bytes(), answers)
    plane.post(service.topic, data)
    assert service.serve_once(world.now).counts.get("answered", 0) == 1
    state = world.realm.state()
    assert state.topic("orders").epoch == 2
    for _ in range(8):
        plane.post(service.topic, data)
        world.later(5)
        assert service.serve_once(world.now).counts.get("answered", 0) == 0
    assert world.realm.state().version == state.version
    replies = {post.data for post in plane.read(answers, 0)}
    assert len(replies) == 1, "who replays it gets the very same sealed answer, or none"
    world.later(3600)
    plane.post(service.topic, data)
    assert service.serve_once(world.now).counts.get("answered", 0) == 0 and world.realm.state().version == state.version
    service.close()
    center.close()


def test_an_answer_opens_for_who_asked_alone(world: World, owner: Correspondent) -> None:
    ask.authorise(owner, "center", "orders", "alice", BOTH)
    service, center = world.center()
    plane, alice, mallory = service._plane, world.party("alice"), world.party("mallory")
    answers = plane.create(reply=True)
    body = WantCredentials("orders", Right.SUBSCRIBE).to_bytes()
    data, question = envelope(world, alice, WantCredentials.KIND, body, answers)
    plane.post(service.topic, data)
    service.serve_once(world.now)
    (reply,) = [post.data for post in plane.read(answers, 0)]

    def opened(by: EnvelopeParty) -> Credentials:
        verify = verifier(world.realm)
        found = envelopes.open_reply(reply, by, world.realm.id, verify, world.now, question, "center")
        return Credentials.from_bytes(found.message.body)

    given = opened(alice)
    with pytest.raises(EnvelopeRejected) as refusal:
        opened(mallory)
    assert refusal.value.reason is EnvelopeReason.SEAL
    # Nor with her name on it: it is bound to alice's, and sealed to her key.
    with pytest.raises(EnvelopeRejected):
        opened(EnvelopeParty("alice", alice.certificate, mallory.signer, mallory.kem))
    # And if alice herself let her see it, the token works with alice's key, the key inside opens with alice's.
    state = world.realm.state()
    with pytest.raises(tokens.TokenRejected) as unheld:
        frame_key = state.entity("mallory").verify_key
        gates.gate_of(state).verify(given.token, state.topic("orders"), world.now, Right.SUBSCRIBE, frame_key)
    assert unheld.value.reason == tokens.TokenReason.HOLDER
    with pytest.raises(CannotOpen):
        mallory.kem.open(given.pair_keys[1], PAIR_KEY_INFO, place(state.topic("orders").id, 1, "alice"))
    service.close()
    center.close()


def test_nobody_asks_in_anothers_name(world: World, owner: Correspondent) -> None:
    ask.authorise(owner, "center", "orders", "alice", BOTH)
    service, center = world.center()
    plane, alice, mallory = service._plane, world.party("alice"), world.party("mallory")
    answers = plane.create(reply=True)
    body = WantCredentials("orders", Right.SUBSCRIBE).to_bytes()
    # Alice's certificate, mallory's signature; then alice's name and mallory's certificate.
    forged, hers = (
        EnvelopeParty("alice", alice.certificate, mallory.signer, mallory.kem),
        EnvelopeParty("alice", mallory.certificate, mallory.signer, mallory.kem),
    )
    plane.post(service.topic, envelope(world, forged, WantCredentials.KIND, body, answers)[0])
    assert service.serve_once(world.now).counts == {"signature": 1}
    world.later(10)
    data, question = envelope(world, hers, WantCredentials.KIND, body, answers)
    plane.post(service.topic, data)
    assert service.serve_once(world.now).counts == {"answered": 1}
    (reply,) = [post.data for post in plane.read(answers, 0)]
    verify = verifier(world.realm)
    said = envelopes.open_reply(reply, mallory, world.realm.id, verify, world.now, question, "center")
    with refused(CenterReason.RIGHT):
        unwrap(said)  # it is mallory's own request, whatever name she wrote on it
    service.close()
    center.close()


def test_ten_times_the_honest_rate_of_noise(world: World, owner: Correspondent) -> None:
    """Forged, replayed and oversized posts, ten to each honest one: honest ones are answered, the others counted."""
    ask.authorise(owner, "center", "orders", "alice", BOTH)
    service, center = world.center()
    plane = service._plane
    flood = ControlPlane(world.realm.paths.root, origin="somewhere else")
    answers, body = plane.create(reply=True), WantCredentials("orders", Right.SUBSCRIBE).to_bytes()
    alice, honest, noise, counted = world.party("alice"), 0, 0, 0
    seen: dict[str, int] = {}
    for _ in range(12):
        data, _ = envelope(world, alice, WantCredentials.KIND, body, answers)
        junk = [bytes(200), data[:-1] + b"x", b"\x00" * 300_000, data[::-1]]
        plane.post(service.topic, data)
        honest += 1
        for number in range(10):
            flood.post(service.topic, junk[number % len(junk)])
            noise += 1
        turn = service.serve_once(world.now)
        counted += turn.taken
        for word, count in turn.counts.items():
            seen[word] = seen.get(word, 0) + count
        world.later(0.1)
    assert seen["answered"] == honest and counted == honest + noise
    assert seen["origin-waits"] > noise // 2, "most of it was dropped before any cryptography"
    assert sum(seen.values()) == counted
    flood.close()
    service.close()
    center.close()


def test_a_flood_makes_it_move(world: World) -> None:
    planes = [ControlPlane(world.realm.paths.root, origin=f"somewhere {n}") for n in range(4)]
    with Running(world.realm, ["center"]) as running:
        running.start()
        (center,) = running.services
        before = center.service.topic
        world.later(60)
        for turn in range(600):
            planes[turn % 4].post(before, bytes(100))
            if turn % 200 == 199:
                running.turn()
        assert center.counts["moved"] == 1 and center.service.topic != before
        assert sum(center.counts.values()) == 601, "all of it was counted"
        with pytest.raises(NotFound):
            planes[0].post(before, b"more")
        world.realm.create_topic("quotes", SCHEMA, access="members")
        assert credentials(world.asker("alice"), "quotes").epoch == 1
    for plane in planes:
        plane.close()


def test_a_center_that_moved_is_found_again(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "market")
    realm.enrol_many(["owner", "alice"])
    realm.create_topic("quotes", SCHEMA, access="members")
    with served(realm, "center") as running, Correspondent(realm, realm.identity("alice")) as alice:
        service = running.services[0].service
        before = service.topic
        credentials(alice, "quotes")
        service.move(realm.clock())
        assert service.topic != before
        # Known by its old place still: the question is asked again at the new one.
        assert credentials(alice, "quotes").epoch == 1
    assert not (realm.paths.root / "control" / before.hex()).exists()


# --- epochs -------------------------------------------------------------------------------------------


def test_rotation_by_its_owner_and_when_it_is_due(world: World) -> None:
    owner = world.asker("owner")
    limits = {"key_lifetime_s": 3600, "messages_per_key": 1000}
    ask.register_topic(owner, "orders", SCHEMA, parameters=limits)
    ask.authorise(owner, "center", "orders", "alice", BOTH)
    alice = world.wallet("alice")
    first = alice.get("orders", Right.PUBLISH)
    assert ask.rotate(owner, "center", "orders", 1) == 2
    second = alice.get("orders", Right.PUBLISH)
    assert (first.epoch, second.epoch) == (1, 2) and sorted(second.given.pair_keys) == [1, 2]
    assert alice.pair_key(second) != alice.pair_key(second, 1) == alice.pair_key(first)
    with pytest.raises(ServiceRefused, match="no epoch 7"):
        ask.rotate(owner, "center", "orders", 7)

    _, center = world.center()
    assert center.rotate_due(world.now, {"orders": 999}) == {}
    assert "1000 messages of 1000" in center.rotate_due(world.now, {"orders": 1000})["orders"]
    world.later(3600)
    assert "3600 s old" in center.rotate_due(world.now, {})["orders"]
    assert center.rotate_due(world.now, {}) == {} and world.realm.state().topic("orders").epoch == 4
    assert alice.get("orders", Right.PUBLISH).epoch == 4
    center.close()


def test_a_center_leaves_anothers_topics_alone(world: World, owner: Correspondent) -> None:
    world.realm.add_center("center-2")
    _, other = world.center("center-2")
    world.later(400 * 86_400)
    assert other.rotate_due(world.now, {"orders": 2**40}) == {}
    other.close()


# --- challenges ---------------------------------------------------------------------------------------


@pytest.fixture
def challenging(world: World) -> Correspondent:
    owner = world.asker("owner")
    limits = {"challenge_every_s": 3600, "challenge_within_s": 30, "token_lifetime_s": 7200}
    ask.register_topic(owner, "orders", SCHEMA, parameters=limits)
    ask.authorise(owner, "center", "orders", "alice", BOTH)
    return owner


def challenge(asker: Correspondent) -> Challenge:
    reply = asker.ask_center("center", WantCredentials.KIND, WantCredentials("orders", Right.SUBSCRIBE).to_bytes())
    assert reply.message.kind == Challenge.KIND
    return Challenge.from_bytes(reply.message.body)


def prove(world: World, asker: Correspondent, asked: Challenge, by: str = "alice") -> Any:
    signed = requests.challenged(world.realm.id, "center", "orders", asked.nonce)
    proof = Proof("orders", asked.nonce, world.realm.identity(by).signer.sign(signed))
    return asker.ask_center("center", Proof.KIND, proof.to_bytes())


def test_a_challenge_is_answered_once_in_its_interval(world: World, challenging: Correspondent) -> None:
    alice = world.asker("alice")
    first = challenge(alice)
    assert challenge(alice) == first, "one at a time"
    prove(world, alice, first)
    assert prove(world, alice, first).message.kind == requests.DONE, "asked twice, proven once"
    assert credentials(alice, "orders").epoch == 1
    world.later(3599)
    credentials(alice, "orders")
    world.later(1)
    assert challenge(alice).nonce != first.nonce
    with refused(CenterReason.CHALLENGE):
        prove(world, alice, replace(first, nonce=bytes(32)))


def test_a_wallet_answers_by_itself(world: World, challenging: Correspondent) -> None:
    alice = world.wallet("alice")
    first = alice.get("orders", Right.PUBLISH)
    world.later(3600)
    assert alice.get("orders", Right.PUBLISH).token != first.token


def test_who_misses_three_gets_no_more_tokens_until_its_owner_says_so(world: World, challenging: Correspondent) -> None:
    alice = world.asker("alice")
    # Late; then signed by another's key; then not at all.
    late = challenge(alice)
    world.later(31)
    with refused(CenterReason.LATE):
        prove(world, alice, late)
    with refused(CenterReason.PROOF):
        prove(world, alice, challenge(alice), by="mallory")
    challenge(alice)
    world.later(31)
    with refused(CenterReason.SUSPENDED):
        credentials(alice, "orders")
    with refused(CenterReason.SUSPENDED):
        credentials(alice, "orders")
    # Also after the center was started anew.
    store = ProofRecords(world.realm.paths.root / "centers" / "center" / "standing.sqlite")
    assert store.get(world.realm.state().topic("orders").id, "alice").missed == MAX_MISSED
    store.close()
    ask.authorise(challenging, "center", "orders", "alice", BOTH)
    prove(world, alice, challenge(alice))
    credentials(alice, "orders")


def test_subscriptions_of_who_has_a_challenge_open_are_not_renewed(world: World, challenging: Correspondent) -> None:
    ask.authorise(challenging, "center", "orders", "bob", BOTH)
    for name in ("alice", "bob"):
        ask.subscribe(world.wallet(name), "orders", "price > 1", f"{name}-1")
    before = dict(world.realm.state().credentials_of("orders"))
    world.later(3601)
    world.wallet("bob", keep=False).get("orders", Right.SUBSCRIBE)
    ask.rotate(challenging, "center", "orders", 1)
    after = world.realm.state().credentials_of("orders")
    assert after["alice-1"] == before["alice-1"], "bob has proven himself, alice has not"
    assert after["bob-1"].epoch == 2


def test_a_handlers_misuse_is_an_answer(world: World, owner: Correspondent) -> None:
    with pytest.raises(ServiceRefused) as refusal:
        ask.authorise(owner, "center", "orders", "nobody", BOTH)
    assert refusal.value.service_code == "not-found" and "nobody" in refusal.value.message
    with pytest.raises(ServiceRefused, match="is no topic name"):
        ask.register_topic(owner, "/no name/", SCHEMA)
    _, center = world.center()
    with pytest.raises(Misuse, match="another than"):
        center._rules._issuer.center("center-2")
    center.close()


def test_a_service_that_runs_for_months_goes_by_its_newest_certificate(world: World, owner: Correspondent) -> None:
    """Certificates live 90 days: whoever keeps the one it started with is believed by nobody after that."""
    realm = world.realm
    ask.authorise(owner, "center", "orders", "alice", BOTH)
    with Running(realm, ["center"]) as running, Correspondent(realm, realm.identity("alice")) as alice:
        running.start()
        for _ in range(3):
            world.later(60 * 86_400)
            realm.renew_due()
            running.turn()
        with turning(running):
            assert credentials(alice, "orders").epoch == 1
