"""BLS12-381 behind the port: published vectors, py_ecc as a second opinion, and bytes that are no points."""

from __future__ import annotations

import sys

import pytest

from sealcast.errors import MissingExtra, Misuse, NotFound
from sealcast.primitives import pairing as room
from sealcast.primitives.pairing import G1_BYTES, G2_BYTES, ORDER, Pairing, PointRejected, inverse, named
from sealcast.primitives.pairing.port import FIELD, TARGET_BYTES, random_scalar
from tests.primitives import ecc

#: The generators, compressed: the Zcash protocol specification, and draft-irtf-cfrg-pairing-friendly-curves, 4.2.1.
GENERATOR1 = "97f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb"
GENERATOR2 = (
    "93e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e"
    "024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8"
)

#: RFC 9380, appendix J.9.1: message, P.x, P.y.
TAG1 = b"QUUX-V01-CS02-with-BLS12381G1_XMD:SHA-256_SSWU_RO_"
VECTORS1 = [
    (
        b"",
        "052926add2207b76ca4fa57a8734416c8dc95e24501772c814278700eed6d1e4e8cf62d9c09db0fac349612b759e79a1",
        "08ba738453bfed09cb546dbb0783dbb3a5f1f566ed67bb6be0e8c67e2e81a4cc68ee29813bb7994998f3eae0c9c6a265",
    ),
    (
        b"abc",
        "03567bc5ef9c690c2ab2ecdf6a96ef1c139cc0b2f284dca0a9a7943388a49a3aee664ba5379a7655d3c68900be2f6903",
        "0b9c15f3fe6e5cf4211f346271d7b01c8f3b28be689c8429c85b67af215533311f0b8dfaaa154fa6b88176c229f2885d",
    ),
    (
        b"abcdef0123456789",
        "11e0b079dea29a68f0383ee94fed1b940995272407e3bb916bbf268c263ddd57a6a27200a784cbc248e84f357ce82d98",
        "03a87ae2caf14e8ee52e51fa2ed8eefe80f02457004ba4d486d6aa1f517c0889501dc7413753f9599b099ebcbbd2d709",
    ),
]
#: RFC 9380, appendix J.10.1: message, P.x (real and imaginary part), P.y (likewise).
TAG2 = b"QUUX-V01-CS02-with-BLS12381G2_XMD:SHA-256_SSWU_RO_"
VECTORS2 = [
    (
        b"",
        "0141ebfbdca40eb85b87142e130ab689c673cf60f1a3e98d69335266f30d9b8d4ac44c1038e9dcdd5393faf5c41fb78a",
        "05cb8437535e20ecffaef7752baddf98034139c38452458baeefab379ba13dff5bf5dd71b72418717047f5b0f37da03d",
        "0503921d7f6a12805e72940b963c0cf3471c7b2a524950ca195d11062ee75ec076daf2d4bc358c4b190c0c98064fdd92",
        "12424ac32561493f3fe3c260708a12b7c620e7be00099a974e259ddc7d1f6395c3c811cdd19f1e8dbf3e9ecfdcbab8d6",
    ),
    (
        b"abcdef0123456789",
        "121982811d2491fde9ba7ed31ef9ca474f0e1501297f68c298e9f4c0028add35aea8bb83d53c08cfc007c1e005723cd0",
        "190d119345b94fbd15497bcba94ecf7db2cbfd1e1fe7da034d26cbba169fb3968288b3fafb265f9ebd380512a71c3f2c",
        "05571a0f8d3c08d094576981f4a3b8eda0a8e771fcdcc8ecceaf1356a6acf17574518acb506e435b639353c2e14827c8",
        "0bb5e7572275c567462d91807de765611490205a941a5a6af3b1691bfe596c31225d3aabdf15faff860cb4ef17c7c3be",
    ),
]


@pytest.fixture(scope="module", params=room.available())
def pairing(request: pytest.FixtureRequest) -> Pairing:
    return named(request.param)


def larger(*y: str) -> int:
    """The flag of the larger y; of a pair, the imaginary part decides."""
    return 0x20 if int(y[-1], 16) > FIELD // 2 else 0


def compressed(x: bytes, flag: int) -> bytes:
    return bytes((x[0] | 0x80 | flag,)) + x[1:]


# --- what is right --------------------------------------------------------------------------------------------------


def test_the_generators_are_the_published_ones(pairing: Pairing) -> None:
    assert pairing.encode1(pairing.g1).hex() == GENERATOR1
    assert pairing.encode2(pairing.g2).hex() == GENERATOR2
    assert pairing.encode1(pairing.decode1(bytes.fromhex(GENERATOR1))).hex() == GENERATOR1
    assert pairing.encode2(pairing.decode2(bytes.fromhex(GENERATOR2))).hex() == GENERATOR2


