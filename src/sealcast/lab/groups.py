"""Groups to measure group key algorithms on: the two distributions of paper 000, and one made by content.

    random      every group is equally likely: the worst case there is, nothing repeats and nothing is alike
    popular     with probability p one of a fixed set of random groups, else a random group
    content     what filters with continuous thresholds make of a stream of quotes (the paper had no such workload)

Rows are packed words (`filters.bits`), bit i = subscriber i. The same seed gives the same groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters import bits
from sealcast.filters.bits import Words
from sealcast.lab.market import zipf

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: |S| and p, which paper 000 does not print for its figures.
POPULAR_GROUPS: Final = 10_000
POPULAR_SHARE: Final = 0.9

#: The content workload: quotes of so many symbols, traded and asked for by Zipf's law with this exponent.
SYMBOLS: Final = 100
ZIPF: Final = 1.0
#: Of those who watch more than one symbol.
WATCH_LISTS: Final = 0.2
#: Of those who also ask for a least size.
SIZE_FILTERS: Final = 0.5
#: Spread of prices, and of the prices people ask for, around a symbol's own; standard deviation of log size.
PRICE_SPREAD: Final = 0.05
SIZE_SPREAD: Final = 1.0
_EVENTS_AT_ONCE: Final = 1_024


def random_groups(events: int, subscribers: int, seed: int) -> Words:
    """Draws groups, each of the 2^N equally likely."""
    return _uniform(np.random.default_rng(seed), events, subscribers)


def popular_groups(
    events: int, subscribers: int, seed: int, popular: int = POPULAR_GROUPS, share: float = POPULAR_SHARE
) -> Words:
    """Draws with probability `share` one of `popular` fixed groups, all equally likely, otherwise a random group."""
    rng = np.random.default_rng(seed)
    favourites = _uniform(rng, popular, subscribers)
    rows = _uniform(rng, events, subscribers)
    repeated = np.flatnonzero(rng.random(events) < share)
    rows[repeated] = favourites[rng.integers(0, popular, repeated.size)]
    return rows


def content_groups(events: int, subscribers: int, seed: int) -> Words:
    """The groups that a stretch of quotes has among subscribers with filters of their own; quotes that nobody wants
    are left out."""
    rng = np.random.default_rng(seed)
    wishes = Wishes.draw(rng, subscribers)
    found: list[Words] = []
    while (missing := events - sum(map(len, found))) > 0:
        drawn = wishes.groups(Quotes.draw(rng, max(missing, _EVENTS_AT_ONCE)))
        found.append(drawn[drawn.any(axis=1)][:missing])
    return np.concatenate(found) if found else _uniform(rng, 0, subscribers)


@dataclass(frozen=True, slots=True)
class Quotes:
    """Events: a symbol, a price relative to the symbol's usual one, a size. Prices and sizes hardly ever repeat."""

    symbol: NDArray[np.int64]
    price: Floats
    size: Floats

    @classmethod
    def draw(cls, rng: np.random.Generator, count: int) -> Quotes:
        return cls(
            _zipf(rng, count), np.exp(rng.normal(0, PRICE_SPREAD, count)), np.exp(rng.normal(0, SIZE_SPREAD, count))
        )


@dataclass(frozen=True)
class Wishes:
    """Filters, one a subscriber: symbol IN (...) AND price < or >= x [AND size >= y], all thresholds continuous."""

    watched: Flags  # subscribers x symbols
    below: Flags
    price: Floats
    size: Floats  # 0: any size

    @classmethod
    def draw(cls, rng: np.random.Generator, count: int) -> Wishes:
        watched = np.zeros((count, SYMBOLS), np.bool_)
        watched[np.arange(count), _zipf(rng, count)] = True
        for subscriber in np.flatnonzero(rng.random(count) < WATCH_LISTS).tolist():
            watched[subscriber, _zipf(rng, int(rng.integers(1, 5)))] = True
        size = np.exp(rng.normal(0, SIZE_SPREAD, count))
        size[rng.random(count) >= SIZE_FILTERS] = 0.0
        return cls(watched, rng.random(count) < 0.5, np.exp(rng.normal(0, PRICE_SPREAD, count)), size)

    def groups(self, quotes: Quotes) -> Words:
        """Who wants each quote."""
        chunks = []
        for start in range(0, quotes.symbol.size, _EVENTS_AT_ONCE):
            here = slice(start, start + _EVENTS_AT_ONCE)
            price, size = quotes.price[here, None], quotes.size[here, None]
            wanted = self._by_symbol[quotes.symbol[here]] & ((price < self.price) == self.below) & (size >= self.size)
            chunks.append(bits.mask(wanted))
        return np.concatenate(chunks)

    @cached_property
    def _by_symbol(self) -> Flags:
        return np.ascontiguousarray(self.watched.T)


def _zipf(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    return zipf(rng, SYMBOLS, count, ZIPF)


def _uniform(rng: np.random.Generator, rows: int, subscribers: int) -> Words:
    width = bits.words_for(subscribers)
    words = rng.integers(0, 2**64, (rows, width), np.uint64, endpoint=False)
    words[:, -1] >>= np.uint64(64 * width - subscribers)
    return words
