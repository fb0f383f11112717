"""The broker's desk: subscriptions by token, errors back with the reason, and nobody else's subscriptions touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sealcast.control import desk as desks
from sealcast.control import requests as ask
from sealcast.control.at_hand import services_at_hand
from sealcast.control.correspondence import Correspondent
from sealcast.control.desk import DeskReason, ListTopics, Renew, Subscribe, Topics, Unsubscribe, desk_service
from sealcast.control.envelopes import ProvenMessage
from sealcast.control.service import Answer, ServiceRefused
from sealcast.control.wallet import Wallet
from sealcast.errors import Rejected, TokenRejected, Unavailable
from sealcast.overlay.brokers import MoveHere, Node, requests_of
from sealcast.primitives.p256 import P256SigningKey
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.filter_texts import OwnerFilters
from sealcast.trust.realm.changes import Access, Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.tokens import gates
from sealcast.trust.tokens import token as tokens
from sealcast.trust.tokens.token import TokenReason
from sealcast.wire import cbor
from tests.trust.center_world import SCHEMA, SECOND, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.realm.create_topic("quotes", SCHEMA, access="members")
    made.realm.create_topic("others", SCHEMA, access="members")
    yield made
    made.close()


def refusal(act: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ServiceRefused) as caught:
        act()
    return caught.value.service_code, caught.value.reason


def subscribe(wallet: Wallet, token: bytes, filter: str = "price > 1", id: str = "mine", topic: str = "quotes") -> None:
    body = Subscribe(topic, filter, id, token).to_bytes()
    wallet.correspondent.ask_broker("broker", Subscribe.KIND, body)


def test_a_subscription_by_its_token(world: World) -> None:
    alice = world.wallet("alice")
    made = ask.subscribe(alice, "quotes", "price > 7")
    state = world.realm.state()
    stored = state.subscription("alice-1")
    text = OwnerFilters(world.realm.identity("alice")).text(state, stored)
    assert made == stored._replace(filter=text), "sealed by the desk, and to its owner, too"
    credential = state.credentials_of("quotes")["alice-1"]
    assert credential.token == alice.get("quotes", Right.SUBSCRIBE).token
    assert ask.subscribe(alice, "quotes", "price < 3").id == "alice-2", "the next number that was never given"
    # By the same id, topic and filter it is the same subscription, asked for once more.
    version = state.version
    subscribe(alice, credential.token, "price > 7", "alice-1")
    assert world.realm.state().version == version + 1, "of the two, the second subscription alone was new"


def test_bad_tokens_get_an_error_back_with_the_reason(world: World) -> None:
    alice, mallory = world.wallet("alice"), world.wallet("mallory")
    world.realm.revoke("quotes", "mallory", [Right.SUBSCRIBE])
    good = alice.get("quotes", Right.SUBSCRIBE).token
    publish_only = mallory.get("quotes", Right.PUBLISH).token
    version = world.realm.state().version
    cases = [
        (alice, b"", TokenReason.ABSENT, "quotes"),
        (alice, b"\x01" * 40_000, TokenReason.SIZE, "quotes"),
        (alice, b"not a token", TokenReason.ENCODING, "quotes"),
        (alice, good, TokenReason.AUDIENCE, "others"),
        (alice, good, TokenReason.AUDIENCE, "nothing"),
        (alice, good[:-1] + bytes([good[-1] ^ 1]), TokenReason.SIGNATURE, "quotes"),
        (mallory, good, TokenReason.HOLDER, "quotes"),
        (mallory, publish_only, TokenReason.RIGHT, "quotes"),
    ]
    for wallet, token, reason, topic in cases:
        assert refusal(lambda w=wallet, t=token, n=topic: subscribe(w, t, topic=n)) == ("token", str(reason))
    assert world.realm.state().version == version
    subscribe(alice, good)


def told(act: Callable[[], object], name: str) -> tuple[str, str, str, str | None]:
    """All that a refusal says, but for the name that was asked about."""
    with pytest.raises(ServiceRefused) as caught:
        act()
    error = caught.value
    return error.service_code, error.reason, error.message.replace(name, "NAME"), error.hint


def test_a_desk_that_says_what_it_knows_is_an_oracle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variant: one that looks the topic up, and says so, before it looks at the token."""
    world.realm.create_topic("closed", SCHEMA, access=Access.GRANTED)
    mallory = world.wallet("mallory")
    let_in = desks._let_in

    def telling(topic: str, token: bytes, sender: Any, state: RealmState, *more: Any) -> Any:
        if topic not in state.topics:
            raise desks.DeskRejected(DeskReason.SUBSCRIPTION, f"there is no topic {topic!r}")
        return let_in(topic, token, sender, state, *more)

    monkeypatch.setattr(desks, "_let_in", telling)
    answers = {
        told(lambda topic=topic: subscribe(mallory, b"noise", topic=topic), topic)  # type: ignore[misc]
        for topic in ("closed", "absent")
    }
    assert len(answers) == 2, "she learns which of the two exists"


