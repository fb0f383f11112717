"""The bridge between a real mosquitto and the log: nothing acknowledged is lost, nothing is doubled or reordered."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client as Paho
from paho.mqtt.enums import CallbackAPIVersion

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.errors import Misuse, NotFound, Unavailable
from sealcast.mqtt import Client, ReceivedEvent, channels
from sealcast.mqtt.bridge import Bridge
from sealcast.mqtt.link import PROTOCOLS, MqttLink
from sealcast.mqtt.mail import Mail
from sealcast.wire.frame import parse
from tests.clients.layered_pump import pump as layered_pump
from tests.clients.pump import pump
from tests.mqtt.mosquitto import Mosquitto
from tests.mqtt.servers import free_port, until
from tests.protections.world import FILTERS, SCHEMA, TOPIC, World

VERSIONS = list(PROTOCOLS)
PROTECTIONS = ["endpoint", "payload", "layered", "searchable"]


def realm_with(directory: Path, protection: str = "payload") -> Realm:
    realm = Realm.create(directory)
    realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members")
    realm.enrol_many(["nyse", "mallory", *FILTERS])
    for name, texts in FILTERS.items():
        for text in texts:
            realm.subscribe(TOPIC, name, text)
    return realm


def move(realm: Realm) -> None:
    """The pipeline's part, without Spark."""
    protection = realm.state().topic(TOPIC).protection
    (layered_pump if protection.overlay else pump)(realm, TOPIC)


@contextmanager
def bridging(realm: Realm, port: int, version: str = "5", *names: str, **options: Any) -> Iterator[Bridge]:
    """A bridge that works in a thread of its own."""
    link = MqttLink("127.0.0.1", port, options.pop("client_id", f"bridge-{time.monotonic_ns()}"), version)
    bridge = Bridge(realm, link, [TOPIC], subscribers=names, **options)
    stop = threading.Event()
    thread = threading.Thread(target=bridge.run, args=(stop,), daemon=True)
    thread.start()
    until(lambda: bridge.counts["connections"])
    try:
        yield bridge
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()
        bridge.close()


@contextmanager
def connected(realm: Realm, name: str, port: int, version: str = "5", **options: Any) -> Iterator[Client]:
    client = Client(realm, name, protocol=PROTOCOLS[version], **options)
    client.connect("127.0.0.1", port)
    client.loop_start()
    until(client.is_connected)
    try:
        yield client
    finally:
        client.close()


class Collected:
    """What a client got, in order."""

    def __init__(self, client: Client) -> None:
        self.payloads: list[bytes] = []
        self.messages: list[ReceivedEvent] = []
        client.on_message = self._take  # type: ignore[assignment]

    def _take(self, client: Client, userdata: Any, message: ReceivedEvent) -> None:
        self.payloads.append(message.payload)
        self.messages.append(message)


def events(count: int, first: int = 0) -> list[Event]:
    symbols = ["A", "B1", "B2", "C"]
    return [Event({"price": 37 * n % 256, "symbol": symbols[n % 4]}, b"%d" % n) for n in range(first, first + count)]


def due(name: str, published: list[Event]) -> list[bytes]:
    return [event.payload for event in published if name in World.wanting(event)]


def in_log(realm: Realm) -> int:
    with realm.frames(TOPIC, read_only=True) as log:
        return sum(log.partition(p).end() for p in log.own)


