"""Group keys over the broker's control topic: a reader that cannot keep them all asks, as itself and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sealcast.clients.subscriber import Subscriber
from sealcast.control.at_hand import services_at_hand
from sealcast.control.correspondence import Correspondent
from sealcast.control.service import ServiceRefused
from sealcast.groupkeys.interface import Planner
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.model import Position
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.endpoint import key_answers, memory
from sealcast.protections.endpoint.client import CLIENT
from sealcast.protections.endpoint.key_answers import key_requests
from sealcast.protections.endpoint.key_requests import KEYS, KeyRequest
from sealcast.protections.endpoint.keyring import KEY_BYTES
from sealcast.protections.endpoint.missing import KeyAsker
from tests.pipeline.crowd import TOPIC, Crowd
from tests.trust.center_world import served

SUBSCRIBERS = 12


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    def planner(algorithm: str, subscribers: int) -> Planner:
        return Mosaic(subscribers, 40_000, tile=5)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "planner_for", planner)
        made = Crowd(tmp_path_factory.mktemp("asking"), SUBSCRIBERS)
        names, rng = list(made.wishes), made.rng
        made.want({g: rng.sample(names, rng.randint(2, SUBSCRIBERS)) for g in range(1, 20)})
        for _ in range(3):
            made.publish(rng.choices(range(1, 20), k=12))
            made.pump()
    yield made


def wanted(crowd: Crowd, name: str) -> list[Position]:
    return sorted(position for position, members in crowd.groups.items() if name in members)


def test_a_reader_with_little_memory_asks_over_the_control_topic(crowd: Crowd) -> None:
    asked, room = 0, 2 * KEY_BYTES
    for name in list(crowd.wishes)[:3]:
        with (
            CLIENT.key_asker(crowd.realm, TOPIC, name) as ask,
            Subscriber(crowd.realm, TOPIC, as_=name, from_=0, key_memory=room, ask=ask) as subscriber,
        ):
            assert [event.position for event in subscriber] == wanted(crowd, name)
            asked += subscriber.keys.asked
    assert asked > 0


def test_the_server_answers_key_requests_too(crowd: Crowd) -> None:
    name = next(iter(crowd.wishes))
    with (
        served(crowd.realm, "broker", more=lambda broker: key_requests(crowd.realm, broker)),
        KeyAsker(crowd.realm, TOPIC, name) as ask,
        Subscriber(crowd.realm, TOPIC, as_=name, from_=0, key_memory=2 * KEY_BYTES, ask=ask) as subscriber,
    ):
        assert [event.position for event in subscriber] == wanted(crowd, name)


def test_a_desk_that_looks_the_asker_up_first_says_who_is_enrolled(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened variant of what the next test asks for."""
    realm, (first, second, *_) = crowd.realm, list(crowd.wishes)
    about, signer = realm.state().topic(TOPIC), realm.identity(second).signer

    def answers() -> set[str]:
        told = set()
        for name in (first, "nobody"):
            asked = KeyRequest(name, about.id, about.epoch, 0, ((0, 0),), False, realm.clock()).signed(signer)
            with Correspondent(
                realm, realm.identity(second), at_hand=services_at_hand(realm, lambda b: key_requests(realm, b))
            ) as asker:
                with pytest.raises(ServiceRefused) as refusal:
                    asker.ask_broker("broker", KEYS, asked)
                told.add(refusal.value.message.replace(name, "NAME"))
        return told

    assert len(answers()) == 1
    monkeypatch.setattr(key_answers, "_key_of", lambda name, state: VerifyKey(state.entity(name).verify_key))
    assert len(answers()) == 2


def test_nobody_passes_on_anothers_request(crowd: Crowd) -> None:
    realm, (first, second, *_) = crowd.realm, list(crowd.wishes)
    about, now = realm.state().topic(TOPIC), realm.clock()
    positions = wanted(crowd, first)[:1]
    events = tuple((p.offset, p.row) for p in positions)
    hers = KeyRequest(first, about.id, about.epoch, positions[0].partition, events, False, now)
    data = hers.signed(realm.identity(first).signer)

    def ask(name: str, request: bytes) -> str:
        with Correspondent(
            realm, realm.identity(name), at_hand=services_at_hand(realm, lambda broker: key_requests(realm, broker))
        ) as asker:
            with pytest.raises(ServiceRefused) as refusal:
                asker.ask_broker("broker", KEYS, request)
            return refusal.value.message

    assert f"the key request is {first!r}'s, and {second!r} sent it" in ask(second, data)
    forged = hers.signed(realm.identity(second).signer)
    assert "not signed by" in ask(second, forged)
    nobodys = replace(hers, entity="nobody").signed(realm.identity(second).signer)
    assert ask(second, nobodys).replace("nobody", first) == ask(second, forged), "who is enrolled is not said"
    elsewhere = KeyRequest(first, bytes(16), 1, 0, events, False, now).signed(realm.identity(first).signer)
    assert "no such topic" in ask(first, elsewhere)
    assert "malformed" in ask(first, b"nothing")
