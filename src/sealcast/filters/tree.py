"""The tree a filter is parsed into: what every other file in this room reads.

A tree is a value: frozen, hashable, comparable. `at` is the offset of the node's first character in the
filter's text (in code points); it takes no part in equality, so that `a = 1` and ` a=1` are the same filter.

    Condition                      says true, false or unknown of an event
      And, Or        of conditions     Not          of a condition
      Compare        =  <>  <  <=  >  >=  of two operands
      Between, In, Like, IsNull        each may be negated (NOT BETWEEN, ...)
      Truth          an operand used as a condition: a boolean attribute, TRUE, FALSE
      PathMatch, Regex, XPath          the formats of paper 004 that are no SQL
    Operand                        has a value, or NULL
      Literal, Name, Negate, Plus, Arithmetic
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

#: What an operand can be worth. NULL is `None`. A timestamp is an aware datetime in UTC.
Value = bool | int | float | Decimal | str | datetime | None


class Comparison(StrEnum):
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class ArithmeticOp(StrEnum):
    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"


# --- operands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    """An attribute of the event."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus."""

    operand: Operand
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Plus:
    """Unary plus: the number itself, NULL of anything that is no number."""

    operand: Operand
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    op: ArithmeticOp
    left: Operand
    right: Operand
    at: int = field(default=0, compare=False)


# --- conditions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Truth:
    operand: Operand
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    op: Comparison
    left: Operand
    right: Operand
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Between:
    operand: Operand
    low: Operand
    high: Operand
    negated: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class In:
    operand: Operand
    items: tuple[Operand, ...]
    negated: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Like:
    operand: Operand
    pattern: str
    escape: str | None = None
    negated: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Operand
    negated: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class PathMatch:
    """A path with wildcards, matched level by level: `+` is one level, a final `#` is any number, none included."""

    name: str
    levels: tuple[str, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Regex:
    """An RE2 pattern, searched for anywhere in a string attribute (anchor it with ^ and $)."""

    name: str
    pattern: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class XPath:
    """An XPath 1.0 expression over an XML payload: true if it is true, not empty, not zero."""

    expression: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    operand: Condition
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class And:
    """Two or more conditions; nested ANDs are one."""

    items: tuple[Condition, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Or:
    items: tuple[Condition, ...]
    at: int = field(default=0, compare=False)


Operand = Literal | Name | Negate | Plus | Arithmetic
Condition = Truth | Compare | Between | In | Like | IsNull | PathMatch | Regex | XPath | Not | And | Or
