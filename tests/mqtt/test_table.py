"""The table of the plug-in: what is in it, what is not, and the command that writes it for a realm."""

from __future__ import annotations

import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from sealcast.errors import Misuse
from sealcast.filters.labels import Labeller
from sealcast.model.schema import Value
from sealcast.mqtt import Client, channels
from sealcast.mqtt.table import Compiler, TableEpoch, TableFilter, TableTopic, write_table
from sealcast.protections.searchable.client import refresh_here
from sealcast.protections.searchable.keys import user_keys
from tests.cli.shell import sealcast, spawn
from tests.mqtt.clients import Listener
from tests.mqtt.mosquitto import build
from tests.mqtt.plugged import CLIENTS, PUBLISHER, Plugged, made, world_of
from tests.mqtt.plugged import plugin as plugin
from tests.mqtt.sealed_world import TOPIC, TOPIC_ID, World, message, number_in
from tests.mqtt.servers import until
from tests.protections.world import FILTERS, PUBLISHERS, SCHEMA
from tests.protections.world import TOPIC as QUOTES
from tests.protections.world import World as RealmWorld


def test_only_its_owner_can_read_a_table(tmp_path: Path) -> None:
    write_table(tmp_path / "table", Compiler().compile(1, [world_of(CLIENTS[:1]).topic([PUBLISHER])]))
    assert stat.S_IMODE((tmp_path / "table").stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "table"]


def test_a_table_holds_no_half_of_a_reader() -> None:
    """A reader's half has done its work when its labels are re-encrypted."""
    world = world_of(CLIENTS)
    table = Compiler().compile(1, [world.topic([PUBLISHER])]).data
    assert world.half(PUBLISHER).packed in table
    assert not any(world.half(user).packed in table for user in CLIENTS)


def test_a_label_is_re_encrypted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world, compiler = world_of(CLIENTS[:3]), Compiler()
    first = compiler.compile(1, [world.topic([PUBLISHER])])
    asked: list[bytes] = []
    monkeypatch.setattr("sealcast.mqtt.table.re_encrypt", lambda labels, half: asked.extend(labels) or [])
    assert compiler.compile(1, [world.topic([PUBLISHER])]) == first
    assert asked == [] and first.labels > 0


@pytest.mark.parametrize(
    "topic",
    [
        TableTopic("no/name", TOPIC_ID, 9, []),
        TableTopic(TOPIC, TOPIC_ID[1:], 9, []),
        TableTopic(TOPIC, TOPIC_ID, 9, [TableEpoch(1, {"no name": World().half("x")}, [])]),
        TableTopic(
            TOPIC,
            TOPIC_ID,
            9,
            [TableEpoch(2, {}, [TableFilter("x", World().half("x"), World().keys("x").seal_filter([]))])],
        ),
    ],
)
def test_what_makes_no_sense_gets_into_no_table(topic: TableTopic) -> None:
    with pytest.raises(Misuse):
        Compiler().compile(1, [topic])


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.soak)])
def test_the_parsers_survive_damage(tmp_path: Path, seconds: int) -> None:
    """Under the address and undefined behaviour sanitizers, for a while, the same on every run."""
    world = world_of(CLIENTS[:4], tag_bits=2)
    world.subscribe(CLIENTS[0], "level < 50", epoch=2)
    _, payloads = made(world, 4)
    write_table(tmp_path / "table", Compiler().compile(1, [world.topic([PUBLISHER])]))
    for number, payload in enumerate(payloads):
        (tmp_path / str(number)).write_bytes(payload)
    files = [tmp_path / "table", TOPIC, *(tmp_path / str(number) for number in range(4))]
    fuzz = build(tmp_path, "fuzz")
    done = subprocess.run(
        [fuzz, str(seconds), "7", *files], capture_output=True, text=True, timeout=seconds + 60, check=False
    )
    assert done.returncode == 0, done.stderr
    rounds, tables, messages = (int(word) for word in done.stdout.split() if word.isdigit())
    assert rounds > 1000 and 0 < tables < rounds and 0 < messages < rounds


# --- a realm's ------------------------------------------------------------------------------------------------------


@pytest.fixture
def realm(tmp_path: Path) -> RealmWorld:
    return RealmWorld(tmp_path / "realm", "searchable")


@pytest.fixture
def served(tmp_path: Path, plugin: Path, realm: RealmWorld) -> Iterator[Plugged]:
    found = Plugged(tmp_path, plugin, [*FILTERS, *PUBLISHERS, "mallory"])
    yield found
    found.stop()


def blocks(realm: RealmWorld, publisher: str, events: list[dict[str, Value]]) -> list[bytes]:
    """Events as this publisher seals them for brokers, numbered."""
    state = realm.realm.state()
    about = state.topic(QUOTES)
    keys = user_keys(realm.realm.identity(publisher).topic_keys(state, QUOTES), about, about.epoch, publisher)
    labeller = Labeller(SCHEMA)
    return [
        message(about.epoch, publisher, keys.block(labeller.labels(values)), number.to_bytes(4, "big"))
        for number, values in enumerate(events)
    ]


def some(random: Random, count: int) -> list[dict[str, Value]]:
    return [{"price": random.randrange(256), "symbol": random.choice(["A", "B1", "B2", "C"])} for _ in range(count)]


