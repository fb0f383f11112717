"""What a publisher leaves in the log, read back with the broker's keys: what was published, signed and sealed."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from sealcast.clients.publisher import EVENTS_PER_FRAME, Publisher, partition_of
from sealcast.control.wallet import Wallet
from sealcast.errors import EventRejected, Misuse, NotFound, Rejected
from sealcast.log.embedded import EmbeddedTopic
from sealcast.model import Event, Position, Schema
from sealcast.primitives import merkle
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.deployment import Realm
from sealcast.trust.keys import frames as keys
from sealcast.trust.realm.changes import Right
from sealcast.trust.tokens import gates
from sealcast.wire import frame
from sealcast.wire.records import RecordCodec
from tests.children import forked, start

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 8},
            {"name": "price", "type": "decimal", "min": "0", "max": "1000", "step": "0.01"},
            {"name": "at", "type": "timestamp"},
        ]
    }
)


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    made = Realm.create(tmp_path / "realm")
    made.create_topic("quotes", SCHEMA, partitions=3, access="members")
    made.create_topic("orders", SCHEMA, access="granted")
    made.enrol_many(["nyse", "nasdaq", "mallory"])
    return made


def event(price: object, payload: bytes = b"") -> Event:
    return Event({"symbol": "IBM", "price": price}, payload, "text/plain")


def opened(realm: Realm, topic: str) -> list[tuple[Position, str, int, dict[str, object], bytes]]:
    """Every event in the log, as the broker would open it: independent of the client's own code."""
    state = realm.state()
    about, broker = state.topic(topic), realm.broker()
    codec, found = RecordCodec(about.schema), []
    log = EmbeddedTopic(realm.paths.topic(topic).frames_root, read_only=True)
    for partition in range(log.partitions):
        for record in log.partition(partition).read(0):
            got = frame.parse(record.data)
            header = got.header
            assert (header.topic, header.epoch, header.schema) == (about.id, about.epoch, about.schema.digest)
            assert VerifyKey(state.entity(header.publisher).verify_key).verify(got.to_be_signed, got.signature)
            pair = broker.topic_keys(state, about).pair_key(header.publisher)
            key = keys.frame_key(pair, header.boot, keys.associated_data(about.id, about.epoch))
            messages = frame.decode_body(
                key.open(got.nonce, got.commitment, got.ciphertext, got.body_aad), header.count
            )
            assert merkle.root(merkle.build(merkle.hash_messages(messages)), header.count) == header.root
            for row, message in enumerate(messages):
                values, payload, _ = codec.decode_one(message)
                position = Position(partition, record.offset, row)
                found.append((position, header.publisher, header.sequence + row, values, payload))
    return found


def test_what_was_published_is_what_the_broker_opens(realm: Realm) -> None:
    when = datetime(2026, 11, 15, 12, tzinfo=UTC)
    with Publisher(realm, "quotes", as_="nyse") as publisher:
        first = publisher.publish([event("1.00", b"a"), event(2, b"b"), event(Decimal("3.25"), b"c")])
        last = publisher.publish_one(Event({"at": when}, b"\x00\xff"))
    partition = partition_of("nyse", 3)
    assert first == [Position(partition, 0, row) for row in range(3)]
    assert last == Position(partition, 1, 0)
    got = opened(realm, "quotes")
    assert [(p, s, v["price"], d) for p, _, s, v, d in got] == [
        (first[0], 0, Decimal("1.00"), b"a"),
        (first[1], 1, Decimal("2.00"), b"b"),
        (first[2], 2, Decimal("3.25"), b"c"),
        (last, 3, None, b"\x00\xff"),
    ]
    assert got[-1][3]["at"] == when


def test_nothing_readable_lies_in_the_log(realm: Realm) -> None:
    with Publisher(realm, "quotes", as_="nyse") as publisher:
        publisher.publish([Event({"symbol": "CANARY"}, b"canary in the payload", "text/canary")])
    for path in (realm.paths.root / "topics").rglob("*"):
        assert not path.is_file() or b"canary" not in path.read_bytes().lower()


