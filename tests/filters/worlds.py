"""Small worlds full of edges: random schemas, filters with every kind of node, and events, to try on the reference.

Values come from short lists, so that events fall on bounds, beside them and on each other all the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa

from sealcast.filters import tree
from sealcast.filters.evaluate import evaluate
from sealcast.filters.tree import ArithmeticOp, Comparison, Condition, Operand, Value
from sealcast.model.schema import Attribute, Physical, Schema, Type

_ARROW = {
    Type.INT: pa.int64(),
    Type.DECIMAL: pa.int64(),
    Type.TIMESTAMP: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.BOOL: pa.bool_(),
    Type.STRING: pa.utf8(),
}
_MOMENT = datetime(2024, 2, 29, 12, tzinfo=UTC)
_INTS = (-(2**63), -(2**53) - 1, -3, -2, -1, 0, 1, 2, 3, 7, 10, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1)
_FLOATS = (
    -1e308,
    -2.5,
    -1.0,
    -5e-324,
    0.0,
    5e-324,
    0.1,
    0.3,
    1.0,
    math.nextafter(1.0, 2.0),
    1.005,
    2.0,
    2.0**53,
    1e308,
)
_TICKS = (-(2**63) + 1, -250, -100, -1, 0, 1, 10, 100, 101, 110, 200, 2**53 + 1, 2**63 - 1)
_TEXTS = (
    "", "a", "a\0", "a ", "ab", "abc", "abd", "b", "a/b", "a/b/c", "/a/b", "/a", "a%b", "a_b", "A", "aaaaaaaa",
    "aaaaaaaab", "aaaaaaaac", "aaaaaaa\0", "é", "\ud7ff", "\ue000", "\uffff", "\U0001f600", "\U0010ffff", "\U0010ffffa",
)  # fmt: skip
_PATTERNS = (
    "a%",
    "%b",
    "a_",
    "%a%",
    "",
    "%",
    "a",
    "a\\%b",
    "_",
    "é%",
    "\U0010ffff%",
    "a%%",
    "\ud7ff%",
    "aaaaaaaa%",
    "a%c",
)
_PATHS = ("a/b", "a/#", "#", "+/b", "/a/+", "a/+/c", "+", "/a/#", "/+/#")
_REGEXES = ("^a", "a.*b", "^ab?c", "b$", "^aaaaaaaa+", "^(a|b)", "^a|b", "(?i)A", "^a*", "^a{2}")
_XPATHS = ("/e/@k = 'x'", "count(//i) > 1", "/e/i")
PAYLOADS = (b"<e k='x'><i/></e>", b"<e><i/><i/></e>", b"<e/>", b"", b"<e", b"\x00\xff")


@dataclass(frozen=True)
class World:
    schema: Schema
    conditions: Sequence[Condition]
    events: Sequence[dict[str, Value]]
    payloads: Sequence[bytes]
    columns: pa.RecordBatch

    def expected(self) -> np.ndarray:
        """(events, conditions): what the reference says."""
        rows = [
            [evaluate(condition, event, payload) is True for condition in self.conditions]
            for event, payload in zip(self.events, self.payloads, strict=True)
        ]
        return np.array(rows, np.bool_).reshape(len(self.events), len(self.conditions))


def unpacked(words: np.ndarray, count: int) -> np.ndarray:
    """The answer's bits as booleans, spelled out one shift at a time."""
    bits = (words[:, :, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    flat = bits.reshape(words.shape[0], -1).astype(np.bool_)
    assert not flat[:, count:].any(), "a bit beyond the last subscription is set"
    return flat[:, :count]


def columns_of(schema: Schema, events: Sequence[dict[str, Value]]) -> pa.RecordBatch:
    arrays = [
        pa.array([a.to_physical(event.get(a.name)) for event in events], _ARROW[a.type]) for a in schema.attributes
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(schema.names))


class Maker:
    """Everything random comes from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def world(self, conditions: int, events: int) -> World:
        schema = self.schema()
        made = [self.condition(schema, self.random.randint(0, 3)) for _ in range(conditions)]
        if made and self.random.random() < 0.5:  # duplicates are common in life
            made = [self.random.choice(made) if self.random.random() < 0.3 else c for c in made]
        happened = [self.event(schema) for _ in range(events)]
        payloads = [self.random.choice(PAYLOADS) for _ in range(events)]
        return World(schema, made, happened, payloads, columns_of(schema, happened))

    def schema(self) -> Schema:
        kinds = [*Type, *self.random.choices(list(Type), k=self.random.randint(0, 3))]
        self.random.shuffle(kinds)
        kinds = kinds[: self.random.randint(1, len(kinds))]
        return Schema(tuple(self._attribute(f"{kind}{i}", kind) for i, kind in enumerate(kinds)))

    def _attribute(self, name: str, kind: Type) -> Attribute:
        if kind is Type.DECIMAL:
            return Attribute(name, kind, step=Decimal(self.random.choice(("0.01", "1", "0.00000001"))))
        if kind is Type.INT and self.random.random() < 0.3:
            return Attribute(name, kind, min=-3, max=10)
        return Attribute(name, kind)

    def event(self, schema: Schema) -> dict[str, Value]:
        present = {a.name: a.from_physical(self._physical(a)) for a in schema.attributes}
        return {name: None if self.random.random() < 0.15 else value for name, value in present.items()}

    def _physical(self, attribute: Attribute) -> Physical:
        pick = self.random.choice
        match attribute.type:
            case Type.INT:
                return pick([i for i in _INTS if attribute.min is None or -3 <= i <= 10])
            case Type.DECIMAL:
                return pick(_TICKS)
            case Type.FLOAT:
                return pick(_FLOATS)
            case Type.BOOL:
                return pick((True, False))
            case Type.STRING:
                return pick(_TEXTS)
            case Type.TIMESTAMP:
                micros = (_MOMENT - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
                return micros + pick((-1, 0, 1, 1000, 86_400_000_000))

    # --- filters ---

    def condition(self, schema: Schema, depth: int) -> Condition:
        roll = self.random.random()
        if depth > 0 and roll < 0.75:
            if roll < 0.15:
                return tree.Not(self.condition(schema, depth - 1))
            items = tuple(self.condition(schema, depth - 1) for _ in range(self.random.randint(2, 4)))
            return tree.And(items) if roll < 0.5 else tree.Or(items)
        return self._leaf(schema)

    def _leaf(self, schema: Schema) -> Condition:
        negated = self.random.random() < 0.3
        pick = self.random.choice
        attribute = pick(schema.attributes)
        name = attribute.name if self.random.random() < 0.98 else "absent"
        subject: Operand = tree.Name(name) if self.random.random() < 0.85 else self._operand(schema, 2)
        match self.random.randrange(16):
            case 0 | 1 | 2 | 3 | 4:
                left, right = subject, self._literal_for(attribute)
                if self.random.random() < 0.2:
                    right = self._operand(schema, 2)
                return tree.Compare(pick(list(Comparison)), *(pick(((left, right), (right, left)))))
            case 5 | 6:
                return tree.Between(subject, self._literal_for(attribute), self._literal_for(attribute), negated)
            case 7 | 8:
                items = tuple(self._literal_for(attribute) for _ in range(self.random.randint(1, 6)))
                return tree.In(subject, (*items, tree.Name(name)) if self.random.random() < 0.1 else items, negated)
            case 9:
                return tree.Like(subject, pick(_PATTERNS), "\\", negated)
            case 10:
                return tree.IsNull(subject, negated)
            case 11:
                return tree.Truth(subject if self.random.random() < 0.8 else tree.Literal(pick((True, False, None))))
            case 12:
                return tree.InSplit(subject, pick(("a", "/", "b")), self._literal_for(attribute))
            case 13 | 14:
                left, right = self._call(schema, subject), self._literal_for(attribute)
                if negated:
                    return tree.In(left, (right, self._literal_for(attribute)), pick((True, False)))
                return tree.Compare(pick(list(Comparison)), *(pick(((left, right), (right, left)))))
            case 15:
                return tree.PathMatch(name, tuple(pick(_PATHS).split("/")))
            case _:
                return tree.Regex(name, pick(_REGEXES)) if negated else tree.XPath(pick(_XPATHS))

    def _operand(self, schema: Schema, depth: int) -> Operand:
        pick = self.random.choice
        match self.random.randrange(8) if depth else self.random.randrange(3):
            case 0:
                return self._literal_for(pick(schema.attributes))
            case 1 | 2:
                return tree.Name(pick(schema.attributes).name)
            case 3:
                return tree.Negate(self._operand(schema, depth - 1))
            case 4 if self.random.random() < 0.5:
                return tree.Plus(self._operand(schema, depth - 1))
            case 4:
                return tree.Predicate(self._leaf(schema))
            case 5:
                return self._call(schema, self._operand(schema, depth - 1))
            case _:
                left, right = self._operand(schema, depth - 1), self._operand(schema, depth - 1)
                return tree.Arithmetic(pick(list(ArithmeticOp)), left, right)

    def _call(self, schema: Schema, subject: Operand) -> Operand:
        """Functions whose answer falls on edges often: short beginnings, texts that grow, numbers round zero."""
        pick = self.random.choice
        function = pick((*tree.Function, tree.Function.ABS, tree.Function.LEFT))
        match function:
            case tree.Function.LEFT | tree.Function.RIGHT:
                return tree.Call(function, (subject, tree.Literal(pick((0, 1, 1, 2, -1, 8, 1.5)))))
            case tree.Function.SUBSTRING:
                bounds = tuple(tree.Literal(pick((0, 1, 2, -1, -9))) for _ in range(pick((1, 2))))
                return tree.Call(function, (subject, *bounds))
            case tree.Function.REPLACE:
                return tree.Call(function, (subject, tree.Literal(pick(("a", "b"))), tree.Literal(pick(("", "ab")))))
            case tree.Function.ROUND:
                return tree.Call(function, (subject, tree.Literal(pick((0, 1, 2, -1)))) if pick((0, 1)) else (subject,))
            case tree.Function.CONCAT | tree.Function.CONCAT_WS:
                others = tuple(self._literal_for(pick(schema.attributes)) for _ in range(pick((1, 2))))
                return tree.Call(function, (subject, *others))
            case _:
                return tree.Call(function, (subject,))

    def _literal_for(self, attribute: Attribute) -> tree.Literal:
        """Mostly of the attribute's kind, on, below or above its values; sometimes of another kind, or NULL."""
        pick = self.random.choice
        roll = self.random.random()
        if roll < 0.03:
            return tree.Literal(None)
        if roll < 0.08:
            return tree.Literal(pick((1, 0.5, "a", True, _MOMENT, Decimal("1.5"))))
        match attribute.type:
            case Type.INT | Type.DECIMAL | Type.FLOAT:
                number = pick((pick(_INTS), pick(_FLOATS), Decimal(pick(_TICKS)).scaleb(-2)))
                off = pick((0, 0, Decimal("0.001"), Decimal("-0.5"), 1, -1, 0.5))
                if off and abs(number) < 2**40:
                    number = float(number) + off if isinstance(off, float) else Decimal(number) + off
                return tree.Literal(number)
            case Type.STRING:
                return tree.Literal(pick(_TEXTS))
            case Type.BOOL:
                return tree.Literal(pick((True, False)))
            case Type.TIMESTAMP:
                return tree.Literal(_MOMENT + timedelta(microseconds=pick((-1, 0, 1, 1000))))