def test_a_topic_that_does_not_exist_is_refused_as_one_that_is_closed(world: World) -> None:
    """Whatever token a stranger shows, and whatever it costs to refuse it: the checks are the same, in number too."""
    world.realm.create_topic("closed", SCHEMA, access=Access.GRANTED)
    mallory = world.wallet("mallory")
    good = mallory.get("quotes", Right.SUBSCRIBE).token
    claims = tokens.parse(good).claims
    signer = P256SigningKey.generate()
    made = {
        "none": b"",
        "noise": b"noise",
        "of another topic": good,
        "of another realm": tokens.mint(signer, replace(claims, realm=bytes(16)), "sha-256"),
        "signed by herself": tokens.mint(signer, replace(claims, topic=bytes(16)), "sha-256"),
    }
    for story, token in made.items():
        answers = set()
        for topic in ("closed", "absent"):
            answers.add(told(lambda token=token, topic=topic: subscribe(mallory, token, topic=topic), topic))  # type: ignore[misc]
            answers.add(
                told(lambda token=token, topic=topic: mallory.correspondent.ask_broker(  # type: ignore[misc]
                    "broker", Renew.KIND, Renew(topic, ("any",), token).to_bytes()), topic)
            )  # fmt: skip
        assert len(answers) == 1, story
    gate = gates.gate_of(world.realm.state())
    for topic in ("closed", "absent"):
        before = gate.tokens.verifications
        with pytest.raises(TokenRejected):
            if topic == "closed":
                about = world.realm.state().topic(topic)
                gate.verify(good, about, world.now, Right.SUBSCRIBE, claims.holder_key, holder="mallory")
            raise gate.refusal(good, topic)
        assert gate.tokens.verifications == before, "neither verifies a signature"


def test_a_subscription_that_ended_is_its_owners_alone(world: World) -> None:
    alice, mallory = world.wallet("alice"), world.wallet("mallory")
    subscribe(alice, alice.get("quotes", Right.SUBSCRIBE).token)
    ask.unsubscribe(alice.correspondent, "broker", ["mine"])
    assert ask.unsubscribe(alice.correspondent, "broker", ["mine"]) == world.realm.state().version
    answers = {
        told(lambda id=id: ask.unsubscribe(mallory.correspondent, "broker", [id]), id)  # type: ignore[misc]
        for id in ("mine", "never")
    }
    assert len(answers) == 1, "ended, and never there, are the same to others"


def test_a_move_on_a_closed_topic_is_refused_as_on_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.realm.create_topic("closed", SCHEMA, access=Access.GRANTED)

    def answers() -> set[tuple[str, str, str, str | None]]:
        here = services_at_hand(world.realm, lambda broker: requests_of(world.realm, broker))
        with Correspondent(world.realm, world.realm.identity("mallory"), at_hand=here) as mallory:
            return {
                told(lambda topic=topic: mallory.ask_broker("broker", MoveHere.KIND, MoveHere(topic).to_bytes()), topic)  # type: ignore[misc]
                for topic in ("closed", "absent")
            }

    assert len(answers()) == 1

    def telling(node: Node, request: Any, now_us: int) -> Any:
        """The weakened variant: one that looks the topic up first, and says so."""
        world.realm.state().topic(MoveHere.from_bytes(request.message.body).topic)
        return move(node, request, now_us)

    move = Node._move
    monkeypatch.setattr(Node, "_move", telling)
    assert len(answers()) == 2, "she learns which of the two exists"


