"""secp256k1 as a group: RFC 9380's vectors, the curve's equation by hand, and everything that is no element."""

from __future__ import annotations

import pickle
from typing import Any

import gmpy2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Misuse, Rejected
from sealcast.primitives import sswu, sswu_many
from sealcast.primitives.curve import CURVE, ORDER
from sealcast.primitives.groups import CachedHashes, Element, Exponent
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sswu import P, expand_message_xmd, hash_to_curve

TAG = b"QUUX-V01-CS02-with-secp256k1_XMD:SHA-256_SSWU_RO_"
#: RFC 9380, appendix J.8.1.
VECTORS = [
    (
        b"",
        "c1cae290e291aee617ebaef1be6d73861479c48b841eaba9b7b5852ddfeb1346",
        "64fa678e07ae116126f08b022a94af6de15985c996c3a91b64c406a960e51067",
    ),
    (
        b"abc",
        "3377e01eab42db296b512293120c6cee72b6ecf9f9205760bd9ff11fb3cb2c4b",
        "7f95890f33efebd1044d382a01b1bee0900fb6116f94688d487c6c7b9c8371f6",
    ),
    (
        b"abcdef0123456789",
        "bac54083f293f1fe08e4a70137260aa90783a5cb84d3f35848b324d0674b0e3a",
        "4436476085d4c3c4508b60fcf4389c40176adce756b398bdee27bca19758d828",
    ),
    (
        b"q128_" + b"q" * 128,
        "e2167bc785333a37aa562f021f1e881defb853839babf52a7f72b102e41890e9",
        "f2401dd95cc35867ffed4f367cd564763719fbc6a53e969fb8496a1e6685d873",
    ),
    (
        b"a512_" + b"a" * 512,
        "e3c8d35aaaf0b9b647e88a0a0a7ee5d5bed5ad38238152e4e6fd8c1f8cb7c998",
        "8446eeb6181bf12f56a9d24e262221cc2f0c4725c7e3803024b5888ee5823aa6",
    ),
]
#: The curve's generator, of which every implementation knows the multiples.
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
EXPONENTS = st.integers(1, ORDER - 1).map(lambda k: Exponent(k, ORDER))


def element(x: int, y: int) -> Element:
    return Element(x.to_bytes(32, "big") + y.to_bytes(32, "big"))


@pytest.mark.parametrize(("message", "x", "y"), VECTORS)
def test_the_rfcs_vectors(message: bytes, x: str, y: str) -> None:
    assert hash_to_curve(message, TAG) == (int(x, 16), int(y, 16))


def test_the_rfcs_vectors_all_at_once() -> None:
    found = sswu_many.hash_many([message for message, _, _ in VECTORS], TAG)
    assert found == [bytes.fromhex(x + y) for _, x, y in VECTORS]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_a_batch_of_labels_has_the_points_of_each(labels: list[bytes]) -> None:
    assert CURVE.hash_many(labels) == [CURVE.hash(label) for label in labels]


def test_field_elements_that_the_map_treats_apart() -> None:
    """Zero, and the u for which Z u^2 = -1: there x is not what the formula says, for it would divide by zero."""
    apart = gmpy2.invert(gmpy2.powmod(11, (sswu.P + 1) // 4, sswu.P), sswu.P)
    assert sswu.Z * apart * apart % sswu.P == sswu.P - 1
    drawn = [gmpy2.mpz(u) for u in (0, 1, apart, 2, sswu.P - apart, sswu.P - 1, 3, 0)]
    expected = [sswu._added(sswu._map(one), sswu._map(other)) for one, other in batched(drawn)]
    assert sswu_many._summed(sswu_many._mapped(drawn)) == [element(int(x), int(y)) for x, y in expected]


def batched(drawn: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(drawn[::2], drawn[1::2], strict=True))


def test_what_is_drawn_by_the_rfcs_own_vector() -> None:
    """Appendix K.1."""
    drawn = expand_message_xmd(b"abc", b"QUUX-V01-CS02-with-expander-SHA256-128", 32)
    assert drawn.hex() == "d8ccab23b5985ccea865c6c97b6e5b8350e794e603b4b97902f53a8a0d605615"
    for tag, length in ((b"", 32), (b"t" * 256, 32), (b"t", 255 * 32 + 1)):
        with pytest.raises(Misuse):
            expand_message_xmd(b"abc", tag, length)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=80))