def test_frames_are_bounded_and_order_is_kept(realm: Realm) -> None:
    count = 2 * EVENTS_PER_FRAME + 7
    with Publisher(realm, "quotes", as_="nyse") as publisher:
        positions = publisher.publish(event(Decimal(i) / 100) for i in range(count))
        big = publisher.publish([event(1, bytes(900_000)) for _ in range(6)])
    assert positions == sorted(positions)
    assert {p.offset for p in positions} == {0, 1, 2}
    assert max(p.row for p in positions) == EVENTS_PER_FRAME - 1
    assert len({p.offset for p in big}) > 1, "payloads count, not only events"
    got = [v["price"] for _, _, _, v, _ in opened(realm, "quotes")][:count]
    assert got == [Decimal(i) / 100 for i in range(count)]
    assert [s for _, _, s, _, _ in opened(realm, "quotes")] == list(range(count + 6))


def test_all_or_none_when_one_is_off_the_schema(realm: Realm) -> None:
    with Publisher(realm, "quotes", as_="nyse") as publisher:
        with pytest.raises(EventRejected, match=r"event 1: attribute 'price': 1.005 is off the grid") as refusal:
            publisher.publish([event(1), event("1.005"), event(3)])
        assert refusal.value.attribute == "price"
        assert opened(realm, "quotes") == []
        outcome = publisher.publish_admissible([event(1), event("1.005"), event(3), Event({"colour": "red"})])
    assert [r.index for r in outcome.refusals] == [1, 3]
    assert "'colour' is not in the schema" in outcome.refusals[1].error.message
    assert [v["price"] for _, _, _, v, _ in opened(realm, "quotes")] == [1, 3]
    assert len(outcome.positions) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Event({}, bytes((1 << 20) + 1)), "the payload has 1048577 bytes"),
        (Event({}, b"", ""), "a content type has"),
        (Event({}, b"", "text/\n"), "a content type has"),
        (Event({"price": float("nan")}), "attribute 'price'"),
        (Event({"symbol": "TOOLONGNAME"}), "attribute 'symbol': has 11 characters"),
    ],
)
def test_refused_events(realm: Realm, given: Event, words: str) -> None:
    with Publisher(realm, "quotes", as_="nyse") as publisher, pytest.raises(EventRejected, match=words):
        publisher.publish_one(given)


def test_no_right_no_publisher(realm: Realm) -> None:
    with pytest.raises(Rejected, match="'mallory' may not publish on topic 'orders'") as refusal:
        Publisher(realm, "orders", as_="mallory")
    assert refusal.value.hint == "let it: sealcast grant orders mallory publish"
    with pytest.raises(NotFound, match="there is no topic 'qotes'"):
        Publisher(realm, "qotes", as_="nyse")
    with pytest.raises(NotFound, match="there is no entity 'nise'"):
        Publisher(realm, "quotes", as_="nise")


def test_a_right_taken_away_is_noticed_at_the_next_publish(realm: Realm) -> None:
    realm.grant("orders", "nyse")
    with Publisher(realm, "orders", as_="nyse") as publisher:
        publisher.publish_one(event(1))
        Realm(realm.paths.root).revoke("orders", "nyse", [Right.PUBLISH])
        with pytest.raises(Rejected, match="may not publish"):
            publisher.publish_one(event(2))
        Realm(realm.paths.root).grant("orders", "nyse", [Right.PUBLISH])
        publisher.publish_one(event(3))
        Realm(realm.paths.root).revoke_entity("nyse")
        with pytest.raises(Rejected, match="was revoked"):
            publisher.publish_one(event(4))
    assert [v["price"] for _, _, _, v, _ in opened(realm, "orders")] == [1, 3]


def test_a_publisher_needs_no_secret_of_the_broker(realm: Realm) -> None:
    """Nor of the key center: it asked that once, for the token and key that it keeps."""
    with Wallet(realm, "nyse") as wallet:
        wallet.get("quotes", Right.PUBLISH)
    elsewhere = realm.paths.root.parent / "elsewhere"
    realm.paths.secrets.rename(elsewhere)
    others = [p for p in realm.paths.entities.iterdir() if p.name != "nyse.key"]
    for path in others:
        path.unlink()
    with Publisher(Realm(realm.paths.root), "quotes", as_="nyse") as publisher:
        publisher.publish_one(event(1))
    elsewhere.rename(realm.paths.secrets)
    assert len(opened(realm, "quotes")) == 1


