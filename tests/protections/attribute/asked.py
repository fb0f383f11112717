"""Filters that labels can express, and events that fall on their edges, at random: for comparison with brute force."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

from sealcast.filters.check import check
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.model.schema import Schema, Value

WARDS = ["a1", "a2", "a12", "b1", "b12", "b", "", "icu", "icu-2", "Ärzte", "Ä", "ÄÄ1", "über-1", "x" * 12]
ENDINGS = ["1", "2", "12", "-2", "u", "zte", "ÄÄ1"]
STARTS = ["a", "a1", "b", "icu", "icu-", "Ä", "ü", "x" * 12, "a12"]

#: Attributes of every type, with domains that are no powers of two.
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "pulse", "type": "int", "min": 20, "max": 230},
            {"name": "temperature", "type": "decimal", "min": "34.0", "max": "42.0", "step": "0.1"},
            {"name": "ward", "type": "string", "max_length": 12},
            {"name": "urgent", "type": "bool"},
            {"name": "note", "type": "string"},
        ]
    }
)


def condition(text: str, schema: Schema = SCHEMA) -> Condition:
    return check(parse(text), schema).condition


class Asker:
    """Everything random comes from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def event(self) -> dict[str, Value]:
        given: dict[str, Any] = {
            "pulse": self._pulse(),
            "temperature": self._temperature(),
            "ward": self.random.choice(WARDS),
            "urgent": self.random.random() < 0.5,
            "note": self.random.choice(WARDS),
        }
        return SCHEMA.parse({name: value for name, value in given.items() if self.random.random() < 0.85})

    def filter(self) -> str:
        """One to three conjunctions of ranges, prefixes, suffixes, equalities and lists, some of them denied."""
        conjunctions = [
            " AND ".join(self._leaf() for _ in range(self.random.choice((1, 1, 2, 3))))
            for _ in range(self.random.choice((1, 1, 1, 2, 3)))
        ]
        return " OR ".join(f"({each})" for each in conjunctions)

    def _leaf(self) -> str:
        r = self.random
        match r.randrange(10):
            case 0 | 1:
                low, high = sorted((self._pulse(), self._pulse()))
                return f"pulse {r.choice(('', 'NOT '))}BETWEEN {low} AND {high}"
            case 2:
                return f"temperature {r.choice(('<', '<=', '>', '>=', '=', '<>'))} {self._temperature()}"
            case 3:
                return f"pulse {r.choice(('', 'NOT '))}IN ({', '.join(str(self._pulse()) for _ in range(4))})"
            case 4:
                return f"{self._string()} LIKE '{r.choice(STARTS)}%'"
            case 5:
                return f"{self._string()} LIKE '%{r.choice(ENDINGS)}'"
            case 6:
                return f"{self._string()} {r.choice(('=', '<>', '<', '>=', '>', '<='))} '{r.choice(WARDS)}'"
            case 7:
                return f"{self._string()} IN ('{r.choice(WARDS)}', '{r.choice(WARDS)}')"
            case 8:
                return r.choice(("urgent", "NOT urgent"))
            case _:
                return f"{r.choice(SCHEMA.names)} IS NOT NULL"

    def _string(self) -> str:
        return self.random.choice(("ward", "note"))

    def _pulse(self) -> int:
        return self.random.choice((20, 230, 127, 128, self.random.randint(20, 230)))

    def _temperature(self) -> Decimal:
        return Decimal(self.random.randint(340, 420)).scaleb(-1)
