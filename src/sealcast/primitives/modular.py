"""Pohlig-Hellman as paper 001 has it, repaired: the squares modulo a safe prime p = 2q + 1, a group of prime order q.

The paper takes k d = 1 modulo p - 1 on all of Z_p*. Then an odd k keeps the Legendre symbol, one bit of every label
and every event in clear; -1 stays -1 under every key; and E(7) E(11) = E(77) wherever labels are plain numbers. Here
labels are hashed and squared, exponents live modulo q, and what is no square, or is 0, 1 or -1, is refused.

The primes are those of RFC 3526, by the formulas that the RFC gives:

    group 14   p = 2^2048 - 2^1984 - 1 + 2^64 ([2^1918 pi] + 124476)
    group 15   p = 2^3072 - 2^3008 - 1 + 2^64 ([2^2942 pi] + 1690314)

`gmpy2.powmod` takes a time that depends on the exponent, as the multiplication of `curve` does. Whoever can time
single operations of a broker is on its machine, and has the keys.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import gmpy2

from sealcast.errors import Bug
from sealcast.primitives.groups import SLACK_BITS, Element, Exponent, refused


class SafePrimeGroup:
    """The squares modulo a safe prime. Take one of the RFC's; a small prime is for tests, where it must be fast."""

    def __init__(self, name: str, prime: int) -> None:
        self.name = name
        self.prime = prime
        self.wire_bytes = (prime.bit_length() + 7) // 8
        self._p = gmpy2.mpz(prime)
        self._order = (prime - 1) // 2

    @property
    def order(self) -> int:
        return self._order

    def hash(self, data: bytes) -> Element:
        """SHAKE256, longer than p by 128 bits, modulo p, squared."""
        drawn = hashlib.shake_256(b"sealcast/1 " + self.name.encode() + b"\0" + data)
        return self._squared(drawn.digest(self.wire_bytes + SLACK_BITS // 8))

    def hash_many(self, data: Sequence[bytes]) -> list[Element]:
        return list(map(self.hash, data))

    def random(self) -> Element:
        return self._squared(os.urandom(self.wire_bytes + SLACK_BITS // 8))

    def _squared(self, drawn: bytes) -> Element:
        square = gmpy2.powmod(int.from_bytes(drawn, "big"), 2, self._p)
        if square in (0, 1):
            raise Bug("a label was hashed to the identity, or the identity was drawn")
        return self._packed(square)

    def power(self, element: Element, exponent: Exponent) -> Element:
        return self._packed(gmpy2.powmod(int.from_bytes(element, "big"), exponent.reveal(), self._p))

    def power_many(self, elements: Sequence[Element], exponent: Exponent) -> list[Element]:
        return [self.power(element, exponent) for element in elements]

    def decode(self, data: bytes) -> Element:
        if len(data) != self.wire_bytes:
            raise refused(self.name, f"has {len(data)} bytes, not {self.wire_bytes}")
        value = int.from_bytes(data, "big")
        if not 1 < value < self._p - 1:
            raise refused(self.name, "is 0, 1, -1 or beyond the prime")
        if gmpy2.legendre(value, self._p) != 1:
            raise refused(self.name, "is no square")
        return Element(bytes(data))

    def encode(self, element: Element) -> bytes:
        return bytes(element)

    def _packed(self, value: Any) -> Element:
        return Element(int(value).to_bytes(self.wire_bytes, "big"))


def _pi(bits: int) -> int:
    """[2^bits pi]: pi at 64 bits more than are kept, which no run of ones in pi is long enough to upset."""
    with gmpy2.context(precision=bits + 66):
        return int(gmpy2.floor(gmpy2.mul_2exp(gmpy2.const_pi(), bits)))


@cache
def group14() -> SafePrimeGroup:
    """2,048 bits: about 112 bits of security."""
    return SafePrimeGroup("modp-2048", 2**2048 - 2**1984 - 1 + 2**64 * (_pi(1918) + 124_476))


@cache
def group15() -> SafePrimeGroup:
    """3,072 bits: about 128 bits of security, as the curve has."""
    return SafePrimeGroup("modp-3072", 2**3072 - 2**3008 - 1 + 2**64 * (_pi(2942) + 1_690_314))


#: By the name that topics use.
NAMES: Final = {"modp-2048": group14, "modp-3072": group15}
