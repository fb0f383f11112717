"""RFC 9380's hash to secp256k1, suite secp256k1_XMD:SHA-256_SSWU_RO_.

    bytes --expand_message_xmd--> two field elements --simplified SWU--> two points of an isogenous curve E'
          --3-isogeny--> two points of secp256k1 --added--> the point

secp256k1 has a = 0, which the simplified SWU map does not take; E' is a curve where it works, and the isogeny of
degree 3 carries its points over (section 6.6.3; constants from section 8.7 and appendix E.1). The steps have the
section of the RFC beside them. Not constant-time: labels of one's own are hashed on one's own machine.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import gmpy2

from sealcast.errors import Bug, Misuse

P: Final = 2**256 - 2**32 - 977
#: Section 8.7: E': y^2 = x^3 + A x + B, and Z.
A: Final = 0x3F8731ABDD661ADCA08A5558F0F5D272E953D363CB6F0E5D405447C01A444533
B: Final = 1771
Z: Final = P - 11
#: Bytes drawn for a field element, ceil((256 + 128) / 8).
_L: Final = 48
_BLOCK: Final = 64
_DIGEST: Final = 32
_MAX_TAG: Final = 255

#: Appendix E.1, from the highest power down: x = x_num / x_den, y = y' y_num / y_den.
_X_NUM: Final = (
    0x8E38E38E38E38E38E38E38E38E38E38E38E38E38E38E38E38E38E38DAAAAA88C,
    0x534C328D23F234E6E2A413DECA25CAECE4506144037C40314ECBD0B53D9DD262,
    0x07D3D4C80BC321D5B9F315CEA7FD44C5D595D2FC0BF63B92DFFF1044F17C6581,
    0x8E38E38E38E38E38E38E38E38E38E38E38E38E38E38E38E38E38E38DAAAAA8C7,
)
_X_DEN: Final = (
    1,
    0xEDADC6F64383DC1DF7C4B2D51B54225406D36B641F5E41BBC52A56612A8C6D14,
    0xD35771193D94918A9CA34CCBB7B640DD86CD409542F8487D9FE6B745781EB49B,
)
_Y_NUM: Final = (
    0x2F684BDA12F684BDA12F684BDA12F684BDA12F684BDA12F684BDA12F38E38D84,
    0x29A6194691F91A73715209EF6512E576722830A201BE2018A765E85A9ECEE931,
    0xC75E0C32D5CB7C0FA9D0A54B12A0A6D5647AB046D686DA6FDFFC90FC201D71A3,
    0x4BDA12F684BDA12F684BDA12F684BDA12F684BDA12F684BDA12F684B8E38E23C,
)
_Y_DEN: Final = (
    1,
    0x6484AA716545CA2CF3A70C3FA8FE337E0A3D21162F0D6299A7BF8192BFD2A76F,
    0x7A06534BB8BDB49FD5E9E6632722C2989467C1BFC8E8D978DFB425D2685C2573,
    0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEFFFFF93B,
)
_p: Final = gmpy2.mpz(P)
_b: Final = gmpy2.mpz(B)
_a: Final = gmpy2.mpz(A)
_z: Final = gmpy2.mpz(Z)
_ISOGENY: Final = tuple(tuple(map(gmpy2.mpz, part)) for part in (_X_NUM, _X_DEN, _Y_NUM, _Y_DEN))
#: -B / A and B / (Z A), of step 6.6.2.
_MINUS_B_OVER_A: Final = -_b * gmpy2.invert(_a, _p) % _p
_B_OVER_ZA: Final = _b * gmpy2.invert(_z * _a, _p) % _p
_SQRT: Final = (_p + 1) // 4
#: A square root of -Z, which is 11 (Z itself is no square).
_ROOT_OF_MINUS_Z: Final = gmpy2.powmod(-_z, _SQRT, _p)

Point = tuple[int, int]


def hash_to_curve(message: bytes, tag: bytes) -> Point:
    """Section 3: the point (x, y)."""
    first, second = map(_map, field_elements(message, tag))
    x, y = _added(first, second)
    return int(x), int(y)


def field_elements(message: bytes, tag: bytes) -> tuple[Any, Any]:
    """Section 5.2: two elements of the field."""
    drawn = expand_message_xmd(message, tag, 2 * _L)
    first, second = int.from_bytes(drawn[:_L], "big"), int.from_bytes(drawn[_L:], "big")
    return gmpy2.mpz(first) % _p, gmpy2.mpz(second) % _p


def expand_message_xmd(message: bytes, tag: bytes, length: int) -> bytes:
    """Section 5.3.1, with SHA-256."""
    blocks = -(-length // _DIGEST)
    if blocks > 255 or len(tag) > _MAX_TAG or not tag:
        raise Misuse(f"a tag has 1 to {_MAX_TAG} bytes, and at most {255 * _DIGEST} are drawn")
    ending = tag + bytes([len(tag)])
    start = hashlib.sha256(bytes(_BLOCK) + message + length.to_bytes(2, "big") + b"\0" + ending).digest()
    block = hashlib.sha256(start + b"\1" + ending).digest()
    drawn = [block]
    for i in range(2, blocks + 1):
        mixed = (int.from_bytes(start, "big") ^ int.from_bytes(block, "big")).to_bytes(_DIGEST, "big")
        block = hashlib.sha256(mixed + bytes([i]) + ending).digest()
        drawn.append(block)
    return b"".join(drawn)[:length]


def _map(u: Any) -> tuple[Any, Any]:
    """Section 6.6.2 onto E', then the isogeny of 6.6.3."""
    zu2 = _z * u * u % _p
    tv = (zu2 * zu2 + zu2) % _p
    x = _B_OVER_ZA if tv == 0 else _MINUS_B_OVER_A * (1 + gmpy2.invert(tv, _p)) % _p
    gx = ((x * x + _a) * x + _b) % _p
    y = gmpy2.powmod(gx, _SQRT, _p)
    if y * y % _p != gx:
        # gx has no root, and y is one of -gx. So x is Z u^2 times that, whose g is (Z u^2)^3 gx = -Z (Z u^3 y)^2.
        x = zu2 * x % _p
        y = _ROOT_OF_MINUS_Z * zu2 * u * y % _p
    if y & 1 != u & 1:
        y = -y % _p
    return _carried(x, y)


