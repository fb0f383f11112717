"""Row `gateway-latency` of suite `network`: from `publish` to the opened event, with the pipeline running on Spark.

    ours        publisher and subscriber both reach the realm through a gateway in another process
    reference   both are on the embedded log

Events go one at a time, turn about, through the same running pipeline; each has a reader of its own. The ratio is ours
by the reference, of the medians. Times are of a clock on the wall: nearly all of both is the pipeline's micro-batch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Final

from sealcast.bench.network_world import GATEWAY, HOST, PATIENCE_S, ServerProcess, gateway_and_services, home
from sealcast.bench.report import BenchRow
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Unavailable
from sealcast.lab import scratch
from sealcast.model.event import Event
from sealcast.model.schema import Schema
from sealcast.pipeline import run
from sealcast.pipeline.session import session
from sealcast.trust.deployment import Realm

EVENTS: Final = 40
#: Events before any is counted: keys come, and Java compiles what it runs often.
WARM: Final = 8
#: The same for a first look.
QUICK: Final = (4, 2)
TOPIC, PUBLISHER = "ticks", "publisher"
_READERS: Final = ("near", "far")
_SPACE: Final = 256 << 20
_SCHEMA: Final = Schema.from_json({"attributes": [{"name": "way", "type": "int", "min": 0, "max": 1}]})


class Reached:
    """A publisher and a subscriber that reach the realm in the same way."""

    def __init__(self, publisher: Publisher, subscriber: Subscriber, number: int) -> None:
        self._publisher, self._subscriber, self._number = publisher, subscriber, number

    def once(self) -> float:
        """Seconds until an event is opened."""
        begin = time.monotonic()
        self._publisher.publish_one(Event({"way": self._number}, b"x" * 256))
        while not self._subscriber.poll(timeout=5.0):
            if time.monotonic() - begin > PATIENCE_S:
                raise Unavailable("an event of the benchmark was not delivered")
        return time.monotonic() - begin


def rows(*, quick: bool = False) -> Iterator[BenchRow]:
    """Milliseconds, the median."""
    events, warm = QUICK if quick else (EVENTS, WARM)
    with scratch.directory(_SPACE) as directory, ExitStack() as held:
        realm = Realm.create(directory / "realm", "network")
        realm.create_topic(TOPIC, _SCHEMA, access="members")
        realm.enrol_many([PUBLISHER, *_READERS])
        realm.add_gateway(GATEWAY, [HOST])
        for number, reader in enumerate(_READERS):
            realm.subscribe(TOPIC, reader, f"way = {number}")
        gate = held.enter_context(closing(ServerProcess(gateway_and_services, realm.paths.root)))
        sites = (realm, home(realm, gate.port, directory / "home", PUBLISHER, _READERS[1]))
        spark = session("local[2]", short_lived=True, clients=False)
        held.enter_context(run.start(realm, [TOPIC], spark=spark))
        ways = [
            Reached(
                held.enter_context(Publisher(site, TOPIC, PUBLISHER)),
                held.enter_context(Subscriber(site, TOPIC, reader)),
                number,
            )
            for number, (site, reader) in enumerate(zip(sites, _READERS, strict=True))
        ]
        taken = [[way.once() for way in ways] for _ in range(warm + events)][warm:]
    near, far = (statistics.median(column) * 1e3 for column in zip(*taken, strict=True))
    yield BenchRow(
        "gateway-latency", far, near, "the same on the embedded log", far / near, "ms from publish to opened"
    )
