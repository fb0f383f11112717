"""What brokers send each other over a gateway: frames that they forward, filters that they post, hops to be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast import Event, Publisher
from sealcast.model.protection import protection_of
from sealcast.protections.layered.node import HOPS
from sealcast.protections.port import client_side
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.wire import frame, posts, taken
from sealcast.wire.taken import TakenHeader
from tests.clients.layered_pump import pump as pump_layered
from tests.clients.pump import pump
from tests.gateway.world import SCHEMA, TOPIC, RunningGateway, make_realm, running

FORWARDED = "/v1/brokers/broker/forwarded"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    realm = make_realm(tmp_path_factory.mktemp("brokers") / "market")
    realm.add_broker("paris", [TOPIC])
    realm.add_broker("idle")
    realm.create_topic("blind", SCHEMA, protection=protection_of("layered"), access="members")
    with running(realm, tmp_path_factory.mktemp("clients")) as made:
        yield made


@pytest.fixture(scope="module")
def frames(gateway: RunningGateway) -> list[bytes]:
    """What a publisher brought to the other broker."""
    with Publisher(gateway.realm, TOPIC, "nyse", broker="paris") as publisher:
        for price in (1, 2, 3):
            publisher.publish([Event({"price": price}, b"x")])
    with gateway.realm.frames(TOPIC, "paris") as log:
        return [record.data for record in log.partition(log.own[0]).read(0)]


def block(realm: Realm, broker: str) -> int:
    state = realm.state()
    return state.broker_number(broker) * state.topic(TOPIC).partitions


def test_frames_are_taken_over_each_once_and_in_order(gateway: RunningGateway, frames: list[bytes]) -> None:
    client, partition = gateway.client("paris"), block(gateway.realm, "paris")
    asked = f"{FORWARDED}?topic={TOPIC}&partition={partition}"
    assert client.ask("GET", asked).value == {"next": 0, "through": 0, "index": 0}
    body = {"topic": TOPIC, "partition": partition, "frames": [[4, frames[0]], [7, frames[1]]]}
    assert client.ask("POST", FORWARDED, body).value == {"next": 8}
    assert client.ask("POST", FORWARDED, body).value == {"next": 8}, "sent twice, it counts once"
    body["frames"] = [[7, frames[1]], [9, frames[2]]]
    assert client.ask("POST", FORWARDED, body).value == {"next": 10}
    assert client.ask("GET", f"{asked}&taken=2&origin=9").value == {"next": 10, "through": 8, "index": 2}
    assert client.ask("GET", f"{asked}&taken=4").status == 400
    with gateway.realm.frames(TOPIC, "broker") as log:
        assert [record.data for record in log.forwarded(partition).read(0)] == frames
    body["frames"] = [[12, frames[0]], [11, frames[1]]]
    assert client.ask("POST", FORWARDED, body).status == 400, "out of order"
    pump(gateway.realm, TOPIC)


def test_frames_are_forwarded_by_their_broker_alone(gateway: RunningGateway, frames: list[bytes]) -> None:
    own, partition = block(gateway.realm, "broker"), block(gateway.realm, "paris")
    body = {"topic": TOPIC, "partition": partition, "frames": [[100, frames[0]]]}
    for name in ("nyse", "alice", "idle"):
        assert gateway.client(name).ask("POST", FORWARDED, body).status == 403, name
        assert gateway.client(name).ask("GET", f"{FORWARDED}?topic={TOPIC}&partition={partition}").status == 403
    assert gateway.client().ask("POST", FORWARDED, body).status == 401
    paris = gateway.client("paris")
    assert paris.ask("POST", FORWARDED, body | {"partition": own}).status == 403, "of another's block"
    assert paris.ask("POST", FORWARDED, body | {"partition": 999}).status == 404
    assert paris.ask("GET", f"{FORWARDED}?topic={TOPIC}&partition=999").status == 404
    assert paris.ask("POST", FORWARDED, body | {"topic": "blind"}).status == 403
    assert paris.ask("POST", FORWARDED, body | {"frames": [[100, b"no frame"]]}).status == 422
    header = frame.parse(frames[0]).header
    assert header.topic == gateway.realm.state().topic(TOPIC).id


def test_filters_are_posted_by_their_sender_to_the_broker_that_they_are_for(gateway: RunningGateway) -> None:
    realm, at = gateway.realm, "/v1/topics/blind/brokers/blind-node-1/posts"
    log = realm.paths.topic("blind", "blind-node-1").filter_posts
    with (
        Publisher(realm, "blind", "nyse"),
        client_side(realm.state().topic("blind").protection).interests(realm, "blind", "alice") as interests,
    ):
        interests.add("price > 1")
        pump_layered(realm, "blind")
    made = list(_posted(log))
    sender = posts.parse(made[0]).header.sender
    assert sender in realm.state().overlay("blind").parents
    client = gateway.client(sender)
    assert client.ask("POST", at, {"posts": made}).status == 204
    assert list(_posted(log)) == made * 2, "the keeper takes each number once"
    assert gateway.client("nyse").ask("POST", at, {"posts": made}).status == 403, "another's"
    assert client.ask("POST", at.replace("node-1", "node-3"), {"posts": made}).status == 400, "for another"
    assert client.ask("POST", f"/v1/topics/{TOPIC}/brokers/broker/posts", {"posts": made}).status == 400
    assert client.ask("POST", at, {"posts": [b"no post"]}).status == 422
    assert gateway.client().ask("POST", at, {"posts": made}).status == 401
    assert list(_posted(log)) == made * 2
    pump_layered(realm, "blind")


def test_what_a_broker_took_is_stated_by_itself_to_the_broker_that_it_took_from(gateway: RunningGateway) -> None:
    realm, at = gateway.realm, "/v1/topics/blind/brokers/blind-node-1/posts"
    header = TakenHeader(realm.state().topic("blind").id, "blind-node-1", "blind-node-2", 1, bytes(32))
    made = [taken.encode(header, realm.broker("blind-node-2").identity.signer.sign(taken.to_be_signed(header)))]
    client = gateway.client("blind-node-2")
    assert client.ask("POST", at, {"posts": made}).status == 204
    assert gateway.client("blind-node-3").ask("POST", at, {"posts": made}).status == 403, "another's"
    assert client.ask("POST", at.replace("node-1", "node-3"), {"posts": made}).status == 400, "for another"
    assert client.ask("POST", at, {"posts": [made[0][:-1]]}).status == 422
    pump_layered(realm, "blind")


def _posted(directory: Path) -> Iterator[bytes]:
    from sealcast.log.embedded import EmbeddedLog

    log = EmbeddedLog(directory, read_only=True)
    yield from (record.data for record in log.read(0))


def test_hops_are_read_by_brokers_and_by_whom_they_are_for(gateway: RunningGateway) -> None:
    realm, at = gateway.realm, "/v1/topics/blind/brokers/blind-node-1/hops"
    with Publisher(realm, "blind", "nyse") as publisher:
        publisher.publish([Event({"price": 1}, b"x")])
    pump_layered(realm, "blind")
    page = gateway.client("blind-node-2").ask("GET", f"{at}/ledger?from=0").value
    assert page["end"] > 0 and page["records"][0][0] == 0
    step = StepName(str(realm.paths.root), "blind", "blind-node-1", HOPS).open()
    names = [ref.name for ref in step.ledger.at(0).entry.pieces]
    for name in names:
        got = gateway.client("blind-node-2").ask("GET", f"{at}/pieces/{name}")
        assert got.status == 200 and got.raw == step.pieces.bytes_of(name)
        assert gateway.client("mallory").ask("GET", f"{at}/pieces/{name}").status == 403
    assert gateway.client().ask("GET", f"{at}/ledger?from=0").status == 401
