"""Constants as a filter writes them, in the type of the attribute that they meet."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from sealcast.errors import EventRejected, FilterRejected
from sealcast.filters.timestamps import parse_timestamp
from sealcast.filters.tree import Value
from sealcast.model.schema import MAX_NUMBER_DIGITS, Attribute, Type


def exact_number(text: str) -> Decimal:
    """A number token, exactly. Only decimal notations come here: hexadecimal ones are ints, or doubles by intent."""
    digits = text.replace("_", "").lower()
    if "0x" in digits:
        return Decimal(float.fromhex(digits.rstrip("fd") if "p" in digits else digits))
    return _bounded(Decimal(digits.rstrip("fd")), text)


def _bounded(number: Decimal, text: str, at: int | None = None) -> Decimal:
    """An exponent says in a few characters what takes a gigabyte to write out, and columns compare written out."""
    if number.is_finite() and abs(number.adjusted()) > MAX_NUMBER_DIGITS:
        raise FilterRejected("limit", f"{text} has more than {MAX_NUMBER_DIGITS} digits", at=at)
    return number


def bare_word(text: str, attribute: Attribute, at: int) -> Value:
    """A tag's bare word in the attribute's type. The domain is left out: asking for the impossible is legal."""
    if attribute.type is Type.STRING:
        return text
    given: object = text
    if attribute.type is Type.BOOL:
        given = {"true": True, "false": False}.get(text.lower(), text)
    elif attribute.type is not Type.TIMESTAMP:
        try:
            given = _bounded(Decimal(text), text, at)
        except InvalidOperation:
            given = text
    try:
        if attribute.type is Type.TIMESTAMP:
            return parse_timestamp(Decimal(text) if text.isdecimal() else text, at)
        if attribute.type is Type.DECIMAL and isinstance(given, Decimal) and given.is_finite():
            return given
        return Attribute(attribute.name, attribute.type).parse(given)
    except EventRejected:
        raise FilterRejected("type", f"{attribute.name} is of type {attribute.type}, {text!r} is not", at=at) from None
