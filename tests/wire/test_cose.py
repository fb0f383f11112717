"""COSE: byte for byte what an independent implementation (pycose 1.1.0) makes, and nothing but our two headers."""

from __future__ import annotations

import json
from pathlib import Path

import cbor2
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealcast.errors import FrameRejected
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey, VerifyKey
from sealcast.wire import cbor, cose
from sealcast.wire.cbor import TaggedValue

VECTORS = Path(__file__).parent.parent / "vectors"
INTEROP = json.loads((VECTORS / "cose-interop.json").read_text())
COMMITMENT, NONCE, CIPHERTEXT = b"c" * 32, b"n" * 12, b"sealed, with its tag"
SIGNATURE = b"s" * 64


def of(name: str) -> dict[str, bytes]:
    return {field: bytes.fromhex(value) for field, value in INTEROP[name].items()}


def test_a_sealed_body_is_what_another_implementation_makes_and_opens() -> None:
    v = of("encrypt0")
    aad = cose.enc_structure(cose.encrypt0_protected(v["commitment"]), v["external_aad"])
    assert aad == v["associated_data"]
    sealed = AESGCM(v["key"]).encrypt(v["nonce"], v["plaintext"], aad)
    assert cose.encode_encrypt0(v["commitment"], v["nonce"], sealed) == v["message"]
    assert cose.parse_encrypt0(v["message"]) == cose.Encrypt0(v["commitment"], v["nonce"], sealed)


def test_what_is_signed_is_what_another_implementation_signs() -> None:
    """It knows EdDSA (-8) only; the structure around the algorithm's number is the same."""
    v = of("sign1")
    to_be_signed = cose.sig_structure(v["protected"], v["external_aad"], v["payload"])
    assert to_be_signed == v["to_be_signed"]
    signature = SigningKey(Secret(v["seed"])).sign(to_be_signed)
    assert v["message"] == cbor.encode(TaggedValue(18, [v["protected"], {}, v["payload"], signature]))
    assert VerifyKey(v["public"]).verify(to_be_signed, signature)
    with pytest.raises(FrameRejected, match="Ed25519"):
        cose.parse_sign1(v["message"])  # -8 leaves the curve open: not ours


def test_round_trips() -> None:
    assert cose.parse_sign1(cose.encode_sign1(b"p", SIGNATURE)) == cose.Sign1(b"p", SIGNATURE)
    parsed = cose.parse_encrypt0(cose.encode_encrypt0(COMMITMENT, NONCE, CIPHERTEXT))
    for bits, number in ((128, 1), (192, 2), (256, 3)):  # RFC 9053, section 4.1
        message = cose.encode_encrypt0(COMMITMENT, NONCE, CIPHERTEXT, bits)
        assert cose.parse_encrypt0(message).key_bits == bits
        assert cbor2.loads(cbor2.loads(message).value[0])[1] == number
    assert parsed == cose.Encrypt0(COMMITMENT, NONCE, CIPHERTEXT)


