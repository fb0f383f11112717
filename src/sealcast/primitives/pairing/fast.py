"""The pairing through mcl (C++): twice as fast as arkworks and able to raise GT elements to powers, but without wheels
for some platforms, without a product of pairings, and with a hash of its own. So RFC 9380 is arkworks' here, too.

mcl writes points in another way than the wire does: little-endian, and with the parity of y where the wire says which
y is the larger one. Both conversions ask mcl for the point's coordinates in decimal, the one form that it prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any, ClassVar, Final, cast

import pymcl
from py_arkworks_bls12381 import G1Point, G2Point

from sealcast.primitives.pairing.port import (
    COMPRESSED,
    FIELD,
    G1,
    G1_BYTES,
    G2,
    G2_BYTES,
    LARGER,
    SCALAR_BYTES,
    Pairing,
    Target,
    refused,
)

_HALF: Final = FIELD // 2
_COORDINATE: Final = 0x1F


class Fast(Pairing):
    """BLS12-381 as mcl computes it."""

    name: ClassVar[str] = "fast"
    powers: bool = True

    def __init__(self) -> None:
        self.g1 = cast(G1, pymcl.g1)
        self.g2 = cast(G2, pymcl.g2)

    def _read1(self, data: bytes) -> G1:
        point = _member(pymcl.G1, _x1(data), G1_BYTES)
        return cast(G1, point if (_y1(point) > _HALF) == bool(data[0] & LARGER) else -point)

    def _read2(self, data: bytes) -> G2:
        point = _member(pymcl.G2, _x1(data[G1_BYTES:]) + _x1(data[:G1_BYTES]), G2_BYTES)
        return cast(G2, point if _larger2(*_coordinates(point)[2:]) == bool(data[0] & LARGER) else -point)

    def encode1(self, point: G1) -> bytes:
        x, y = _coordinates(point)
        return _flagged(x.to_bytes(G1_BYTES, "big"), y > _HALF)

    def encode2(self, point: G2) -> bytes:
        real, imaginary, *y = _coordinates(point)
        return _flagged(imaginary.to_bytes(G1_BYTES, "big") + real.to_bytes(G1_BYTES, "big"), _larger2(*y))

    def target_bytes(self, element: Target) -> bytes:
        return bytes(cast(Any, element).serialize())

    def times1(self, point: G1, k: int) -> G1:
        return cast(G1, cast(Any, point) * _scalar(k))

    def times2(self, point: G2, k: int) -> G2:
        return cast(G2, cast(Any, point) * _scalar(k))

    def plus1(self, one: G1, other: G1) -> G1:
        return cast(G1, cast(Any, one) + other)

    def plus2(self, one: G2, other: G2) -> G2:
        return cast(G2, cast(Any, one) + other)

    def minus1(self, point: G1) -> G1:
        return cast(G1, -cast(Any, point))

    def product(self, pairs: Sequence[tuple[G1, G2]]) -> Target:
        return cast(Target, reduce(mul, [pymcl.pairing(left, right) for left, right in cast(Any, pairs)]))

    def balanced(self, pairs: Sequence[tuple[G1, G2]]) -> bool:
        return bool(cast(Any, self.product(pairs)).is_one())

    def power(self, element: Target, k: int) -> Target:
        return cast(Target, cast(Any, element) ** _scalar(k))

    def hash1(self, data: bytes, tag: bytes) -> G1:
        return self._read1(bytes(G1Point.hash_to_curve(data, tag).to_compressed_bytes()))

    def hash2(self, data: bytes, tag: bytes) -> G2:
        return self._read2(bytes(G2Point.hash_to_curve(data, tag).to_compressed_bytes()))


def _scalar(k: int) -> Any:
    return pymcl.Fr.deserialize(k.to_bytes(SCALAR_BYTES, "little"))


def _member(group: Any, data: bytes, size: int) -> Any:
    """mcl checks the curve and the subgroup; zeros are the identity to it, and x = 0 is no member's in either group."""
    try:
        point = group.deserialize(data)
    except ValueError:
        point = None
    if point is None or point.is_zero():
        raise refused(size, "is not on the curve, or not in the subgroup")
    return point


def _x1(data: bytes) -> bytes:
    """A coordinate as mcl reads it: without flags, so that it takes the even y."""
    return data[:0:-1] + bytes((data[0] & _COORDINATE,))


def _coordinates(point: object) -> list[int]:
    """Returns x and y of a point that is not infinity; in G2 the real part of each comes first."""
    return list(map(int, str(point).split(" ")[1:]))


def _y1(point: object) -> int:
    return int(str(point).rpartition(" ")[2])


def _larger2(real: int, imaginary: int) -> bool:
    """Whether y is the larger of the two: by its imaginary part, and by the real one where that is zero."""
    return (imaginary or real) > _HALF


def _flagged(data: bytes, larger: bool) -> bytes:
    return bytes((data[0] | COMPRESSED | (LARGER if larger else 0),)) + data[1:]
