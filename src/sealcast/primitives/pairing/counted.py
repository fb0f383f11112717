"""A pairing that counts what is computed with it: for the cost tables of the lab, and for measurements beside the bare
calls of the library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sealcast.primitives.pairing.port import G1, G2, Pairing, Target


class CountedPairing(Pairing):
    """Another pairing, and how often each of its operations ran."""

    name = "counted"

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing
        self.g1 = pairing.g1
        self.g2 = pairing.g2
        self.powers = pairing.powers
        self.spent: Counter[str] = Counter()

    def _read1(self, data: bytes) -> G1:
        self.spent["decode1"] += 1
        return self._pairing._read1(data)

    def _read2(self, data: bytes) -> G2:
        self.spent["decode2"] += 1
        return self._pairing._read2(data)

    def encode1(self, point: G1) -> bytes:
        self.spent["encode1"] += 1
        return self._pairing.encode1(point)

    def encode2(self, point: G2) -> bytes:
        self.spent["encode2"] += 1
        return self._pairing.encode2(point)

    def target_bytes(self, element: Target) -> bytes:
        return self._pairing.target_bytes(element)

    def times1(self, point: G1, k: int) -> G1:
        self.spent["times1"] += 1
        return self._pairing.times1(point, k)

    def times2(self, point: G2, k: int) -> G2:
        self.spent["times2"] += 1
        return self._pairing.times2(point, k)

    def plus1(self, one: G1, other: G1) -> G1:
        self.spent["plus1"] += 1
        return self._pairing.plus1(one, other)

    def plus2(self, one: G2, other: G2) -> G2:
        self.spent["plus2"] += 1
        return self._pairing.plus2(one, other)

    def minus1(self, point: G1) -> G1:
        return self._pairing.minus1(point)

    def product(self, pairs: Sequence[tuple[G1, G2]]) -> Target:
        self._paired(pairs)
        return self._pairing.product(pairs)

    def balanced(self, pairs: Sequence[tuple[G1, G2]]) -> bool:
        self._paired(pairs)
        return self._pairing.balanced(pairs)

    def _paired(self, pairs: Sequence[tuple[G1, G2]]) -> None:
        """Miller loops; final exponentiations are as many where pairings are not multiplied before it."""
        self.spent["pairing"] += len(pairs)
        self.spent["product"] += 1

    def power(self, element: Target, k: int) -> Target:
        self.spent["power"] += 1
        return self._pairing.power(element, k)

    def hash1(self, data: bytes, tag: bytes) -> G1:
        self.spent["hash1"] += 1
        return self._pairing.hash1(data, tag)

    def hash2(self, data: bytes, tag: bytes) -> G2:
        self.spent["hash2"] += 1
        return self._pairing.hash2(data, tag)
