"""Vectors that nobody here wrote, driven through `primitives/` and not through the libraries below.

They come with the package `cryptography-vectors`: NIST's for GCM and ECDSA, RFC 9180's for HPKE, RFC 5869's for HKDF,
RFC 4231's for HMAC, RFC 7748's for X25519, and the Ed25519 authors' own. Where a primitive of ours adds a context of
its own (an info, a derivation), a test takes the context out and leaves the rest of the code as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import cryptography_vectors
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from sealcast.errors import CannotOpen, Rejected
from sealcast.primitives import aead, hpke, kdf, mac, p256
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.hpke import KemKey
from sealcast.primitives.p256 import Hash, P256SigningKey, P256VerifyKey
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey, VerifyKey, signed_each
from sealcast.primitives.x25519 import _SALT, AgreementKey
from tests.primitives import gcm_by_the_book as by_the_book


def lines(name: str) -> list[str]:
    with cryptography_vectors.open_vector_file(name, "r") as file:
        return [line.strip() for line in file if not line.startswith("#")]


def blocks(name: str, first: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Cases of a file in NIST's form: `[section]`, then `Name = value`, a case beginning with `first`."""
    section, case = "", dict[str, str]()
    for line in [*lines(name), f"{first} ="]:
        if line.startswith("["):
            if case:
                yield section, case
                case = {}
            section = section + line if section and not section.endswith("#") else line
            continue
        field, equals, value = (part.strip() for part in line.partition("="))
        if equals and field == first and case:
            yield section, case
            case = {}
        if equals:
            section = section if section.endswith("#") else section + "#"
            case[field] = value
        elif line == "FAIL":
            case["FAIL"] = ""


def unhex(text: str) -> bytes:
    return bytes.fromhex(text)


# --- AES-GCM ------------------------------------------------------------------------------------------


def gcm(name: str) -> Iterator[dict[str, bytes | None]]:
    """Those of our form: nonces of 96 bits and whole tags."""
    for _, case in blocks(f"ciphers/AES/GCM/{name}.rsp", "Count"):
        if "IV" in case and len(case["IV"]) == 24 and len(case.get("Tag", "")) == 32:
            yield {
                field.lower(): None if field == "FAIL" else unhex(value)
                for field, value in case.items()
                if field != "Count"
            }


