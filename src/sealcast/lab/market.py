"""A market in miniature: the workload of `sealcast demo` and of the pipeline's benchmarks.

Symbols trade with Zipf popularity, each price walks at random on a grid of cents, sizes have a heavy tail. Subscribers
ask the way people do: one symbol below a price, a handful of symbols above a size, a band of prices at one venue, a
prefix, a notional that no index can look up. The same seed gives the same day.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.model import Event, Schema

SCHEMA: Final = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 8},
            {"name": "price", "type": "decimal", "min": Decimal("0.01"), "max": 10_000, "step": Decimal("0.01")},
            {"name": "size", "type": "int", "min": 1, "max": 1_000_000},
            {"name": "venue", "type": "string", "max_length": 4},
            {"name": "halted", "type": "bool"},
            {"name": "at", "type": "timestamp"},
        ]
    }
)

VENUES: Final = ("XNYS", "XNAS", "XLON", "XPAR", "XTKS", "XHKG")
OPENING: Final = datetime(2026, 3, 2, 14, 30, tzinfo=UTC)
TRADING_SECONDS: Final = 23_400
#: The exponent of Zipf's law: how much more the first symbols trade, and are asked for, than the last. 0: all alike.
POPULARITY: Final = 1.1


def symbols(count: int) -> list[str]:
    """Ticker symbols, all distinct: a few that people know, then three letters (and a number) in no order."""
    known = ["IBM", "AAPL", "MSFT", "NVDA", "HPQ", "ORCL", "INTC", "CSCO"]
    return list(dict.fromkeys([*known, *map(_symbol, range(count))]))[:count]


def _symbol(number: int) -> str:
    # 7919 and 26**3 share no factor: every three letters come once before any comes again.
    mixed = number * 7919 % 17_576
    return f"{chr(65 + mixed // 676)}{chr(65 + mixed // 26 % 26)}{chr(65 + mixed % 26)}{number // 17_576 or ''}"


def opening_price(symbol: str) -> float:
    """Where a symbol's price starts: known to everyone, so that people can ask for prices around it."""
    return 20.0 + zlib.crc32(symbol.encode()) % 18_000 / 100


@dataclass(frozen=True, slots=True)
class Ticks:
    """A stretch of trading as physical columns, ready to be published or matched."""

    columns: pa.RecordBatch
    payloads: list[bytes]

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def events(self) -> list[Event]:
        """The same rows as events, one object each: what a client passes to `publish`."""
        rows = self.columns.to_pylist()
        return [
            Event({name: SCHEMA.by_name[name].from_physical(value) for name, value in row.items()}, payload)
            for row, payload in zip(rows, self.payloads, strict=True)
        ]


def ticks(
    count: int, *, seed: int, n_symbols: int = 200, payload_bytes: int = 96, popularity: float = POPULARITY
) -> Ticks:
    """A day's trades, in the order in which they happened."""
    rng = np.random.default_rng(seed)
    names = np.array(symbols(n_symbols), dtype=object)
    which = zipf(rng, n_symbols, count, popularity)
    price = _walk(rng, which, names)
    size = np.minimum(1_000_000, np.ceil(rng.pareto(1.2, count) * 100).astype(np.int64) + 1)
    micros = np.sort(rng.integers(0, TRADING_SECONDS * 1_000_000, count)) + int(OPENING.timestamp() * 1_000_000)
    venue = np.array(VENUES, dtype=object)[which % len(VENUES)]
    halted = rng.random(count) < 0.002
    columns = pa.record_batch(
        {
            "symbol": pa.array(names[which], pa.string()),
            "price": pa.array(price),
            "size": pa.array(size),
            "venue": pa.array(venue, pa.string()),
            "halted": pa.array(halted),
            "at": pa.array(micros),
        }
    )
    filler = rng.bytes(payload_bytes * count)
    return Ticks(columns, [filler[i : i + payload_bytes] for i in range(0, payload_bytes * count, payload_bytes)])


def filters(count: int, *, seed: int, n_symbols: int = 200, popularity: float = POPULARITY) -> list[str]:
    """What subscribers ask for, in the proportions in which people ask for it."""
    rng = np.random.default_rng(seed)
    names = symbols(n_symbols)
    picked = zipf(rng, n_symbols, (count, 3), popularity)
    return [_filter(rng, [names[i] for i in row]) for row in picked]


def _filter(rng: np.random.Generator, names: Sequence[str]) -> str:
    price = opening_price(names[0]) * rng.uniform(0.97, 1.03)
    venue = VENUES[int(rng.integers(len(VENUES)))]
    size = int(rng.integers(1, 20)) * 100
    roll = rng.random()
    if roll < 0.45:
        return f"symbol = '{names[0]}' AND price {'<' if rng.random() < 0.5 else '>='} {price:.2f}"
    if roll < 0.65:
        return f"symbol IN ({', '.join(repr(n) for n in dict.fromkeys(names))}) AND size >= {size}"
    if roll < 0.80:
        return f"venue = '{venue}' AND price BETWEEN {price:.2f} AND {price + 1:.2f} AND size > {size}"
    if roll < 0.88:
        return f"symbol LIKE '{names[0][:2]}%' AND size > {size * 5}"
    if roll < 0.93:
        return f"symbol = '{names[1]}' AND price * size > {int(price) * 1_000}"
    if roll < 0.96:
        return f"symbol = '{names[0]}' AND (halted OR size > {size * 20}) AND NOT venue = '{venue}'"
    if roll < 0.98:
        return f"tags:symbol={names[2]}, venue={venue}"
    return f"regex:symbol=^({names[0]}|{names[1]})$"


def zipf(rng: np.random.Generator, n: int, size: int | tuple[int, ...], exponent: float) -> NDArray[np.int64]:
    """Indices below n, the first the most popular."""
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    drawn: NDArray[np.int64] = rng.choice(n, size=size, p=weights / weights.sum())
    return drawn


def _walk(rng: np.random.Generator, which: NDArray[np.int64], names: NDArray[np.object_]) -> NDArray[np.int64]:
    """Cents: each symbol starts at its opening price and moves by a little at each of its own trades."""
    start = np.array([opening_price(name) * 100 for name in names])
    moves = rng.normal(0, 0.002, which.size)
    order = np.argsort(which, kind="stable")
    drift = np.cumsum(moves[order])
    first = np.searchsorted(which[order], np.arange(names.size))
    base = np.concatenate(([0.0], drift))[first]
    walked = np.empty(which.size)
    walked[order] = drift - base[which[order]]
    cents: NDArray[np.int64] = np.clip(np.rint(start[which] * np.exp(walked)), 1, 1_000_000).astype(np.int64)
    return cents