@pytest.mark.parametrize(("message", "x", "y"), VECTORS1)
def test_hashing_onto_g1_follows_rfc_9380(pairing: Pairing, message: bytes, x: str, y: str) -> None:
    assert pairing.encode1(pairing.hash1(message, TAG1)) == compressed(bytes.fromhex(x), larger(y))


@pytest.mark.parametrize(("message", "x0", "x1", "y0", "y1"), VECTORS2)
def test_hashing_onto_g2_follows_rfc_9380(pairing: Pairing, message: bytes, x0: str, x1: str, y0: str, y1: str) -> None:
    assert pairing.encode2(pairing.hash2(message, TAG2)) == compressed(bytes.fromhex(x1 + x0), larger(y0, y1))


def test_a_point_and_its_inverse_differ_in_one_flag(pairing: Pairing) -> None:
    for k in range(2, 12):
        point = pairing.times1(pairing.g1, k)
        there, back = pairing.encode1(point), pairing.encode1(pairing.minus1(point))
        assert there[0] ^ back[0] == 0x20 and there[1:] == back[1:]
        for data in (there, back):
            assert pairing.encode1(pairing.decode1(data)) == data
        other = pairing.encode2(pairing.times2(pairing.g2, k))
        flipped = bytes((other[0] ^ 0x20,)) + other[1:]
        for data in (other, flipped):
            assert pairing.encode2(pairing.decode2(data)) == data
        assert pairing.balanced([(pairing.g1, pairing.decode2(other)), (pairing.g1, pairing.decode2(flipped))])


def test_groups_and_pairing_obey_their_laws(pairing: Pairing) -> None:
    a, b = random_scalar(), random_scalar()
    g1, g2 = pairing.g1, pairing.g2
    left, right = pairing.times1(g1, a), pairing.times2(g2, b)
    both = pairing.target_bytes(pairing.product([(left, right)]))
    assert both == pairing.target_bytes(pairing.product([(pairing.times1(g1, a * b % ORDER), g2)]))
    assert len(both) == TARGET_BYTES
    assert pairing.balanced([(left, right), (pairing.minus1(pairing.times1(g1, b)), pairing.times2(g2, a))])
    assert not pairing.balanced([(left, right), (g1, g2)])
    summed = pairing.sum1([left, g1, g1])
    assert pairing.encode1(summed) == pairing.encode1(pairing.times1(g1, (a + 2) % ORDER))
    assert pairing.encode2(pairing.sum2([right, g2])) == pairing.encode2(pairing.times2(g2, (b + 1) % ORDER))
    assert pairing.encode1(pairing.times1(left, inverse(a))) == pairing.encode1(g1)
    with_power = pairing.powers and pairing.target_bytes(pairing.power(pairing.product([(g1, g2)]), a * b % ORDER))
    assert with_power in (both, False)


def test_what_cannot_be_raised_says_so() -> None:
    portable = named("portable")
    with pytest.raises(Misuse, match="multiply a point"):
        portable.power(portable.product([(portable.g1, portable.g2)]), 2)


NEEDS_BOTH = pytest.mark.skipif("fast" not in room.available(), reason="mcl has no wheel for this platform")


@NEEDS_BOTH
def test_both_libraries_write_the_same_bytes() -> None:
    fast, portable = named("fast"), named("portable")
    for k in (1, 2, 3, ORDER - 1, random_scalar(), random_scalar()):
        assert fast.encode1(fast.times1(fast.g1, k)) == portable.encode1(portable.times1(portable.g1, k))
        assert fast.encode2(fast.times2(fast.g2, k)) == portable.encode2(portable.times2(portable.g2, k))
        both = [
            one.target_bytes(one.product([(one.times1(one.g1, k), one.g2), (one.g1, one.g2)]))
            for one in (fast, portable)
        ]
        assert both[0] == both[1]


def test_py_ecc_finds_the_same(pairing: Pairing) -> None:
    a, b = 1234567890123456789, ORDER - 987654321
    left, right = pairing.times1(pairing.g1, a), pairing.times2(pairing.g2, b)
    left_ecc, right_ecc = ecc.point1(pairing.encode1(left)), ecc.point2(pairing.encode2(right))
    assert ecc.bytes1(ecc.multiply(ecc.point1(bytes.fromhex(GENERATOR1)), a)) == pairing.encode1(left)
    assert ecc.bytes2(ecc.multiply(ecc.point2(bytes.fromhex(GENERATOR2)), b)) == pairing.encode2(right)
    found = ecc.target_bytes(ecc.product((left_ecc, right_ecc)))
    assert found == pairing.target_bytes(pairing.product([(left, right)]))


# --- what is no point -----------------------------------------------------------------------------------------------


