"""The hash of Waters onto G1: u' + the sum of those u_k whose bit is set, of 256.

Profile A needs a hash whose logarithm the key server knows in both groups, which hashing onto the curve cannot be. The
points lie in tables of 255 sums, one table for each byte of a hash, so that 32 additions do instead of 128.

Whoever has enough points b W(label) of one b can combine them into b W(other) once the bits of `other` are an affine
combination of theirs. With 256 bits and at most 128 labels this does not happen (`MAX_ATTRIBUTE_POSITIONS`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Final

from sealcast.errors import Misuse
from sealcast.primitives.pairing import G1, ORDER, Pairing
from sealcast.protections.attribute.scheme.naming import chosen

BITS: Final = 256
_WINDOW: Final = 8
#: Points kept per parameters: a label's point is public, and takes as long to make as a power.
MAX_CACHED_POINTS: Final = 65_536


class WatersHash:
    """The public side: labels -> points."""

    def __init__(self, pairing: Pairing, points: Sequence[G1]) -> None:
        if len(points) != BITS + 1:
            raise Misuse(f"a hash of {BITS} bits has {BITS + 1} points, not {len(points)}")
        self._pairing = pairing
        self._points = points
        self.point: Callable[[bytes], G1] = lru_cache(MAX_CACHED_POINTS)(self._hash)

    def _hash(self, credential: bytes) -> G1:
        bits, plus = chosen(credential), self._pairing.plus1
        found = self._points[0]
        for table in self._tables:
            part, bits = bits & (1 << _WINDOW) - 1, bits >> _WINDOW
            if part:
                found = plus(found, table[part - 1])
        return found

    @cached_property
    def _tables(self) -> list[list[G1]]:
        """For each eight points, lowest bit first, the sums of all their choices but the empty one."""
        plus, tables = self._pairing.plus1, []
        for start in range(1, BITS + 1, _WINDOW):
            table: list[G1] = []
            for point in self._points[start : start + _WINDOW]:
                table += [point, *(plus(one, point) for one in table)]
            tables.append(table)
        return tables


def exponent(secrets: Sequence[int], credential: bytes) -> int:
    """The key server's side: w, the logarithm of the label's point."""
    bits = chosen(credential)
    return (secrets[0] + sum(secret for k, secret in enumerate(secrets[1:]) if bits >> k & 1)) % ORDER
