"""Addition on secp256k1, beside the multiplication of `curve`: what matching of ciphertexts is made of.

Everything takes and gives `Element`s (x | y) and bytes as they stand on the wire (33 bytes, compressed). A sum may be
infinity, which is no element: it is None here, and whoever adds says what that means.

Each function is one loop over the library's own calls, with the point that it works on kept in place. To read a
compressed point takes a square root, a fifth of a multiplication; so what is used twice is kept as an element.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT
from coincurve.flags import EC_COMPRESSED, EC_UNCOMPRESSED

from sealcast.errors import Bug
from sealcast.primitives.curve import CURVE, ORDER
from sealcast.primitives.groups import Element, Exponent, refused

WIRE_BYTES: Final = 33
ELEMENT_BYTES: Final = 64
_LONG: Final = 65
_UNCOMPRESSED: Final = b"\x04"
_CONTEXT: Final = GLOBAL_CONTEXT.ctx


def base(exponent: Exponent) -> Element:
    """The exponent's multiple of the generator."""
    own = _threads.space
    if not lib.secp256k1_ec_pubkey_create(_CONTEXT, own.point, exponent.packed):
        raise Bug("an exponent is zero or beyond the order")
    return own.element(own.point)


def base_wire(exponent: Exponent) -> bytes:
    """`base`, as it stands on the wire."""
    own = _threads.space
    if not lib.secp256k1_ec_pubkey_create(_CONTEXT, own.point, exponent.packed):
        raise Bug("an exponent is zero or beyond the order")
    return own.wire(own.point)


def add(one: Element, other: Element) -> Element | None:
    """The sum; None is infinity."""
    own = _threads.space
    own.load(own.point, one)
    own.load(own.other, other)
    return own.element(own.sum) if own.added() else None


def subtract(one: Element, other: Element) -> Element | None:
    """The difference; None is infinity, the difference of a point and itself."""
    own = _threads.space
    own.load(own.point, one)
    own.load(own.other, other)
    lib.secp256k1_ec_pubkey_negate(_CONTEXT, own.other)
    return own.element(own.sum) if own.added() else None


def add_base(element: Element, exponent: Exponent) -> Element | None:
    """The sum of an element and a multiple of the generator; None is infinity."""
    own = _threads.space
    own.load(own.point, element)
    if not lib.secp256k1_ec_pubkey_tweak_add(_CONTEXT, own.point, exponent.packed):
        return None
    return own.element(own.point)


def multiply_add(first: bytes, second: bytes, exponent: Exponent, expected: Element) -> Element | None:
    """exponent * first + second, of two points as they stand on the wire; None is infinity. Rejected for what is no
    point.

    If the result is the expected one, it takes one square root instead of two: then second = expected - exponent *
    first, which is compared as bytes.
    """
    own, context = _threads.space, _CONTEXT
    own.read(own.point, first)
    if not lib.secp256k1_ec_pubkey_tweak_mul(context, own.point, exponent.packed):
        raise Bug("an exponent is zero or beyond the order")
    lib.secp256k1_ec_pubkey_negate(context, own.point)
    own.load(own.other, expected)
    if own.added() and own.wire(own.sum) == second:
        return expected
    lib.secp256k1_ec_pubkey_negate(context, own.point)
    own.read(own.other, second)
    return own.element(own.sum) if own.added() else None


def multiply_add_many(pairs: Sequence[tuple[bytes, bytes]], exponent: Exponent) -> list[Element | None]:
    """exponent * first + second, of many pairs of points as they stand on the wire; None is infinity. Rejected if any
    of them is no point, before anything is computed."""
    own, context = _threads.space, _CONTEXT
    read = ffi.new("secp256k1_pubkey[]", 2 * len(pairs))
    for number, (first, second) in enumerate(pairs):
        own.read(read + 2 * number, first)
        own.read(read + 2 * number + 1, second)
    both = ffi.new("secp256k1_pubkey *[]", 2)
    found: list[Element | None] = []
    for number in range(len(pairs)):
        both[0], both[1] = read + 2 * number, read + 2 * number + 1
        if not lib.secp256k1_ec_pubkey_tweak_mul(context, both[0], exponent.packed):
            raise Bug("an exponent is zero or beyond the order")
        summed = lib.secp256k1_ec_pubkey_combine(context, own.sum, both, 2)
        found.append(own.element(own.sum) if summed else None)
    return found


