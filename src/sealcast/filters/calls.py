"""Functions as a filter writes them: that each exists, how many values it takes, and which of them are constants."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from sealcast.errors import FilterRejected
from sealcast.filters import tree
from sealcast.filters.functions import KINDS, FunctionKinds
from sealcast.filters.limits import MAX_IN_ITEMS, MAX_ROUND_DIGITS
from sealcast.filters.tree import Function, Operand
from sealcast.filters.values import kind

#: What makes a list. There are no values that are lists, so these stand in an INLIST and nowhere else.
_LISTS: Final = ("SPLIT", "MAKELIST")


def no_such_function(word: str, at: int, others: Iterable[str]) -> FilterRejected:
    """Why `word(` is refused. `others` are those that the parser reads in a way of their own."""
    if word.upper() in _LISTS:
        hint = "write INLIST(SPLIT(tags, ','), 'new')"
        return FilterRejected("syntax", f"{word.upper()} makes a list, which only INLIST takes", at=at, hint=hint)
    known = sorted((*map(str, Function), *others))
    near = difflib.get_close_matches(word.upper(), known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return FilterRejected("syntax", f"there is no function {word}", at=at, hint=hint)


def called(function: Function, arguments: tuple[Operand, ...], at: int) -> tree.Call:
    """The call, or FilterRejected for what no event could make right."""
    kinds = KINDS[function]
    count = len(arguments)
    if count < kinds.least or (kinds.most is not None and count > kinds.most) or count > MAX_IN_ITEMS:
        raise FilterRejected("syntax", f"{function} takes {_wanted(kinds)}, not {count}", at=at)
    if kinds.constant_from is not None:
        for position in range(kinds.constant_from, count):
            _check_constant(function, arguments[position], kinds.kind(position))
    if function is Function.REPLACE:
        _check_separator(arguments[1], "REPLACE", "what it replaces")
    if function is Function.ROUND and count == 2:
        _check_digits(arguments[1])
    return tree.Call(function, arguments, at=at)


def in_split(split: tuple[Operand, ...], item: Operand, split_at: int, *, at: int, end: int) -> tree.InSplit:
    """INLIST of a SPLIT whose values are these."""
    if len(split) != 2:
        raise FilterRejected("syntax", f"SPLIT takes a text and a separator, not {len(split)} values", at=split_at)
    separator = _check_constant("SPLIT", split[1], "string")
    _check_separator(split[1], "SPLIT", "its separator")
    return tree.InSplit(split[0], str(separator.value), item, at=at, end=end)


def _wanted(kinds: FunctionKinds) -> str:
    if kinds.most is None:
        return f"{kinds.least} values or more"
    if kinds.least == kinds.most:
        return f"{kinds.most} value{'s' * (kinds.most > 1)}"
    return f"{kinds.least} to {kinds.most} values"


def _check_constant(function: str, argument: Operand, wanted: str) -> tree.Literal:
    if not isinstance(argument, tree.Literal) or kind(argument.value) != wanted:
        message = f"{function} takes a {wanted} here that is written out"
        raise FilterRejected("type", message, at=argument.at, hint="it must be the same for every event")
    return argument


def _check_separator(argument: Operand, function: str, what: str) -> None:
    if isinstance(argument, tree.Literal) and argument.value == "":
        raise FilterRejected("type", f"{function}: {what} has at least one character", at=argument.at)


def _check_digits(argument: Operand) -> None:
    value = argument.value if isinstance(argument, tree.Literal) else None
    if not isinstance(value, int) or abs(value) > MAX_ROUND_DIGITS:
        message = f"ROUND takes a whole number of digits from {-MAX_ROUND_DIGITS} to {MAX_ROUND_DIGITS}"
        raise FilterRejected("type", message, at=argument.at)
