"""A realm with a topic, publishers and subscribers, and an independent word on what each of them must get.

The expectation is worked out from the events as they were handed to the publishers, by the reference evaluator: without
index, keys, log, ledger or Spark. What was got is what subscribers open with their own keys.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import FilterRejected
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.lab.attacks import RATES
from sealcast.model import Event, OpenedEvent, Schema
from sealcast.protections.port import ClientSide, client_side, witness_side
from sealcast.protections.witness.report import CheckReport
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.realm.topics import Topic

TOPIC: Final = "quotes"
SCHEMA: Final = Schema.from_json(
    {
        "attributes": [
            {"name": "number", "type": "int", "min": 0},
            {"name": "price", "type": "int", "min": 0, "max": 999},
            {"name": "symbol", "type": "string", "max_length": 40},
        ]
    }
)
PUBLISHERS: Final = ("ann", "ben", "cid")
FILTERS: Final = {
    "all": "price >= 0",
    "cheap": "price < 100",
    "range": "price BETWEEN 300 AND 500",
    "even": "number % 2 = 0",
    "acme": "symbol = 'ACME'",
    "prefix": "symbol LIKE 'Z%'",
    "either": "symbol IN ('ACME', 'ZEN') OR price > 990",
    "never": "price < 0",
}
SYMBOLS: Final = ("ACME", "ZEN", "ZOO", "BOLT")

#: Which of its publisher's events it was, by the number that it carries, and its payload.
Said = tuple[int, bytes]


class Field:
    """Publishes known events, and knows who must have opened which of them at the end."""

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int = 2,
        seed: int = 7,
        parameters: KeyParameters = RATES,
        protection: str = "endpoint",
        registry: str | None = None,
    ) -> None:
        self.realm = Realm.create(directory, registry=registry)
        about = self.realm.create_topic(
            TOPIC, SCHEMA, partitions=partitions, parameters=parameters, protection=protection, access="members"
        )
        side = client_side(about.protection)
        #: Those that the protection can express.
        self.filters = {name: text for name, text in FILTERS.items() if _expressed(side, text, about)}
        self.realm.enrol_many([*PUBLISHERS, *FILTERS])
        side.subscribe_many(self.realm, TOPIC, [(name, text, None) for name, text in self.filters.items()])
        self.paths = self.realm.paths.topic(TOPIC)
        self.said: dict[str, list[Event]] = {name: [] for name in PUBLISHERS}
        self._dice = random.Random(seed)
        self._publishers = {name: Publisher(self.realm, TOPIC, name) for name in PUBLISHERS}
        self._log = self.realm.frames(TOPIC, read_only=True)

    def join(self, name: str, text: str) -> None:
        """One more subscriber, who is to get what was published before, too."""
        self.realm.enrol_many([name])
        side = client_side(self.realm.state().topic(TOPIC).protection)
        side.subscribe_many(self.realm, TOPIC, [(name, text, None)])
        self.filters[name] = text

    def publish(self, name: str, count: int, size: int = 24) -> None:
        """One frame of `count` events, durable on return."""
        first = len(self.said[name])
        events = [self.event(name, number, size) for number in range(first, first + count)]
        self._publishers[name].publish(events)
        self.said[name] += events

    def event(self, name: str, number: int, size: int = 24) -> Event:
        attributes = {"number": number, "price": self._dice.randrange(1000), "symbol": self._dice.choice(SYMBOLS)}
        return Event(attributes, f"{name} {number} ".encode() + self._dice.randbytes(size))

    def publish_round(self, largest: int = 9) -> None:
        """A frame of each publisher."""
        for name in PUBLISHERS:
            self.publish(name, self._dice.randint(1, largest))

    def frames(self) -> int:
        """How many frames the log has."""
        return sum(self._log.partition(p).end() for p in range(self._partitions()))

    def close(self) -> None:
        self._log.close()
        for publisher in self._publishers.values():
            publisher.close()

    # --- the comparison -----------------------------------------------------------------------------

    def expected(self, subscriber: str) -> dict[str, list[Said]]:
        condition = parse(self.filters[subscriber], SCHEMA)
        return {
            publisher: [
                (event.attributes["number"], event.payload)  # type: ignore[misc]
                for event in events
                if evaluate(condition, SCHEMA.parse(event.attributes), event.payload) is True
            ]
            for publisher, events in self.said.items()
        }

    def opened(self, subscriber: str) -> dict[str, list[Said]]:
        return by_publisher(self.read(subscriber))

    def read(self, subscriber: str) -> list[OpenedEvent]:
        """Its whole mailbox, opened; its cursor stays."""
        with Subscriber(self.realm, TOPIC, subscriber, from_=0) as reader:
            return list(reader)

    def check(self) -> int:
        """Everybody got exactly what it should, each event once and in its publisher's order; how many that were."""
        total = 0
        for subscriber in self.filters:
            opened, expected = self.opened(subscriber), self.expected(subscriber)
            for publisher in PUBLISHERS:
                got, wanted = opened[publisher], expected[publisher]
                assert got == wanted, _difference(subscriber, publisher, got, wanted)
                total += len(got)
        return total

    def audit(self) -> CheckReport:
        """The same by the product's own checker."""
        (audit,) = witness_side(self.realm.state().topic(TOPIC).protection).audits(
            self.realm, TOPIC, by_reference=False
        )
        return audit.run(lambda done: None)

    def _partitions(self) -> int:
        return self.realm.state().topic(TOPIC).partitions


def by_publisher(events: list[OpenedEvent]) -> dict[str, list[Said]]:
    said: dict[str, list[Said]] = {name: [] for name in PUBLISHERS}
    for event in events:
        number = event.attributes["number"]
        assert isinstance(number, int)
        said[event.publisher].append((number, event.payload))
    return said


def _difference(subscriber: str, publisher: str, got: list[Said], wanted: list[Said]) -> str:
    numbers, due = [n for n, _ in got], [n for n, _ in wanted]
    lost, more = sorted(set(due) - set(numbers)), sorted(set(numbers) - set(due))
    twice = sorted({n for n in numbers if numbers.count(n) > 1}) if len(numbers) != len(set(numbers)) else []
    ordered = numbers == sorted(numbers)
    return f"{subscriber} from {publisher}: lost {lost}, unexpected {more}, twice {twice}, in order: {ordered}"


def _expressed(side: ClientSide, text: str, about: Topic) -> bool:
    try:
        side.vet(text, about)
    except FilterRejected:
        return False
    return True
