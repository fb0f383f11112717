"""Suite `scale`: how the cost of a broker grows, measured here, for the arithmetic of docs/scale.md.

    events           CPU per event of four times the events, beside once: 1 where work grows with events
    subscriptions    CPU per event among ten times the subscriptions, of which no more match: 1 where it does not grow
    deliveries       CPU per event with four times the deliveries, beside once: below 4, since an event is sealed once
    stored-bytes     bytes of a sealed event with four times the deliveries, beside once
    read-bytes       bytes that are read for each event, beside those that the driver is told of it

CPU of the kernels alone, from frames to sealed pieces (`workload.Kernels`), on one core, warm. The least of some
rounds counts. Spark, Python's crossings and the carrier come on top.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from sealcast.bench import workload
from sealcast.bench.report import BenchRow
from sealcast.bench.workload import EVENTS_PER_FRAME, PAYLOAD_BYTES, PUBLISHERS, TOPIC, FramePublisher, Kernels
from sealcast.broker.replay import CLAIM
from sealcast.lab import market, scratch
from sealcast.trust.deployment import Realm
from sealcast.wire import sealed

EVENTS: Final = 20_000
QUICK_EVENTS: Final = 4_000
ROUNDS: Final = 3
READERS: Final = 100
#: That events are about. A reader that asks for one gets one event of so many.
SYMBOLS: Final = 200
_FEW, _MANY, _ELSEWHERE = 10, 40, 90


class BatchCost(NamedTuple):
    """Of one batch, for each of its events."""

    cpu_us: float
    stored_bytes: float
    deliveries: float
    frame_bytes: float


def rows(*, quick: bool = False) -> Iterator[BenchRow]:
    """Ours is the larger one, the reference the smaller one."""
    count = QUICK_EVENTS if quick else EVENTS
    once = _measured(count, _FEW)
    more = _measured(4 * count, _FEW)
    wide = _measured(count, _FEW, _ELSEWHERE)
    deep = _measured(count, _MANY)
    unit, subscriptions = "CPU us per event", f"{READERS * _FEW:,} subscriptions"
    yield _row("events", more.cpu_us, once.cpu_us, f"{count:,} events at once", unit)
    yield _row("subscriptions", wide.cpu_us, once.cpu_us, subscriptions, unit)
    yield _row("deliveries", deep.cpu_us, once.cpu_us, f"{once.deliveries:.1f} deliveries per event", unit)
    yield _row("stored-bytes", deep.stored_bytes, once.stored_bytes, "a quarter of the deliveries", "bytes per event")
    told = CLAIM.itemsize / EVENTS_PER_FRAME
    yield _row("read-bytes", once.frame_bytes, told, "what the driver is told", "bytes per event")


def _row(name: str, larger: float, smaller: float, about: str, unit: str) -> BenchRow:
    return BenchRow(name, larger, smaller, about, larger / smaller, unit)


def _measured(count: int, each: int, elsewhere: int = 0) -> BatchCost:
    """With readers that ask for `each` symbols of those that events are about, and for others beside them."""
    with scratch.realm(need_bytes=1 << 30) as realm:
        _subscribe(realm, each, elsewhere)
        source, kernels = FramePublisher(realm, TOPIC, PUBLISHERS), Kernels(realm)
        ticks = market.ticks(
            count, seed=3, n_symbols=SYMBOLS, payload_bytes=PAYLOAD_BYTES, popularity=workload.POPULARITY
        )
        source.append(ticks.columns, ticks.payloads)
        source.close()
        pieces = list[sealed.SealedPiece]()
        kernels.run(made=pieces.append)  # and the first time, which loads tables and keys, does not count
        spent = min(kernels.run() for _ in range(ROUNDS))
        stored = sum(len(sealed.encode(piece)) for piece in pieces)
        frames = sum(path.stat().st_size for path in realm.paths.topic(TOPIC).frames_root.rglob("*.seg"))
        return BatchCost(
            spent / count * 1e6,
            stored / count,
            sum(int(piece.deliveries) for piece in pieces) / count,
            frames / count,
        )


def _subscribe(realm: Realm, each: int, elsewhere: int) -> None:
    dice, names = np.random.default_rng(1), market.symbols(SYMBOLS * 100)
    readers = [f"desk-{number}" for number in range(READERS)]
    realm.create_topic(TOPIC, market.SCHEMA, partitions=len(PUBLISHERS), access="members")
    realm.enrol_many([*PUBLISHERS, *readers])
    wanted = list[tuple[str, str, None]]()
    for reader in readers:
        traded = dice.choice(SYMBOLS, each, replace=False)
        others = SYMBOLS + dice.choice(SYMBOLS * 99, elsewhere, replace=False)
        wanted += [(reader, f"symbol = '{names[n]}' AND size >= 1", None) for n in (*traded, *others)]
    realm.subscribe_many(TOPIC, wanted)
