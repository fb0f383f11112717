"""`sealcast mqtt broker`: each client gets what it asked for and nothing else, in order, whoever is killed when."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from amqtt.adapters import WriterAdapter
from paho.mqtt.client import Client as Paho
from paho.mqtt.client import MQTTv5, MQTTv31, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion

from sealcast import Event, Realm
from sealcast.errors import Locked, Misuse, Unavailable
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.model.protection import Searchable
from sealcast.mqtt import Client, ReceivedEvent, channels, credentials
from sealcast.mqtt.broker import Address
from sealcast.mqtt.choice import carrier_for
from sealcast.mqtt.credentials import PasswordChecker
from sealcast.mqtt.doors import Doors
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import Right
from tests.mqtt.servers import answers, free_port, holds, until
from tests.protections.world import SCHEMA, TOPIC

SYMBOLS = ["A", "B1", "B2", "C"]


class Served:
    """The command itself, in a process of its own."""

    def __init__(self, realm: Realm, *options: str) -> None:
        self.realm, self.port, self._options = realm, free_port(), options
        #: What those said that were killed.
        self.said = ""
        self.start()

    def begin(self) -> None:
        code = "from sealcast.cli.main import main; main()"
        command = [sys.executable, "-c", code, "mqtt", "broker", "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(
            [*command, "--realm", str(self.realm.paths.root), "--json", *self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self) -> None:
        self.begin()
        until(lambda: answers(self.port) or self.process.poll() is not None, 60)
        assert self.process.poll() is None, self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.said += "".join(self.process.communicate())

    def stop(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, err
        found: dict[str, Any] = json.loads(out)
        return found


@contextmanager
def serving(realm: Realm, *options: str) -> Iterator[Served]:
    served = Served(realm, *options)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.kill()


def realm_with(directory: Path, names: list[str]) -> Realm:
    realm = Realm.create(directory)
    realm.create_topic(TOPIC, SCHEMA, protection="searchable", access="members")
    realm.enrol_many(["nyse", "xetra", *names])
    return realm


class Reader:
    """A client that remembers what it got."""

    def __init__(self, realm: Realm, name: str, port: int, *filters: str, qos: int = 1, connect: bool = True) -> None:
        self.name, self.filters, self.port = name, filters, port
        self.client = Client(realm, name)
        self.got: list[tuple[str, bytes]] = []
        self.client.on_message = self._take  # type: ignore[assignment]
        self.client.reconnect_delay_set(1, 1)
        for text in filters:
            self.client.subscribe(TOPIC, text, qos=qos)
        if connect:
            self.connect()

    def _take(self, client: Client, userdata: Any, message: ReceivedEvent) -> None:
        self.got.append((message.publisher, message.payload))

    def connect(self) -> None:
        listening: list[int] = []
        self.client.on_subscribe = lambda *_: listening.append(1)
        self.client.connect("127.0.0.1", self.port)
        self.client.loop_start()
        until(lambda: listening)

    def away(self) -> None:
        """Until the broker knows, if it runs: what it sent a moment later would be gone, at QoS 0."""
        line, peer = self.client.socket(), None
        with suppress(OSError):  # it may just be closed, while the client connects again
            peer = None if line is None else line.getsockname()[1]
        self.client.disconnect()
        self.client.loop_stop()
        until(lambda: peer is None or not holds(self.port, peer))

    def payloads(self, publisher: str = "nyse") -> list[bytes]:
        return [payload for who, payload in self.got if who == publisher]

    def due(self, published: list[Event]) -> list[bytes]:
        """By the reference evaluator, on plain values."""
        conditions = [fit(parse(text), SCHEMA) for text in self.filters]
        return [
            event.payload
            for event in published
            if any(evaluate(c, SCHEMA.parse(event.attributes)) is True for c in conditions)
        ]

    def has(self, published: list[Event], publisher: str = "nyse", seconds: float = 60) -> None:
        due = self.due(published)
        until(lambda: len(self.payloads(publisher)) >= len(due), seconds)
        assert self.payloads(publisher) == due, self.name


def events(random: Random, count: int, first: int = 0) -> list[Event]:
    return [
        Event({"price": random.randrange(256), "symbol": random.choice([*SYMBOLS, None])}, b"%d" % n)
        for n in range(first, first + count)
    ]


def random_filter(random: Random) -> str:
    low = random.randrange(256)
    parts = [
        f"price BETWEEN {low} AND {min(255, low + random.randrange(90))}",
        f"price > {low}",
        f"symbol = '{random.choice(SYMBOLS)}'",
        "symbol LIKE 'B%'",
    ]
    return random.choice([" AND ", " OR "]).join(random.sample(parts, random.randint(1, 2)))


@contextmanager
def publishing(realm: Realm, name: str, port: int) -> Iterator[Client]:
    client = Client(realm, name)
    client.reconnect_delay_set(1, 1)
    client.connect("127.0.0.1", port)
    client.loop_start()
    until(client.is_connected)
    try:
        yield client
    finally:
        client.close()


def publish(client: Client, published: list[Event], qos: int = 1) -> None:
    for event in published:
        client.publish(TOPIC, event.payload, qos=qos, attributes=event.attributes)


def crowd(realm: Realm, random: Random, port: int, count: int) -> list[Reader]:
    return [
        Reader(realm, f"s{n}", port, *(random_filter(random) for _ in range(random.randint(1, 3))), qos=n % 2)
        for n in range(count)
    ]


# --- exactly what was asked for -------------------------------------------------------------------------


def _twenty(tmp_path: Path, each: int, rounds: int, seconds: float) -> None:
    """20 clients, every second one at QoS 0; two publishers, in turns at QoS 0 and 1; some clients go away and come
    back, and what was published meanwhile waits for them at either QoS; the broker is killed -9."""
    random, names = Random(3), [f"s{n}" for n in range(20)]
    realm = realm_with(tmp_path / "realm", names)
    published: dict[str, list[Event]] = {"nyse": [], "xetra": []}
    with serving(realm) as served:
        readers = crowd(realm, random, served.port, 20)
        with publishing(realm, "nyse", served.port) as nyse, publishing(realm, "xetra", served.port) as xetra:
            for number in range(rounds):
                gone = readers[:6] if number % 2 else []
                for reader in gone:
                    reader.away()
                for turn, (name, client) in enumerate((("nyse", nyse), ("xetra", xetra))):
                    fresh = events(random, each, len(published[name]))
                    published[name] += fresh
                    publish(client, fresh, qos=(number // 2 + turn) % 2)
                    assert client.flush(seconds)
                for reader in gone:
                    reader.connect()
                for reader in readers:
                    for name, so_far in published.items():
                        reader.has(so_far, name, seconds)
                if number == rounds // 2:
                    served.kill()
                    served.start()
                    until(lambda: all(r.client.is_connected() for r in readers) and nyse.is_connected(), 60)
                    until(xetra.is_connected, 60)
                    time.sleep(1)
        assert not any(reader.client.unopenable or reader.client.unwanted for reader in readers)
        for reader in readers:
            reader.client.close()
        counts = served.stop()
    assert counts["refused"] == 0


def test_twenty_clients_get_what_they_asked_for(tmp_path: Path) -> None:
    _twenty(tmp_path, each=15, rounds=3, seconds=60)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("each", "rounds"), [(60, 4), (2_500, 10)])
def test_up_to_fifty_thousand_events(tmp_path: Path, each: int, rounds: int) -> None:
    _twenty(tmp_path, each=each, rounds=rounds, seconds=900)


def test_at_qos_0_everyone_connected_gets_it(tmp_path: Path) -> None:
    random = Random(5)
    realm = realm_with(tmp_path / "realm", ["s0", "s1"])
    with serving(realm) as served:
        readers = [
            Reader(realm, "s0", served.port, "price < 100", qos=0),
            Reader(realm, "s1", served.port, "price > 99"),
        ]
        published = events(random, 300)
        with publishing(realm, "nyse", served.port) as nyse:
            publish(nyse, published, qos=0)
            for reader in readers:
                reader.has(published)
        for reader in readers:
            reader.client.close()


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path, kills: int) -> None:
    """Killed -9 again and again in the middle of publishing. What was acknowledged arrives; what was not, is sent again
    by Paho; the client drops what comes twice."""
    random = Random(6)
    realm = realm_with(tmp_path / "realm", ["s0", "s1"])
    published = events(random, 150 * kills)
    with serving(realm) as served:
        here = Reader(realm, "s0", served.port, "price < 200")
        away = Reader(realm, "s1", served.port, "price > 50")
        away.away()
        with publishing(realm, "nyse", served.port) as nyse:
            for first in range(0, 150 * kills, 150):
                publish(nyse, published[first : first + 150])
                time.sleep(0.2)
                served.kill()
                served.start()
                until(nyse.is_connected, 60)
            assert nyse.flush(60)
        away.connect()
        for reader in (here, away):
            reader.has(published)
            reader.client.close()
        served.stop()


def test_a_client_drops_what_comes_twice(tmp_path: Path) -> None:
    realm = realm_with(tmp_path / "realm", ["s0"])
    with serving(realm) as served:
        reader = Reader(realm, "s0", served.port, "price < 200")
        carrier = carrier_for(realm, TOPIC, "nyse", "broker", None)
        ((channel, data),) = carrier.seal(Event({"price": 3}, b"once"))
        with publishing(realm, "nyse", served.port) as nyse:
            for _ in range(5):
                Paho.publish(nyse, channel, data, qos=1).wait_for_publish(10)
        until(lambda: reader.client.duplicates == 4)
        assert reader.payloads() == [b"once"]
        reader.client.close()
        carrier.close()


# --- who may -----------------------------------------------------------------------------------------------


def refused_with(client: Paho, port: int, seconds: float = 10) -> Any:
    """Why the broker refuses a connection; a hung one fails."""
    reasons: list[Any] = []
    client.on_connect = lambda c, u, flags, reason, properties: (reasons.append(reason), c.disconnect())
    client.connect("127.0.0.1", port)
    client.loop_start()
    until(lambda: reasons, seconds)
    client.loop_stop()
    return reasons[0]


def test_other_versions_are_refused_and_not_hung(tmp_path: Path) -> None:
    realm = realm_with(tmp_path / "realm", [])
    with serving(realm) as served:
        five = refused_with(Paho(CallbackAPIVersion.VERSION2, "five", protocol=MQTTv5), served.port)
        assert five.is_failure and str(five) == "Unsupported protocol version"
        old = refused_with(Paho(CallbackAPIVersion.VERSION2, "old", protocol=MQTTv31), served.port)
        assert old.is_failure and str(old) == "Unsupported protocol version"
        ours = Client(realm, "nyse", protocol=MQTTv5)
        assert refused_with(ours, served.port).is_failure
        counts = served.stop()
    assert counts["refused_version"] >= 3


def test_nobody_connects_but_entities_each_as_itself(tmp_path: Path) -> None:
    realm = realm_with(tmp_path / "realm", ["s0", "gone"])
    now, name = realm.clock, realm.identity("s0")
    with serving(realm) as served:

        def attempt(user: str | None, password: str | None, client_id: str = "x") -> bool:
            plain = Paho(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTv311)
            if user is not None:
                plain.username_pw_set(user, password)
            return bool(refused_with(plain, served.port).is_failure)

        good = credentials.password(name, realm.id, "x", now())
        assert not attempt("s0", good)
        assert attempt("s0", good)  # once
        assert attempt(None, None) and attempt("s0", None) and attempt("s0", "secret")
        assert attempt("nyse", credentials.password(name, realm.id, "x", now()))  # another's name
        assert attempt("s0", credentials.password(name, realm.id, "y", now()))  # for another client
        assert attempt("s0", credentials.password(name, bytes(16), "x", now()))  # another realm
        assert attempt("s0", credentials.password(name, realm.id, "x", now() - 120_000_000))  # long ago
        assert attempt("nobody", credentials.password(name, realm.id, "x", now()))
        gone = realm.identity("gone")
        realm.revoke_entity("gone")
        until(lambda: attempt("gone", credentials.password(gone, realm.id, "x", now())))


def test_two_clients_of_one_entity_need_ids_of_their_own(tmp_path: Path) -> None:
    """They would end each other's connections, over and over."""
    realm = realm_with(tmp_path / "realm", ["s0"])
    with serving(realm) as served:
        first = Reader(realm, "s0", served.port, "price < 200")
        second = Client(realm, "s0")
        with pytest.raises(Locked, match="'s0' is connected to 127.0.0.1:.* as 'sealcast-s0'") as refused:
            second.connect("127.0.0.1", served.port)
        assert refused.value.hint is not None and "client_id" in refused.value.hint
        assert first.client.is_connected()
        other = Client(realm, "s0", client_id="another")
        other.connect("127.0.0.1", served.port)
        first.client.close()
        second.connect("127.0.0.1", served.port)  # when the first has gone, its session is there for the next
        for client in (second, other):
            client.close()


