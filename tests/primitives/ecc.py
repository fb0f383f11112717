"""BLS12-381 through py_ecc: it shares no code with the libraries of `primitives.pairing`, and is much slower.

Its pairing differs from theirs by a fixed power: e_py_ecc^-3 = e. Its Fp12 is Fp[w] / (w^12 - 2 w^6 + 2), where
u = w^6 - 1 and v = w^2 are the generators of the tower that the libraries write elements of GT in.
"""

from __future__ import annotations

import sys
from typing import Any

from py_ecc.bls.hash import expand_message_xmd
from py_ecc.bls.point_compression import compress_G1, compress_G2, decompress_G1, decompress_G2
from py_ecc.optimized_bls12_381 import FQ12, add, curve_order, multiply, neg, pairing

from sealcast.primitives.pairing.port import FIELD, G1_BYTES

# Importing py_ecc lets Python recurse 100,000 deep. Then JSON that is nested too deeply, which other tests in this
# process feed to parsers, overruns the stack instead of being refused. What is used of it here needs no such depth.
sys.setrecursionlimit(1_000)

__all__ = ["FQ12", "add", "curve_order", "expand_message_xmd", "multiply", "neg"]


def point1(data: bytes) -> Any:
    return decompress_G1(int.from_bytes(data, "big"))


def point2(data: bytes) -> Any:
    return decompress_G2((int.from_bytes(data[:G1_BYTES], "big"), int.from_bytes(data[G1_BYTES:], "big")))


def bytes1(point: Any) -> bytes:
    return int(compress_G1(point)).to_bytes(G1_BYTES, "big")


def bytes2(point: Any) -> bytes:
    return b"".join(int(half).to_bytes(G1_BYTES, "big") for half in compress_G2(point))


def product(*pairs: tuple[Any, Any]) -> Any:
    """The product of pairings as the libraries define it: one final exponentiation for all, and the power of -3."""
    total = FQ12.one()
    for left, right in pairs:
        total = total * pairing(right, left, final_exponentiate=False)
    found = total ** ((FIELD**12 - 1) // curve_order)
    return FQ12.one() / (found * found * found)


def target_bytes(element: Any) -> bytes:
    c = [int(one) for one in element.coeffs]
    order = (0, 2, 4, 1, 3, 5)  # Fp6 twice, each of three Fp2
    parts = [part for j in order for part in ((c[j] + c[j + 6]) % FIELD, c[j + 6] % FIELD)]
    return b"".join(part.to_bytes(G1_BYTES, "little") for part in parts)