# --- there and back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_events_go_through_mosquitto_and_back(
    tmp_path: Path, mosquitto: Mosquitto, protection: str, version: str
) -> None:
    realm, published = realm_with(tmp_path / "realm", protection), events(60)
    if protection == "layered":
        move(realm)
    with bridging(realm, mosquitto.port, version, *FILTERS, client_id=f"b{protection}{version}") as bridge:
        own = {name: f"{name}-{protection}-{version}" for name in [*FILTERS, "nyse"]}
        got: dict[str, Collected] = {}
        clients = []
        for name in FILTERS:
            client = Client(realm, name, protocol=PROTOCOLS[version], client_id=own[name], through="bridge")
            got[name] = Collected(client)
            client.connect("127.0.0.1", mosquitto.port)
            client.subscribe(TOPIC)
            client.loop_start()
            clients.append(client)
        with connected(realm, "nyse", mosquitto.port, version, client_id=own["nyse"], through="bridge") as nyse:
            for event in published:
                sent = nyse.publish(TOPIC, event.payload, qos=1, attributes=event.attributes)
            sent.wait_for_publish(10)
            assert nyse.flush()
        until(lambda: bridge.counts["frames"] >= 60)
        move(realm)
        for name in FILTERS:
            until(lambda name=name: len(got[name].payloads) >= len(due(name, published)))
        time.sleep(0.3)
        for name in FILTERS:
            assert got[name].payloads == due(name, published)
            assert all(m.topic == TOPIC and m.publisher == "nyse" for m in got[name].messages)
        until(lambda: bridge.counts["deliveries"] == sum(len(due(name, published)) for name in FILTERS))
        for client in clients:
            assert (client.unopenable, client.duplicates) == (0, 0)
            client.close()
    # The cursors are durable: whoever reads the mailbox itself finds nothing left.
    for name in FILTERS:
        with Subscriber(realm, TOPIC, name) as reader:
            assert reader.lag() == 0