def test_labels_land_on_the_curve(label: bytes) -> None:
    found = CURVE.hash(label)
    x, y = (int.from_bytes(found[i : i + 32], "big") for i in (0, 32))
    assert (y * y - x**3 - 7) % P == 0
    assert CURVE.hash(label) == found != CURVE.hash(label + b"\0")
    assert CURVE.decode(CURVE.encode(found)) == found


@settings(max_examples=30, deadline=None)
@given(EXPONENTS, EXPONENTS, st.binary(max_size=8))
def test_layers_commute_and_come_off(j: Exponent, k: Exponent, label: bytes) -> None:
    h, power = CURVE.hash(label), CURVE.power
    assert power(power(h, j), k) == power(power(h, k), j) == power(h, j * k)
    assert power(power(h, k), k.inverse) == h
    assert power(power(h, j), k / j) == power(h, k)
    assert CURVE.power_many([h, power(h, j)], k) == [power(h, k), power(power(h, j), k)]


def test_multiples_of_the_generator() -> None:
    doubled = CURVE.power(element(*G), Exponent(2, ORDER))
    assert doubled.hex().startswith("c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5")
    assert CURVE.power(element(*G), Exponent(ORDER - 1, ORDER)) == element(G[0], P - G[1])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",  # how SEC 1 spells infinity
        bytes(33),
        b"\2" + bytes(32),  # x = 0: 7 is no square
        b"\2" + P.to_bytes(32, "big"),  # not reduced
        b"\2" + b"\xff" * 32,
        b"\4" + element(*G),  # uncompressed, hybrid: another spelling of a member is refused, too
        b"\6" + element(*G),
        b"\2" + G[0].to_bytes(32, "big") + b"\0",
        b"\5" + G[0].to_bytes(32, "big"),
        b"\2" + (5).to_bytes(32, "big"),  # the x of a point of the twist
    ],
)
def test_what_is_no_element(data: bytes) -> None:
    with pytest.raises(Rejected, match="secp256k1"):
        CURVE.decode(data)


def test_exponents_keep_to_themselves() -> None:
    k = Exponent.derive(Secret(bytes(32)), ORDER, b"a", b"b")
    assert k.reveal() == Exponent.derive(Secret(bytes(32)), ORDER, b"a", b"b").reveal()
    assert k.reveal() != Exponent.derive(Secret(bytes(32)), ORDER, b"ab").reveal()
    assert f"{k.reveal():x}" not in repr(k)
    with pytest.raises(Misuse):
        pickle.dumps(k)
    for wrong in (0, ORDER, -1):
        with pytest.raises(Misuse):
            Exponent(wrong, ORDER)
    with pytest.raises(Misuse):
        Exponent(2, 11) * k


def test_hashes_of_a_topic_are_its_own() -> None:
    one, other = CachedHashes(CURVE, b"topic 1"), CachedHashes(CURVE, b"topic 2")
    assert one(b"label") == one(b"label") != other(b"label")
    assert CachedHashes(CURVE, b"ab")(b"c") != CachedHashes(CURVE, b"a")(b"bc")


def test_random_elements_are_elements_and_spread_over_the_curve() -> None:
    drawn = [CURVE.random() for _ in range(2_000)]
    assert len(set(drawn)) == len(drawn)
    assert all(CURVE.decode(CURVE.encode(one)) == one for one in drawn)
    # Halves of the x coordinates and of the y coordinates: a biased coin would show.
    for at in (0, 63):
        ones = sum((one[at] & 1 if at else one[at] >> 7) for one in drawn)
        assert 880 < ones < 1_120
