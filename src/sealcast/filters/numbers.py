"""Numbers as filters write them: Java's notations, and a few of Qpid's, into int or float.

An approximate constant is a double, as in every system of the union; what was written stays with the literal, so
that a decimal attribute can read it exactly.
"""

from __future__ import annotations

import math

from sealcast.errors import FilterRejected


def parse_number(text: str, at: int) -> int | float:
    """The number a NUMBER token stands for."""
    digits = text.replace("_", "").lower()
    if digits.startswith("0x"):
        return _hexadecimal(digits, at)
    if digits.startswith("0b"):
        return _java_long(int(digits[2:].rstrip("l"), 2), at)
    if digits[-1] in "fd" or "." in digits or "e" in digits:
        return _approximate(digits, text, at)
    whole = digits.removesuffix("l")
    if len(whole) > 1 and whole[0] == "0":
        if not whole.isdecimal() or "8" in whole or "9" in whole:
            raise FilterRejected("syntax", f"{text} begins with 0, so it is octal and has no digit above 7", at=at)
        return _java_long(int(whole, 8), at)
    return int(whole)


def _approximate(digits: str, text: str, at: int) -> float:
    try:
        value = float(digits.rstrip("fd"))
    except ValueError:
        raise FilterRejected("syntax", f"{text} is not a number", at=at) from None
    if math.isinf(value):
        raise FilterRejected("limit", f"{text} is beyond the range of doubles", at=at)
    return value


def _hexadecimal(digits: str, at: int) -> int | float:
    mantissa, power, exponent = digits.partition("p")
    if power:
        try:
            return math.ldexp(float(int(mantissa, 16)), int(exponent.rstrip("fd")))
        except OverflowError:
            raise FilterRejected("limit", "this number is beyond the range of doubles", at=at) from None
    return _java_long(int(mantissa.rstrip("l"), 16), at)


def _java_long(bits: int, at: int) -> int:
    """Java and Qpid read 64 written bits as two's complement: 0xFFFF_FFFF_FFFF_FFFF is -1."""
    if bits >= 1 << 64:
        raise FilterRejected("limit", "a number in hexadecimal, octal or binary has at most 64 bits", at=at)
    return bits - (1 << 64) if bits >= 1 << 63 else bits
