"""A realm with one topic, driven as a user drives it, whatever protects the topic: the public API, the commands and
Spark; and what everybody should have got, by the reference evaluator."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from sealcast import Event, Position, Publisher, Realm, Schema, Subscriber, run
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.outbox import OutboxTopic
from sealcast.model.protection import PROTECTIONS, Protection
from sealcast.protections.attribute.carry import carry
from tests.cli.shell import Result, sealcast
from tests.copies import copy_realm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "quotes"
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "price", "type": "int", "min": 0, "max": 255},
            {"name": "symbol", "type": "string", "max_length": 8},
        ]
    }
)
PUBLISHERS = ("nyse", "xetra")
#: In the words that every protection has: equality, ranges, prefixes, AND, OR.
FILTERS: Mapping[str, tuple[str, ...]] = {
    "ann": ("price < 80",),
    "bob": ("price >= 64 AND symbol = 'A'", "price = 3"),
    "eve": ("price < 80", "symbol LIKE 'B%'"),
    "joe": ("symbol = 'nobody'",),
}


class World:
    """One topic under one protection."""

    def __init__(self, directory: Path, protection: str, **settings: Any) -> None:
        self._open(Realm.create(directory))
        self.realm.create_topic(TOPIC, SCHEMA, protection=protection, **settings, access="members")
        self.realm.enrol_many([*PUBLISHERS, *FILTERS, "mallory"])
        for name, texts in FILTERS.items():
            for text in texts:
                self.realm.subscribe(TOPIC, name, text)

    def _open(self, realm: Realm) -> None:
        self.realm = realm
        self._random = Random(7)
        self._publishers: dict[str, Publisher] = {}
        #: What was published, and where it went; what each subscriber should have got.
        self.published: dict[Position, Event] = {}
        self.due: dict[str, list[bytes]] = {name: [] for name in FILTERS}

    def copy(self, directory: Path) -> World:
        """The same realm once more, elsewhere: making one takes longer than most cases."""
        copy_realm(self.realm.paths.root, directory)
        other = object.__new__(World)
        other._open(Realm(directory))
        other.published = dict(self.published)
        other.due = {name: list(payloads) for name, payloads in self.due.items()}
        return other

    @property
    def protection(self) -> Protection:
        return self.realm.state().topic(TOPIC).protection

    # --- publishing -----------------------------------------------------------------------------------

    def publish(self, publisher: str, count: int, *, without: tuple[str, ...] = ()) -> list[Position]:
        """Random events; everyone is due those that match, but for `without`."""
        events = [
            Event(
                {"price": self._random.randrange(256), "symbol": self._random.choice(["A", "B1", "B2", "C"])},
                f"{publisher} {self._random.getrandbits(64):x}".encode(),
            )
            for _ in range(count)
        ]
        positions = self.publisher(publisher).publish(events)
        self.published |= dict(zip(positions, events, strict=True))
        for event in events:
            for name in self.wanting(event):
                if name not in without:
                    self.due[name].append(event.payload)
        return positions

    def publisher(self, name: str) -> Publisher:
        if name not in self._publishers:
            self._publishers[name] = Publisher(self.realm, TOPIC, as_=name)
        return self._publishers[name]

    def true_of(self, text: str) -> list[str]:
        """The payloads of all that was published and that a filter is true of, by the reference evaluator."""
        wanted = fit(parse(text), SCHEMA)
        found = (e for e in self.published.values() if evaluate(wanted, dict(e.attributes)) is True)
        return [event.payload.decode() for event in found]

    @staticmethod
    def wanting(event: Event) -> list[str]:
        """Who wants an event, by the reference evaluator."""
        return [
            name
            for name, texts in FILTERS.items()
            if any(evaluate(fit(parse(text), SCHEMA), dict(event.attributes)) is True for text in texts)
        ]

    def taking_frames(self) -> Iterator[BrokerTopic | OutboxTopic]:
        """The frame logs that publishers append to."""
        if self.protection.peers:
            for publisher in PUBLISHERS:
                with self.realm.outbox(TOPIC, publisher) as own:
                    yield own
            return
        for broker in self.realm.state().brokers():
            if self.realm.paths.topic(TOPIC, broker).frames_root.is_dir():
                with self.realm.frames(TOPIC, broker) as log:
                    if any(log.partition(p).end() for p in log.own):
                        yield log

    def append_again(self) -> None:
        """The first frame of each publisher, once more, wherever it was published."""
        first = 1 if self.protection.peers else len(PUBLISHERS)  # in a log of its own, or in one for all
        for log in self.taking_frames():
            for partition in log.own:
                part = log.partition(partition)
                part.append([record.data for record in part.read(0, min(first, part.end()))])

    def append_rubbish(self) -> None:
        """What is no frame, in every log."""
        for log in self.taking_frames():
            log.partition(log.own[0]).append([b"this is no frame"])

    # --- running and reading ---------------------------------------------------------------------------

    def run(self, spark: SparkSession) -> dict[str, int]:
        """By whoever carries the topic's events: its brokers, or its peers."""
        if self.protection.peers:
            return carry(self.realm, [TOPIC])
        return run(self.realm, [TOPIC], once=True, spark=spark)

    def drop_checkpoints(self) -> None:
        for path in sorted(self.realm.paths.root.rglob("checkpoint")):
            shutil.rmtree(path)

    def got(self, name: str) -> list[bytes]:
        with Subscriber(self.realm, TOPIC, as_=name, from_=0) as reader:
            return [event.payload for event in reader]

    def check(self) -> None:
        for name, due in self.due.items():
            assert sorted(self.got(name)) == sorted(due), name

    def command(self, *arguments: object, code: int = 0) -> Result:
        done = sealcast(*arguments, "--realm", self.realm.paths.root)
        assert done.code == code, done.err
        return done


def names() -> list[str]:
    return list(PROTECTIONS)
