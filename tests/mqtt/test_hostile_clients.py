"""What hostile clients do to the MQTT broker that matches ciphertexts: it goes on serving the others."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from paho.mqtt.client import Client as Paho

from sealcast import Event, Realm
from sealcast.filters.labels import Labeller
from sealcast.mqtt import channels, credentials
from sealcast.mqtt.messages import Message
from sealcast.protections.searchable.keys import user_keys
from sealcast.wire.searching import packed_block
from tests.mqtt.servers import until
from tests.mqtt.test_broker import TOPIC, Reader, Served, publish, publishing, realm_with, serving
from tests.protections.world import SCHEMA


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def packet(kind: int, body: bytes) -> bytes:
    length, left = b"", len(body)
    while left >= 0x80:
        length, left = length + bytes([left & 0x7F | 0x80]), left >> 7
    return bytes([kind]) + length + bytes([left]) + body


def connect_packet(user: str, password: str, client_id: str, flags: int = 0xC0) -> bytes:
    head = text("MQTT") + bytes([4, flags]) + (60).to_bytes(2, "big")
    return packet(0x10, head + text(client_id) + text(user) + text(password))


def connected(realm: Realm, served: Served, user: str, client_id: str = "x") -> socket.socket:
    """A client of bare bytes, with a receive buffer that fills at once."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    made.settimeout(20)
    made.connect(("127.0.0.1", served.port))
    password = credentials.password(realm.identity(user), realm.id, client_id, realm.clock())
    made.sendall(connect_packet(user, password, client_id))
    said = made.recv(4)
    assert said[:2] == bytes([0x20, 2]) and said[3] == 0
    return made


def test_who_reads_nothing_and_connects_again_does_not_end_the_broker(tmp_path: Path) -> None:
    """Its delivery is cancelled while it waits for the client to read."""
    realm = realm_with(tmp_path / "realm", ["s0", "idle"])
    realm.subscribe(TOPIC, "idle", "price >= 0")
    big = [Event({"price": 3}, bytes(400_000)) for _ in range(24)]
    with serving(realm) as served:
        reader = Reader(realm, "s0", served.port, "price >= 0")
        with connected(realm, served, "idle") as idle, publishing(realm, "nyse", served.port) as nyse:
            idle.sendall(packet(0x82, b"\x00\x01" + text(channels.events(TOPIC)) + b"\x00"))
            assert idle.recv(5) == bytes([0x90, 3, 0, 1, 0])
            publish(nyse, big)
            assert nyse.flush(60)
            reader.has(big)
            with connected(realm, served, "idle"):
                publish(nyse, [Event({"price": 3}, b"goes on")])
                assert nyse.flush(20)
                until(lambda: (reader.payloads() or [b""])[-1] == b"goes on")
        assert served.process.poll() is None
        reader.client.close()
        served.stop()


def test_connects_of_any_bytes_do_not_end_the_broker(tmp_path: Path) -> None:
    realm, random = realm_with(tmp_path / "realm", ["s0"]), Random(7)
    with serving(realm) as served:
        good = connect_packet("s0", "secret", "x")
        for number in range(200):
            bad = bytearray(good)
            for _ in range(random.randint(1, 4)):
                bad[random.randrange(len(bad))] = random.randrange(256)
            with socket.create_connection(("127.0.0.1", served.port), 20) as one:
                one.sendall(bytes(bad) if number % 2 else random.randbytes(60))
        reader = Reader(realm, "s0", served.port, "price >= 0")
        with publishing(realm, "nyse", served.port) as nyse:
            publish(nyse, [Event({"price": 3}, b"goes on")])
            until(lambda: reader.payloads() == [b"goes on"])
        reader.client.close()
        served.process.terminate()
        _, said = served.process.communicate(timeout=30)
        assert served.process.returncode == 0 and "Traceback" not in said, said[-2000:]


