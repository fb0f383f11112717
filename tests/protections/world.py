"""A realm with one topic, driven as a user drives it, whatever protects the topic: the public API, the commands and
Spark; and what everybody should have got, by the reference evaluator.

What a client does goes through `member`, `subscribe` and `ask`, so that clients may be elsewhere than the realm
(tests/remote/far.py)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Self

from sealcast import Event, Position, Publisher, Realm, Right, Schema, Subscriber, run
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.outbox import OutboxTopic
from sealcast.model.protection import PROTECTIONS, Protection
from sealcast.protections.attribute.carry import carry
from sealcast.trust.handles import EntityRealm
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

    #: What its brokers run on.
    spark: SparkSession | None = None
    #: What its brokers counted, for whoever ran them first.
    totals: Mapping[str, int]

    def __init__(self, directory: Path, protection: str, **settings: Any) -> None:
        realm = self._create(directory)
        realm.create_topic(TOPIC, SCHEMA, protection=protection, **settings, access="members")
        realm.enrol_many([*PUBLISHERS, *FILTERS, "mallory"])
        self._open(realm)
        for name, texts in FILTERS.items():
            for text in texts:
                self.subscribe(name, text)

    def _create(self, directory: Path) -> Realm:
        """A realm of its own, with its registry where this world keeps it."""
        return Realm.create(directory)

    def _open(self, realm: Realm) -> None:
        self.realm = realm
        self._random = Random(7)
        self._publishers: dict[str, Publisher] = {}
        #: What was published, and where it went; what each subscriber should have got.
        self.published: dict[Position, Event] = {}
        self.due: dict[str, list[bytes]] = {name: [] for name in FILTERS}

    def copy(self, directory: Path) -> Self:
        """The same realm once more, elsewhere: making one takes longer than most cases."""
        self._copy_realm(directory)
        other = object.__new__(type(self))
        other._open(Realm(directory))
        other.published, other.spark = dict(self.published), self.spark
        other.due = {name: list(payloads) for name, payloads in self.due.items()}
        return other

    def _copy_realm(self, directory: Path) -> None:
        """Its directory and its registry."""
        copy_realm(self.realm.paths.root, directory)

    # --- as its clients -------------------------------------------------------------------------------

    def member(self, name: str) -> EntityRealm:
        """The realm as this client reaches it."""
        return self.realm

    def subscribe(self, name: str, text: str) -> None:
        self.realm.subscribe(TOPIC, name, text)

    def reader(self, name: str, **settings: Any) -> Subscriber:
        return Subscriber(self.member(name), TOPIC, as_=name, **settings)

    def ask(self, name: str, *arguments: object, code: int = 0) -> Result:
        """A command that this client runs."""
        return self.command(*arguments, code=code)

    def refuses(self, name: str, *arguments: object) -> bool:
        """Whether this client's command is refused where the client is, as it should be there."""
        return False

    def lags(self) -> dict[str, int]:
        """How many events wait for each subscriber, as `status` says."""
        found = [t for t in self.command("status", "--json").document["topics"] if t["topic"] == TOPIC]
        lag = {name: n for each in found for name, n in each["lag"]["subscribers"].items()}
        return {name: lag.get(name, 0) for name in FILTERS}

    def settle(self) -> None:
        """Returns when every client has heard of everything."""

    def rotate(self) -> None:
        self.realm.rotate(TOPIC)
        self.settle()

    def revoke(self, name: str, right: Right) -> None:
        self.realm.revoke(TOPIC, name, [right])
        self.settle()

    def add_broker(self, name: str) -> None:
        """One more, which serves the topic."""
        self.realm.add_broker(name, [TOPIC])
        self.settle()

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

    def publisher(self, name: str, **settings: Any) -> Publisher:
        """The same one again, unless it is to have other settings."""
        if settings or name not in self._publishers:
            self._publishers[name] = Publisher(self.member(name), TOPIC, as_=name, **settings)
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

    def deliver(self, spark: SparkSession) -> None:
        """Published by two, with a frame that comes again and one that is none; run to the end."""
        self.spark = spark
        for publisher in ("nyse", "xetra"):
            self.publish(publisher, 30)
        self.append_again()
        self.append_rubbish()
        self.totals = self.run()

    def run(self, spark: SparkSession | None = None, **settings: Any) -> dict[str, int]:
        """By whoever carries the topic's events: its brokers, or its peers, who have no settings."""
        if self.protection.peers:
            return carry(self.realm, [TOPIC])
        return run(self.realm, [TOPIC], once=True, spark=spark or self.spark, **settings)

    def drop_checkpoints(self) -> None:
        for path in sorted(self.realm.paths.root.rglob("checkpoint")):
            shutil.rmtree(path)

    def got(self, name: str) -> list[bytes]:
        with self.reader(name, from_=0) as reader:
            return [event.payload for event in reader]

    def judge(self) -> None:
        """The ledger checker has nothing to say."""
        assert self.command("check", TOPIC, "--json").document["ok"]

    def check(self) -> None:
        for name, due in self.due.items():
            assert sorted(self.got(name)) == sorted(due), name

    def close(self) -> None:
        for publisher in self._publishers.values():
            publisher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def command(self, *arguments: object, code: int = 0) -> Result:
        done = sealcast(*arguments, "--realm", self.realm.paths.root)
        assert done.code == code, done.err
        return done


def names() -> list[str]:
    return list(PROTECTIONS)
