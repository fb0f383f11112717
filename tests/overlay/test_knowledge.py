"""What a broker knows of secure topics: each rule, whoever lies, and over control topics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.control.at_hand import services_at_hand
from sealcast.control.correspondence import Correspondent
from sealcast.control.service import ServiceRefused
from sealcast.errors import Corrupt, Rejected, TokenRejected
from sealcast.log.embedded import EmbeddedLog
from sealcast.model import Schema
from sealcast.overlay import brokers, knowledge
from sealcast.overlay.brokers import Node
from sealcast.overlay.knowledge import Action, Knowledge, Learnt, Source, TopicMessage
from sealcast.overlay.memory import KnowledgeStore
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.certificate import Certificate
from sealcast.trust.certificates.revocation import RevocationStore
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right
from sealcast.trust.tokens.claims import Token, parse
from sealcast.wire import cbor
from tests.effort import examples

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})
PLAIN, OTHER = bytes(15) + b"\1", bytes(15) + b"\2"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    made = Realm.create(tmp_path_factory.mktemp("knowledge") / "realm")
    made.create_topic("quotes", SCHEMA, access="members")
    made.add_broker("knowing", ["quotes"])
    made.add_broker("ignorant")
    made.enrol_many(["nyse", "alice"])
    return made


@pytest.fixture(scope="module")
def broker(realm: Realm) -> Certificate:
    return certificates.parse(realm.state().entity("knowing").certificate)


@pytest.fixture(scope="module")
def entity(realm: Realm) -> Certificate:
    return certificates.parse(realm.state().entity("alice").certificate)


@pytest.fixture(scope="module")
def token(realm: Realm) -> Token:
    return parse(realm.token("quotes", "nyse", Right.PUBLISH))


def knowing(*topics: bytes) -> Knowledge:
    return knowledge.learn(Knowledge(), topics, Learnt(Source.SERVED, "me")).knowledge


# --- the rules ----------------------------------------------------------------------------------------


def test_the_first_valid_token_teaches_and_ends_plain_subscriptions(token: Token) -> None:
    topic = token.claims.topic
    known = knowledge.subscribe(Knowledge(), topic, "alice").knowledge
    message = TopicMessage(topic, b"frame", b"token")
    step = knowledge.take(known, message, "b1", token)
    assert step.knowledge.secure[topic] == Learnt(Source.TOKEN, "center")
    assert step.actions == (Action.ADMIT,) and not step.knowledge.plain
    again = knowledge.take(step.knowledge, TopicMessage(topic, b""), None, None)
    assert again.actions == (Action.DISCARD,), "what came before the token would have been delivered to alice"


def test_a_token_for_another_topic_teaches_nothing(token: Token) -> None:
    step = knowledge.take(Knowledge(), TopicMessage(PLAIN, b"", b"token"), "b1", token)
    assert step == knowledge.Outcome(Knowledge(), (Action.DISCARD,))


def test_an_invalid_token_is_not_taken_for_none() -> None:
    known = knowledge.subscribe(Knowledge(), PLAIN, "alice").knowledge
    step = knowledge.take(known, TopicMessage(PLAIN, b"", b"forged"), "b1", None)
    assert step.knowledge == known and step.actions == (Action.DISCARD,)


def test_without_a_token_on_a_plain_topic() -> None:
    known, message = knowledge.subscribe(Knowledge(), PLAIN, "alice").knowledge, TopicMessage(PLAIN, b"x")
    assert knowledge.take(known, message, None, None).actions == (Action.DELIVER, Action.PROPAGATE)
    assert knowledge.take(known, message, "b1", None).actions == (Action.DELIVER,), "only origins forward"


def test_without_a_token_on_a_secure_topic_the_sending_broker_is_told() -> None:
    message = TopicMessage(PLAIN, b"x")
    assert knowledge.take(knowing(PLAIN), message, "b1", None).actions == (Action.DISCARD, Action.REFUSE)
    assert knowledge.take(knowing(PLAIN), message, None, None).actions == (Action.DISCARD,)


def test_lists_and_errors_are_taken_from_brokers_only(broker: Certificate, entity: Certificate) -> None:
    known = knowledge.subscribe(Knowledge(), PLAIN, "alice").knowledge
    for step in (knowledge.learn_list(known, broker, [PLAIN]), knowledge.learn_error(known, broker, PLAIN)):
        assert step.knowledge.is_secure(PLAIN) and step.knowledge.plain == {}
    with pytest.raises(Rejected, match="no broker"):
        knowledge.learn_list(known, entity, [PLAIN])
    with pytest.raises(Rejected, match="no broker"):
        knowledge.learn_error(known, entity, PLAIN)


def test_a_subscription_without_a_token_needs_one_where_the_topic_is_secure() -> None:
    with pytest.raises(TokenRejected) as caught:
        knowledge.subscribe(knowing(PLAIN), PLAIN, "alice")
    assert caught.value.reason == "absent"
    known = knowledge.subscribe(Knowledge(), PLAIN, "alice").knowledge
    assert knowledge.subscribe(known, PLAIN, "alice").knowledge == known
    assert knowledge.unsubscribe(known, PLAIN, "alice").knowledge == Knowledge()


def test_a_broker_that_lies_makes_only_so_many_topics_secure(
    broker: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge, "MAX_CLAIMS_EACH", 10)
    topics = [os.urandom(16) for _ in range(30)]
    known = knowledge.learn_list(Knowledge(), broker, topics).knowledge
    known = knowledge.learn_error(known, broker, OTHER).knowledge
    assert len(known.secure) == 10 and not known.is_secure(OTHER)
    assert len(knowledge.learn(known, topics, Learnt(Source.SERVED, "me")).knowledge.secure) == 30


few = st.sampled_from([bytes(15) + bytes([n]) for n in range(4)])


@examples(25, soak=100)
@given(st.lists(st.tuples(st.sampled_from(("list", "error", "served", "subscribe", "plain", "forged")), few)))
def test_what_is_secure_stays_secure_and_has_no_plain_subscriptions(
    broker: Certificate, said: list[tuple[str, bytes]]
) -> None:
    known, oracle = Knowledge(), set[bytes]()
    for what, topic in said:
        match what:
            case "list":
                known = knowledge.learn_list(known, broker, [topic]).knowledge
            case "error":
                known = knowledge.learn_error(known, broker, topic).knowledge
            case "served":
                known = knowledge.learn(known, [topic], Learnt(Source.SERVED, "me")).knowledge
            case "subscribe" if topic not in oracle:
                known = knowledge.subscribe(known, topic, "alice").knowledge
            case "plain" | "forged":
                token = b"" if what == "plain" else b"x"
                step = knowledge.take(known, TopicMessage(topic, b"", token), "b1", None)
                delivered = Action.DELIVER in step.actions
                assert not (delivered and (topic in oracle or token))
                known = step.knowledge
        oracle |= {topic} if what in ("list", "error", "served") else set()
        assert set(known.secure) == oracle and not oracle & set(known.plain)


def test_what_was_learnt_survives_and_damage_is_noticed(tmp_path: Path) -> None:
    store = KnowledgeStore(tmp_path / "knowledge")
    store.update(lambda known: knowledge.subscribe(known, PLAIN, "alice"))
    store.update(lambda known: knowledge.subscribe(known, OTHER, "alice"))
    store.update(lambda known: knowledge.learn(known, [PLAIN], Learnt(Source.TOKEN, "center")))
    expected = Knowledge({PLAIN: Learnt(Source.TOKEN, "center")}, {OTHER: ("alice",)})
    assert KnowledgeStore(tmp_path / "knowledge").read() == expected
    raw = bytearray(store.path.read_bytes())
    raw[3] ^= 1
    store.path.write_bytes(raw)
    with pytest.raises(Corrupt, match="learnt again"):
        store.read()


# --- over control topics ------------------------------------------------------------------------------


@pytest.fixture
def alice(realm: Realm) -> Iterator[Correspondent]:
    more = {name: Node(realm, name) for name in ("knowing", "ignorant")}
    with Correspondent(
        realm, realm.identity("alice"), at_hand=services_at_hand(realm, lambda name: more[name].more())
    ) as made:
        yield made
    for node in more.values():
        node.close()


def test_a_newcomer_takes_over_the_list(realm: Realm) -> None:
    realm.add_broker("newcomer")
    with Node(realm, "newcomer") as node:
        assert not node.known.secure
        assert node.join("knowing") == len(realm.state().topics)
        assert node.known.secure[realm.state().topic("quotes").id] == Learnt(Source.LIST, "knowing")
    with Node(realm, "newcomer") as again:
        assert again.join("knowing") == 0


def test_an_ignorant_broker_learns_from_the_error_of_a_knowing_one(realm: Realm, alice: Correspondent) -> None:
    topic = realm.state().topic("quotes").id
    alice.ask_broker("ignorant", brokers.SUBSCRIBE, cbor.encode([topic]))
    with Node(realm, "ignorant") as node:
        assert "knowing" in node.peers() and not node.known.is_secure(topic)
        alice.ask_broker("ignorant", brokers.PlainPublish.KIND, cbor.encode([topic, b"1"]))
        assert node.known.secure[topic].source is Source.ERROR
        assert [r.data for r in EmbeddedLog(node.plain_log(topic)).read(0)] == [b"1"], "nobody knew better yet"
        with pytest.raises(ServiceRefused, match="secure"):
            alice.ask_broker("ignorant", brokers.PlainPublish.KIND, cbor.encode([topic, b"2"]))
        with pytest.raises(ServiceRefused) as caught:
            alice.ask_broker("ignorant", brokers.SUBSCRIBE, cbor.encode([topic]))
        assert caught.value.reason == "absent"
        assert topic not in node.known.plain, "the subscription without a token is gone"
        assert len(list(EmbeddedLog(node.plain_log(topic)).read(0))) == 1


def test_plain_topics_reach_every_broker(realm: Realm, alice: Correspondent) -> None:
    topic = os.urandom(16)
    alice.ask_broker("knowing", brokers.SUBSCRIBE, cbor.encode([topic]))
    alice.ask_broker("ignorant", brokers.PlainPublish.KIND, cbor.encode([topic, b"hello"]))
    with Node(realm, "knowing") as node:
        assert [r.data for r in EmbeddedLog(node.plain_log(topic)).read(0)] == [b"hello"]


def test_a_real_token_teaches_and_a_revoked_ones_does_not(realm: Realm) -> None:
    realm.add_center("second")
    realm.create_topic("bonds", SCHEMA, center="second", access="members")
    topic, token = realm.state().topic("bonds").id, realm.token("bonds", "nyse", Right.PUBLISH)
    with Node(realm, "ignorant") as node:
        node.store.path.unlink(missing_ok=True)
        bent = bytearray(token)
        bent[-1] ^= 1
        assert node.publish(TopicMessage(topic, b"", bytes(bent))) == (Action.DISCARD,) and not node.known.secure
        realm.revoke_entity("second")
        assert node.publish(TopicMessage(topic, b"", token)) == (Action.DISCARD,) and not node.known.secure
        good = realm.token("quotes", "nyse", Right.PUBLISH)
        quotes = realm.state().topic("quotes").id
        assert node.publish(TopicMessage(quotes, b"", good)) == (Action.ADMIT,)
        assert node.known.secure == {quotes: Learnt(Source.TOKEN, "center")}


def test_an_entity_is_no_broker(alice: Correspondent) -> None:
    with pytest.raises(ServiceRefused, match="no broker"):
        alice.ask_broker("knowing", brokers.Forwarded.KIND, cbor.encode([PLAIN, b"", b""]))


def test_a_restart_fetches_the_new_revocation_lists_and_no_other(realm: Realm) -> None:
    realm.enrol_many(["x", "y", "z"])
    for name in ("x", "y"):
        realm.revoke_entity(name)
    with Node(realm, "knowing") as node:
        assert node.fetched.after == realm.state().revoked.number
    with Node(realm, "knowing") as again:
        assert (again.fetched.lists, again.fetched.bytes) == (0, 0)
    realm.revoke_entity("z")
    with Node(realm, "knowing") as later:
        assert later.fetched.lists == 1 and not later.fetched.whole
    fresh = RevocationStore(realm.paths.revocations("never"), realm.trust())
    assert fresh.update(realm.state()).lists == realm.state().revoked.number