def test_nobody_is_let_in_while_the_registry_cannot_be_asked(tmp_path: Path) -> None:
    refused, written = list[str](), list[bytes]()

    class Away:
        def admit(self, *_: str) -> None:
            raise Unavailable("the registry is away")

    class Out:
        def write(self, data: bytes) -> None:
            written.append(data)

        async def drain(self) -> None:
            pass

    async def knock() -> object:
        reader = asyncio.StreamReader()
        reader.feed_data(bytes([0x10, 13]) + b"\0\4MQTT\4\2\0\x3c\0\1x")
        doors = Doors(cast(PasswordChecker, Away()), lambda reason, message: refused.append(reason))
        return await doors.admit(reader, cast(WriterAdapter, Out()))

    assert asyncio.run(knock()) is None
    assert refused == ["registry"] and written == [bytes([0x20, 2, 0, 3])]


def test_an_intruder_cannot_end_a_session(tmp_path: Path) -> None:
    """Neither without a password, nor with its own: a client id is its user's."""
    realm = realm_with(tmp_path / "realm", ["s0", "s1"])
    with serving(realm) as served:
        reader = Reader(realm, "s0", served.port, "price < 200")
        reader.away()
        with publishing(realm, "nyse", served.port) as nyse:
            publish(nyse, [Event({"price": 3}, b"waits")])
            assert nyse.flush()
        plain = Paho(CallbackAPIVersion.VERSION2, "sealcast-s0", clean_session=True)
        assert refused_with(plain, served.port).is_failure
        other = Client(realm, "s1", client_id="sealcast-s0", clean_session=True)
        assert not refused_with(other, served.port).is_failure
        reader.connect()
        until(lambda: reader.payloads() == [b"waits"])
        reader.client.close()