def test_a_token_serves_in_its_time_and_epoch(world: World) -> None:
    alice = world.wallet("alice", keep=False)
    old = alice.get("quotes", Right.SUBSCRIBE).token
    world.realm.rotate("quotes")
    world.later(world.realm.state().topic("quotes").parameters.grace_s + 1)
    assert refusal(lambda: subscribe(alice, old)) == ("token", str(TokenReason.EPOCH_ENDED))
    now = alice.get("quotes", Right.SUBSCRIBE).token
    world.later(2 * 86_400)
    assert refusal(lambda: subscribe(alice, now)) == ("token", str(TokenReason.EXPIRED))


def test_a_revoked_subscriber_is_not_even_answered(world: World) -> None:
    alice = world.wallet("alice")
    token = alice.get("quotes", Right.SUBSCRIBE).token
    world.realm.revoke_entity("alice")
    with pytest.raises(Unavailable, match="no answer"):
        subscribe(alice, token)
    assert not list(world.realm.state().subscriptions_of("quotes"))


def test_a_right_that_was_taken_away_ends_what_the_token_says(world: World) -> None:
    alice = world.wallet("alice")
    token = alice.get("quotes", Right.SUBSCRIBE).token
    world.realm.revoke("quotes", "alice")
    with pytest.raises(ServiceRefused, match="may not subscribe"):
        subscribe(alice, token)


@pytest.mark.parametrize("filter", ["price >", "colour = 'red'", "price = 'x'", "x" * 70_000, ""])
def test_bad_filters_are_refused_before_anything_is_stored(world: World, filter: str) -> None:
    alice = world.wallet("alice")
    version = world.realm.state().version
    with pytest.raises(ServiceRefused) as caught:
        subscribe(alice, alice.get("quotes", Right.SUBSCRIBE).token, filter)
    assert caught.value.service_code in ("filter", "desk")
    assert world.realm.state().version == version


def test_ids_are_given_once(world: World) -> None:
    alice, mallory = world.wallet("alice"), world.wallet("mallory")
    token, hers = alice.get("quotes", Right.SUBSCRIBE).token, mallory.get("quotes", Right.SUBSCRIBE).token
    subscribe(alice, token)
    taken = ("desk", str(DeskReason.TAKEN))
    assert refusal(lambda: subscribe(mallory, hers)) == taken
    assert refusal(lambda: subscribe(alice, token, "price > 2")) == taken
    ask.unsubscribe(alice.correspondent, "broker", ["mine"])
    assert refusal(lambda: subscribe(alice, token)) == taken, "also after it ended"
    # Mallory sits on the next numbers of alice: alice gets one beyond them.
    for number in (1, 2, 3):
        subscribe(mallory, hers, id=f"alice-{number}")
    assert ask.subscribe(alice, "quotes", "price > 2").id == "alice-4"


def test_nobody_renews_or_ends_anothers_subscription(world: World) -> None:
    alice, mallory = world.wallet("alice"), world.wallet("mallory")
    subscribe(alice, alice.get("quotes", Right.SUBSCRIBE).token)
    subscribe(mallory, mallory.get("quotes", Right.SUBSCRIBE).token, id="hers")
    version = world.realm.state().version
    told = []
    for id in ("mine", "nobodys"):
        with pytest.raises(ServiceRefused) as caught:
            ask.unsubscribe(mallory.correspondent, "broker", ["hers", id])
        told.append(caught.value.message.replace(id, "ID"))
        with pytest.raises(ServiceRefused) as caught:
            ask.renew_subscriptions(mallory, "quotes", [id])
        told.append(caught.value.message.replace(id, "ID"))
    assert len(set(told)) == 1 and world.realm.state().version == version
    after = ask.unsubscribe(alice.correspondent, "broker", ["mine"])
    assert after == world.realm.state().version == version + 1
    assert ask.unsubscribe(alice.correspondent, "broker", ["mine"]) == after, "asked twice, ended once"


def test_a_subscription_is_renewed_by_a_later_token(world: World) -> None:
    alice = world.wallet("alice")
    subscribe(alice, alice.get("quotes", Right.SUBSCRIBE).token)
    before = world.realm.state().credentials_of("quotes")["mine"]
    world.later(43_200)
    version = ask.renew_subscriptions(alice, "quotes", ["mine"])
    after = world.realm.state().credentials_of("quotes")["mine"]
    assert after.expires_us >= before.expires_us + 43_199 * SECOND
    assert ask.renew_subscriptions(alice, "quotes", ["mine"]) == version