def isogeny(x: Any) -> tuple[Any, Any, Any, Any]:
    """Section 6.6.3, of x: x_num, x_den, y_num, y_den of appendix E.1."""
    x2 = x * x % _p
    x3 = x2 * x % _p
    (a0, b0, c0, d0), (_, b1, c1), (a2, b2, c2, d2), (_, b3, c3, d3) = _ISOGENY
    x_den, y_den = (x2 + b1 * x + c1) % _p, (x3 + b3 * x2 + c3 * x + d3) % _p
    if not x_den or not y_den:
        raise Bug("a label was hashed to the identity")  # for 2 in 2**256 field elements
    x_num, y_num = (a0 * x3 + b0 * x2 + c0 * x + d0) % _p, (a2 * x3 + b2 * x2 + c2 * x + d2) % _p
    return x_num, x_den, y_num, y_den


def _carried(x: Any, y: Any) -> tuple[Any, Any]:
    x_num, x_den, y_num, y_den = isogeny(x)
    both = gmpy2.invert(x_den * y_den, _p)
    return x_num * y_den % _p * both % _p, y * y_num % _p * x_den % _p * both % _p


def _added(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    (x1, y1), (x2, y2) = a, b
    if x1 == x2:
        if y1 != y2:
            raise Bug("a label was hashed to the identity")
        slope = 3 * x1 * x1 * gmpy2.invert(2 * y1, _p) % _p
    else:
        slope = (y2 - y1) * gmpy2.invert(x2 - x1, _p) % _p
    x = (slope * slope - x1 - x2) % _p
    return x, (slope * (x1 - x) - y1) % _p
