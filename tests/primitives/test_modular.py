"""Squares modulo a safe prime: RFC 3526's primes by OpenSSL, the paper's cipher broken, ours not."""

from __future__ import annotations

import re
import subprocess
from random import Random

import gmpy2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Rejected
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Element, Exponent, Group
from sealcast.primitives.modular import SafePrimeGroup, group14, group15

GROUPS = [group14(), group15()]


@pytest.mark.parametrize(("group", "name"), list(zip(GROUPS, ("modp_2048", "modp_3072"), strict=True)))
def test_the_primes_are_openssls(group: SafePrimeGroup, name: str) -> None:
    command = ["openssl", "genpkey", "-algorithm", "DH", "-pkeyopt", f"group:{name}"]
    key = subprocess.run(command, capture_output=True, check=True).stdout
    command = ["openssl", "asn1parse"]
    # The named group is in the key by its parameters: the first long integer is the prime.
    listed = subprocess.run(command, input=key, capture_output=True, check=True, text=False).stdout.decode()
    prime = re.search(r"INTEGER\s+:([0-9A-F]{400,})", listed)
    assert prime is not None and int(prime[1], 16) == group.prime


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
def test_the_order_is_prime(group: SafePrimeGroup) -> None:
    assert gmpy2.is_strong_prp(group.prime, 2)
    assert gmpy2.is_strong_prp(group.order, 2)
    assert 2 * group.order + 1 == group.prime


@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False), st.binary(max_size=20))
def test_layers_commute_and_come_off(random: Random, label: bytes) -> None:
    group = group14()
    j, k = (Exponent(random.randrange(1, group.order), group.order) for _ in range(2))
    h, power = group.hash(label), group.power
    assert power(power(h, j), k) == power(power(h, k), j)
    assert power(power(h, k), k.inverse) == h == group.decode(group.encode(h))
    assert group.power_many([h], k) == [power(h, k)]


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
def test_what_is_no_element(group: SafePrimeGroup) -> None:
    p, size = group.prime, group.wire_bytes
    other = next(x for x in range(2, 100) if gmpy2.legendre(x, p) == -1)
    for value in (0, 1, p - 1, p, p + 4, other, p - 4):
        with pytest.raises(Rejected, match=group.name):
            group.decode(value.to_bytes(size, "big"))
    for data in (b"", b"\4", (4).to_bytes(size + 1, "big"), (4).to_bytes(size - 1, "big")):
        with pytest.raises(Rejected, match="bytes"):
            group.decode(data)
    assert group.decode((4).to_bytes(size, "big")) == (4).to_bytes(size, "big")


# --- attacks: each succeeds on the cipher as printed, and fails on ours ---------------------------------------------

P = group14().prime


def as_printed(value: int, k: int) -> int:
    """The paper's cipher: any x of Z_p*, k prime to p - 1."""
    return pow(value, k, P)


def printed_key(random: Random) -> int:
    while True:
        k = random.randrange(3, P - 1)
        if gmpy2.gcd(k, P - 1) == 1:
            return k


def labels(random: Random, count: int) -> list[bytes]:
    return [random.randbytes(8) for _ in range(count)]


def test_legendres_symbol() -> None:
    """The onlooker guesses, of two labels, which one was encrypted: by the symbol, if their symbols differ."""
    random = Random(1)
    plain = [int.from_bytes(label, "big") for label in labels(random, 24)]
    # (a) As printed: the symbol of the plaintext is that of the ciphertext, every time.
    seen = [gmpy2.legendre(as_printed(value, printed_key(random)), P) for value in plain[:8]]
    assert seen == [gmpy2.legendre(value, P) for value in plain[:8]] and len(set(seen)) == 2
    # (b) Ours: every element and every power is a square, whatever the label.
    group = group14()
    k = Exponent(random.randrange(1, group.order), group.order)
    hashed = [group.hash(label) for label in labels(random, 8)]
    both = hashed + group.power_many(hashed, k)
    assert {int(gmpy2.legendre(int.from_bytes(x, "big"), P)) for x in both} == {1}


def test_small_subgroup() -> None:
    """The attacker hands in an element of small order and learns the key modulo that order from what comes back."""
    random = Random(2)
    # (a) As printed: -1 comes back as itself whatever the key, so that rows and events can be planted and recognised;
    assert as_printed(P - 1, printed_key(random)) == P - 1
    # and with a modulus whose p - 1 has small factors, the key itself leaks, factor by factor.
    weak = 2 * 3 * 5 * 7 * 11 * 13 + 1
    while not gmpy2.is_prime(weak):
        weak += 2 * 3 * 5 * 7 * 11 * 13
    k = 1_234_577
    for order in (3, 5, 7, 11, 13):
        base = next(b for b in (pow(a, (weak - 1) // order, weak) for a in range(2, 100)) if b != 1)
        answer = pow(base, k, weak)
        assert next(e for e in range(order) if pow(base, e, weak) == answer) == k % order
    # (b) Ours: an element of small order is no element.
    with pytest.raises(Rejected):
        group14().decode((P - 1).to_bytes(256, "big"))
    with pytest.raises(Rejected):
        CURVE.decode(bytes(33))


def test_identity() -> None:
    """The identity is its own encryption under every key: a row of it would match an event of it on every link."""
    random = Random(3)
    assert as_printed(1, printed_key(random)) == 1
    for group, identity in ((group14(), (1).to_bytes(256, "big")), (CURVE, b"\0"), (CURVE, bytes(33))):
        with pytest.raises(Rejected):
            group.decode(identity)


def test_products() -> None:
    """From the encryptions of 7 and of 11, anyone makes that of 77, and subscribes to what it has no key for."""
    random = Random(4)
    k = printed_key(random)
    assert as_printed(7, k) * as_printed(11, k) % P == as_printed(77, k)
    # Ours: the product is an element, but it belongs to no label: 7, 11 and 77 are hashed.
    group: Group = group14()
    exponent = Exponent(random.randrange(1, group.order), group.order)
    seven, eleven, both = (int.from_bytes(group.power(group.hash(n), exponent), "big") for n in (b"7", b"11", b"77"))
    product = seven * eleven % P
    assert product != both
    known = {group.power(group.hash(str(n).encode()), exponent) for n in range(100)}
    assert Element(product.to_bytes(256, "big")) not in known
