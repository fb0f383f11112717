"""The pairing through arkworks (Rust): wheels for every platform that we run on. It multiplies pairings at the price of
one final exponentiation, and cannot raise GT elements to powers. (Its `+` on GT is the field's, not the group's.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, cast

from py_arkworks_bls12381 import GT, G1Point, G2Point, Scalar

from sealcast.errors import Misuse
from sealcast.primitives.pairing.port import G1, G1_BYTES, G2, G2_BYTES, SCALAR_BYTES, Pairing, Target, refused


class Portable(Pairing):
    """BLS12-381 as arkworks computes it."""

    name: ClassVar[str] = "portable"
    powers: bool = False

    def __init__(self) -> None:
        self.g1 = cast(G1, G1Point())
        self.g2 = cast(G2, G2Point())

    def _read1(self, data: bytes) -> G1:
        try:
            return cast(G1, G1Point.from_compressed_bytes(data))
        except ValueError:
            raise refused(G1_BYTES, "is not on the curve, or not in the subgroup") from None

    def _read2(self, data: bytes) -> G2:
        try:
            return cast(G2, G2Point.from_compressed_bytes(data))
        except ValueError:
            raise refused(G2_BYTES, "is not on the curve, or not in the subgroup") from None

    def encode1(self, point: G1) -> bytes:
        return bytes(cast(Any, point).to_compressed_bytes())

    def encode2(self, point: G2) -> bytes:
        return bytes(cast(Any, point).to_compressed_bytes())

    def target_bytes(self, element: Target) -> bytes:
        return bytes.fromhex(str(element))

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
        left, right = _apart(pairs)
        return cast(Target, GT.multi_pairing(left, right))

    def balanced(self, pairs: Sequence[tuple[G1, G2]]) -> bool:
        left, right = _apart(pairs)
        return bool(GT.multi_pairing(left, right) == _ONE)

    def power(self, element: Target, k: int) -> Target:
        raise Misuse("this library raises no GT element to a power: multiply a point before it is paired")

    def hash1(self, data: bytes, tag: bytes) -> G1:
        return cast(G1, G1Point.hash_to_curve(data, tag))

    def hash2(self, data: bytes, tag: bytes) -> G2:
        return cast(G2, G2Point.hash_to_curve(data, tag))


def _scalar(k: int) -> Scalar:
    return Scalar.from_le_bytes(k.to_bytes(SCALAR_BYTES, "little"))


def _apart(pairs: Sequence[tuple[G1, G2]]) -> tuple[list[Any], list[Any]]:
    return [left for left, _ in pairs], [right for _, right in pairs]


_ONE: Final = GT.one()
