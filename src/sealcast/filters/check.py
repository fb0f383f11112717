"""A filter against a schema: names that exist, types that fit, constants read in the type of what they meet.

What comes out is the tree that everything downstream evaluates. In it
- every name is an attribute of the schema, and every comparison is between values of one kind;
- a constant that meets a decimal attribute is exact (`price = 0.10` is a Decimal, never a double), one that meets a
  timestamp is a timestamp;
- there is no UTC(): a batch that is matched again must match again.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from sealcast.errors import FilterRejected
from sealcast.filters import tree
from sealcast.filters.constants import bare_word, exact_number
from sealcast.filters.cost import check_cost, walk
from sealcast.filters.formats import PATH_ATTRIBUTE
from sealcast.filters.functions import KINDS
from sealcast.filters.satisfy import Warned, warnings
from sealcast.filters.timestamps import parse_timestamp
from sealcast.filters.tree import Comparison, Condition, Operand
from sealcast.filters.values import KIND_OF, kind
from sealcast.model.schema import Attribute, Schema, Type

#: AMQP's message sections: `a.price` is `price` where nothing is called `a.price` itself.
SECTIONS: Final = ("application_properties.", "a.", "properties.", "p.", "header.", "h.")


@dataclass(frozen=True, slots=True)
class CheckedFilter:
    """A filter that fits its schema, and what its author should know of it."""

    condition: Condition
    warnings: tuple[Warned, ...] = ()


def check(condition: Condition, schema: Schema) -> CheckedFilter:
    """FilterRejected (kind `name`, `type`, `limit` or `inexpressible`) at the first thing that does not fit."""
    check_cost(condition)
    fitted = fit(condition, schema)
    return CheckedFilter(fitted, warnings(fitted, schema))


def fit(condition: Condition, schema: Schema) -> Condition:
    """What `check` returns, without its warnings and for trees whose depth is known to be bounded."""
    return _Fitter(schema).condition(condition)


def section_free(name: str, known: Collection[str]) -> str | None:
    """The name in `known` that `name` means: itself, or itself without an AMQP section; None if there is none."""
    if name in known:
        return name
    for section in SECTIONS:
        if name.startswith(section) and name[len(section) :] in known:
            return name[len(section) :]
    return None


class _Fitter:
    """Rebuilds a tree with names resolved and constants converted. Recursion is safe below `limits.MAX_DEPTH`."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    # --- conditions ------------------------------------------------------------------------------

    def condition(self, node: Condition) -> Condition:
        match node:
            case tree.And() | tree.Or():
                return _with(node, items=_kept(node.items, [self.condition(item) for item in node.items]))
            case tree.Not():
                return _with(node, operand=self.condition(node.operand))
            case tree.Compare():
                left, right = self._pair(node.left, node.right)
                if node.op is not Comparison.EQ and node.op is not Comparison.NE:
                    self._ordered((left, right))
                return _with(node, left=left, right=right)
            case tree.Between():
                return self._between(node)
            case tree.In():
                return self._in(node)
            case tree.Truth():
                return _with(node, operand=self._of_kind(node.operand, "boolean", "a condition"))
            case tree.Like():
                return _with(node, operand=self._of_kind(node.operand, "string", "LIKE"))
            case tree.IsNull():
                return _with(node, operand=self._operand(node.operand))
            case tree.PathMatch() | tree.Regex():
                what = "a path" if isinstance(node, tree.PathMatch) else "a regular expression"
                fitted = self._of_kind(tree.Name(node.name, at=node.at), "string", what)
                assert isinstance(fitted, tree.Name)
                return _with(node, name=fitted.name)
            case tree.InSplit():
                operand = self._of_kind(node.operand, "string", "SPLIT")
                return _with(node, operand=operand, item=self._of_kind(node.item, "string", "INLIST"))
            case tree.XPath():
                return node

    def _between(self, node: tree.Between) -> Condition:
        first, low = self._pair(node.operand, node.low)
        second, high = self._pair(node.operand, node.high)
        self._ordered((first, low, high))
        if first == second:
            return _with(node, operand=first, low=low, high=high)
        # A constant that means one thing to one bound and another to the other: `0.1 BETWEEN ratio AND price`.
        above, below = (Comparison.GE, first, low), (Comparison.LE, second, high)
        inside = tree.And(
            tuple(tree.Compare(*asked, at=node.at, end=node.end) for asked in (above, below)), at=node.at, end=node.end
        )
        return tree.Not(inside, at=node.at, end=node.end) if node.negated else inside

    def _in(self, node: tree.In) -> Condition:
        pairs = [self._pair(node.operand, item) for item in node.items]
        if all(operand == pairs[0][0] for operand, _ in pairs):
            return _with(node, operand=pairs[0][0], items=_kept(node.items, [item for _, item in pairs]))
        # As above. All kinds are alike here, so that IN is a chain of = and NOT IN one of <>.
        op, junction = (Comparison.NE, tree.And) if node.negated else (Comparison.EQ, tree.Or)
        chain = tuple([tree.Compare(op, operand, item, at=node.at, end=node.end) for operand, item in pairs])
        return junction(chain, at=node.at, end=node.end)

    def _ordered(self, operands: Iterable[Operand]) -> None:
        for operand in operands:
            if self._kind(operand) == "boolean":
                raise FilterRejected("type", "booleans have no order", at=operand.at, hint="compare them with = or <>")

    def _pair(self, left: Operand, right: Operand) -> tuple[Operand, Operand]:
        """Two operands that meet in a comparison, each converted to suit the other."""
        a, b = self._operand(left), self._operand(right)
        if isinstance(b, tree.Literal) and isinstance(a, tree.Name):
            b = self._read(b, self._schema.by_name[a.name])
        elif isinstance(a, tree.Literal) and isinstance(b, tree.Name):
            a = self._read(a, self._schema.by_name[b.name])
        elif not (isinstance(a, tree.Name) and isinstance(b, tree.Name)):
            types = self._types(a) | self._types(b)
            if Type.DECIMAL in types and Type.FLOAT not in types:
                a, b = self._exact(a), self._exact(b)
        if self._kind(a) != self._kind(b):
            raise FilterRejected(
                "type", f"{self._shown(a)} does not compare with {self._shown(b)}", at=b.at, hint=self._hint(a, b)
            )
        return a, b

    # --- operands --------------------------------------------------------------------------------

    def _operand(self, node: Operand) -> Operand:
        match node:
            case tree.Literal():
                return node
            case tree.Name():
                return _with(node, name=self._resolve(node.name, node.at))
            case tree.Negate() | tree.Plus():
                return _with(node, operand=self._of_kind(node.operand, "number", "a sign"))
            case tree.Arithmetic():
                left = self._of_kind(node.left, "number", "arithmetic")
                right = self._of_kind(node.right, "number", "arithmetic")
                return _with(node, left=left, right=right)
            case tree.Call(function, arguments):
                kinds = map(KINDS[function].kind, range(len(arguments)))
                fitted = [self._of_kind(a, k, function) for a, k in zip(arguments, kinds, strict=True)]
                return _with(node, arguments=_kept(arguments, fitted))
            case tree.Predicate():
                return _with(node, condition=self.condition(node.condition))
            case tree.Now():
                raise FilterRejected(
                    "inexpressible",
                    "UTC() would make the same event match now and not later",
                    at=node.at,
                    hint="compare with a fixed moment: TIMESTAMP '2024-01-31T12:00:00Z'",
                )

    def _of_kind(self, node: Operand, wanted: str, what: str) -> Operand:
        fitted = self._operand(node)
        if self._kind(fitted) != wanted:
            raise FilterRejected("type", f"{what} takes a {wanted}; {self._shown(fitted)} is none", at=node.at)
        return fitted

    def _resolve(self, name: str, at: int) -> str:
        found = section_free(name, self._schema.by_name)
        if found is not None:
            return found
        near = _nearest(name, self._schema.names)
        if near is not None:
            hint = f"did you mean {near}?"
        elif name == PATH_ATTRIBUTE:
            hint = "a path may name its attribute: path:ATTRIBUTE=/a/b"
        else:
            hint = f"there are {', '.join(self._schema.names[:12])}"
        raise FilterRejected("name", f"the schema has no attribute {name!r}", at=at, hint=hint)

    def _kind(self, node: Operand) -> str | None:
        match node:
            case tree.Literal():
                return kind(node.value)
            case tree.Name():
                return KIND_OF[self._schema.by_name[node.name].type]
            case tree.Predicate():
                return "boolean"
            case tree.Call(function):
                return KINDS[function].gives
            case _:
                return "number"

    def _types(self, node: Operand) -> frozenset[Type]:
        return frozenset(self._schema.by_name[n.name].type for n, _ in walk(node) if isinstance(n, tree.Name))

    def _exact(self, node: Operand) -> Operand:
        """The same operand with its approximate constants as decimals: its attributes are exact, so is it."""
        match node:
            case tree.Literal(value=float(), text=str(text)):
                return replace(node, value=exact_number(text))
            case tree.Negate() | tree.Plus():
                return _with(node, operand=self._exact(node.operand))
            case tree.Arithmetic():
                return _with(node, left=self._exact(node.left), right=self._exact(node.right))
            case tree.Call(_, arguments):
                return _with(node, arguments=_kept(arguments, [self._exact(argument) for argument in arguments]))
            case _:
                return node

    # --- constants -------------------------------------------------------------------------------

    def _read(self, literal: tree.Literal, attribute: Attribute) -> tree.Literal:
        """The constant in the attribute's type, as far as that says it better than SQL alone."""
        value, text = literal.value, literal.text
        if isinstance(value, str) and text is not None:
            return replace(literal, value=bare_word(text, attribute, literal.at), text=None)
        if attribute.type is Type.DECIMAL and isinstance(value, float) and text is not None:
            return replace(literal, value=exact_number(text))
        if attribute.type is Type.TIMESTAMP and isinstance(value, str | int | float) and not isinstance(value, bool):
            number = value if isinstance(value, str) or text is None else exact_number(text)
            return replace(literal, value=parse_timestamp(value if isinstance(value, int) else number, literal.at))
        return literal

    def _shown(self, node: Operand) -> str:
        what = self._kind(node)
        match node:
            case tree.Name(name):
                return f"{name} (a {what})"
            case tree.Literal(value):
                text = repr(value) if isinstance(value, str) else str(value)
                return f"the {what} {text if len(text) <= 40 else text[:37] + '...'}"
            case _:
                return f"a {what}"

    def _hint(self, a: Operand, b: Operand) -> str | None:
        kinds = {self._kind(a), self._kind(b)}
        if kinds == {"number", "string"}:
            return "numbers are written without quotes, strings with them"
        if kinds == {"boolean", "string"}:
            return "TRUE and FALSE are written without quotes"
        return None


_Node = TypeVar("_Node", bound="Condition | Operand")


def _kept(before: tuple[_Node, ...], after: Sequence[_Node]) -> tuple[_Node, ...]:
    """The tuple of before if nothing in it changed."""
    return before if all(map(operator.is_, before, after)) else tuple(after)


def _with(node: _Node, **fields: object) -> _Node:
    """The node with these fields; the very same node if it has them already. Most of a filter needs no fitting."""
    if all(getattr(node, name) is value for name, value in fields.items()):
        return node
    return replace(node, **fields)  # type: ignore[arg-type]


def _nearest(name: str, known: Iterable[str]) -> str | None:
    folded = {other.casefold(): other for other in known}
    near = difflib.get_close_matches(name.casefold(), folded, 1, cutoff=0.6)
    return folded[near[0]] if near else None
