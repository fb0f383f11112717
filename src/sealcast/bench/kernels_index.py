"""Rows `index`, `index-growth` and `index-one` of `sealcast bench kernels`: what matching costs, and how it grows.

The first two depend on how selective filters are, on the form of the answer and on how the reference is written, so
each has neighbours that show by how much: `index-blocked`, `index-narrow` and `index-wide` beside `index`,
`index-growth-pairs` beside `index-growth`. `index-one` says how much dearer an event is that comes alone.

The workloads are here in full. Times are CPU time of this process, the median of several runs, both sides in turns.
The reference is plain broadcasting, what anyone would write first with numpy: a micro-batch of 1,024 events, all its
comparisons in one expression. `index-blocked` grants it what a second look would find: the same expression over a few
events at a time, so that its intermediate arrays stay in the cache. The answers are compared bit by bit before
anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.bench.report import BenchRow, side_by_side
from sealcast.errors import Bug
from sealcast.filters.index import Index
from sealcast.filters.tree import And, Between, Compare, Comparison, Condition, Literal, Name
from sealcast.model.schema import Attribute, Schema, Type

EVENTS: Final = 16_384
SUBSCRIPTIONS: Final = 10_000
#: The share of an attribute's domain that a subscription's range covers, evenly distributed between these two.
#: Of 10,000 subscriptions, an event then reaches about 12; 5 where ranges are narrow; 200 where they are wide.
MODERATE: Final = (0.02, 0.2)
NARROW: Final = (0.01, 0.15)
WIDE: Final = (0.1, 0.5)
SYMBOLS: Final = 5_000
_REFERENCE_EVENTS: Final = 1_024
#: Events at a time with which broadcasting is fastest here.
_BLOCK: Final = 64
_ROUNDS: Final = 9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class IndexWorkload:
    schema: Schema
    conditions: list[Condition]
    columns: pa.RecordBatch


# --- workloads ----------------------------------------------------------------------------------


def three_ranges(
    subscriptions: int, events: int, share: tuple[float, float] = MODERATE, seed: int = 1
) -> tuple[IndexWorkload, Floats, Floats, Floats]:
    """Three attributes, each filter a range on each: centre anywhere in the domain, width as `share` says.

    Events are even over the domain. Also the bounds and events as arrays, for the reference.
    """
    random = np.random.default_rng(seed)
    names = ("a", "b", "c")
    schema = Schema(tuple(Attribute(name, Type.FLOAT) for name in names))
    centre = random.random((3, subscriptions)) * 1_000.0
    half = random.uniform(*share, (3, subscriptions)) * 500.0
    low, high, values = centre - half, centre + half, random.random((3, events)) * 1_000.0
    conditions: list[Condition] = [
        And(tuple(Between(Name(n), Literal(float(low[a, i])), Literal(float(high[a, i]))) for a, n in enumerate(names)))
        for i in range(subscriptions)
    ]
    columns = pa.RecordBatch.from_arrays([pa.array(v) for v in values], names=list(names))
    return IndexWorkload(schema, conditions, columns), low, high, values


def symbol_and_price(subscriptions: int, events: int, seed: int = 2) -> IndexWorkload:
    """One of 5,000 symbols, a price range of a tenth of the domain, a least volume: each filter says what it said
    whatever the number of subscriptions is, and matches about one event in 100,000."""
    random = np.random.default_rng(seed)
    schema = Schema(
        (
            Attribute("symbol", Type.STRING),
            Attribute("price", Type.FLOAT, min=0.0, max=1_000.0),
            Attribute("volume", Type.INT, min=0, max=9_999),
        )
    )
    low = random.random(subscriptions) * 900.0
    conditions: list[Condition] = [
        And(
            (
                Compare(Comparison.EQ, Name("symbol"), Literal(f"S{symbol}")),
                Between(Name("price"), Literal(float(price)), Literal(float(price) + 100.0)),
                Compare(Comparison.GE, Name("volume"), Literal(int(volume))),
            )
        )
        for symbol, price, volume in zip(
            random.integers(0, SYMBOLS, subscriptions), low, random.integers(0, 10_000, subscriptions), strict=True
        )
    ]
    columns = pa.RecordBatch.from_arrays(
        [
            pa.array([f"S{i}" for i in random.integers(0, SYMBOLS, events)]),
            pa.array(random.random(events) * 1_000.0),
            pa.array(random.integers(0, 10_000, events)),
        ],
        names=["symbol", "price", "volume"],
    )
    return IndexWorkload(schema, conditions, columns)


# --- the reference ------------------------------------------------------------------------------


def broadcast(low: Floats, high: Floats, values: Floats, chunk: int) -> NDArray[np.bool_]:
    """Every (event, subscription, bound) compared by broadcasting, `chunk` events at a time."""
    out = np.empty((values.shape[1], low.shape[1]), np.bool_)
    for start in range(0, values.shape[1], chunk):
        some = values[:, start : start + chunk, None]
        out[start : start + chunk] = ((low[:, None, :] <= some) & (some <= high[:, None, :])).all(axis=0)
    return out


# --- rows ---------------------------------------------------------------------------------------


def rows() -> Iterator[BenchRow]:
    """Microseconds of CPU per event, and how many times faster than the reference or dearer than with fewer filters."""
    yield _beside_broadcasting("index", MODERATE)
    yield _beside_broadcasting("index-blocked", MODERATE, _BLOCK)
    yield _beside_broadcasting("index-narrow", NARROW)
    yield _beside_broadcasting("index-wide", WIDE)
    yield from growth_rows()
    yield _one_at_a_time()


def _beside_broadcasting(name: str, share: tuple[float, float], chunk: int = _REFERENCE_EVENTS) -> BenchRow:
    workload, low, high, values = three_ranges(SUBSCRIPTIONS, EVENTS, share)
    index = Index.build(workload.conditions, workload.schema)
    some = values[:, :_REFERENCE_EVENTS]
    answer = index.match(workload.columns.slice(0, _REFERENCE_EVENTS))
    bits = np.unpackbits(answer.view(np.uint8), axis=1, bitorder="little", count=SUBSCRIPTIONS)
    if not np.array_equal(bits.astype(np.bool_), broadcast(low, high, some, chunk)):
        raise Bug("the index and plain broadcasting disagree")
    ours, reference = side_by_side(
        lambda: index.match(workload.columns), lambda: broadcast(low, high, some, chunk), rounds=_ROUNDS
    )
    ours, reference = ours / EVENTS * 1e6, reference / _REFERENCE_EVENTS * 1e6
    told = f"numpy broadcasting of every (event, subscription, bound), {chunk:,} events at a time"
    return BenchRow(name, ours, reference, told, reference / ours, "CPU us per event")


def growth_rows() -> Iterator[BenchRow]:
    """Cost per event at 100,000 selective subscriptions (ours) against 10,000 (reference).

    `index-growth` asks for bit vectors, as the pipeline does: their width grows with the table, whatever matches.
    `index-growth-pairs` asks for pairs, whose cost follows the matches.
    """
    few, many = (symbol_and_price(n, EVENTS) for n in (SUBSCRIPTIONS, 10 * SUBSCRIPTIONS))
    small, large = (Index.build(workload.conditions, workload.schema) for workload in (few, many))
    yield _growth("index-growth", lambda: large.match(many.columns), lambda: small.match(few.columns))
    yield _growth("index-growth-pairs", lambda: large.pairs(many.columns), lambda: small.pairs(few.columns))


def _growth(name: str, large: Callable[[], object], small: Callable[[], object]) -> BenchRow:
    ours, reference = (seconds / EVENTS * 1e6 for seconds in side_by_side(large, small, rounds=_ROUNDS))
    told = "the same filters, a tenth of the subscriptions"
    return BenchRow(name, ours, reference, told, ours / reference, "CPU us per event")


def _one_at_a_time() -> BenchRow:
    """Matching events of `index` one at a time, beside all of them at once."""
    workload, *_ = three_ranges(SUBSCRIPTIONS, EVENTS)
    index = Index.build(workload.conditions, workload.schema)
    alone = [workload.columns.slice(row, 1) for row in range(_REFERENCE_EVENTS)]
    together = index.match(workload.columns.slice(0, _REFERENCE_EVENTS))
    if not np.array_equal(np.concatenate([index.match(event) for event in alone]), together):
        raise Bug("an event matches otherwise when it comes alone")
    ours, reference = side_by_side(
        lambda: [index.match(event) for event in alone], lambda: index.match(workload.columns), rounds=_ROUNDS
    )
    ours, reference = ours / _REFERENCE_EVENTS * 1e6, reference / EVENTS * 1e6
    told = f"the same filters, {EVENTS:,} events at a time"
    return BenchRow("index-one", ours, reference, told, ours / reference, "CPU us per event")
