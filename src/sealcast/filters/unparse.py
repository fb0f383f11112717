"""Tree -> SQL text: `parse(unparse(tree)) == tree` for every tree that `parse` makes without a schema.

Constants that a schema converted come back as what they are worth: a decimal as a number, a timestamp as TIMESTAMP.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Final

from sealcast.filters.lexer import KEYWORDS
from sealcast.filters.tree import (
    And,
    Arithmetic,
    ArithmeticOp,
    Between,
    Compare,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Negate,
    Not,
    Now,
    Operand,
    Or,
    PathMatch,
    Plus,
    Predicate,
    Regex,
    Truth,
    Value,
    XPath,
)
from sealcast.model.schema import value_to_json

# Narrower than what the lexer takes: a colon could be read as a format's prefix.
_BARE: Final = re.compile(r"[^\W\d][\w$.]*|\$[\w$.]*")
_SUMS: Final = (ArithmeticOp.ADD, ArithmeticOp.SUB)


def unparse(condition: Condition) -> str:
    """SQL for the condition, in one normal spelling: keywords in capitals, no parentheses that are not needed."""
    match condition:
        case And(items):
            return " AND ".join(_grouped(item) if isinstance(item, Or) else unparse(item) for item in items)
        case Or(items):
            return " OR ".join(map(unparse, items))
        case Not(operand):
            return "NOT " + (_grouped(operand) if isinstance(operand, And | Or) else unparse(operand))
        case Compare(op, left, right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case Between(operand, low, high, negated):
            return f"{_operand(operand)}{_not(negated)} BETWEEN {_operand(low)} AND {_operand(high)}"
        case In(operand, items, negated):
            return f"{_operand(operand)}{_not(negated)} IN ({', '.join(map(_operand, items))})"
        case Like(operand, pattern, escape, negated):
            suffix = "" if escape is None else f" ESCAPE {_string(escape)}"
            return f"{_operand(operand)}{_not(negated)} LIKE {_string(pattern)}{suffix}"
        case IsNull(operand, negated):
            return f"{_operand(operand)} IS{_not(negated)} NULL"
        case Truth(operand):
            return _operand(operand)
        case PathMatch(name, levels):
            return f"PATH({_string('/'.join(levels))}, {_name(name)})"
        case Regex(name, pattern):
            return f"REGEX({_string(pattern)}, {_name(name)})"
        case XPath(expression):
            return f"XPATH {_string(expression)}"


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
        case Literal(value):
            return unparse_value(value)
        case Name(name):
            return _name(name)
        case Negate(operand):
            return "-" + _signed(operand)
        case Plus(operand):
            return "+" + _signed(operand)
        case Arithmetic(op, left, right):
            return f"{_term(left, op, False)} {op} {_term(right, op, True)}"
        case Predicate(condition):
            return _grouped(condition)
        case Now():
            return "UTC()"


def _term(node: Operand, op: ArithmeticOp, right: bool) -> str:
    """A side of an arithmetic operator, in parentheses where precedence would read it otherwise."""
    text = _operand(node)
    if not isinstance(node, Arithmetic):
        return text
    looser = node.op in _SUMS and op not in _SUMS
    return f"({text})" if looser or (right and (node.op in _SUMS) == (op in _SUMS)) else text


def _signed(node: Operand) -> str:
    # A sign before a bare number would become part of the number.
    text = _operand(node)
    return text if isinstance(node, Name | Predicate | Now) else f"({text})"


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
