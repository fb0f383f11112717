"""Quotes and who wants them, generated: symbols by Zipf's law, ranges and conjunctions; labels by the real rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from sealcast.filters.check import check
from sealcast.filters.labels import LabelFilter, Labeller, StringPlan, label_filter
from sealcast.filters.parse import parse
from sealcast.lab.shikfa.net import Net
from sealcast.model.schema import Attribute, Schema, Type, Value
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Group
from sealcast.protections.layered.tree import Tree

SYMBOLS: Final = ("ACME", "BOLT", "CORN", "DUNE", "ECHO", "FERN", "GOLD", "HAZE")
PLAN: Final = StringPlan(text=0, suffix=0)
#: An event may be without a lot, so that events have 10 or 13 labels.
SCHEMA: Final = Schema(
    (
        Attribute("symbol", Type.STRING),
        Attribute("price", Type.INT, min=0, max=63),
        Attribute("lot", Type.INT, min=0, max=7),
    )
)
#: P - A - B - D, E and A - C - F; P - Z - Y - X: at every lowest broker, some subscribers.
PARENTS: Final = {
    **dict(zip("AZBCDEFYX", "PPAABBCZY", strict=True)),
    **{f"S{i}": "D" for i in range(6)},
    **{f"S{i}": "E" for i in range(6, 10)},
    **{f"S{i}": "F" for i in range(10, 14)},
    **{f"S{i}": "X" for i in range(14, 16)},
}
SUBSCRIBERS: Final = tuple(f"S{i}" for i in range(16))


def compiled(text: str) -> LabelFilter:
    return label_filter(check(parse(text), SCHEMA).condition, SCHEMA, PLAN)


@dataclass(frozen=True)
class CuriousDay:
    """What is subscribed to, and what happens: the same under any keys, so that epochs can be compared."""

    filters: Mapping[str, str]
    events: tuple[Mapping[str, Value], ...]

    @classmethod
    def of(cls, random: Random, events: int) -> CuriousDay:
        return cls({name: _filter(random) for name in SUBSCRIBERS}, tuple(_event(random) for _ in range(events)))

    def lived(
        self, random: Random, *, layers: int = 2, padded: bool = False, group: Group = CURVE, kind: type[Net] = Net
    ) -> Net:
        """Lets the day happen in a new tree with keys of its own."""
        net = kind(Tree("P", PARENTS, layers), group, random)
        labeller = Labeller(SCHEMA, PLAN)
        pad_to = labeller.most() if padded else 0
        for name, text in self.filters.items():
            net.subscribe(name, compiled(text))
        for values in self.events:
            net.publish(frozenset(labeller.labels(values)), repr(values).encode(), pad_to=pad_to)
        return net


def _symbol(random: Random) -> str:
    return random.choices(SYMBOLS, [1 / rank for rank in range(1, len(SYMBOLS) + 1)])[0]


def _filter(random: Random) -> str:
    symbol = f"symbol = '{_symbol(random)}'"
    low = random.choice((0, 16, 32))
    prices = f"price BETWEEN {low} AND {low + random.choice((15, 19, 27))}"
    return random.choice((symbol, symbol, prices, f"{symbol} AND {prices}"))


def _event(random: Random) -> dict[str, Value]:
    values: dict[str, Value] = {"symbol": _symbol(random), "price": min(63, int(random.expovariate(1 / 20)))}
    if random.random() < 0.5:
        values["lot"] = random.randrange(8)
    return values