def test_how_many_subscriptions_one_may_have(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desks, "MAX_SUBSCRIPTIONS_EACH", 2)
    alice, bob = world.wallet("alice"), world.wallet("bob")
    for _ in range(2):
        ask.subscribe(alice, "quotes", "price > 1")
    assert refusal(lambda: ask.subscribe(alice, "quotes", "price > 1")) == ("desk", str(DeskReason.QUOTA))
    ask.subscribe(bob, "quotes", "price > 1")


def test_how_long_the_filters_of_one_may_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them together: a few thousand of the longest would keep a broker busy for hours."""
    alice, bob = world.wallet("alice"), world.wallet("bob")
    first = ask.subscribe(alice, "quotes", "price > 1")
    stored = len(world.realm.state().subscription(first.id).filter)
    monkeypatch.setattr(desks, "MAX_CHARACTERS_EACH", 3 * stored)
    for _ in range(2):
        ask.subscribe(alice, "quotes", "price > 1")
    assert refusal(lambda: ask.subscribe(alice, "quotes", "price > 1")) == ("desk", str(DeskReason.QUOTA))
    ask.subscribe(bob, "quotes", "price > 1")


def test_a_broker_that_has_just_come_gets_the_list_of_secure_topics(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desks, "MAX_IDS", 2)
    world.realm.create_topic("third", SCHEMA, access="members")
    world.realm.add_broker("newcomer")
    path = world.realm.paths.broker_key_of("newcomer")

    def listed(asker: Correspondent, after: str) -> Topics:
        reply = asker.ask_broker("broker", ListTopics.KIND, ListTopics(after).to_bytes())
        return Topics.from_bytes(reply.message.body)

    here = services_at_hand(world.realm)
    with Correspondent(world.realm, BrokerSecrets.load(path).identity, at_hand=here) as newcomer:
        first, rest = listed(newcomer, ""), listed(newcomer, "quotes")
    state = world.realm.state()
    assert (first.more, rest.more) == (True, False)
    assert first.page + rest.page == tuple((n, state.topic(n).id, "center", 1) for n in ("others", "quotes", "third"))
    alice = world.asker("alice")
    assert refusal(lambda: listed(alice, "")) == ("desk", str(DeskReason.ROLE))


def test_what_is_no_request_changes_nothing(world: World) -> None:
    alice, version = world.asker("alice"), world.realm.state().version
    bodies = [b"", b"\xff", cbor.encode([]), cbor.encode([[]]), cbor.encode([["a", "a"]]), cbor.encode([[1]])]
    for kind in (Subscribe.KIND, Renew.KIND, Unsubscribe.KIND):
        for body in bodies:
            world.later(1)
            assert refusal(lambda k=kind, b=body: alice.ask_broker("broker", k, b)) == ("desk", str(DeskReason.FORM))
    assert world.realm.state().version == version


def test_requests_come_back_as_they_were_written() -> None:
    for wanted in (Subscribe("quotes", "price > 1", "mine", b"token"), Renew("quotes", ("a", "b"), b"token")):
        assert type(wanted).from_bytes(wanted.to_bytes()) == wanted
    assert Unsubscribe.from_bytes(Unsubscribe(("a",)).to_bytes()) == Unsubscribe(("a",))


def test_a_desk_learns_further_kinds_of_request(world: World) -> None:
    def echo(request: ProvenMessage, now_us: int, /) -> Answer:
        if not request.message.body:
            raise Rejected("nothing to echo")
        return Answer("echo", request.message.body)

    with Correspondent(
        world.realm, world.realm.identity("alice"), at_hand=services_at_hand(world.realm, lambda name: {"echo": echo})
    ) as alice:
        assert alice.ask_broker("broker", "echo", b"hello").message.body == b"hello"
        assert refusal(lambda: alice.ask_broker("broker", "echo", b"")) == ("rejected", "")
    service, desk = desk_service(world.realm, world.realm.broker(), advertised=False)
    assert "echo" not in desk.kinds
    service.close()