@pytest.mark.parametrize("count", [200, pytest.param(50_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("version", VERSIONS)
def test_twenty_clients_through_a_bridge(tmp_path: Path, mosquitto: Mosquitto, version: str, count: int) -> None:
    """Half of the events at QoS 0; half of the clients that stay listen at QoS 0; while every second part is under way,
    the other five are away."""
    realm = realm_with(tmp_path / "realm", "searchable")
    wanted = {f"s{n}": (13 * n % 256, 13 * n % 256 + 40) for n in range(20)}
    realm.enrol_many(list(wanted))
    for name, (low, high) in wanted.items():
        realm.subscribe(TOPIC, name, f"price BETWEEN {low} AND {min(high, 255)}")
    own = f"{version}-{count}"
    clients = {
        name: Client(realm, name, protocol=PROTOCOLS[version], client_id=f"{name}-{own}", through="bridge")
        for name in wanted
    }
    got = {name: Collected(client) for name, client in clients.items()}

    def here(name: str) -> None:
        clients[name].connect("127.0.0.1", mosquitto.port)
        clients[name].loop_start()
        until(clients[name].is_connected)

    def away(name: str) -> None:
        clients[name].disconnect()
        clients[name].loop_stop()

    published = list[Event]()
    with bridging(realm, mosquitto.port, version, *wanted, client_id=f"b{own}") as bridge:
        for number, (name, client) in enumerate(clients.items()):
            client.subscribe(TOPIC, qos=int(number < 5 or number % 2))
            here(name)
        with connected(realm, "nyse", mosquitto.port, version, client_id=f"nyse-{own}", through="bridge") as nyse:
            for part in range(10):
                gone = [f"s{n}" for n in range(5)] if part % 2 else []
                for name in gone:
                    away(name)
                fresh = events(count // 10, len(published))
                published += fresh
                for event in fresh:
                    nyse.publish(TOPIC, event.payload, qos=part // 2 % 2, attributes=event.attributes)
                assert nyse.flush(300)
                so_far = len(published)
                until(lambda so_far=so_far: bridge.counts["frames"] >= so_far, 300)  # type: ignore[misc]
                move(realm)
                for name in gone:
                    here(name)
        for name, (low, high) in wanted.items():
            due = [e.payload for e in published if low <= int(str(e.attributes["price"])) <= high]
            until(lambda name=name, due=due: len(got[name].payloads) >= len(due), 300)  # type: ignore[misc]
            assert got[name].payloads == due, name
        for client in clients.values():
            client.close()


def test_what_goes_in_is_what_a_publisher_appends(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """The log cannot tell whether a frame came by MQTT: the same kinds of frames, admitted by the same rules."""
    realm = realm_with(tmp_path / "realm")
    with bridging(realm, mosquitto.port), connected(realm, "nyse", mosquitto.port, client_id="same") as nyse:
        nyse.publish(TOPIC, b"by mqtt", qos=1, attributes={"price": 3}).wait_for_publish(10)
    with Publisher(realm, TOPIC, "nyse") as publisher:
        publisher.publish([Event({"price": 3}, b"directly")])
    counts = pump(realm, TOPIC)
    assert counts["admitted"] == 2 and not any(n for name, n in counts.items() if name.startswith("rejected"))
    with Subscriber(realm, TOPIC, "bob") as reader:
        assert [event.payload for event in reader] == [b"by mqtt", b"directly"]


# --- acknowledged means durable -------------------------------------------------------------------------


def test_an_acknowledged_frame_is_in_the_log(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """mosquitto acknowledges to the publisher by itself; to mosquitto, the bridge does so when the frame is durable."""
    realm = realm_with(tmp_path / "realm")
    with (
        bridging(realm, mosquitto.port, client_id="durable") as bridge,
        connected(realm, "nyse", mosquitto.port, client_id="durable-nyse") as nyse,
    ):
        bridge._inbound._max_waiting = 0  # backpressure: nothing may go in
        for event in events(30):
            nyse.publish(TOPIC, event.payload, qos=1, attributes=event.attributes)
        assert nyse.flush()
        until(lambda: len(bridge._inbound) > 0)
        time.sleep(0.3)
        assert in_log(realm) == 0
    # It ended without having appended anything. mosquitto has all of it, and sends it to the next one.
    with bridging(realm, mosquitto.port, client_id="durable") as bridge:
        until(lambda: bridge.counts["frames"] == 30)
    assert in_log(realm) == 30 and pump(realm, TOPIC)["admitted"] == 30


BRIDGE_PROCESS = """
import sys, threading
from pathlib import Path
from sealcast.mqtt.bridge import Bridge
from sealcast.mqtt.link import MqttLink
from sealcast.trust.handles import EntityRealm
link = MqttLink("127.0.0.1", int(sys.argv[2]), sys.argv[3], sys.argv[4])
Bridge(EntityRealm(Path(sys.argv[1])), link, ["quotes"], subscribers=sys.argv[5:]).run(threading.Event())
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_killed_bridges_lose_and_reorder_nothing(tmp_path: Path, version: str) -> None:
    """Killed -9 again and again, in the middle of both ways."""
    realm, published = realm_with(tmp_path / "realm"), events(400)
    with Mosquitto(tmp_path / "mosquitto").start() as server:
        arguments = [str(realm.paths.root), str(server.port), f"killed{version}", version, "ann", "eve"]

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-c", BRIDGE_PROCESS, *arguments])

        readers = {name: Client(realm, name, protocol=PROTOCOLS[version]) for name in ("ann", "eve")}
        got = {name: Collected(client) for name, client in readers.items()}
        for client in readers.values():
            client.connect("127.0.0.1", server.port)
            client.subscribe(TOPIC)
            client.loop_start()
            until(client.is_connected)
        with bridging(realm, server.port, version, client_id=arguments[2]):
            pass  # mosquitto knows the bridge's session now, and keeps its frames
        process = start()
        with connected(realm, "nyse", server.port, version) as nyse:
            for number, event in enumerate(published):
                nyse.publish(TOPIC, event.payload, qos=1, attributes=event.attributes)
                if number % 80 == 79:
                    before = in_log(realm)
                    until(lambda before=before: in_log(realm) > before, 60, every=0.002)
                    process.send_signal(signal.SIGKILL)
                    process.wait(20)
                    if in_log(realm):
                        pump(realm, TOPIC)
                    process = start()
            assert nyse.flush()
            until(lambda: in_log(realm) >= len(published), 60)
            pump(realm, TOPIC)
            wanted = {name: due(name, published) for name in readers}
            for name in readers:
                until(lambda name=name: len(got[name].payloads) >= len(wanted[name]), 60)
        time.sleep(0.5)
        for name, client in readers.items():
            assert got[name].payloads == wanted[name]
            client.close()
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    # The tail of the log is known to each new bridge: nothing was appended twice.
    assert in_log(realm) == len(published)


# --- the connection ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_restarted_mosquitto_is_found_again(tmp_path: Path, version: str) -> None:
    realm, published = realm_with(tmp_path / "realm"), events(40)
    with Mosquitto(tmp_path / "mosquitto").start() as server, bridging(realm, server.port, version, "ann") as bridge:
        with connected(realm, "ann", server.port, version) as ann:
            got = Collected(ann)
            ann.subscribe(TOPIC)
            with connected(realm, "nyse", server.port, version) as nyse:
                for event in published[:20]:
                    nyse.publish(TOPIC, event.payload, qos=1, attributes=event.attributes)
                assert nyse.flush()
                server.restart()
                for event in published[20:]:  # queued by the client until it is back
                    nyse.publish(TOPIC, event.payload, qos=1, attributes=event.attributes)
                assert nyse.flush(60)
            until(lambda: bridge.counts["frames"] >= 40, 60)
            pump(realm, TOPIC)
            until(lambda: len(got.payloads) >= len(due("ann", published)), 60)
            assert got.payloads == due("ann", published)
        assert bridge.counts["connections"] >= 2


def test_a_client_that_was_away_gets_what_it_missed(tmp_path: Path, mosquitto: Mosquitto) -> None:
    realm, published = realm_with(tmp_path / "realm"), events(50)
    with bridging(realm, mosquitto.port, "5", "ann", client_id="away-bridge"):
        with connected(realm, "ann", mosquitto.port, client_id="away") as ann:
            ann.subscribe(TOPIC)
            time.sleep(0.2)
        with Publisher(realm, TOPIC, "nyse") as publisher:
            publisher.publish(published)
        pump(realm, TOPIC)
        time.sleep(0.5)
        client = Client(realm, "ann", protocol=PROTOCOLS["5"], client_id="away")
        got = Collected(client)
        client.subscribe(TOPIC)
        client.connect("127.0.0.1", mosquitto.port)
        client.loop_start()
        until(lambda: len(got.payloads) >= len(due("ann", published)))
        assert got.payloads == due("ann", published)
        client.close()


def test_mail_waits_for_whoever_never_listened(tmp_path: Path) -> None:
    """MQTT 5 says that nobody listens. Then nothing counts as delivered."""
    realm, published = realm_with(tmp_path / "realm"), events(20)
    with Publisher(realm, TOPIC, "nyse") as publisher:
        publisher.publish(published)
    pump(realm, TOPIC)
    said: list[str] = []
    with (
        Mosquitto(tmp_path / "mosquitto").start() as server,
        bridging(realm, server.port, "5", "eve", told=said.append) as bridge,
    ):
        until(lambda: bridge.counts["unheard"])
        assert bridge.counts["deliveries"] == 0 and any("nobody listens" in text for text in said)
        with connected(realm, "eve", server.port) as eve:
            got = Collected(eve)
            eve.subscribe(TOPIC)
            until(lambda: len(got.payloads) >= len(due("eve", published)), 40)
            assert got.payloads == due("eve", published)


def test_a_retained_frame_goes_in_once(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """mosquitto sends it to every new connection that subscribes."""
    realm = realm_with(tmp_path / "realm")
    with Publisher(realm, TOPIC, "nyse") as publisher:
        ((_, frame),) = publisher.frames_for_brokers([Event({"price": 3}, b"kept")])
    plain = Paho(CallbackAPIVersion.VERSION2, "retaining")
    plain.connect("127.0.0.1", mosquitto.port)
    plain.loop_start()
    plain.publish(channels.frames(TOPIC), frame, qos=1, retain=True).wait_for_publish(10)
    try:
        for _ in range(3):
            with bridging(realm, mosquitto.port, "3.1.1", client_id="retained") as bridge:
                until(lambda bridge=bridge: bridge.counts["frames"] + bridge.counts["duplicates"])
        assert in_log(realm) == 1 and pump(realm, TOPIC)["admitted"] == 1
    finally:
        plain.publish(channels.frames(TOPIC), b"", qos=1, retain=True).wait_for_publish(10)
        plain.loop_stop()
        plain.disconnect()


def test_a_bridge_says_whether_it_is_there(tmp_path: Path, mosquitto: Mosquitto) -> None:
    realm = realm_with(tmp_path / "realm")
    said: list[bytes] = []
    plain = Paho(CallbackAPIVersion.VERSION2, "watching")
    plain.on_message = lambda client, userdata, message: said.append(message.payload)
    plain.connect("127.0.0.1", mosquitto.port)
    plain.subscribe(channels.presence("present"), 1)
    plain.loop_start()
    with bridging(realm, mosquitto.port, client_id="present"):
        until(lambda: said[-1:] == [b"online"])
    until(lambda: said[-1:] == [b"offline"])
    plain.loop_stop()
    plain.disconnect()


# --- who may, and what is refused -------------------------------------------------------------------------


def test_only_frames_of_the_realm_go_in(tmp_path: Path, mosquitto: Mosquitto) -> None:
    realm, other = realm_with(tmp_path / "realm"), realm_with(tmp_path / "other")
    realm.create_topic("side", SCHEMA, protection="payload", access="members")
    with Publisher(other, TOPIC, "nyse") as publisher:
        ((_, foreign),) = publisher.frames_for_brokers([Event({"price": 3}, b"foreign")])
    with Publisher(realm, "side", "nyse") as publisher:
        ((_, elsewhere),) = publisher.frames_for_brokers([Event({"price": 3}, b"elsewhere")])
    with Publisher(realm, TOPIC, "nyse") as publisher:
        ((_, fine),) = publisher.frames_for_brokers([Event({"price": 3}, b"fine")])
    altered = bytearray(fine)
    altered[fine.index(parse(fine).signature)] ^= 1
    said: list[str] = []
    with bridging(realm, mosquitto.port, client_id="picky", told=said.append) as bridge:
        plain = Paho(CallbackAPIVersion.VERSION2, "anybody")
        plain.connect("127.0.0.1", mosquitto.port)
        plain.loop_start()
        frames = [b"", b"rubbish", foreign, elsewhere, bytes(altered)]
        for data in frames:
            plain.publish(channels.frames(TOPIC), data, qos=1).wait_for_publish(10)
        plain.publish(channels.frames(TOPIC, "nobody"), fine, qos=1).wait_for_publish(10)
        plain.publish(f"{channels.frames(TOPIC)}/x/y", fine, qos=1).wait_for_publish(10)
        plain.publish(channels.frames(TOPIC), fine, qos=1).wait_for_publish(10)
        until(lambda: bridge.counts["frames"] == 1)
        plain.loop_stop()
        plain.disconnect()
        assert bridge.counts["refused"] == len(frames) + 2 == len(said) - 1  # and the connection
        assert bridge.counts["refused_broker"] == bridge.counts["refused_channel"] == 1
        assert bridge.counts["refused_topic"] >= 1 and bridge.counts["refused_frame"] >= 2
    assert in_log(realm) == 1 and pump(realm, TOPIC)["admitted"] == 1


def test_altered_and_repeated_mail_is_noticed(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """Whoever carries mail can withhold and repeat it. It can neither alter it nor hand it to somebody else."""
    realm, published = realm_with(tmp_path / "realm"), events(30)
    with Publisher(realm, TOPIC, "nyse") as publisher:
        publisher.publish(published)
    pump(realm, TOPIC)
    caught: list[bytes] = []
    plain = Paho(CallbackAPIVersion.VERSION2, "carrier")
    plain.on_message = lambda client, userdata, message: caught.append(message.payload)
    plain.connect("127.0.0.1", mosquitto.port)
    plain.subscribe(channels.mail(TOPIC, "ann"), 1)
    plain.loop_start()
    with (
        connected(realm, "ann", mosquitto.port, client_id="victim") as ann,
        connected(realm, "joe", mosquitto.port, client_id="joe") as joe,
    ):
        got, none = Collected(ann), Collected(joe)
        ann.subscribe(TOPIC)
        joe.subscribe(TOPIC)
        with bridging(realm, mosquitto.port, "5", "ann", client_id="carried"):
            until(lambda: len(got.payloads) == len(due("ann", published)))
        (data,) = caught
        count = len(got.payloads)
        for _ in range(3):
            plain.publish(channels.mail(TOPIC, "ann"), data, qos=1).wait_for_publish(10)
        until(lambda: ann.duplicates == 3 * count)
        for at in range(0, len(data), max(1, len(data) // 40)):
            altered = bytearray(data)
            altered[at] ^= 0x40
            plain.publish(channels.mail(TOPIC, "ann"), bytes(altered), qos=1).wait_for_publish(10)
        plain.publish(channels.mail(TOPIC, "ann"), b"rubbish", qos=1).wait_for_publish(10)
        plain.publish(channels.mail(TOPIC, "joe"), data, qos=1).wait_for_publish(10)
        until(lambda: ann.unopenable > 20)
        time.sleep(0.3)
        assert got.payloads == due("ann", published) and none.payloads == []
    plain.loop_stop()
    plain.disconnect()
    assert len(Mail.parse(data).part("ann", realm.state().slot_of(TOPIC, "ann")).part) == count


def test_who_loses_the_right_to_read_gets_no_more_mail(tmp_path: Path, mosquitto: Mosquitto) -> None:
    realm = realm_with(tmp_path / "realm")
    said: list[str] = []
    with connected(realm, "ann", mosquitto.port, client_id="ended") as ann:
        got = Collected(ann)
        ann.subscribe(TOPIC)
        with Publisher(realm, TOPIC, "nyse") as publisher:
            publisher.publish(events(10))
        pump(realm, TOPIC)
        realm.revoke_entity("ann")
        with bridging(realm, mosquitto.port, "5", "ann", client_id="ending", told=said.append) as bridge:
            until(lambda: any("waits" in text for text in said))
            assert bridge.counts["messages"] == 0 and got.payloads == []


def test_misuse_is_said(tmp_path: Path) -> None:
    realm = realm_with(tmp_path / "realm")
    with pytest.raises(Misuse, match="at least one topic"):
        Bridge(realm, MqttLink("127.0.0.1", 1, "x"), [])
    with pytest.raises(NotFound):
        Bridge(realm, MqttLink("127.0.0.1", 1, "x"), ["nothing"])
    with pytest.raises(NotFound):
        Bridge(realm, MqttLink("127.0.0.1", 1, "x"), [TOPIC], subscribers=["nobody"])
    with pytest.raises(Misuse, match="3.1.1 and 5"):
        MqttLink("127.0.0.1", 1, "x", "4")
    with pytest.raises(Misuse, match="with its key"):
        MqttLink("127.0.0.1", 1, "x", certificate=tmp_path)
    with (
        pytest.raises(Unavailable, match="no MQTT broker answers"),
        Bridge(realm, MqttLink("127.0.0.1", free_port(), "x"), [TOPIC]) as bridge,
    ):
        bridge.run(threading.Event())
    client = Client(realm, "nyse", through="bridge")
    for wrong, kind in [
        (lambda: client.publish(TOPIC, b"", qos=2), Misuse),
        (lambda: client.publish(TOPIC, b"", retain=True), Misuse),
        (lambda: client.will_set(TOPIC, b"in clear"), Misuse),
        (lambda: client.subscribe(TOPIC, 1), Misuse),  # type: ignore[arg-type]
        (lambda: client.publish("nothing", b""), NotFound),
        (lambda: client.subscribe("nothing", "price > 1"), NotFound),
        (lambda: client.subscribe(TOPIC), Misuse),
    ]:
        call: Callable[[], object] = wrong
        with pytest.raises(kind):
            call()
    with pytest.raises(Misuse, match="through a"):
        Client(realm, "nyse", through="pigeon").publish(TOPIC, b"")
    client.close()


def test_a_broker_that_refuses_is_told(tmp_path: Path) -> None:
    realm = realm_with(tmp_path / "realm")
    with Mosquitto(tmp_path / "closed", "allow_anonymous false").start() as server:
        for version in VERSIONS:
            with (
                pytest.raises(Unavailable, match="refuses the bridge"),
                Bridge(realm, MqttLink("127.0.0.1", server.port, "x", version), [TOPIC]) as bridge,
            ):
                bridge.run(threading.Event())


def test_once_ends_when_nothing_is_left(tmp_path: Path, mosquitto: Mosquitto) -> None:
    realm = realm_with(tmp_path / "realm")
    link = MqttLink("127.0.0.1", mosquitto.port, "once")
    with Bridge(realm, link, [TOPIC]) as bridge:
        bridge.run(threading.Event(), once=True)
    with connected(realm, "nyse", mosquitto.port, client_id="once-nyse") as nyse:
        for event in events(25):
            nyse.publish(TOPIC, event.payload, qos=1, attributes=event.attributes)
        assert nyse.flush()
    with Bridge(realm, link, [TOPIC]) as bridge:
        counts: defaultdict[str, int] = defaultdict(int, bridge.run(threading.Event(), once=True))
    assert counts["frames"] == 25 and in_log(realm) == 25
