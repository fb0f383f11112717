"""Tree -> SQL text: `parse(unparse(tree)) == tree` for every tree that `parse` makes without a schema.

Constants that a schema converted come back as what they are worth: a decimal as a number, a timestamp as TIMESTAMP.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Final

from sealcast.filters import tree
from sealcast.filters.lexer import KEYWORDS
from sealcast.filters.tree import ArithmeticOp, Condition, Operand, Value
from sealcast.model.schema import value_to_json

# Narrower than what the lexer takes: a colon could be read as a format's prefix.
_BARE: Final = re.compile(r"[^\W\d][\w$.]*|\$[\w$.]*")
_SUMS: Final = (ArithmeticOp.ADD, ArithmeticOp.SUB)


def unparse(condition: Condition) -> str:
    """SQL for the condition, in one normal spelling: keywords in capitals, no parentheses that are not needed."""
    match condition:
        case tree.And(items):
            return " AND ".join(_grouped(item) if isinstance(item, tree.Or) else unparse(item) for item in items)
        case tree.Or(items):
            return " OR ".join(map(unparse, items))
        case tree.Not(operand):
            return "NOT " + (_grouped(operand) if isinstance(operand, tree.And | tree.Or) else unparse(operand))
        case tree.Compare(op, left, right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case tree.Between(operand, low, high, negated):
            return f"{_operand(operand)}{_not(negated)} BETWEEN {_operand(low)} AND {_operand(high)}"
        case tree.In(operand, items, negated):
            return f"{_operand(operand)}{_not(negated)} IN ({', '.join(map(_operand, items))})"
        case tree.Like(operand, pattern, escape, negated):
            suffix = "" if escape is None else f" ESCAPE {_string(escape)}"
            return f"{_operand(operand)}{_not(negated)} LIKE {_string(pattern)}{suffix}"
        case tree.IsNull(operand, negated):
            return f"{_operand(operand)} IS{_not(negated)} NULL"
        case tree.Truth(operand):
            return _operand(operand)
        case tree.PathMatch(name, levels):
            return f"PATH({_string('/'.join(levels))}, {_name(name)})"
        case tree.Regex(name, pattern):
            return f"REGEX({_string(pattern)}, {_name(name)})"
        case tree.XPath(expression):
            return f"XPATH {_string(expression)}"
        case tree.InSplit(operand, separator, item):
            return f"INLIST(SPLIT({_operand(operand)}, {_string(separator)}), {_operand(item)})"


def unparse_value(value: Value) -> str:
    """A value as a filter would write it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return _string(value)
        case datetime():
            return f"TIMESTAMP '{value_to_json(value)}'"
        case Decimal():
            return format(value, "f")
        case _:
            return repr(value)


def _operand(node: Operand) -> str:
    match node:
        case tree.Literal(value):
            return unparse_value(value)
        case tree.Name(name):
            return _name(name)
        case tree.Negate(operand):
            return "-" + _signed(operand)
        case tree.Plus(operand):
            return "+" + _signed(operand)
        case tree.Arithmetic(op, left, right):
            return f"{_term(left, op, False)} {op} {_term(right, op, True)}"
        case tree.Call(function, arguments):
            return f"{function}({', '.join(map(_operand, arguments))})"
        case tree.Predicate(condition):
            return _grouped(condition)
        case tree.Now():
            return "UTC()"


def _term(node: Operand, op: ArithmeticOp, right: bool) -> str:
    """A side of an arithmetic operator, in parentheses where precedence would read it otherwise."""
    text = _operand(node)
    if not isinstance(node, tree.Arithmetic):
        return text
    looser = node.op in _SUMS and op not in _SUMS
    return f"({text})" if looser or (right and (node.op in _SUMS) == (op in _SUMS)) else text


def _signed(node: Operand) -> str:
    # A sign before a bare number would become part of the number.
    text = _operand(node)
    return text if isinstance(node, tree.Name | tree.Call | tree.Predicate | tree.Now) else f"({text})"


def _grouped(condition: Condition) -> str:
    return f"({unparse(condition)})"


def _not(negated: bool) -> str:
    return " NOT" if negated else ""


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(name: str) -> str:
    if _BARE.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return "[" + name.replace("[", "[[").replace("]", "]]") + "]"
