"""Ed25519: the vectors of RFC 8032, and the public keys and signatures that must not pass."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Misuse, Rejected
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey, VerifyKey, signed_each

# RFC 8032, section 7.1: seed, public key, message, signature.
RFC_8032 = {
    "1": (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    "2": (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
}
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19

BAD_KEYS = {
    "the neutral element": (1).to_bytes(32, "little"),
    "order 2": (FIELD - 1).to_bytes(32, "little"),
    "order 4": bytes(32),
    "order 8": bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    "the neutral element, spelt past the field": (FIELD + 1).to_bytes(32, "little"),
    "not on the curve": (2).to_bytes(32, "little"),
    "all ones": b"\xff" * 32,
    "too short": bytes(31),
    "too long": bytes(33),
    "empty": b"",
}


@pytest.mark.parametrize("name", RFC_8032)
def test_published_vectors(name: str) -> None:
    seed, public, message, signature = map(bytes.fromhex, RFC_8032[name])
    key = SigningKey(Secret(seed))
    assert bytes(key.verify_key) == public
    assert key.sign(message) == signature
    assert VerifyKey(public).verify(message, signature)


@given(st.binary(max_size=100))
@settings(max_examples=20)
def test_agrees_with_another_implementation(message: bytes) -> None:
    key = SigningKey.generate()
    other = Ed25519PrivateKey.from_private_bytes(key.seed.reveal())
    assert key.sign(message) == other.sign(message)
    assert key.verify_key.verify(message, other.sign(message))


def test_every_altered_bit_of_a_signature_is_noticed() -> None:
    key = SigningKey.generate()
    signature = key.sign(b"message")
    for bit in range(8 * 64):
        altered = bytearray(signature)
        altered[bit // 8] ^= 1 << bit % 8
        assert not key.verify_key.verify(b"message", bytes(altered)), f"bit {bit}"
    assert not key.verify_key.verify(b"massage", signature)
    for wrong in (b"", signature[:-1], signature + b"\0"):
        assert not key.verify_key.verify(b"message", wrong)


def test_each_signature_is_verified_with_the_key_in_its_place() -> None:
    ann, ben = SigningKey.generate(), SigningKey.generate()
    pieces = [key.sign(message) + message for key in (ann, ben) for message in (b"", b"one", b"two")]
    keys = [ann.verify_key] * 3 + [ben.verify_key] * 3
    assert signed_each(keys, pieces) == [True] * 6
    assert signed_each(keys[::-1], pieces) == [False] * 6
    bent = [*pieces[:4], pieces[4][:-1] + b"?", pieces[5][:63]]
    assert signed_each(keys, bent) == [True] * 4 + [False] * 2
    with pytest.raises(ValueError, match="zip"):
        signed_each(keys[:5], pieces)


def test_a_signature_has_one_spelling() -> None:
    """Without the check of RFC 8032, S + L verifies as well as S: two signatures of one message."""
    key = SigningKey.generate()
    signature = key.sign(b"message")
    s = int.from_bytes(signature[32:], "little") + GROUP_ORDER
    assert not key.verify_key.verify(b"message", signature[:32] + s.to_bytes(32, "little"))


@pytest.mark.parametrize("name", BAD_KEYS)
def test_refuses_public_keys_that_are_none(name: str) -> None:
    with pytest.raises(Rejected):
        VerifyKey(BAD_KEYS[name])


def test_what_a_small_order_key_would_allow() -> None:
    """Under the neutral element as public key, R = B * S verifies for every message: it must not be enrolled."""
    with pytest.raises(Rejected, match="prime-order"):
        VerifyKey(BAD_KEYS["the neutral element"])


def test_keys_have_their_size() -> None:
    with pytest.raises(Misuse):
        SigningKey(Secret(bytes(31)))


def test_public_keys_travel_and_compare() -> None:
    key = SigningKey.generate()
    again = VerifyKey(bytes(key.verify_key))
    assert again == key.verify_key
    assert {again: 1}[key.verify_key] == 1
    assert SigningKey(key.seed).verify_key == again
