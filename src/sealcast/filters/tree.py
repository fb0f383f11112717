"""The tree a filter is parsed into: what every other file in this room reads.

A tree is a value: frozen, hashable, comparable. `at` is the offset of the node's first character in the
filter's text (in code points), `end` the offset after a condition's last one; they take no part in equality,
so that `a = 1` and ` a=1` are the same filter. Trees are at most `limits.MAX_DEPTH` deep: recursion is safe.

    Condition                      says true, false or unknown of an event
      And, Or        of conditions     Not          of a condition
      Compare        =  <>  <  <=  >  >=  of two operands
      Between, In, Like, IsNull        each may be negated (NOT BETWEEN, ...)
      Truth          an operand used as a condition: a boolean attribute, TRUE, FALSE
      PathMatch, Regex, XPath          the formats of paper 004 that are no SQL
      InSplit        INLIST(SPLIT(text, ','), value)
    Operand                        has a value, or NULL
      Literal, Name, Negate, Plus, Arithmetic, Call
      Predicate      a condition used as a value: TRUE, FALSE, or NULL where it is unknown
      Now            UTC(): never in a tree that `check` has passed
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final

#: What an operand can be worth. NULL is `None`. A timestamp is an aware datetime in UTC.
Value = bool | int | float | Decimal | str | datetime | None


class Comparison(StrEnum):
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


#: The same comparison seen from its right side: `a < b` is `b > a`.
MIRRORED: Final = {
    Comparison.EQ: Comparison.EQ,
    Comparison.NE: Comparison.NE,
    Comparison.LT: Comparison.GT,
    Comparison.LE: Comparison.GE,
    Comparison.GT: Comparison.LT,
    Comparison.GE: Comparison.LE,
}


class ArithmeticOp(StrEnum):
    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"


class Function(StrEnum):
    ABS = "ABS"
    CONCAT = "CONCAT"
    CONCAT_WS = "CONCAT_WS"
    LEFT = "LEFT"
    LENGTH = "LENGTH"
    LOWER = "LOWER"
    REPLACE = "REPLACE"
    RIGHT = "RIGHT"
    ROUND = "ROUND"
    SUBSTRING = "SUBSTRING"
    TRIM = "TRIM"
    UPPER = "UPPER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A node that knows where in the filter's text it begins."""

    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spanned(Placed):
    """A node that knows where it ends, too."""

    end: int = field(default=0, compare=False)


# --- operands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal(Placed):
    """A constant. Equality is strict about types, as `hash` and the language are not: 1, 1.0 and TRUE differ here."""

    value: Value
    #: How the constant was written, where an attribute's own type may read it better: `0.10`, or a tag's bare word.
    text: str | None = field(default=None, compare=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Name(Placed):
    """An attribute of the event."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate(Placed):
    """Unary minus."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Plus(Placed):
    """Unary plus: the number itself, NULL of anything that is no number."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Arithmetic(Placed):
    op: ArithmeticOp
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Call(Placed):
    """A function of values; `functions.py` says what each is worth and what it takes."""

    function: Function
    arguments: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Predicate(Placed):
    """A condition in place of a value, as in `(a > b) IS NULL` or `(a = 1) = flag`."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Now(Placed):
    """`UTC()`: milliseconds since 1970. `check` refuses it: a filter must say of an event what it said before."""


# --- conditions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Truth(Spanned):
    operand: Operand


@dataclass(frozen=True, slots=True)
class Compare(Spanned):
    op: Comparison
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Between(Spanned):
    operand: Operand
    low: Operand
    high: Operand
    negated: bool = False


@dataclass(frozen=True, slots=True)
class In(Spanned):
    operand: Operand
    items: tuple[Operand, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(Spanned):
    operand: Operand
    pattern: str
    escape: str | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull(Spanned):
    operand: Operand
    negated: bool = False


@dataclass(frozen=True, slots=True)
class PathMatch(Spanned):
    """A path with wildcards, matched level by level: `+` is one level, a final `#` is any number, none included."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Regex(Spanned):
    """An RE2 pattern, searched for anywhere in a string attribute (anchor it with ^ and $)."""

    name: str
    pattern: str


@dataclass(frozen=True, slots=True)
class XPath(Spanned):
    """An XPath 1.0 expression over an XML payload: true if it is true, not empty, not zero."""

    expression: str


@dataclass(frozen=True, slots=True)
class InSplit(Spanned):
    """Whether the item is one of the texts that a separator divides a text into."""

    operand: Operand
    separator: str
    item: Operand


@dataclass(frozen=True, slots=True)
class Not(Spanned):
    operand: Condition


@dataclass(frozen=True, slots=True)
class And(Spanned):
    """Two or more conditions; nested ANDs are one."""

    items: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or(Spanned):
    items: tuple[Condition, ...]


Operand = Literal | Name | Negate | Plus | Arithmetic | Call | Predicate | Now
Condition = Truth | Compare | Between | In | Like | IsNull | PathMatch | Regex | XPath | InSplit | Not | And | Or