def with_key(patch: pytest.MonkeyPatch, key: bytes) -> SealingKey:
    """Ours derives its AES key: here it is the vector's."""
    patch.setattr(aead, "_expand", lambda secret, context: key.ljust(32, b"\0") + bytes(32))
    return SealingKey(Secret(bytes(32)), b"", 8 * len(key))


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_gcm_seals_as_nist_says(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    for case in gcm(f"gcmEncryptExtIV{bits}"):
        key, iv, plain, more, sealed, tag = (case[name] for name in ("key", "iv", "pt", "aad", "ct", "tag"))
        assert None not in (key, iv, plain, more, sealed, tag)
        ours = with_key(monkeypatch, key)  # type: ignore[arg-type]
        assert ours.seal(iv, plain, more) == sealed + tag  # type: ignore[operator, arg-type]
        count += 1
    assert count > 300


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_gcm_opens_what_nist_opens_and_nothing_else(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = refused = 0
    for case in gcm(f"gcmDecrypt{bits}"):
        ours = with_key(monkeypatch, case["key"])  # type: ignore[arg-type]
        given: tuple[Any, ...] = case["iv"], bytes(32), (case["ct"] or b"") + (case["tag"] or b""), case["aad"]
        if "fail" in case:
            refused += 1
            with pytest.raises(CannotOpen):
                ours.open(*given)
        else:
            opened += 1
            assert ours.open(*given) == case["pt"]
    assert opened > 100 and refused > 100


# --- HPKE ---------------------------------------------------------------------------------------------


def test_hpke_opens_what_rfc_9180_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    with cryptography_vectors.open_vector_file("HPKE/test-vectors.json", "r") as file:
        vectors = json.load(file)
    ours = [v for v in vectors if (v["mode"], v["kem_id"], v["kdf_id"], v["aead_id"]) == (0, 0x20, 1, 2)]
    assert ours
    monkeypatch.setattr(hpke, "joined", lambda parts: parts[0])  # the vectors' info, without ours around it
    for vector in ours:
        key = KemKey(Secret(unhex(vector["skRm"])))
        assert key.public == unhex(vector["pkRm"])
        info, plain = unhex(vector["info"]), unhex(vector["encryptions"][0]["pt"])
        # A single shot has no associated data: what the vector's key makes of its text without any, by the book.
        sealed = unhex(vector["enc"]) + by_the_book.seal(unhex(vector["key"]), unhex(vector["base_nonce"]), plain)
        assert key.open(sealed, info) == plain
        for altered in (sealed[:-1] + bytes([sealed[-1] ^ 1]), bytes([sealed[0] ^ 1]) + sealed[1:]):
            with pytest.raises(CannotOpen):
                key.open(altered, info)
        with pytest.raises(CannotOpen):
            key.open(sealed, info + b"!")
        assert key.open(hpke.seal(key.public, plain, info), info) == plain


# --- signatures ---------------------------------------------------------------------------------------


def test_ed25519_signs_and_verifies_as_its_authors_say() -> None:
    cases = [line.split(":") for line in lines("asymmetric/Ed25519/sign.input") if line]
    assert len(cases) == 1024
    for private, public, message, signed in (map(unhex, case[:4]) for case in cases):
        signer, signature = SigningKey(Secret(private[:32])), signed[:64]
        assert bytes(signer.verify_key) == public
        assert signer.sign(message) == signature
        key = VerifyKey(public)
        assert key.verify(message, signature) and signed_each([key], [signed]) == [True]
        assert not key.verify(message + b"!", signature)
        assert not key.verify(message, signature[:-1] + bytes([signature[-1] ^ 0x20]))


_HASHES = {"SHA-256": Hash.SHA256, "SHA-384": Hash.SHA384, "SHA-512": Hash.SHA512}


def p256_cases(name: str, first: str = "Msg") -> Iterator[tuple[Hash | None, dict[str, str]]]:
    for section, case in blocks(f"asymmetric/ECDSA/FIPS_186-3/{name}.rsp", first):
        curve, _, hashed = section.strip("[]#").partition(",")
        if curve == "P-256" and (hashed in _HASHES or not hashed):
            yield _HASHES.get(hashed), case


def point(case: dict[str, str]) -> bytes:
    """Compressed, as ours travel."""
    return bytes([2 + int(case["Qy"], 16) % 2]) + int(case["Qx"], 16).to_bytes(32, "big")


def test_ecdsa_verifies_as_nist_says() -> None:
    good = bad = 0
    for hashed, case in p256_cases("SigVer"):
        assert hashed is not None
        key = P256VerifyKey(point(case))
        signature = int(case["R"], 16).to_bytes(32, "big") + int(case["S"], 16).to_bytes(32, "big")
        verified = key.verify(unhex(case["Msg"]), signature, hashed)
        assert verified is case["Result"].startswith("P"), case
        good, bad = good + verified, bad + (not verified)
    assert good > 5 and bad > 20


def test_p256_takes_the_points_that_nist_takes() -> None:
    taken = 0
    for _, case in p256_cases("PKV", "Qx"):
        x, y = int(case["Qx"], 16), int(case["Qy"], 16)
        on_curve = case["Result"].startswith("P")
        try:
            found = ec.EllipticCurvePublicKey.from_encoded_point(
                ec.SECP256R1(), b"\4" + x.to_bytes(32, "big") + y.to_bytes(32, "big")
            )
        except (ValueError, OverflowError):
            assert not on_curve
            continue
        assert on_curve and P256VerifyKey(p256.compressed(found)).point.public_numbers().y == y
        taken += 1
    assert taken >= 3
    with pytest.raises(Rejected):
        P256VerifyKey(b"\2" + bytes(31) + b"\1" + b"")


def test_ecdsa_signs_as_rfc_6979_says() -> None:
    """The file is OpenSSL's: keys as PEM, then cases of `Name = value`."""
    text = "\n".join(lines("asymmetric/ECDSA/RFC6979/evppkey_ecdsa_rfc6979.txt"))
    pem = text.partition("PrivateKey=P-256_PRIV\n")[2].partition("\n\n")[0]
    loaded = load_pem_private_key(pem.encode(), None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)
    key = P256SigningKey(Secret(loaded.private_numbers().private_value.to_bytes(32, "big")))
    count = 0
    for block in text.split("\n\n"):
        case = {
            name.strip(): value.strip()
            for name, equals, value in (line.partition("=") for line in block.splitlines())
            if equals
        }
        hashed = {"SHA256": Hash.SHA256, "SHA384": Hash.SHA384, "SHA512": Hash.SHA512}.get(case.get("DigestSign", ""))
        if hashed is None or case.get("Key") != "P-256_PRIV":
            continue
        r, s = decode_dss_signature(unhex(case["Output"]))
        message = case["Input"].strip('"').encode()
        assert key.sign(message, hashed) == r.to_bytes(32, "big") + s.to_bytes(32, "big")
        count += 1
    assert count >= 6


# --- agreement and derivation -------------------------------------------------------------------------


def test_x25519_agrees_as_rfc_7748_says() -> None:
    count = 0
    for _, case in blocks("asymmetric/X25519/rfc7748.txt", "COUNT"):
        own, peer = AgreementKey(Secret(unhex(case["INPUT_SCALAR"]))), unhex(case["INPUT_U"])
        shared = Secret(kdf.hkdf_extract(_SALT, unhex(case["OUTPUT_U"])))
        expected = kdf.derive(shared, *sorted((own.public, peer)), b"for this")
        assert own.agreed(peer, b"for this").reveal() == expected.reveal()
        count += 1
    assert count >= 2


@pytest.mark.parametrize("name", ["rfc-5869-HKDF-SHA256", "hkdf-generated"])
def test_hkdf_derives_as_rfc_5869_says(name: str) -> None:
    count = 0
    for _, case in blocks(f"KDF/{name}.txt", "COUNT"):
        if case["Hash"] != "SHA-256":
            continue
        extracted = kdf.hkdf_extract(unhex(case["salt"]), unhex(case["IKM"]))
        assert extracted.hex() == case.get("PRK", extracted.hex())
        assert kdf.hkdf_expand(extracted, unhex(case["info"]), int(case["L"])).hex() == case["OKM"]
        count += 1
    assert count


def test_macs_are_hmac_as_rfc_4231_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mac, "joined", lambda parts: parts[0])
    count = 0
    for _, case in blocks("HMAC/rfc-4231-sha256.txt", "Len"):
        key, message, expected = unhex(case["Key"]), unhex(case["Msg"]), unhex(case["MD"])
        if len(key) >= 32 and len(expected) == 32:  # ours takes no shorter keys, and cuts no tag
            assert mac.tag(Secret(key), message) == expected and mac.verify(Secret(key), expected, message)
            assert not mac.verify(Secret(key), expected[:-1], message)
            count += 1
    assert count >= 2
    # HMAC-SHA512, written out for speed where sealing keys are made.
    count = 0
    for _, case in blocks("HMAC/rfc-4231-sha512.txt", "Len"):
        key, expected = unhex(case["Key"]), unhex(case["MD"])
        if len(key) <= 128 and len(expected) == 64:
            assert aead._expand(key, unhex(case["Msg"])) == expected
            count += 1
    assert count >= 3
