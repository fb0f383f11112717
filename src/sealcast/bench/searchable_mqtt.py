"""Rows `mqtt` of suite `searchable`: what the encrypted matching costs inside mosquitto.

    mqtt         the plug-in beside plain mosquitto; publishers use their trapdoors again
    mqtt-fresh   the same with fresh trapdoors in every event
    mqtt-qos1    as `mqtt`, at QoS 1

A fleet of sensors: an event has a sensor's number, and 20 clients have 10,000 subscriptions to one sensor each. With
the plug-in, all events go to one MQTT topic and the subscriptions are sealed filters. Plain mosquitto has a topic for
each sensor and 10,000 MQTT subscriptions. A plain event is what a sealed one has besides its trapdoors.

Both deliver the same events to the same clients, which is counted. Rates are events per second of CPU time that the
server takes: clients are cheap and run elsewhere. The ratio is ours by plain.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from sealcast.bench.mqtt_load import Clients, MqttServer, publish_packet
from sealcast.bench.report import BenchRow
from sealcast.errors import Unavailable
from sealcast.filters.check import check
from sealcast.filters.labels import Labeller, label_filter
from sealcast.filters.parse import parse
from sealcast.model.schema import Attribute, Schema, Type
from sealcast.mqtt import channels
from sealcast.mqtt.messages import Message
from sealcast.mqtt.table import Compiler, TableEpoch, TableFilter, TableTopic, write_table
from sealcast.primitives.groups import Exponent
from sealcast.primitives.halves import MasterKey, broker_half
from sealcast.primitives.secrets import Secret
from sealcast.protections.searchable.scheme import Holder, UserKeys
from sealcast.wire.limits import MAX_TRAPDOORS
from sealcast.wire.searching import packed_block

PLUGIN: Final = Path(__file__).parents[3] / "mqtt-plugin" / "build" / "sealcast_mosquitto.so"
CLIENTS: Final = 20
SUBSCRIPTIONS: Final = 10_000
SENSORS: Final = 2_000
EVENTS: Final = 20_000
FRESH_EVENTS: Final = 2_000
#: What an event has besides: a signed header, and an envelope.
HEADER_BYTES: Final = 300
ENVELOPE_BYTES: Final = 300
_ROUNDS: Final = 5
_TOPIC: Final = "fleet"
_TOPIC_ID: Final = bytes(16)
_PUBLISHER: Final = "gateway"
_SCHEMA: Final = Schema((Attribute("sensor", Type.INT, min=0, max=SENSORS - 1),))
_TAG_BITS: Final = 16


def rows(events: int = EVENTS, fresh: int = FRESH_EVENTS, rounds: int = _ROUNDS) -> Iterator[BenchRow]:
    """Events per CPU second of the server."""
    fleet = Fleet(Random(1))
    yield _row("mqtt", fleet, fleet.sensors(events), 0, rounds)
    yield _row("mqtt-fresh", fleet, fleet.sensors(fresh), 0, rounds, fresh=True)
    yield _row("mqtt-qos1", fleet, fleet.sensors(events), 1, rounds)


def _row(name: str, fleet: Fleet, sensors: Sequence[int], qos: int, rounds: int, *, fresh: bool = False) -> BenchRow:
    if not PLUGIN.exists():
        raise Unavailable("the plug-in for mosquitto is not built", hint="make mqtt-plugin")
    due = {client: sum(sensor in wanted for sensor in sensors) for client, wanted in fleet.wanted.items()}
    with ExitStack() as stack:
        plain = stack.enter_context(MqttServer())
        table = plain.directory / "table"
        write_table(table, Compiler().compile(1, [fleet.table()]))
        plugged = stack.enter_context(MqttServer(f"plugin {PLUGIN}", f"plugin_opt_table {table}"))
        theirs = Clients(plain, _PUBLISHER, fleet.plain_topics(), qos)
        stack.callback(theirs.close)
        ours = Clients(plugged, _PUBLISHER, {client: [channels.events(_TOPIC)] for client in fleet.wanted}, qos)
        stack.callback(ours.close)
        in_clear = [publish_packet(_plain(s), fleet.payload, qos, n) for n, s in enumerate(sensors)]
        theirs.run(in_clear, due)
        spent: list[tuple[float, float]] = []
        for turn in range(rounds + 1):
            messages = (fleet.message(sensor, fresh) for sensor in sensors)
            sealed = [publish_packet(channels.events(_TOPIC), body, qos, n) for n, body in enumerate(messages)]
            pair = (_seconds(plugged, ours, sealed, due), _seconds(plain, theirs, in_clear, due))
            spent += [pair] if turn else []  # the first round fills the memos
    mine, reference = (len(sensors) / statistics.median(side) for side in zip(*spent, strict=True))
    return BenchRow(
        name, mine, reference, "plain mosquitto, one topic per sensor", mine / reference, "events per CPU s"
    )


def _seconds(server: MqttServer, clients: Clients, packets: Sequence[bytes], due: dict[str, int]) -> float:
    before = server.cpu_seconds()
    clients.run(packets, due)
    return server.cpu_seconds() - before


def _plain(sensor: int) -> str:
    return f"{_TOPIC}/{sensor:06}"


@dataclass
class Fleet:
    """Who wants which sensors, and everybody's keys."""

    random: Random

    def __post_init__(self) -> None:
        each, self._master = SUBSCRIPTIONS // CLIENTS, MasterKey.derive(Secret(b"m" * 32), b"fleet")
        self.wanted = {f"client{n:02}": frozenset(self.random.sample(range(SENSORS), each)) for n in range(CLIENTS)}
        self.payload = self.random.randbytes(HEADER_BYTES + ENVELOPE_BYTES)
        self._labeller, self._keys = Labeller(_SCHEMA), self._user_keys(_PUBLISHER)
        self._trapdoors: dict[bytes, bytes] = {}

    def sensors(self, count: int) -> list[int]:
        return [self.random.randrange(SENSORS) for _ in range(count)]

    def plain_topics(self) -> dict[str, list[str]]:
        return {client: [_plain(sensor) for sensor in sorted(wanted)] for client, wanted in self.wanted.items()}

    def _half(self, user: str) -> Exponent:
        return broker_half(Secret(b"t" * 32), user.encode())

    def _user_keys(self, user: str) -> UserKeys:
        return UserKeys(self._master.part(self._half(user)), Holder(_TOPIC_ID, 1, user), _TAG_BITS)

    def table(self) -> TableTopic:
        filters = []
        for client, wanted in self.wanted.items():
            keys, half = self._user_keys(client), self._half(client)
            for sensor in wanted:
                found = label_filter(check(parse(f"sensor = {sensor}"), _SCHEMA).condition, _SCHEMA)
                filters.append(TableFilter(client, half, keys.seal_filter([c.slots for c in found.conjunctions])))
        epoch = TableEpoch(1, {_PUBLISHER: self._half(_PUBLISHER)}, filters)
        return TableTopic(_TOPIC, _TOPIC_ID, MAX_TRAPDOORS, [epoch])

    def message(self, sensor: int, fresh: bool) -> bytes:
        labels = self._labeller.labels({"sensor": sensor})
        if not fresh:
            self._trapdoors |= {each: self._keys.trapdoor(each) for each in labels if each not in self._trapdoors}
        made = self._keys.block(labels) if fresh else packed_block(self._trapdoors[each] for each in labels)
        header, envelope = self.payload[:HEADER_BYTES], self.payload[HEADER_BYTES:]
        return Message(1, _PUBLISHER, header, 0, made + envelope).to_bytes()