def off_subgroup2() -> bytes:
    """A point of the curve over Fp2 that is not in the subgroup: few are. The least x that is a coordinate will do."""
    from py_ecc.bls.point_compression import modular_squareroot_in_FQ2
    from py_ecc.optimized_bls12_381 import FQ2, b2

    for real in range(1, 50):
        x = FQ2([real, 0])
        if modular_squareroot_in_FQ2(x**3 + b2) is not None:
            return compressed(bytes(G1_BYTES) + real.to_bytes(G1_BYTES, "big"), 0)
    raise AssertionError


GOOD1, GOOD2 = bytes.fromhex(GENERATOR1), bytes.fromhex(GENERATOR2)
#: y^2 = x^3 + 4 has the points (0, 2) and (0, -2), of order three.
OFF_SUBGROUP1 = compressed(bytes(G1_BYTES), 0)
BEYOND = compressed(FIELD.to_bytes(G1_BYTES, "big"), 0)
#: 4^3 + 4 is a square, too; of the points over Fp few are in the subgroup.
OFF_SUBGROUP1_AGAIN = compressed((4).to_bytes(G1_BYTES, "big"), 0)
NOT_ON_CURVE1 = compressed((1).to_bytes(G1_BYTES, "big"), 0)  # 5 has no root

REFUSED1 = {
    "empty": (b"", "has 48 bytes, not 0"),
    "zeros": (bytes(G1_BYTES), "travels compressed"),
    "identity": (b"\xc0" + bytes(G1_BYTES - 1), "is the identity"),
    "identity with a sign": (b"\xe0" + bytes(G1_BYTES - 1), "is the identity"),
    "identity that is none": (bytes((GOOD1[0] | 0x40,)) + GOOD1[1:], "is the identity"),
    "uncompressed": (bytes((GOOD1[0] & 0x7F,)) + GOOD1[1:], "travels compressed"),
    "trailing": (GOOD1 + b"\0", "not 49"),
    "short": (GOOD1[:-1], "not 47"),
    "of the other group": (GOOD2, "not 96"),
    "beyond the field": (BEYOND, "beyond the field"),
    "off the curve": (NOT_ON_CURVE1, "not on the curve"),
    "off the subgroup": (OFF_SUBGROUP1, "not in the subgroup"),
    "off the subgroup again": (OFF_SUBGROUP1_AGAIN, "not in the subgroup"),
}
REFUSED2 = {
    "empty": (b"", "has 96 bytes, not 0"),
    "zeros": (bytes(G2_BYTES), "travels compressed"),
    "identity": (b"\xc0" + bytes(G2_BYTES - 1), "is the identity"),
    "uncompressed": (bytes((GOOD2[0] & 0x7F,)) + GOOD2[1:], "travels compressed"),
    "trailing": (GOOD2 + b"\0", "not 97"),
    "short": (GOOD2[:-1], "not 95"),
    "of the other group": (GOOD1, "not 48"),
    "beyond the field": (BEYOND + bytes(G1_BYTES), "beyond the field"),
    "real part beyond the field": (GOOD2[:G1_BYTES] + FIELD.to_bytes(G1_BYTES, "big"), "beyond the field"),
    "off the curve": (compressed(bytes(G2_BYTES), 0), "not on the curve"),
    "off the subgroup": (off_subgroup2(), "not in the subgroup"),
}


@pytest.mark.parametrize("name", REFUSED1)
def test_bytes_that_are_no_point_of_g1_are_refused(pairing: Pairing, name: str) -> None:
    data, why = REFUSED1[name]
    with pytest.raises(PointRejected, match=why):
        pairing.decode1(data)


@pytest.mark.parametrize("name", REFUSED2)
def test_bytes_that_are_no_point_of_g2_are_refused(pairing: Pairing, name: str) -> None:
    data, why = REFUSED2[name]
    with pytest.raises(PointRejected, match=why):
        pairing.decode2(data)


def test_points_of_the_tests_are_what_they_say() -> None:
    """py_ecc, too, finds them on the curve, and q times them not zero."""
    from py_ecc.optimized_bls12_381 import FQ, b, b2, is_inf, is_on_curve

    for one in ((FQ(0), FQ(2), FQ.one()), ecc.point1(OFF_SUBGROUP1_AGAIN)):
        assert is_on_curve(one, b) and not is_inf(ecc.multiply(one, ORDER))
    two = ecc.point2(REFUSED2["off the subgroup"][0])
    assert is_on_curve(two, b2) and not is_inf(ecc.multiply(two, ORDER))


def test_a_pairing_is_chosen_by_name_or_by_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert room.best() is named(room.available()[0])
    monkeypatch.setattr(room, "find_spec", lambda name: None)
    assert room.best() is named("portable")
    with pytest.raises(NotFound, match="no pairing 'slow'"):
        named("slow")


def test_a_library_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py_arkworks_bls12381", None)
    monkeypatch.delitem(sys.modules, "sealcast.primitives.pairing.portable")
    with pytest.raises(MissingExtra, match="a library for pairings") as refused:
        named.__wrapped__("portable")
    assert refused.value.hint == "pip install 'sealcast[attribute]'"
