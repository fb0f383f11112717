"""What the plug-in refuses: forged, damaged and misplaced messages, and tables that it must not use."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from sealcast.mqtt import channels
from sealcast.mqtt.table import Compiler, write_table
from sealcast.protections.searchable.blocks import most_trapdoors
from sealcast.wire.searching import packed_block
from tests.mqtt.clients import Listener
from tests.mqtt.mosquitto import Mosquitto
from tests.mqtt.plugged import CLIENTS, END, EVENTS, PUBLISHER, STRANGER, Plugged, made, numbers, truth, world_of
from tests.mqtt.plugged import plugged as plugged
from tests.mqtt.plugged import plugin as plugin
from tests.mqtt.sealed_world import SCHEMA, World, message

V5 = MQTTProtocolVersion.MQTTv5
REST = (9).to_bytes(4, "big")
EVERYTHING = "level >= 0"
VALUES = {"level": 5}


def everything() -> World:
    world = World()
    world.subscribe(CLIENTS[0], EVERYTHING)
    return world


def forged(world: World, what: str) -> bytes:
    block = world.block(PUBLISHER, VALUES)
    good = message(1, PUBLISHER, block, REST)
    first = block[5:75]
    off_curve = next(
        bad
        for n in range(100)
        if (bad := first[:4] + b"\x02" + bytes(31) + bytes([n]) + first[37:]) and not _on_curve(bad[4:37])
    )
    opposite = first[:37] + bytes([first[37] ^ 1]) + first[38:]
    return {
        "empty": b"",
        "another magic": b"SCQ2" + good[4:],
        "cut in the head": good[:20],
        "cut in the block": good[: len(good) - len(REST) - 1],
        "no name": message(1, "", block, REST),
        "header too long": good[:19] + b"\xff\xff\xff\xff" + good[23:],
        "offset too large": message(1, PUBLISHER, block, REST).replace(
            (3).to_bytes(4, "big") + b"rec", b"\xff" * 4 + b"rec"
        ),
        "offset into nowhere": message(1, PUBLISHER, b"XX" + block, REST),
        "too many trapdoors": message(1, PUBLISHER, b"SB1\xff\xff" + bytes(70 * 65535), REST),
        "more than the schema has": message(1, PUBLISHER, made_up(world), REST),
        "twice the same": message(1, PUBLISHER, b"SB1\x00\x02" + first * 2, REST),
        "off the curve": message(1, PUBLISHER, packed_block([off_curve]), REST),
        "infinity": message(1, PUBLISHER, packed_block([first[:4] + bytes(33) + first[37:]]), REST),
        "no point of the form": message(1, PUBLISHER, packed_block([first[:4] + b"\x04" + first[5:]]), REST),
        "another epoch": message(2, PUBLISHER, block, REST),
        "another's name": message(1, CLIENTS[0], block, REST),
        "a longer name": message(1, PUBLISHER + "\0", block, REST),
        "the other point": message(1, PUBLISHER, packed_block([opposite]), REST),
    }[what]


def made_up(world: World) -> bytes:
    keys = world.keys(PUBLISHER)
    return packed_block(keys.trapdoor(n.to_bytes(4, "big")) for n in range(most_trapdoors(SCHEMA) + 1))


def _on_curve(point: bytes) -> bool:
    from coincurve import PublicKey

    try:
        PublicKey(point)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("empty", "malformed"),
        ("another magic", "malformed"),
        ("cut in the head", "malformed"),
        ("cut in the block", "malformed"),
        ("no name", "malformed"),
        ("header too long", "malformed"),
        ("offset too large", "malformed"),
        ("offset into nowhere", "malformed"),
        ("too many trapdoors", "too many trapdoors"),
        ("more than the schema has", "too many trapdoors"),
        ("twice the same", "malformed"),
        ("off the curve", "not a point of the curve"),
        ("infinity", "not a point of the curve"),
        ("no point of the form", "not a point of the curve"),
        ("another epoch", "unknown epoch"),
        ("another's name", "the publisher is not the sender"),
        ("a longer name", "the publisher is not the sender"),
    ],
)
def test_what_is_forged_or_damaged_is_refused(plugged: Plugged, what: str, reason: str) -> None:
    world = everything()
    server = plugged.start(world)
    refused_and_counted(server, PUBLISHER, EVENTS, forged(world, what), reason)


def refused_and_counted(server: Mosquitto, user: str | None, topic: str, payload: bytes, reason: str) -> None:
    """Not delivered, said to be refused, counted, and logged without anything of it."""
    with Listener(server.port, CLIENTS[0]) as reader, Listener(server.port, user, version=V5) as publisher:
        reader.subscribe("#", 1)
        publisher.publish(topic, [payload], 1)
        assert [str(reason) for reason in publisher.acknowledged] == ["Not authorized"]
        end(server, reader)
    server.wait_for(f"refused a message: {reason} (1 since the start)")
    assert payload[5:] == b"" or payload.hex() not in server.said()


def end(server: Mosquitto, reader: Listener) -> None:
    """Until everything that was published before has come, which is nothing. Somebody else says so, since mosquitto
    ends the connection of an MQTT 5 client that it refused a message."""
    with Listener(server.port, STRANGER) as another:
        another.publish(END, [b"end"], 1)
    reader.wait_for(1)
    assert [topic for topic, _ in reader.got] == [END]


@pytest.mark.parametrize(
    ("user", "name", "topic", "reason"),
    [
        (None, PUBLISHER, EVENTS, "no user name"),
        (STRANGER, STRANGER, EVENTS, "no right to publish"),
        (STRANGER, PUBLISHER, EVENTS, "the publisher is not the sender"),
        (CLIENTS[0], CLIENTS[0], EVENTS, "no right to publish"),
        (PUBLISHER, PUBLISHER, channels.events("another"), "unknown topic"),
        (PUBLISHER, PUBLISHER, channels.events("f" * 100), "unknown topic"),
        (PUBLISHER, PUBLISHER, channels.events(""), "unknown topic"),
    ],
)
def test_who_may_not_publish_is_refused(plugged: Plugged, user: str | None, name: str, topic: str, reason: str) -> None:
    world = everything()
    server = plugged.start(world)
    refused_and_counted(server, user, topic, message(1, name, world.block(PUBLISHER, VALUES), REST), reason)


def test_a_trapdoor_of_another_point_matches_nothing(plugged: Plugged) -> None:
    world = everything()
    server = plugged.start(world)
    with Listener(server.port, CLIENTS[0]) as reader, Listener(server.port, PUBLISHER) as publisher:
        reader.subscribe("#", 1)
        publisher.publish(EVENTS, [forged(world, "the other point")], 1)
        end(server, reader)


def test_a_wrong_tag_finds_nothing_and_spoils_nothing(plugged: Plugged) -> None:
    """The same T under a wrong tag must not be remembered as meeting nobody."""
    world = everything()
    server = plugged.start(world)
    block = world.block(PUBLISHER, VALUES)
    trapdoors = [block[at : at + 70] for at in range(5, len(block), 70)]
    lying = packed_block(bytes([part[0], part[1], part[2] ^ 1, part[3]]) + part[4:] for part in trapdoors)
    with Listener(server.port, CLIENTS[0]) as reader, Listener(server.port, PUBLISHER) as publisher:
        reader.subscribe("#", 1)
        publisher.publish(EVENTS, [message(1, PUBLISHER, lying, (1).to_bytes(4, "big"))], 1)
        publisher.publish(EVENTS, [message(1, PUBLISHER, block, (2).to_bytes(4, "big"))], 1)
        publisher.publish(END, [b"end"], 1)
        reader.wait_for(2)
        assert numbers(reader) == [2]


# --- tables -----------------------------------------------------------------------------------------------------------


def _cut(table: Path) -> None:
    write(table, table.read_bytes()[:-1])


def _damaged(table: Path) -> None:
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    write(table, bytes(data))


def _readable(table: Path) -> None:
    write(table, table.read_bytes())
    table.chmod(0o640)


def _earlier(table: Path) -> None:
    write(table, b"SCQT1" + table.read_bytes()[5:])


def _later(table: Path) -> None:
    write(table, b"SCQT3" + table.read_bytes()[5:])


def _linked(table: Path) -> None:
    target = table.with_name("elsewhere")
    write(target, table.read_bytes())
    link = table.with_name("link")
    link.symlink_to(target)
    os.replace(link, table)


def write(path: Path, data: bytes) -> None:
    temporary = path.with_name("temporary")
    temporary.write_bytes(data)
    temporary.chmod(0o600)
    os.replace(temporary, path)


BAD = [
    (_cut, "its checksum is wrong"),
    (_damaged, "its checksum is wrong"),
    (_readable, "others than its owner can read it"),
    (_earlier, "it is no table of this version"),
    (_later, "it is no table of this version"),
    (_linked, "it cannot be opened"),
    (Path.unlink, "it cannot be opened"),
]


@pytest.mark.parametrize(("harm", "reason"), BAD)
def test_a_bad_table_leaves_the_last_good_one_in_use(plugged: Plugged, harm: object, reason: str) -> None:
    assert callable(harm)
    world = world_of(CLIENTS[:3])
    server = plugged.start(world)
    harm(plugged.table)
    server.wait_for(f"is not used: {reason}")
    events, payloads = made(world, 100)
    with Listener(server.port, CLIENTS[0]) as reader, Listener(server.port, PUBLISHER) as publisher:
        reader.subscribe("#", 1)
        publisher.publish(EVENTS, payloads, 1)
        publisher.publish(END, [b"end"], 1)
        wanted = truth(world, CLIENTS[0], events)
        reader.wait_for(len(wanted) + 1)
        assert numbers(reader) == wanted
    assert server.said().count("is not used") == 1
    if plugged.table.is_symlink():
        plugged.table.unlink()
    plugged.replace(world, 2)


@pytest.mark.parametrize(("harm", "reason"), BAD)
def test_the_server_does_not_start_on_a_bad_table(plugged: Plugged, harm: object, reason: str) -> None:
    """It would refuse everybody, and mosquitto would drop what waits for them."""
    assert callable(harm)
    plugged.put(everything())
    harm(plugged.table)
    with pytest.raises(AssertionError, match=reason):
        plugged.start()


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("plugin_opt_prefix sealcast", "has to end in /"),
        ("plugin_opt_prefix sealed/+/", "cannot have"),
        ("plugin_opt_tabel x", "plugin_opt_tabel is no option"),
        ("plugin_opt_table x", "plugin_opt_table is given twice"),
    ],
)
def test_the_server_does_not_start_with_options_that_make_no_sense(plugged: Plugged, option: str, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        plugged.start(everything(), option)


def test_a_prefix_of_ones_own(plugged: Plugged) -> None:
    world = everything()
    server = plugged.start(world, "plugin_opt_prefix deep/down/")
    events, payloads = made(world, 20)
    topic = "deep/down/fleet/events"
    with Listener(server.port, CLIENTS[0]) as reader, Listener(server.port, PUBLISHER) as publisher:
        reader.subscribe("deep/#", 1)
        publisher.publish(topic, payloads, 1)
        reader.wait_for(len(truth(world, CLIENTS[0], events)))
        assert {where for where, _ in reader.got} == {topic}


def test_tables_replaced_all_the_time_lose_nothing(plugged: Plugged) -> None:
    world = world_of(CLIENTS[:2])
    server = plugged.start(world)
    compiler, random = Compiler(), Random(3)
    events, payloads = made(world, 400)
    with Listener(server.port, CLIENTS[0]) as reader, Listener(server.port, PUBLISHER) as publisher:
        reader.subscribe("#", 1)
        for at in range(0, 400, 20):
            write_table(plugged.table, compiler.compile(at + 2, [world.topic([PUBLISHER])]))
            if random.random() < 0.3:
                server.wait_for(f"table version {at + 2} ")
            publisher.publish(EVENTS, payloads[at : at + 20], 1)
        publisher.publish(END, [b"end"], 1)
        wanted = truth(world, CLIENTS[0], events)
        reader.wait_for(len(wanted) + 1)
        assert numbers(reader) == wanted
