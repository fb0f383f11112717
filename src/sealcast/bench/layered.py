"""Suite `layered`: what a layer and a hop cost.

    curve          one power modulo the prime of 2,048 bits over one on the curve, both on elements in memory; with the
                   same kind of arithmetic on both sides, whose time depends on the exponent
    hop            the token work of a hop (take the layer off, look up, put a layer on) without caches over the same
                   with them, warm: labels Zipf 1.1 over 10,000, the caches of the default size
    payload-key    an event's whole way, from the publisher through two hops to one subscriber who opens it, with a
                   payload key for every event (the default) over that with one for up to 64 events that have the same
                   labels; tokens are cached on both sides. `docs/layered-cost.md` says what the reuse costs
    table-growth   a hop's cost per event with 1,000,000 rows over that with 1,000; a row costs no power to make here

A ratio below the one that is asked for is reported like any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.bench.report import BenchRow, side_by_side
from sealcast.errors import Bug
from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.lab.market import zipf
from sealcast.lab.shikfa.net import Net
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import CachedHashes, Element, Exponent, Group
from sealcast.primitives.modular import group14
from sealcast.primitives.secrets import Secret
from sealcast.protections.layered.layers import MAX_CACHED_TOKENS, Layers, shared_exponent
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.table import RoutingTable
from sealcast.protections.layered.tree import Tree, TreePlace

LABELS: Final = 10_000
EVENTS: Final = 4_000
TOKENS_PER_EVENT: Final = 5
SKEW: Final = 1.1
SLICES: Final = 40
LABEL_SETS: Final = 500
KEY_USES: Final = 64
SMALL: Final = 1_000
LARGE: Final = 1_000_000
_PLACE: Final = TreePlace("B", ("A", "P"), "P", 2)
_BELOW: Final = ("C", "D")
_PAYLOAD: Final = bytes(100)


def rows() -> Iterator[BenchRow]:
    yield curve_row()
    yield hop_row()
    yield payload_key_row()
    yield growth_row()


def curve_row(slices: int = SLICES, exponents: int = 8, count: int = 80) -> BenchRow:
    """Several exponents, since they take different times. Of each, slices of a few milliseconds, both groups in turn,
    and the best on each side: what else goes on makes some slices slow, and is no property of either group."""
    reference = group14()
    spent = [side_by_side(_work(CURVE, count), _work(reference, 1), slices, min) for _ in range(exponents)]
    mine, other = sum(a for a, _ in spent) / (exponents * count) * 1e6, sum(b for _, b in spent) / exponents * 1e6
    return BenchRow("curve", mine, other, f"{reference.name}, one layer", other / mine, "us per layer")


def _work(group: Group, count: int) -> Callable[[], object]:
    exponent = Exponent.derive(Secret.random(), group.order, b"bench")
    elements = [group.hash(i.to_bytes(4, "big")) for i in range(count)]
    return lambda: group.power_many(elements, exponent)


def _broker(cached: int, table: RoutingTable) -> RoutingNode:
    keys = {name: shared_exponent(Secret(bytes(32)), CURVE, b"bench", "B", name) for name in ("A", "P", "C", "D")}
    return RoutingNode(_PLACE, Layers(CURVE, keys, cached), table)


def _events(labels: Sequence[bytes], count: int, seed: int) -> list[list[bytes]]:
    return [[labels[i] for i in event] for event in _zipf(len(labels), (count, TOKENS_PER_EVENT), seed).tolist()]


def _zipf(kinds: int, shape: tuple[int, ...], seed: int) -> NDArray[np.int64]:
    return zipf(np.random.default_rng(seed), kinds, shape, SKEW)


def hop_row(events: int = EVENTS, labels: int = LABELS) -> BenchRow:
    """Measures a hop where somebody behind one path asks for half of the labels."""
    hashes = CachedHashes(CURVE, b"bench")
    tokens = [CURVE.encode(hashes(i.to_bytes(4, "big"))) for i in range(labels)]
    table = RoutingTable()
    cached, uncached = _broker(MAX_CACHED_TOKENS, table), _broker(0, table)
    for token in tokens[::2]:
        table.add(((cached.take_off(token),),), _BELOW)
    arriving = _events(tokens, events, seed=1)
    few = arriving[: events // 10]  # the slow side is measured on a tenth

    def hops(broker: RoutingNode, over: list[list[bytes]]) -> None:
        for event in over:
            for path, hit in broker.secure_look_up(event).items():
                for element in hit:
                    broker.layers.add(path[-1], element)

    mine, other = side_by_side(lambda: hops(cached, arriving), lambda: hops(uncached, few), rounds=3)
    mine, other = mine / len(arriving) * 1e6, other / len(few) * 1e6
    return BenchRow("hop", mine, other, "the same without caches", other / mine, "us per event")


def payload_key_row(events: int = EVENTS // 4, sets: int = LABEL_SETS, uses: int = KEY_USES) -> BenchRow:
    """Events take their labels from so many sets, the popular ones more often."""
    labels = [i.to_bytes(4, "big") for i in range(sets * TOKENS_PER_EVENT)]
    chosen = [frozenset(labels[i : i + TOKENS_PER_EVENT]) for i in range(0, len(labels), TOKENS_PER_EVENT)]
    arriving = [chosen[i] for i in _zipf(sets, (events,), seed=3).tolist()]

    def way(key_uses: int) -> Net:
        """One subscriber, who wants whatever has any of these labels."""
        net = Net(Tree("P", {"A": "P", "B": "A", "S": "B"}), CURVE, key_uses=key_uses)
        net.subscribe("S", LabelFilter((Conjunction((tuple(labels),)),)))
        return net

    def send(net: Net) -> None:
        for event in arriving:
            if net.publish(event, _PAYLOAD).got != {"S"}:
                raise Bug("an event did not reach the one who wants it")
        net.sent.clear()  # a log that grows would be measured, too

    reused, fresh = way(uses), way(1)

    mine, other = side_by_side(lambda: send(reused), lambda: send(fresh), rounds=5)
    mine, other = mine / events * 1e6, other / events * 1e6
    return BenchRow("payload-key", mine, other, "a key for every event", other / mine, "us per event")


def growth_row(small: int = SMALL, large: int = LARGE, events: int = EVENTS) -> BenchRow:
    """The same events meet the same 500 rows in both tables; the others are conjunctions that they miss."""
    hashes = CachedHashes(CURVE, b"bench")
    tokens = [CURVE.encode(hashes(i.to_bytes(4, "big"))) for i in range(small)]
    arriving = _events(tokens, events, seed=2)
    brokers = []
    for size in (small, large):
        broker = _broker(MAX_CACHED_TOKENS, RoutingTable())
        for token in tokens[: small // 2]:
            broker.table.add(((broker.take_off(token),),), _BELOW)
        for i in range(size - len(broker.table)):
            broker.table.add(((_filler(2 * i),), (_filler(2 * i + 1),)), _BELOW)
        brokers.append(broker)

    def hops(broker: RoutingNode) -> None:
        for event in arriving:
            broker.secure_look_up(event)

    with_few, with_many = brokers
    mine, other = side_by_side(lambda: hops(with_many), lambda: hops(with_few), rounds=7)
    mine, other = mine / events * 1e6, other / events * 1e6
    return BenchRow("table-growth", mine, other, f"{small:,} rows instead of {large:,}", mine / other, "us per event")


def _filler(number: int) -> Element:
    """Makes something as long and as random as an element: a table does not look inside."""
    return Element(hashlib.shake_128(number.to_bytes(8, "big")).digest(64))