def test_who_has_lost_a_right_gets_nothing_that_waited(tmp_path: Path) -> None:
    realm = realm_with(tmp_path / "realm", ["s0", "s1"])
    with serving(realm) as served:
        readers = [Reader(realm, name, served.port, "price < 200") for name in ("s0", "s1")]
        readers[1].away()
        with publishing(realm, "nyse", served.port) as nyse:
            publish(nyse, [Event({"price": 3}, b"one")])
            assert nyse.flush()
            until(lambda: readers[0].payloads() == [b"one"])
            realm.revoke(TOPIC, "s1", [Right.SUBSCRIBE])
            time.sleep(0.6)
            listening: list[Any] = []
            client = readers[1].client
            client.on_subscribe = lambda c, u, mid, codes, properties: listening.extend(codes)
            client.connect("127.0.0.1", served.port)
            client.loop_start()
            until(lambda: listening)
            assert all(code.is_failure for code in listening)
            time.sleep(0.5)
            assert readers[1].got == []
        for reader in readers:
            reader.client.close()


def test_what_is_no_event_of_its_sender_goes_nowhere(tmp_path: Path) -> None:
    realm = realm_with(tmp_path / "realm", ["s0", "mallory"])
    realm.create_topic("plain", SCHEMA, access="members")
    with serving(realm) as served:
        reader = Reader(realm, "s0", served.port, "price < 200")
        carrier = carrier_for(realm, TOPIC, "nyse", "broker", None)
        ((channel, data),) = carrier.seal(Event({"price": 3}, b"mine"))
        ((_, altered),) = carrier.seal(Event({"price": 4}, b"altered"))
        changed = bytearray(altered)
        changed[-1] ^= 1
        with publishing(realm, "mallory", served.port) as mallory, publishing(realm, "nyse", served.port) as nyse:
            for where, what in [
                (channel, data),  # another's event
                (channel, b""),
                (channel, b"rubbish"),
                (channel, data[:60]),
                ("anything", b"x"),
                (channels.events("plain"), data),
                (channels.events("nothing"), data),
            ]:
                Paho.publish(mallory, where, what, qos=1).wait_for_publish(10)
            # The broker cannot know that these were altered. Whoever reads does.
            Paho.publish(nyse, channel, bytes(changed), qos=1).wait_for_publish(10)
            Paho.publish(nyse, channel, data, qos=1).wait_for_publish(10)
        until(lambda: reader.got == [("nyse", b"mine")])
        until(lambda: reader.client.unopenable == 1)
        subscribed: list[Any] = []
        plain = Client(realm, "mallory", client_id="spy")
        plain.on_connect = lambda c, *_: [Paho.subscribe(c, text, 1) for text in ("#", "sealcast/v1/+/events", "x")]
        plain.on_subscribe = lambda c, u, mid, codes, properties: subscribed.extend(codes)
        plain.connect("127.0.0.1", served.port)
        plain.loop_start()
        until(lambda: len(subscribed) == 3)
        assert all(code.is_failure for code in subscribed)
        plain.close()
        reader.client.close()
        carrier.close()
        counts = served.stop()
    assert counts["refused_topic"] == 3 and counts["refused_event"] == 4 and counts["events"] == 2


