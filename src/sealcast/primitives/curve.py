"""secp256k1: a group of prime order in which a layer costs a hundredth of what it does modulo a prime of 2,048 bits.

Cofactor one: every point on the curve but infinity is a member, so that the check of a received element is the check
of the curve's equation. Labels come onto it by RFC 9380, suite secp256k1_XMD:SHA-256_SSWU_RO_ (`sswu.py`).

In memory an element is x | y (64 bytes), since reading a compressed point takes a square root, a sixth of the price
of a multiplication; on the wire it is compressed (33 bytes). Multiplication is libsecp256k1's `tweak_mul`, whose time
depends on the exponent; see `modular` for what that means here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, Final

from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT
from coincurve.flags import EC_UNCOMPRESSED

from sealcast.errors import Bug
from sealcast.primitives.groups import Element, Exponent, refused

ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
#: RFC 9380, section 3.1: a tag names the application, its version and the suite.
TAG: Final = b"sealcast-V01-CS01-with-secp256k1_XMD:SHA-256_SSWU_RO_"
_WIRE: Final = 33
_LONG: Final = 65
_UNCOMPRESSED: Final = b"\x04"


class Secp256k1:
    """The curve as a group."""

    name: Final = "secp256k1"
    order: Final = ORDER
    wire_bytes: Final = _WIRE

    # Whoever holds keys of this curve imports it, and few of these hash: gmpy2 is imported by those.
    def hash(self, data: bytes) -> Element:
        from sealcast.primitives.sswu import hash_to_curve

        x, y = hash_to_curve(data, TAG)
        return Element(x.to_bytes(32, "big") + y.to_bytes(32, "big"))

    def hash_many(self, data: Sequence[bytes]) -> list[Element]:
        from sealcast.primitives.sswu_many import hash_many

        return list(map(Element, hash_many(data, TAG)))

    def random(self) -> Element:
        """ElligatorSwift of 64 random bytes (BIP 324): each string is one of a point, and points come all but
        uniformly. A fifth of the price of a hash."""
        own, context = _own, GLOBAL_CONTEXT.ctx
        if not lib.secp256k1_ellswift_decode(context, own.point, os.urandom(64)):
            raise Bug("64 bytes are no point of the curve")
        lib.secp256k1_ec_pubkey_serialize(context, own.out, own.size, own.point, EC_UNCOMPRESSED)
        return Element(own.written[:])

    def power(self, element: Element, exponent: Exponent) -> Element:
        return self.power_many((element,), exponent)[0]

    def power_many(self, elements: Sequence[Element], exponent: Exponent) -> list[Element]:
        context, scalar, found = GLOBAL_CONTEXT.ctx, exponent.packed, list[Element]()
        point, out, size, written, keep = _own.point, _own.out, _own.size, _own.written, found.append
        start, long, form = _UNCOMPRESSED, _LONG, EC_UNCOMPRESSED  # a loop asks for locals the fastest
        read, multiply, write = (
            lib.secp256k1_ec_pubkey_parse,
            lib.secp256k1_ec_pubkey_tweak_mul,
            lib.secp256k1_ec_pubkey_serialize,
        )
        for element in elements:
            if not read(context, point, start + element, long):
                raise Bug("an element is no point of the curve: only what `decode` returns is one")
            if not multiply(context, point, scalar):
                raise Bug("an exponent is zero or beyond the order")
            write(context, out, size, point, form)
            keep(written[:])
        return found

    def decode(self, data: bytes) -> Element:
        """From 33 bytes: infinity has no such spelling, and what is not on the curve is refused."""
        if len(data) != _WIRE or data[0] not in (2, 3):
            raise refused(self.name, "is no compressed point")
        own, context = _own, GLOBAL_CONTEXT.ctx
        if not lib.secp256k1_ec_pubkey_parse(context, own.point, bytes(data), _WIRE):
            raise refused(self.name, "is not on the curve")
        lib.secp256k1_ec_pubkey_serialize(context, own.out, own.size, own.point, EC_UNCOMPRESSED)
        return Element(own.written[:])

    def encode(self, element: Element) -> bytes:
        return (b"\x03" if element[-1] & 1 else b"\x02") + element[:32]


class _Own(threading.local):
    """A point, a buffer and its size, for all calls of one thread: making them anew costs as much as the checks. The
    library lets other threads run while it multiplies, so that each needs its own. (It writes the size that it used,
    which is the one that it was given.)"""

    def __init__(self) -> None:
        self.point: Any = ffi.new("secp256k1_pubkey *")
        self.out: Any = ffi.new("unsigned char[]", _LONG)
        self.size: Any = ffi.new("size_t *", _LONG)
        #: What stands behind the first byte, which only says that it is uncompressed.
        self.written: Any = ffi.buffer(self.out + 1, _LONG - 1)


_own: Final = _Own()


CURVE: Final = Secp256k1()
