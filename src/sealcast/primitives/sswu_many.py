"""RFC 9380's hash to secp256k1 for many messages at once: the points of `sswu.hash_to_curve`, for less.

A hash one by one spends most of its time on two square roots, one for each field element. Here, the root is taken on
secp256k1 itself, where the library takes it three times as fast:

    x of E' follows from the field element and whether g(x) is a square, which the Jacobi symbol tells without a root
    X of secp256k1 follows from x by the isogeny, and the library finds the even Y of X
    y of E' follows from Y by the isogeny backwards, and has the sign that section 6.6.2 asks for, or Y is negated

What is divided by is inverted together (Montgomery): one inversion and three products each. What is left is the
library's: two roots, and the sum of the two points. It is as little constant-time as the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import gmpy2
from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT
from coincurve.flags import EC_UNCOMPRESSED

from sealcast.errors import Bug
from sealcast.primitives import sswu

#: Messages that are hashed together: inversions are shared among them, and it bounds what is held meanwhile.
TOGETHER: Final = 512
_LONG: Final = 65
_p: Final = gmpy2.mpz(sswu.P)
_a: Final = gmpy2.mpz(sswu.A)
_b: Final = gmpy2.mpz(sswu.B)
_z: Final = gmpy2.mpz(sswu.Z)
#: -B / A and B / (Z A), of section 6.6.2.
_MINUS_B_OVER_A: Final = -_b * gmpy2.invert(_a, _p) % _p
_B_OVER_ZA: Final = _b * gmpy2.invert(_z * _a, _p) % _p
_ONE: Final = gmpy2.mpz(1)


def hash_many(messages: Sequence[bytes], tag: bytes) -> list[bytes]:
    """The point of each message, as x | y, 32 bytes each."""
    found: list[bytes] = []
    for start in range(0, len(messages), TOGETHER):
        drawn = [u for message in messages[start : start + TOGETHER] for u in sswu.field_elements(message, tag)]
        found += _summed(_mapped(drawn))
    return found


def _mapped(drawn: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
    """For each field element: X of its point, y of E' divided by Y, and the sign that y has to have."""
    p, a, b = _p, _a, _b
    squares = [_z * u * u % p for u in drawn]
    # Section 6.6.2; of zero, there is no inverse, and x is the one that the section names.
    divisors = [(zu2 * zu2 + zu2) % p for zu2 in squares]
    inverses = _inverses([tv or _ONE for tv in divisors])
    curves, isogeny = [], sswu.isogeny
    for zu2, tv, inverse in zip(squares, divisors, inverses, strict=True):
        x = _MINUS_B_OVER_A * (1 + inverse) % p if tv else _B_OVER_ZA
        gx = ((x * x + a) * x + b) % p
        curves.append(isogeny(x if gmpy2.jacobi(gx, p) >= 0 else zu2 * x % p))
    # Section 6.6.3: X = x_num / x_den and Y = y y_num / y_den, so that y = Y y_den / y_num.
    inverses = _inverses([x_den * y_num % p for _, x_den, y_num, _ in curves])
    return [
        (x_num * y_num % p * inverse % p, y_den * x_den % p * inverse % p, u & 1)
        for (x_num, x_den, y_num, y_den), inverse, u in zip(curves, inverses, drawn, strict=True)
    ]


def _summed(mapped: Sequence[tuple[Any, Any, Any]]) -> list[bytes]:
    """The points of neighbours, added."""
    context, found, p = GLOBAL_CONTEXT.ctx, list[bytes](), _p
    pair, total = ffi.new("secp256k1_pubkey[2]"), ffi.new("secp256k1_pubkey *")
    points = pair, pair + 1
    both = ffi.new("secp256k1_pubkey *[2]", points)
    out, size = ffi.new("unsigned char[]", _LONG), ffi.new("size_t *", _LONG)
    y_written, written = ffi.buffer(out + 33, 32), ffi.buffer(out + 1, 64)
    read, write, negate = (
        lib.secp256k1_ec_pubkey_parse,
        lib.secp256k1_ec_pubkey_serialize,
        lib.secp256k1_ec_pubkey_negate,
    )
    number, long = gmpy2.mpz.from_bytes, EC_UNCOMPRESSED  # a loop asks for locals the fastest
    for start in range(0, len(mapped), 2):
        for point, (x, y_over, sign) in zip(points, mapped[start : start + 2], strict=True):
            if not read(context, point, b"\2" + x.to_bytes(32, "big"), 33):
                raise Bug("a label was hashed to no point of the curve")
            write(context, out, size, point, long)
            if number(y_written[:], "big") * y_over % p & 1 != sign:
                negate(context, point)
        if not lib.secp256k1_ec_pubkey_combine(context, total, both, 2):
            raise Bug("a label was hashed to the identity")
        write(context, out, size, total, long)
        found.append(written[:])
    return found


def _inverses(values: Sequence[Any]) -> list[Any]:
    """The inverse of each, by one inversion of their product."""
    products, product = [], _ONE
    for value in values:
        products.append(product)
        product = product * value % _p
    if not product:
        raise Bug("a label was hashed to the identity")  # for 2 in 2**256 field elements
    inverse = gmpy2.invert(product, _p)
    found: list[Any] = [None] * len(values)
    for at in range(len(values) - 1, -1, -1):
        found[at] = inverse * products[at] % _p
        inverse = inverse * values[at] % _p
    return found
