"""The scheme again, from its description alone: affine arithmetic on Python's integers, nothing of ours.

Slow, and shares no code with what it checks. It also writes the vectors.
"""

from __future__ import annotations

import hashlib
import hmac

P = 2**256 - 2**32 - 977
Q = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
Point = tuple[int, int] | None


def add(a: Point, b: Point) -> Point:
    if a is None or b is None:
        return b if a is None else a
    (x1, y1), (x2, y2) = a, b
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = (3 * x1 * x1 * pow(2 * y1, -1, P) if a == b else (y2 - y1) * pow(x2 - x1, -1, P)) % P
    x3 = (slope * slope - x1 - x2) % P
    return x3, (slope * (x1 - x3) - y1) % P


def times(k: int, a: Point) -> Point:
    found: Point = None
    for bit in bin(k % Q)[2:]:
        found = add(found, found)
        if bit == "1":
            found = add(found, a)
    return found


def minus(a: Point) -> Point:
    return None if a is None else (a[0], -a[1] % P)


def compressed(a: Point) -> bytes:
    assert a is not None
    return bytes([2 + a[1] % 2]) + a[0].to_bytes(32, "big")


def decompressed(data: bytes) -> Point:
    x = int.from_bytes(data[1:], "big")
    y = pow(x**3 + 7, (P + 1) // 4, P)
    assert y * y % P == (x**3 + 7) % P
    return x, y if y % 2 == data[0] % 2 else P - y


def derived(secret: bytes, *context: bytes, length: int = 32) -> bytes:
    """HKDF-Expand over "sealcast/1" | length u16 | each part with its length u32."""
    info = b"sealcast/1" + length.to_bytes(2, "big")
    info += b"".join(len(part).to_bytes(4, "big") + part for part in context)
    block = out = b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.digest(secret, block + info + bytes([counter]), "sha256")
        out += block
    return out[:length]


def exponent(secret: bytes, *context: bytes) -> int:
    return int.from_bytes(derived(secret, b"exponent", *context, length=48), "big") % (Q - 1) + 1


def sigma(search: bytes, label: bytes) -> int:
    return int.from_bytes(hmac.digest(derived(search, b"sigma"), label, "sha512"), "big") % Q


def tag(search: bytes, label: bytes, bits: int) -> bytes:
    whole = int.from_bytes(hmac.digest(derived(search, b"tag"), label, "sha256"), "big")
    return (whole >> (256 - bits)).to_bytes(4, "big")


def check(place: bytes, a: Point) -> bytes:
    bound = hashlib.sha256(b"sealcast/searchable/1 r" + place).digest()
    return hashlib.sha256(bound + compressed(a)).digest()[:16]


def sealed(search: bytes, half: int, public: Point, place: bytes, label: bytes, r: int, bits: int) -> bytes:
    c1 = times(r + sigma(search, label), G)
    return tag(search, label, bits) + compressed(c1) + compressed(times(half, c1)) + check(place, times(r, public))


def trapdoor(search: bytes, half: int, public: Point, label: bytes, r: int, bits: int) -> bytes:
    t1 = times(sigma(search, label) - r, G)
    return tag(search, label, bits) + compressed(t1) + compressed(add(times(r, public), times(half, t1)))


def at_broker(half: int, first: bytes, second: bytes) -> Point:
    return add(times(half, decompressed(first)), decompressed(second))


def matches(place: bytes, encrypted: Point, token: Point, c3: bytes) -> bool:
    difference = add(encrypted, minus(token))
    return difference is not None and check(place, difference) == c3