def delivered(port: int, publisher: str, payloads: list[bytes]) -> dict[str, list[int]]:
    """Which events each reader gets."""
    with ExitStack() as stack:
        readers = {name: stack.enter_context(Listener(port, name)).subscribe("#", 1) for name in FILTERS}
        with Listener(port, publisher) as sending:
            sending.publish(channels.events(QUOTES), payloads, 1)
            sending.publish("end", [b"end"], 1)
        for reader in readers.values():
            end = time.monotonic() + 20
            while not any(topic == "end" for topic, _ in reader.got):
                assert time.monotonic() < end
                time.sleep(0.01)
        return {name: [number_in(body) for at, body in each.got if at != "end"] for name, each in readers.items()}


def wanted(realm: RealmWorld, events: list[dict[str, Value]], without: tuple[str, ...] = ()) -> dict[str, list[int]]:
    from sealcast import Event

    found: dict[str, list[int]] = {name: [] for name in FILTERS}
    for number, values in enumerate(events):
        for name in realm.wanting(Event(values, b"")):
            if name not in without:
                found[name].append(number)
    return found


def test_a_realms_table_serves_its_readers(served: Plugged, realm: RealmWorld) -> None:
    written = realm.command("mqtt", "table", served.table, "--json").document
    assert (written["topics"], written["subscriptions"]) == (1, sum(map(len, FILTERS.values())))
    assert written["version"] == realm.realm.state().version
    events = some(Random(1), 60)
    server = served.start()
    assert delivered(server.port, "nyse", blocks(realm, "nyse", events)) == wanted(realm, events)


def test_clients_of_ours_open_what_the_plug_in_delivers(served: Plugged, realm: RealmWorld) -> None:
    """Real events, sealed and signed, through `sealcast.mqtt.Client`: everybody opens what it asked for."""
    realm.command("mqtt", "table", served.table)
    server = served.start()
    events = some(Random(4), 30)
    due = {name: [str(number).encode() for number in each] for name, each in wanted(realm, events).items()}
    got: dict[str, list[bytes]] = {name: [] for name in FILTERS}
    subscribed = threading.Semaphore(0)
    with ExitStack() as stack:
        clients: dict[str, Client] = {}
        for name in (*FILTERS, "nyse"):
            client = clients[name] = Client(realm.realm, name, password=name[::-1])
            client.on_message = lambda _client, _data, found, name=name: got[name].append(found.payload)
            client.on_subscribe = lambda *_: subscribed.release()
            client.connect("127.0.0.1", server.port)
            if name in FILTERS:
                client.subscribe(QUOTES, qos=1)
            client.loop_start()
            stack.callback(client.disconnect)
            stack.callback(client.loop_stop)
        assert all(subscribed.acquire(timeout=20) for _ in FILTERS)
        until(clients["nyse"].is_connected)
        for number, values in enumerate(events):
            clients["nyse"].publish(QUOTES, str(number).encode(), qos=1, attributes=values).wait_for_publish(20)
        end = time.monotonic() + 20
        while got != due and time.monotonic() < end:
            time.sleep(0.05)
        assert got == due
        assert all((each.unopenable, each.unwanted, each.duplicates) == (0, 0, 0) for each in clients.values())


def test_a_watched_table_follows_the_registry(served: Plugged, realm: RealmWorld) -> None:
    events = some(Random(2), 40)
    watching = spawn("mqtt", "table", served.table, "--watch", "--realm", realm.realm.paths.root)
    try:
        end = time.monotonic() + 60
        while not served.table.exists():
            assert watching.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        server = served.start()
        assert delivered(server.port, "nyse", blocks(realm, "nyse", events)) == wanted(realm, events)
        realm.command("entity", "revoke", "eve")
        for _ in refresh_here(realm.realm, QUOTES):
            pass  # a new epoch: the others register their filters again
        server.wait_for(f"table version {realm.realm.state().version} ")
        after = delivered(server.port, "xetra", blocks(realm, "xetra", events))
        assert after == wanted(realm, events, without=("eve",))
    finally:
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0, watching.communicate()


def test_who_lost_the_right_to_publish_has_no_half_in_the_table(served: Plugged, realm: RealmWorld) -> None:
    realm.command("mqtt", "table", served.table)
    server = served.start()
    payload = blocks(realm, "nyse", some(Random(3), 1))[0]
    realm.command("revoke", QUOTES, "nyse", "publish")
    realm.command("mqtt", "table", served.table)
    server.wait_for(f"table version {realm.realm.state().version} ")
    with Listener(server.port, "nyse") as publisher:
        publisher.client.publish(channels.events(QUOTES), payload, 0)
        server.wait_for("refused a message: no right to publish")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--owner", "nobody-of-this-name"), "this system has no user"),
        (("--broker", "elsewhere"), "elsewhere"),
        (("nothing",), "there is no topic 'nothing'"),
    ],
)
def test_the_command_says_what_it_cannot_do(realm: RealmWorld, arguments: tuple[str, ...], says: str) -> None:
    table = realm.realm.paths.root / "table"
    done = sealcast("mqtt", "table", table, *arguments, "--realm", realm.realm.paths.root)
    assert done.code == 1 and says in done.err
    assert not table.exists()


def test_topics_of_other_protections_are_refused_by_name_and_left_out_otherwise(realm: RealmWorld) -> None:
    realm.realm.create_topic("clear", SCHEMA, protection="payload", access="members")
    table = realm.realm.paths.root / "table"
    refused = realm.command("mqtt", "table", table, "clear", code=1)
    assert "cannot match it by ciphertexts" in refused.err
    assert realm.command("mqtt", "table", table, "--json").document["topics"] == 1
