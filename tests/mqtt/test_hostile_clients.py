"""What hostile clients do to the MQTT broker that matches ciphertexts: it goes on serving the others."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random

from paho.mqtt.client import Client as Paho

from sealcast import Event, Realm
from sealcast.filters.labels import Labeller
from sealcast.mqtt import channels, credentials
from sealcast.mqtt.messages import Message
from sealcast.protections.searchable.scheme import UserKeys
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
    part = realm.identity("nyse").topic_keys(realm.state(), TOPIC).search
    assert part is not None
    keys, most = UserKeys(part, 16), Labeller(SCHEMA).most()
    made = [keys.trapdoor(n.to_bytes(4, "big")) for n in range(most + 1)]
    off_curve = made[0][:5] + b"\xff" * 32 + made[0][37:]
    with serving(realm) as served, publishing(realm, "nyse", served.port) as nyse:
        for trapdoors in (made, [b"\xff" * 4 + made[0][4:]], [off_curve]):
            data = Message(1, "nyse", b"header", 0, packed_block(trapdoors) + b"envelope")
            Paho.publish(nyse, channels.events(TOPIC), data.to_bytes(), qos=1).wait_for_publish(10)
        nyse.close()
        counts = served.stop()
    assert (counts["events"], counts["refused_event"]) == (0, 3)
