"""What functions are worth: `UPPER(symbol)`, `ABS(change)`. The names and most meanings are those of CloudEvents SQL.

A function of NULL is NULL, and so is one of a value of the wrong kind, since this language converts nothing by itself.
It is NULL, too, where CloudEvents SQL reports an error and goes on with a made-up value: `LEFT(x, -1)`,
`SUBSTRING(x, 9)` of a shorter text. A condition on NULL is unknown, so such an event is not delivered by mistake.

Characters are code points, and the first one is number 1. Texts that are computed are bounded: one that would be longer
than `limits.MAX_COMPUTED_TEXT` is NULL, and it is not made first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from sealcast.filters.limits import MAX_COMPUTED_TEXT, MAX_ROUND_DIGITS
from sealcast.filters.tree import Function, Value
from sealcast.filters.values import DECIMAL_CONTEXT, Number, number

#: Unicode's White_Space. `str.strip` alone would take four control characters with it.
_BLANKS: Final = "".join(
    map(
        chr,
        (*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
    )
)


class FunctionKinds(NamedTuple):
    """What a function takes, by kind, and what it gives."""

    takes: tuple[str, ...]
    gives: str
    #: How many of the arguments must be there; the last kind repeats where there is no upper bound.
    least: int
    repeats: bool = False
    #: From this argument on, they are constants: what a call may cost has to be known beforehand.
    constant_from: int | None = None

    def kind(self, position: int) -> str:
        return self.takes[min(position, len(self.takes) - 1)]

    @property
    def most(self) -> int | None:
        return None if self.repeats else len(self.takes)


_TEXT: Final = FunctionKinds(("string",), "string", 1)
_PART: Final = FunctionKinds(("string", "number"), "string", 2)
KINDS: Final[dict[Function, FunctionKinds]] = {
    Function.ABS: FunctionKinds(("number",), "number", 1),
    Function.CONCAT: FunctionKinds(("string",), "string", 1, repeats=True),
    Function.CONCAT_WS: FunctionKinds(("string",), "string", 2, repeats=True),
    Function.LEFT: _PART,
    Function.LENGTH: FunctionKinds(("string",), "number", 1),
    Function.LOWER: _TEXT,
    Function.REPLACE: FunctionKinds(("string", "string", "string"), "string", 3, constant_from=1),
    Function.RIGHT: _PART,
    Function.ROUND: FunctionKinds(("number", "number"), "number", 1, constant_from=1),
    Function.SUBSTRING: FunctionKinds(("string", "number", "number"), "string", 2),
    Function.TRIM: _TEXT,
    Function.UPPER: _TEXT,
}


def call(function: Function, arguments: Sequence[Value]) -> Value:
    """What the function makes of these values; NULL if one of them is NULL or of another kind than it takes."""
    kinds = KINDS[function]
    fitting: list[Any] = []
    for position, value in enumerate(arguments):
        fits = value if isinstance(value, str) else None
        if kinds.kind(position) == "number":
            fits = number(value)  # type: ignore[assignment]
        if fits is None:
            return None
        fitting.append(fits)
    return _MEANINGS[function](*fitting)


def parts(text: str, separator: str) -> list[str]:
    """SPLIT: the texts between the separators, empty ones included."""
    return text.split(separator)


# --- numbers ------------------------------------------------------------------------------------


def _abs(value: Number) -> Number:
    return value.copy_abs() if isinstance(value, Decimal) else abs(value)


def _round(value: Number, digits: Number = 0) -> Number | None:
    """Half away from zero, by the exact worth: the double that 2.675 is lies below it, so two digits of it are 2.67."""
    places = _whole(digits)
    if places is None or abs(places) > MAX_ROUND_DIGITS:
        return None
    if isinstance(value, int) and places >= 0:
        return value
    try:
        exact = Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, DECIMAL_CONTEXT)
    except InvalidOperation:
        # More digits than a hundred: what has no place there to round is left as it is.
        return value if isinstance(value, float) else None
    return int(exact) if isinstance(value, int) else float(exact) if isinstance(value, float) else exact


def _whole(value: Number) -> int | None:
    return int(value) if value == value // 1 else None


# --- texts --------------------------------------------------------------------------------------


def _bounded(text: str) -> str | None:
    return text if len(text) <= MAX_COMPUTED_TEXT else None


def _concat(*texts: str) -> str | None:
    return "".join(texts) if sum(map(len, texts)) <= MAX_COMPUTED_TEXT else None


def _concat_with(separator: str, *texts: str) -> str | None:
    return None if len(separator) * len(texts) > MAX_COMPUTED_TEXT else _concat(separator.join(texts))


def _left(text: str, count: Number) -> str | None:
    whole = _whole(count)
    return None if whole is None or whole < 0 else text[:whole]


def _right(text: str, count: Number) -> str | None:
    whole = _whole(count)
    return None if whole is None or whole < 0 else text[max(0, len(text) - whole) :]


def _substring(text: str, position: Number, length: Number | None = None) -> str | None:
    first, count = _whole(position), len(text) if length is None else _whole(length)
    if first is None or count is None or abs(first) > len(text) or count < 0:
        return None
    if first == 0:
        return ""
    start = first - 1 if first > 0 else len(text) + first
    return text[start : start + count]


def _replace(text: str, old: str, new: str) -> str | None:
    longer = len(text) + text.count(old) * (len(new) - len(old))
    return text.replace(old, new) if longer <= MAX_COMPUTED_TEXT else None


_MEANINGS: Final[dict[Function, Callable[..., Value]]] = {
    Function.ABS: _abs,
    Function.CONCAT: _concat,
    Function.CONCAT_WS: _concat_with,
    Function.LEFT: _left,
    Function.LENGTH: len,
    Function.LOWER: lambda text: _bounded(text.lower()),
    Function.REPLACE: _replace,
    Function.RIGHT: _right,
    Function.ROUND: _round,
    Function.SUBSTRING: _substring,
    Function.TRIM: lambda text: text.strip(_BLANKS),
    Function.UPPER: lambda text: _bounded(text.upper()),
}
