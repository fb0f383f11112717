"""Rows `remote-publish` and `remote-open` of suite `network`: what a client costs whose realm is behind a gateway.

    ours        CPU of the client's process, over TLS to a gateway in another process
    reference   CPU of the same client on the embedded log

Frames have a thousand events. Both clients run in this process, turn about, and do all that they do in earnest: a
publisher seals, sends and keeps the gateway's signed receipts; a subscriber reads ledger and pieces from the start,
verifies and opens. The ratio is the reference by ours: the share of the embedded client's events that a CPU second
gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from sealcast.bench.end_to_end_publish import SCHEMA, events
from sealcast.bench.network_world import GATEWAY, HOST, ServerProcess, gateway_and_services, home
from sealcast.bench.report import BenchRow, side_by_side
from sealcast.clients.publisher import EVENTS_PER_FRAME, Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.lab import scratch
from sealcast.pipeline import run
from sealcast.pipeline.session import session
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import EntityRealm

FRAMES: Final = 20
ROUNDS: Final = 9
#: The same for a first look.
QUICK: Final = (4, 3)
TOPIC, PUBLISHER, READER = "ticks", "publisher", "reader"
_SPACE: Final = 1 << 30


def rows(*, quick: bool = False) -> Iterator[BenchRow]:
    """CPU microseconds for an event."""
    frames, rounds = QUICK if quick else (FRAMES, ROUNDS)
    with scratch.directory(_SPACE) as directory:
        realm = Realm.create(directory / "realm", "network")
        realm.create_topic(TOPIC, SCHEMA, access="members")
        realm.enrol_many([PUBLISHER, READER])
        realm.add_gateway(GATEWAY, [HOST])
        realm.subscribe(TOPIC, READER, "volume >= 0")
        with closing(ServerProcess(gateway_and_services, realm.paths.root)) as gate:
            far = home(realm, gate.port, directory / "home", PUBLISHER, READER)
            yield _publish(realm, far, frames, rounds)
            yield _open(realm, far, frames, rounds)


def _publish(realm: Realm, far: EntityRealm, frames: int, rounds: int) -> BenchRow:
    tables = [events(EVENTS_PER_FRAME) for _ in range(frames)]

    def publish(publisher: Publisher) -> None:
        """A request for each frame: whoever publishes more at a time pays less for it."""
        for table in tables:
            publisher.publish(table)

    with Publisher(far, TOPIC, PUBLISHER) as remote, Publisher(realm, TOPIC, PUBLISHER) as embedded:
        ours, reference = side_by_side(lambda: publish(remote), lambda: publish(embedded), rounds)
    return _row("remote-publish", ours, reference, frames * EVENTS_PER_FRAME)


def _open(realm: Realm, far: EntityRealm, frames: int, rounds: int) -> BenchRow:
    spark = session("local[2]", short_lived=True, clients=False)
    run.run(realm, [TOPIC], once=True, spark=spark)
    count = frames * EVENTS_PER_FRAME

    def read(at: EntityRealm) -> None:
        with Subscriber(at, TOPIC, READER, from_=0) as subscriber:
            got = 0
            while got < count:
                got += len(subscriber.poll())

    ours, reference = side_by_side(lambda: read(far), lambda: read(realm), rounds)
    return _row("remote-open", ours, reference, count)


def _row(name: str, ours: float, reference: float, count: int) -> BenchRow:
    each = 1e6 / count
    return BenchRow(
        name, ours * each, reference * each, "the same on the embedded log", reference / ours, "client CPU us/event"
    )
