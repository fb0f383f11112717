"""The curve BLS12-381 with its pairing, whichever library computes it.

    e: G1 x G2 -> GT      groups of prime order q;  e(a P, b Q) = e(P, Q)^(a b)

Groups are written additively here, as libraries do: `times1(point, k)` is what the scheme's papers write as g^k.

**Bytes.** Points travel compressed and big-endian, as Zcash's specification of the curve has them: 48 bytes in G1, 96
in G2, and in the first byte a bit for "compressed", one for "infinity" and one for the larger y. GT elements never
travel: `target_bytes` is what keys are derived from, 576 bytes, the same from both libraries.

**Checks.** `decode1` and `decode2` are the only ways in. They refuse, in this order, another length, flags that no
encoder writes, infinity, coordinates beyond the field, points off the curve, and points outside the subgroup of order
q. So whatever is a `G1` or `G2` in this program is a member and not the identity, unless we computed it ourselves.

Time depends on exponents in both libraries. Whoever could measure that shares the process's machine.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, NewType

from sealcast.errors import Rejected

#: The order of the three groups.
ORDER: Final = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
#: The prime of the field that coordinates are in.
FIELD: Final = 0x1A0111EA397FE69A4B1BA7B6434BACD764774B84F38512BF6730D2A0F6B0F6241EABFFFEB153FFFFB9FEFFFFFFFFAAAB
G1_BYTES: Final = 48
G2_BYTES: Final = 96
TARGET_BYTES: Final = 576
SCALAR_BYTES: Final = 32

COMPRESSED: Final = 0x80
INFINITY: Final = 0x40
LARGER: Final = 0x20
_FLAGS: Final = COMPRESSED | INFINITY | LARGER

#: Members of the groups, as the library of one `Pairing` holds them: never mix those of two.
G1 = NewType("G1", object)
G2 = NewType("G2", object)
Target = NewType("Target", object)


class PointRejected(Rejected):
    """Bytes that are no member of a group, or its identity."""

    code = "point"


class Pairing(ABC):
    """One library's groups and pairing."""

    name: ClassVar[str]
    #: Whether it can raise a GT element to a power. Otherwise a point is multiplied before it is paired.
    powers: bool

    #: The generators.
    g1: G1
    g2: G2

    # --- bytes ------------------------------------------------------------------------------------------------------

    def decode1(self, data: bytes) -> G1:
        """The point of G1 that these bytes from elsewhere are; PointRejected for all others."""
        _check(data, G1_BYTES)
        return self._read1(bytes(data))

    def decode2(self, data: bytes) -> G2:
        """The point of G2 that these bytes from elsewhere are; PointRejected for all others."""
        _check(data, G2_BYTES)
        return self._read2(bytes(data))

    @abstractmethod
    def _read1(self, data: bytes) -> G1: ...
    @abstractmethod
    def _read2(self, data: bytes) -> G2: ...
    @abstractmethod
    def encode1(self, point: G1) -> bytes: ...
    @abstractmethod
    def encode2(self, point: G2) -> bytes: ...
    @abstractmethod
    def target_bytes(self, element: Target) -> bytes:
        """What keys are derived from: 576 bytes, equal for equal elements."""

    # --- the groups -------------------------------------------------------------------------------------------------

    @abstractmethod
    def times1(self, point: G1, k: int) -> G1:
        """k times the point, for 0 <= k < q."""

    @abstractmethod
    def times2(self, point: G2, k: int) -> G2: ...
    @abstractmethod
    def plus1(self, one: G1, other: G1) -> G1: ...
    @abstractmethod
    def plus2(self, one: G2, other: G2) -> G2: ...
    @abstractmethod
    def minus1(self, point: G1) -> G1:
        """The point's inverse."""

    def sum1(self, points: Iterable[G1]) -> G1:
        """The sum of at least one point."""
        first, *others = points
        for point in others:
            first = self.plus1(first, point)
        return first

    def sum2(self, points: Iterable[G2]) -> G2:
        """The sum of at least one point."""
        first, *others = points
        for point in others:
            first = self.plus2(first, point)
        return first

    # --- the pairing ------------------------------------------------------------------------------------------------

    @abstractmethod
    def product(self, pairs: Sequence[tuple[G1, G2]]) -> Target:
        """The product of the pairings of these pairs."""

    @abstractmethod
    def balanced(self, pairs: Sequence[tuple[G1, G2]]) -> bool:
        """Whether the product of the pairings of these pairs is one."""

    @abstractmethod
    def power(self, element: Target, k: int) -> Target:
        """Misuse where `powers` is false."""

    # --- hashing (RFC 9380) -----------------------------------------------------------------------------------------

    @abstractmethod
    def hash1(self, data: bytes, tag: bytes) -> G1:
        """Suite BLS12381G1_XMD:SHA-256_SSWU_RO_ under a domain separation tag."""

    @abstractmethod
    def hash2(self, data: bytes, tag: bytes) -> G2:
        """Suite BLS12381G2_XMD:SHA-256_SSWU_RO_ under a domain separation tag."""


def random_scalar(bits: int | None = None) -> int:
    """A random exponent: uniform in 1 .. q - 1, or in 1 .. 2^bits - 1."""
    limit = ORDER if bits is None else 1 << bits
    return 1 + secrets.randbelow(limit - 1)


def inverse(k: int) -> int:
    """1 / k modulo q."""
    return pow(k, -1, ORDER)


def refused(size: int, why: str) -> PointRejected:
    """What every failure to read a point becomes."""
    return PointRejected(f"a point of G{1 if size == G1_BYTES else 2} {why}")


def _check(data: bytes, size: int) -> None:
    """What can be told from the bytes alone. Coordinates in G2 are pairs, the imaginary part first."""
    if len(data) != size:
        raise refused(size, f"has {size} bytes, not {len(data)}")
    flags = data[0] & _FLAGS
    if not flags & COMPRESSED:
        raise refused(size, "travels compressed, and this one is not")
    if flags & INFINITY:
        raise refused(size, "is the identity or has its flag, which nobody may send")
    first = int.from_bytes(bytes((data[0] & ~_FLAGS,)) + data[1:G1_BYTES], "big")
    if first >= FIELD or (size == G2_BYTES and int.from_bytes(data[G1_BYTES:], "big") >= FIELD):
        raise refused(size, "has a coordinate beyond the field")