def test_strangers_cannot_hold_or_fill_the_broker(tmp_path: Path) -> None:
    realm = realm_with(tmp_path / "realm", ["s0"])
    with serving(realm) as served:
        for first in (
            b"GET / HTTP/1.1\r\n\r\n",
            bytes([0x10, 0xFF, 0xFF, 0xFF, 0x7F]),
            bytes([0x10, 2, 0, 4]),
            b"\x30\x00",
        ):
            with socket.create_connection(("127.0.0.1", served.port), 5) as line:
                line.sendall(first)
                line.settimeout(15)
                assert line.recv(100) == b""
        reader = Reader(realm, "s0", served.port, "price < 200")
        with publishing(realm, "nyse", served.port) as nyse:
            publish(nyse, [Event({"price": 3}, b"fine")])
            until(lambda: reader.payloads() == [b"fine"])
        reader.client.close()
        assert served.stop()["strangers"] >= 4


def test_new_keys_and_filters_count_while_it_runs(tmp_path: Path) -> None:
    realm = realm_with(tmp_path / "realm", ["s0", "s1"])
    random = Random(9)
    with serving(realm) as served:
        reader = Reader(realm, "s0", served.port, "price < 100")
        with publishing(realm, "nyse", served.port) as nyse:
            first = events(random, 40)
            publish(nyse, first)
            reader.has(first)
            realm.rotate(TOPIC)
            reader.client._topics.look()
            time.sleep(0.6)
            second = events(random, 40, 40)
            publish(nyse, second)
            reader.has(first + second)
            reader.client.subscribe(TOPIC, "price > 200")
            reader.filters = ("price < 100", "price > 200")
            time.sleep(0.6)
            third = events(random, 40, 80)
            publish(nyse, third)
            until(lambda: len(reader.payloads()) >= len(reader.due(third)))
            until(lambda: reader.payloads()[-1:] == reader.due(third)[-1:])
            assert [p for p in reader.payloads() if int(p) >= 80] == reader.due(third)
            reader.client.unsubscribe(TOPIC)
            time.sleep(0.6)
            count = len(reader.got)
            publish(nyse, events(random, 20, 120))
            assert nyse.flush()
            time.sleep(0.4)
            assert len(reader.got) == count
        reader.client.close()


