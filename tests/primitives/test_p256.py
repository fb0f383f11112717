"""P-256: RFC 6979's vectors, OpenSSL as the second opinion, and keys that stay where they are."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Misuse, Rejected
from sealcast.primitives.p256 import Hash, P256SigningKey, P256VerifyKey
from sealcast.primitives.secrets import Secret

#: RFC 6979, appendix A.2.5: the key, and the signatures of "sample".
KEY = P256SigningKey(Secret(bytes.fromhex("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721")))
X = "60FED4BA255A9D31C961EB74C6356D68C049B8923B61FA6CE669622E60F29FB6"
SIGNED = {
    Hash.SHA256: "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"
    "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8",
    Hash.SHA384: "0EAFEA039B20E9B42309FB1D89E213057CBF973DC0CFC8F129EDDDC800EF7719"
    "4861F0491E6998B9455193E34E7B0D284DDD7149A74B95B9261F13ABDE940954",
    Hash.SHA512: "8496A60B5E9B47C825488827E0495B0E3FA109EC4568FD3F8D1097678EB97F00"
    "2362AB1ADBE2B8ADF9CB9EDAB740EA6049C028114F2460F96554F61FAE3302FE",
}
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@pytest.mark.parametrize("hash", Hash)
def test_the_rfcs_vectors(hash: Hash) -> None:
    assert bytes(KEY.verify_key)[1:].hex().upper() == X
    signature = bytes.fromhex(SIGNED[hash])
    assert KEY.sign(b"sample", hash) == signature
    assert KEY.verify_key.verify(b"sample", signature, hash)
    for other in set(Hash) - {hash}:
        assert not KEY.verify_key.verify(b"sample", signature, other)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=100), st.integers(0, 511), st.sampled_from(Hash))
def test_a_flipped_bit_is_noticed(message: bytes, bit: int, hash: Hash) -> None:
    signature = bytearray(KEY.sign(message, hash))
    assert KEY.verify_key.verify(message, bytes(signature), hash)
    assert not KEY.verify_key.verify(message + b"\0", bytes(signature), hash)
    signature[bit // 8] ^= 1 << bit % 8
    assert not KEY.verify_key.verify(message, bytes(signature), hash)


@pytest.mark.parametrize("signature", [b"", bytes(64), bytes(63), bytes(65), b"\xff" * 64, bytes(32) + b"\1" * 32])
def test_what_is_no_signature(signature: bytes) -> None:
    assert not KEY.verify_key.verify(b"sample", signature)


def test_anyone_can_respell_a_signature() -> None:
    """Why nothing is identified by the bytes of one."""
    signature = KEY.sign(b"sample")
    respelled = signature[:32] + (ORDER - int.from_bytes(signature[32:], "big")).to_bytes(32, "big")
    assert respelled != signature
    assert KEY.verify_key.verify(b"sample", respelled)


@pytest.mark.parametrize(
    ("hash", "option"), [(Hash.SHA256, "-sha256"), (Hash.SHA384, "-sha384"), (Hash.SHA512, "-sha512")]
)
def test_openssl_verifies_it(hash: Hash, option: str, tmp_path: Path) -> None:
    raw = KEY.sign(b"sealed", hash)
    r, s = (int.from_bytes(half, "big") for half in (raw[:32], raw[32:]))
    (tmp_path / "signature").write_bytes(encode_dss_signature(r, s))
    public = KEY.verify_key.point.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "public.pem").write_bytes(public)
    command = ["openssl", "dgst", option, "-verify", tmp_path / "public.pem", "-signature", tmp_path / "signature"]
    for message, code in ((b"sealed", 0), (b"sealer", 1)):
        assert subprocess.run(command, input=message, capture_output=True, check=False).returncode == code


@pytest.mark.parametrize(
    "public",
    [
        b"",
        bytes(33),
        bytes(KEY.verify_key)[:-1],
        b"\x04" + bytes(32),
        b"\x02" + b"\xff" * 32,
        b"\x05" + bytes.fromhex(X),
    ],
    ids=["empty", "zeros", "short", "uncompressed", "beyond the field", "no sign"],
)
def test_what_is_no_public_key(public: bytes) -> None:
    with pytest.raises(Rejected):
        P256VerifyKey(public)


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_half_of_all_numbers_are_no_point(x: bytes) -> None:
    """A point is taken if and only if x^3 - 3x + b is a square."""
    p = 2**256 - 2**224 + 2**192 + 2**96 - 1
    b = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
    n = int.from_bytes(x, "big")
    square = n < p and pow(n**3 - 3 * n + b, (p - 1) // 2, p) in (0, 1)
    try:
        assert bytes(P256VerifyKey(b"\x02" + x)) == b"\x02" + x
        assert square
    except Rejected:
        assert not square


@pytest.mark.parametrize("number", [0, ORDER, 2**256 - 1])
def test_what_is_no_private_key(number: int) -> None:
    with pytest.raises(Misuse):
        P256SigningKey(Secret(number.to_bytes(32, "big")))
    with pytest.raises(Misuse, match="32 bytes"):
        P256SigningKey(Secret(b"short"))


def test_keys_stay_and_travel() -> None:
    made = P256SigningKey.generate()
    again = P256SigningKey(made.private)
    assert again.verify_key == made.verify_key and hash(again.verify_key) == hash(made.verify_key)
    assert again.sign(b"x") == made.sign(b"x")
    assert pickle.loads(pickle.dumps(made.verify_key)) == made.verify_key
    assert made.verify_key != KEY.verify_key
    assert len(made.verify_key.key_id) == 20
    with pytest.raises(Misuse):
        pickle.dumps(made)
    assert made.private.reveal().hex() not in repr(made)
