"""Filters against events, a JSON line each: what `sealcast filter eval --cases` prints.

    {"filter": "price > 5", "attributes": {"price": 7}}   ->   {"result": true}
    {"filter": "price >", "attributes": {}}               ->   {"error": {"kind": "syntax", "at": 7, "message": ...}}

There is no schema: the types come from the values, numbers with a point or an exponent are doubles, and what is
absent is NULL. Every line gets an answer, whatever stands in it; fields beside `filter`, `attributes` and `payload`
(a text, for XPath) are left alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sealcast.errors import FilterRejected
from sealcast.filters.check import section_free
from sealcast.filters.cost import names
from sealcast.filters.evaluate import evaluate
from sealcast.filters.limits import MAX_CASE_DIGITS, MAX_CASE_LENGTH
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition, Value

#: The kind of an error that is the case's, not the filter's.
CASE: Final = "case"


def evaluate_cases(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """An answer for every line that is not blank, in order."""
    for line in lines:
        if line.strip():
            yield evaluate_case(line)


def evaluate_case(line: str) -> dict[str, Any]:
    """`{"result": ...}`, or `{"error": ...}`; nothing is raised."""
    try:
        text, attributes, payload = _read(line)
        condition = parse(text)
        return {"result": evaluate(condition, _aliased(condition, attributes), payload)}
    except FilterRejected as error:
        message = error.message if error.hint is None else f"{error.message} ({error.hint})"
        return {"error": {"kind": error.kind, "at": error.at, "message": message}}


def _read(line: str) -> tuple[str, dict[str, Value], bytes | None]:
    if len(line) > MAX_CASE_LENGTH:
        raise FilterRejected("limit", f"a case has at most {MAX_CASE_LENGTH} characters")
    try:
        case = json.loads(line, parse_int=_whole, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise FilterRejected(CASE, f"the line is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise FilterRejected("limit", "the line nests too deep") from None
    if not isinstance(case, dict):
        raise FilterRejected(CASE, 'a case is an object: {"filter": ..., "attributes": {...}}')
    text, attributes, payload = case.get("filter"), case.get("attributes", {}), case.get("payload")
    if not isinstance(text, str):
        raise FilterRejected(CASE, "`filter` is missing or not a string")
    if not isinstance(attributes, dict):
        raise FilterRejected(CASE, "`attributes` is not an object")
    if payload is not None and not isinstance(payload, str):
        raise FilterRejected(CASE, "`payload` is not a string")
    values = {name: _value(name, value) for name, value in attributes.items()}
    return text, values, None if payload is None else _bytes(payload)


def _value(name: str, value: Any) -> Value:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise FilterRejected(CASE, f"attribute {name!r} is beyond the range of doubles")
        return value
    if isinstance(value, str):
        _bytes(value)
        return value
    raise FilterRejected(CASE, f"attribute {name!r} is neither a string, a number, a boolean nor null")


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FilterRejected(CASE, "a string of the case is not valid Unicode (a lone surrogate)") from None


def _whole(digits: str) -> int:
    if len(digits) > MAX_CASE_DIGITS:
        raise FilterRejected("limit", f"a whole number has at most {MAX_CASE_DIGITS} digits")
    return int(digits)


def _constant(name: str) -> float:
    raise FilterRejected(CASE, f"{name} is not a JSON number")


def _aliased(condition: Condition, attributes: dict[str, Value]) -> Mapping[str, Value]:
    """The attributes, also under the AMQP sections that the filter uses: `a.price` finds `price`."""
    missing = {name: section_free(name, attributes) for name in names(condition) if name not in attributes}
    extra = {name: attributes[found] for name, found in missing.items() if found is not None}
    return {**attributes, **extra} if extra else attributes