def saved_cursor(realm: Realm, user: str) -> int:
    """How far a user's one session got, by what is on the disk."""
    saved = (realm.paths.broker(FIRST_BROKER) / "mqtt" / "sessions").glob("*.json")
    (cursor,) = (body["cursor"] for body in map(json.loads, map(Path.read_bytes, saved)) if body["user"] == user)
    return int(cursor)


def test_a_new_subscription_brings_what_is_retained(tmp_path: Path) -> None:
    """Paper 002, the other order: a new subscription is matched with publications, also after a kill, and once."""
    realm, random, other = realm_with(tmp_path / "realm", ["s0", "s1"]), Random(11), "others"
    realm.create_topic(other, SCHEMA, protection=Searchable(retain_events=30), access="members")
    with serving(realm) as served:
        with publishing(realm, "nyse", served.port) as nyse:
            past = events(random, 60)
            publish(nyse, past)
            assert nyse.flush()
            late = Reader(realm, "s0", served.port, "price < 128")
            late.has(past)
            until(lambda: saved_cursor(realm, "s0") == len(past))
            served.kill()
            served.start()
            until(lambda: late.client.is_connected() and nyse.is_connected())
            elsewhere = events(random, 40, 1_000)
            for event in elsewhere:
                nyse.publish(other, event.payload, qos=1, attributes=event.attributes)
            assert nyse.flush()
            # A second topic in the same session: of its own past what is retained, and nothing of the first again.
            late.client.subscribe(other, "price >= 0")
            wanted = [event.payload for event in elsewhere[-30:]]
            until(lambda: len(late.got) >= len(late.due(past)) + len(wanted))
            more = events(random, 20, 60)
            publish(nyse, more)
            assert nyse.flush()
            until(lambda: len(late.got) >= len(late.due(past + more)) + len(wanted))
            assert [p for p in late.payloads() if int(p) >= 1_000] == wanted
            assert [p for p in late.payloads() if int(p) < 1_000] == late.due(past + more)
        late.client.close()
        # Since the broker came back it sent what is new, and nothing a second time.
        assert served.stop()["deliveries"] == len(wanted) + len(late.due(more))


def test_addresses(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="without TLS"):
        Address("0.0.0.0", 1883)
    with pytest.raises(Misuse, match="with its key"):
        Address("127.0.0.1", 1883, certificate=tmp_path)