def test_more_trapdoors_than_the_schema_has_labels_go_nowhere(tmp_path: Path) -> None:
    """Also those with tags of too many bits, and points that are none: nobody spends the broker's time on them."""
    realm = realm_with(tmp_path / "realm", ["s0"])
    state = realm.state()
    keys = user_keys(realm.identity("nyse").topic_keys(state, TOPIC), state.topic(TOPIC), 1, "nyse")
    most = Labeller(SCHEMA).most()
    made = [keys.trapdoor(n.to_bytes(4, "big")) for n in range(most + 1)]
    off_curve = made[0][:5] + b"\xff" * 32 + made[0][37:]
    with serving(realm) as served, publishing(realm, "nyse", served.port) as nyse:
        for trapdoors in (made, [b"\xff" * 4 + made[0][4:]], [off_curve]):
            data = Message(1, "nyse", b"header", 0, packed_block(trapdoors) + b"envelope")
            Paho.publish(nyse, channels.events(TOPIC), data.to_bytes(), qos=1).wait_for_publish(10)
        nyse.close()
        counts = served.stop()
    assert (counts["events"], counts["refused_event"]) == (0, 3)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x32\xff\xff\xff\x7f" + b"x" * 1_000, id="a packet of 256 MiB"),
        pytest.param(b"\x32\xff\xff\xff\xff\xff", id="a length that never ends"),
        pytest.param(packet(0x34, text(channels.events(TOPIC)) + b"\x00\x07" + b"event"), id="QoS 2"),
        pytest.param(packet(0x36, text(channels.events(TOPIC)) + b"\x00\x07" + b"event"), id="QoS 3"),
        pytest.param(packet(0x31, text(channels.events(TOPIC)) + b"retained"), id="retained"),
        pytest.param(packet(0x32, text("sealcast/v1/+/events") + b"\x00\x07" + b"event"), id="a wildcard as a topic"),
        pytest.param(packet(0x32, b"\xff\xff" + b"x"), id="a topic longer than its packet"),
        pytest.param(packet(0x32, b"\x00\x02\xff\xfe\x00\x07"), id="a topic that is no text"),
        pytest.param(packet(0x82, b"\x00\x01\x00"), id="a subscription that is cut"),
        pytest.param(packet(0x82, b"\x00\x01" + text("\0") + b"\x07"), id="a subscription with NUL and QoS 7"),
        pytest.param(connect_packet("idle", "again", "x"), id="a second CONNECT"),
        pytest.param(packet(0x40, b"\x00\x63") * 50, id="acknowledgements of nothing"),
        pytest.param(b"\xf0\x00", id="a reserved kind"),
    ],
)
def test_packets_of_any_kind_do_not_end_the_broker(served: tuple[Realm, Served, Reader], sent: bytes) -> None:
    realm, broker, reader = served
    with connected(realm, broker, "idle") as hostile:
        hostile.sendall(sent)
        with publishing(realm, "nyse", broker.port) as nyse:
            before = len(reader.got)
            publish(nyse, [Event({"price": 3}, b"goes on")])
            until(lambda: len(reader.got) > before)
        assert reader.got[before:] == [("nyse", b"goes on")] and broker.process.poll() is None
    with open(f"/proc/{broker.process.pid}/statm") as found:
        assert int(found.read().split()[1]) * 4_096 < 512 << 20


def test_subscriptions_that_name_more_than_one_topic_are_refused(served: tuple[Realm, Served, Reader]) -> None:
    realm, broker, _ = served
    asked = [
        "#",
        "+/+/+/+",
        "$SYS/#",
        "$share/g/#",
        f"$share/g/{channels.events(TOPIC)}",
        f"{channels.events(TOPIC)}/#",
    ]
    asked += ["sealcast/v1/+/events", channels.mail(TOPIC, "s0"), channels.frames(TOPIC), channels.presence("bridge")]
    with connected(realm, broker, "idle") as hostile:
        hostile.sendall(packet(0x82, b"\x00\x01" + b"".join(text(each) + b"\x01" for each in asked)))
        assert hostile.recv(64) == bytes([0x90, 2 + len(asked), 0, 1]) + b"\x80" * len(asked)


def test_a_will_goes_nowhere(served: tuple[Realm, Served, Reader]) -> None:
    realm, broker, reader = served
    password = credentials.password(realm.identity("idle"), realm.id, "x", realm.clock())
    head = text("MQTT") + bytes([4, 0xC6 | 0x20]) + (60).to_bytes(2, "big") + text("x")
    will = text(channels.events(TOPIC)) + text("last words")
    with socket.create_connection(("127.0.0.1", broker.port), 20) as dying:
        dying.sendall(packet(0x10, head + will + text("idle") + text(password)))
        assert dying.recv(4)[3] == 0
    before = len(reader.got)
    with publishing(realm, "nyse", broker.port) as nyse:
        publish(nyse, [Event({"price": 3}, b"goes on")])
        until(lambda: len(reader.got) > before)
    assert reader.got[before:] == [("nyse", b"goes on")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Realm, Served, Reader]]:
    realm = realm_with(tmp_path_factory.mktemp("hostile") / "realm", ["s0", "idle"])
    with serving(realm) as broker:
        reader = Reader(realm, "s0", broker.port, "price >= 0")
        yield realm, broker, reader
        reader.client.close()
        broker.process.terminate()
        _, said = broker.process.communicate(timeout=30)
        assert broker.process.returncode == 0 and "Traceback" not in said, said[-2000:]