def differences(elements: Iterable[Element], other: Element) -> list[bytes]:
    """Each element minus `other`, as it stands on the wire; infinity has no bytes, and is given as none."""
    own, context, found = _threads.space, _CONTEXT, list[bytes]()
    point, total, both, wire, size, written = own.point, own.sum, own.both, own.out, own.wire_size, own.as_wire
    own.load(own.other, other)
    lib.secp256k1_ec_pubkey_negate(context, own.other)
    read, combine, write, keep = (
        lib.secp256k1_ec_pubkey_parse,
        lib.secp256k1_ec_pubkey_combine,
        lib.secp256k1_ec_pubkey_serialize,
        found.append,
    )
    start, long, form = _UNCOMPRESSED, _LONG, EC_COMPRESSED
    for element in elements:
        if not read(context, point, start + element, long):
            raise Bug("an element is no point of the curve: only what `decode` returns is one")
        if combine(context, total, both, 2):
            write(context, wire, size, total, form)
            keep(written[:])
        else:
            keep(b"")
    return found


def check(points: Sequence[bytes]) -> None:
    """Refuses what is no point of the curve, infinity included, without computing with any of them."""
    own = _threads.space
    for point in points:
        own.read(own.point, point)


def random_exponent() -> Exponent:
    """Drawn afresh, each as likely as any other."""
    return Exponent(1 + secrets.randbelow(ORDER - 1), ORDER)


class _Space:
    """Points and buffers for all calls of one thread; see `curve`."""

    def __init__(self) -> None:
        self.point: Any = ffi.new("secp256k1_pubkey *")
        self.other: Any = ffi.new("secp256k1_pubkey *")
        self.sum: Any = ffi.new("secp256k1_pubkey *")
        self.both: Any = ffi.new("secp256k1_pubkey *[]", [self.point, self.other])
        self.out: Any = ffi.new("unsigned char[]", _LONG)
        self.size: Any = ffi.new("size_t *", _LONG)
        self.wire_size: Any = ffi.new("size_t *", WIRE_BYTES)
        self.as_element: Any = ffi.buffer(self.out + 1, ELEMENT_BYTES)
        self.as_wire: Any = ffi.buffer(self.out, WIRE_BYTES)

    def load(self, into: Any, element: Element) -> None:
        if not lib.secp256k1_ec_pubkey_parse(_CONTEXT, into, _UNCOMPRESSED + element, _LONG):
            raise Bug("an element is no point of the curve: only what `decode` returns is one")

    def read(self, into: Any, data: bytes) -> None:
        """From the wire, where anything may stand."""
        if len(data) != WIRE_BYTES or data[0] not in (2, 3):
            raise refused(CURVE.name, "is no compressed point")
        if not lib.secp256k1_ec_pubkey_parse(_CONTEXT, into, data, WIRE_BYTES):
            raise refused(CURVE.name, "is not on the curve")

    def added(self) -> bool:
        """The sum of `point` and `other` into `sum`; false for infinity."""
        return bool(lib.secp256k1_ec_pubkey_combine(_CONTEXT, self.sum, self.both, 2))

    def element(self, point: Any) -> Element:
        lib.secp256k1_ec_pubkey_serialize(_CONTEXT, self.out, self.size, point, EC_UNCOMPRESSED)
        return Element(self.as_element[:])

    def wire(self, point: Any) -> bytes:
        lib.secp256k1_ec_pubkey_serialize(_CONTEXT, self.out, self.wire_size, point, EC_COMPRESSED)
        written: bytes = self.as_wire[:]
        return written


class _Threads(threading.local):
    def __init__(self) -> None:
        self.space = _Space()


_threads: Final = _Threads()