ED, GCM = cose.SIGN1_PROTECTED, cose.encrypt0_protected(COMMITMENT)
BAD_SIGN1 = {
    "no tag": [ED, {}, b"p", SIGNATURE],
    "another tag": TaggedValue(16, [ED, {}, b"p", SIGNATURE]),
    "no algorithm": TaggedValue(18, [b"", {}, b"p", SIGNATURE]),
    "algorithm none": TaggedValue(18, [cbor.encode({1: 0}), {}, b"p", SIGNATURE]),
    "EdDSA": TaggedValue(18, [cbor.encode({1: -8}), {}, b"p", SIGNATURE]),
    "HMAC under the public key": TaggedValue(18, [cbor.encode({1: 5}), {}, b"p", SIGNATURE]),
    "algorithm outside protection": TaggedValue(18, [cbor.encode({}), {1: -19}, b"p", SIGNATURE]),
    "algorithm twice": TaggedValue(18, [ED, {1: -19}, b"p", SIGNATURE]),
    "a key id": TaggedValue(18, [ED, {4: b"kid"}, b"p", SIGNATURE]),
    "a critical header": TaggedValue(18, [cbor.encode({1: -19, 2: [99], 99: 1}), {}, b"p", SIGNATURE]),
    "detached payload": TaggedValue(18, [ED, {}, None, SIGNATURE]),
    "payload is text": TaggedValue(18, [ED, {}, "p", SIGNATURE]),
    "no signature": TaggedValue(18, [ED, {}, b"p"]),
    "a short signature": TaggedValue(18, [ED, {}, b"p", SIGNATURE[:63]]),
    "a long signature": TaggedValue(18, [ED, {}, b"p", SIGNATURE + b"s"]),
    "five parts": TaggedValue(18, [ED, {}, b"p", SIGNATURE, 0]),
    "a map": TaggedValue(18, {1: 2}),
    "oversized": TaggedValue(18, [ED, {}, bytes(2000), SIGNATURE]),
}
BAD_ENCRYPT0 = {
    "no tag": [GCM, {5: NONCE}, CIPHERTEXT],
    "another tag": TaggedValue(18, [GCM, {5: NONCE}, CIPHERTEXT]),
    "no commitment": TaggedValue(16, [cbor.encode({1: 3}), {5: NONCE}, CIPHERTEXT]),
    "a short commitment": TaggedValue(16, [cose.encrypt0_protected(COMMITMENT[:31]), {5: NONCE}, CIPHERTEXT]),
    "AES-CCM": TaggedValue(16, [cbor.encode({1: 10, -65537: COMMITMENT}), {5: NONCE}, CIPHERTEXT]),
    "no number": TaggedValue(16, [cbor.encode({1: "A256GCM", -65537: COMMITMENT}), {5: NONCE}, CIPHERTEXT]),
    "algorithm true": TaggedValue(16, [cbor.encode({1: True, -65537: COMMITMENT}), {5: NONCE}, CIPHERTEXT]),
    "more protected": TaggedValue(16, [cbor.encode({1: 3, 4: b"k", -65537: COMMITMENT}), {5: NONCE}, CIPHERTEXT]),
    "protected is a map": TaggedValue(16, [{1: 3, -65537: COMMITMENT}, {5: NONCE}, CIPHERTEXT]),
    "protected is not canonical": TaggedValue(16, [bytes.fromhex("a21803") + GCM[2:], {5: NONCE}, CIPHERTEXT]),
    "no nonce": TaggedValue(16, [GCM, {}, CIPHERTEXT]),
    "a short nonce": TaggedValue(16, [GCM, {5: NONCE[:11]}, CIPHERTEXT]),
    "a partial nonce": TaggedValue(16, [GCM, {6: NONCE}, CIPHERTEXT]),
    "more unprotected": TaggedValue(16, [GCM, {5: NONCE, 4: b"k"}, CIPHERTEXT]),
    "unprotected is null": TaggedValue(16, [GCM, None, CIPHERTEXT]),
    "detached": TaggedValue(16, [GCM, {5: NONCE}, None]),
    "only a tag": TaggedValue(16, [GCM, {5: NONCE}, bytes(16)]),
    "four parts": TaggedValue(16, [GCM, {5: NONCE}, CIPHERTEXT, []]),
}


@pytest.mark.parametrize("name", BAD_SIGN1)
def test_signed_in_any_other_way_is_refused(name: str) -> None:
    with pytest.raises(FrameRejected):
        cose.parse_sign1(cbor.encode(BAD_SIGN1[name]))


@pytest.mark.parametrize("name", BAD_ENCRYPT0)
def test_sealed_in_any_other_way_is_refused(name: str) -> None:
    with pytest.raises(FrameRejected):
        cose.parse_encrypt0(cbor.encode(BAD_ENCRYPT0[name]))