def test_every_frame_carries_the_publishers_token(realm: Realm) -> None:
    for _ in range(2):
        with Publisher(realm, "quotes", as_="nyse") as publisher:
            publisher.publish_one(event(1))
    log = EmbeddedTopic(realm.paths.topic("quotes").frames_root, read_only=True)
    frames = [frame.parse(r.data) for r in log.partition(partition_of("nyse", 3)).read(0)]
    assert len({f.token for f in frames}) == 1 and all(frame.token_digest(f.token) == f.header.token for f in frames)
    state = realm.state()
    key = state.entity("nyse").verify_key
    gates.gate_of(state).verify(frames[0].token, state.topic("quotes"), realm.clock(), Right.PUBLISH, key)


def test_another_start_is_another_boot(realm: Realm) -> None:
    for _ in range(2):
        with Publisher(realm, "quotes", as_="nyse") as publisher:
            publisher.publish_one(event(1))
    log = EmbeddedTopic(realm.paths.topic("quotes").frames_root, read_only=True)
    boots = [frame.parse(r.data).header.boot for r in log.partition(partition_of("nyse", 3)).read(0)]
    assert len(set(boots)) == 2


def _publish_some(root: Path, name: str) -> None:
    with Publisher(root, "quotes", as_=name) as publisher:
        for i in range(20):
            publisher.publish([event(i), event(i)])


def test_several_processes_publish(realm: Realm) -> None:
    writers = [start(_publish_some, realm.paths.root, name) for name in ("nyse", "nasdaq", "nyse")]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    got = opened(realm, "quotes")
    assert len(got) == 120
    assert len({p for p, *_ in got}) == 120


def test_clients_work_without_spark() -> None:
    code = "import sealcast.clients.publisher, sealcast.clients.subscriber, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- forks ------------------------------------------------------------------------------------------------------


def sealed_in_a_fork(publisher: Publisher, process: int | None) -> list[bytes]:
    """What a child process seals with the publisher that it has from its parent; `process` is what it takes its own
    number for."""

    def child() -> list[bytes]:
        if process is not None:
            os.getpid = lambda: process
        return [data for _, data in publisher.frames_for_brokers([event(2, b"what the child knows")])]

    return forked(child)


def numbered(frames: list[bytes]) -> set[tuple[bytes, int]]:
    """What a nonce under the publisher's key is made of."""
    return {(header.boot, header.sequence) for header in (frame.parse(data).header for data in frames)}


@pytest.mark.parametrize("protection", ["endpoint", "payload", "searchable", "layered"])
def test_after_a_fork_no_two_events_have_one_number(realm: Realm, protection: str) -> None:
    realm.create_topic("forked", SCHEMA, protection=protection, access="members")
    if protection == "layered":
        realm.place_node("forked", "broker")
    with Publisher(realm, "forked", as_="nyse") as publisher:
        first = [data for _, data in publisher.frames_for_brokers([event(1, b"secret")])]
        child = sealed_in_a_fork(publisher, None)
        again = [data for _, data in publisher.frames_for_brokers([event(1, b"secret")])]
    assert first and child
    assert not numbered(child) & (numbered(first) | numbered(again)), "the child took a new boot"
    assert {boot for boot, _ in numbered(first)} == {boot for boot, _ in numbered(again)}, "the parent goes on"


def test_a_child_that_did_not_notice_would_give_numbers_again(realm: Realm) -> None:
    with Publisher(realm, "quotes", as_="nyse") as publisher:
        child = sealed_in_a_fork(publisher, os.getpid())
        ours = [data for _, data in publisher.frames_for_brokers([event(1, b"what the child knows")])]
    assert numbered(child) == numbered(ours)


def test_a_child_publishes_what_its_parent_opened(realm: Realm) -> None:
    with Publisher(realm, "quotes", as_="nyse") as publisher:
        publisher.publish_one(event(1))
        forked(lambda: [str(place) for place in publisher.publish([event(2)])])
        publisher.publish_one(event(3))
    assert [(s, v["price"]) for _, _, s, v, _ in opened(realm, "quotes")] == [(0, 1), (0, 2), (1, 3)]


def test_what_numbers_events_is_not_copied(realm: Realm) -> None:
    with Publisher(realm, "quotes", as_="nyse") as publisher:
        sealer = publisher._lanes[0].sealing
        for doubled in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(Misuse, match="cannot be pickled or copied"):
                doubled(sealer)
