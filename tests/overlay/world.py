"""A realm with several brokers, run by the pipeline's own kernels and the real forwarder, without Spark; and what
everybody should get, by a plain oracle that knows nothing of brokers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.log.embedded import EmbeddedLog
from sealcast.model import Event, Schema
from sealcast.overlay import moves
from sealcast.overlay.routing import Forwarder
from sealcast.trust.deployment import Realm
from tests.clients.pump import pump

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})


class World:
    """Brokers `broker`, `b1`, `b2`, ...; publishers `p0`, `p1`; each event has a number of its own as its payload."""

    def __init__(self, directory: Path, brokers: int = 2, partitions: int = 1) -> None:
        self.realm = Realm.create(directory)
        self.realm.create_topic(TOPIC, SCHEMA, partitions=partitions, access="members")
        self.brokers = ["broker", *(f"b{n}" for n in range(1, brokers))]
        for name in self.brokers[1:]:
            self.realm.add_broker(name, [TOPIC])
        self.realm.enrol_many(["p0", "p1"])
        self._publishers: dict[tuple[str, str], Publisher] = {}
        self._readers: dict[str, Subscriber] = {}
        self._filters: dict[str, int] = {}
        self._events = 0
        #: Which events each subscriber should have in the end, and has.
        self.due: dict[str, set[int]] = {}
        self.got: dict[str, list[int]] = {}

    # --- doing ----------------------------------------------------------------------------------------

    def subscribe(self, name: str, above: int, broker: str | None = None) -> None:
        self.realm.enrol(name)
        self.realm.subscribe(TOPIC, name, f"price > {above}", broker=broker)
        self._filters[name], self.due[name], self.got[name] = above, set(), []

    def publish(self, publisher: str, broker: str, prices: list[int]) -> None:
        key = publisher, broker
        if key not in self._publishers:
            self._publishers[key] = Publisher(self.realm, TOPIC, publisher, broker=broker)
        numbers = range(self._events, self._events + len(prices))
        self._events += len(prices)
        events = [Event({"price": p}, str(n).encode()) for n, p in zip(numbers, prices, strict=True)]
        self._publishers[key].publish(events)
        for name, above in self._filters.items():
            self.due[name].update(n for n, p in zip(numbers, prices, strict=True) if p > above)

    def run(self, broker: str) -> Counter[str]:
        """One batch of what is there, if anything is."""
        with self.realm.frames(TOPIC, broker) as log:
            ends = [log.partition(p).end() for p in range(log.partitions)]
        return Counter(pump(self.realm, TOPIC, broker=broker)) if any(ends) else Counter()

    def forward(self, broker: str) -> int:
        with Forwarder(self.realm, broker) as forwarder:
            return sum(forwarder.once().values())

    def move(self, name: str, broker: str) -> None:
        moves.move(self.realm, TOPIC, name, broker)

    def settle(self) -> list[str]:
        return [name for _, name in moves.settle(self.realm)]

    def read(self, name: str, most: int = 1_000, *, ack: bool = True) -> None:
        if name not in self._readers:
            self._readers[name] = Subscriber(self.realm, TOPIC, name)
        reader = self._readers[name]
        self.got[name] += [int(event.payload) for event in reader.poll(most)]
        if ack:
            reader.ack()

    def restart(self, name: str) -> None:
        """A reader that dies; it has acknowledged all that it had."""
        if name in self._readers:
            self._readers.pop(name).close()

    def inject(self, origin: str, destination: str) -> None:
        """Somebody copies whatever was published at one broker to another's log."""
        with self.realm.frames(TOPIC, origin) as there, self.realm.frames(TOPIC, destination) as here:
            for one, other in zip(there.own, here.own, strict=True):
                copied = [record.data for record in EmbeddedLog(there.directory / str(one)).read(0)]
                if copied:
                    here.partition(other).append(copied)

    def rest(self) -> None:
        """Until nothing happens any more."""
        for _ in range(4):
            for broker in self.brokers:
                self.run(broker)
            for broker in self.brokers:
                self.forward(broker)
            self.settle()
        for name in self.due:
            self.read(name)

    # --- judging --------------------------------------------------------------------------------------

    def judge(self) -> None:
        for name, due in self.due.items():
            got = Counter(self.got[name])
            assert set(got) == due, (name, "lost", due - set(got), "unexpected", set(got) - due)
            assert max(got.values(), default=1) == 1, (name, "twice", [n for n, times in got.items() if times > 1])

    def close(self) -> None:
        for publisher in self._publishers.values():
            publisher.close()
        for name in list(self._readers):
            self.restart(name)
