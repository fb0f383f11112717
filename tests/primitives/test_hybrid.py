"""Hybrid receiving keys: published vectors, a second implementation from the drafts, and what one half is worth alone.

The vectors come with `cryptography-vectors`: those of HPKE's post-quantum draft, and the known answers of ML-KEM-768,
each driven through `primitives/hybrid.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import cryptography_vectors
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from sealcast.errors import CannotOpen, Misuse
from sealcast.primitives import hpke, hybrid
from sealcast.primitives.hybrid import HybridKey
from sealcast.primitives.secrets import Secret
from tests.primitives.test_hpke import joined, schedule

SUITE = b"HPKE" + (0x647A).to_bytes(2, "big") + (1).to_bytes(2, "big") + (2).to_bytes(2, "big")
#: Of X-Wing's combiner: `\./` above `/^\`.
LABEL = rb"\.//^" + b"\\"
LATTICE, SCALAR = 1184, 32


def combined(lattice: bytes, curve: bytes, ephemeral: bytes, public: bytes) -> bytes:
    """X-Wing, section 5.3."""
    return hashlib.sha3_256(lattice + curve + ephemeral + public[LATTICE:] + LABEL).digest()


def open_by_the_book(private: bytes, sealed: bytes, info: bytes, broken: bytes | None = None) -> bytes:
    """With `broken`, by somebody who has X25519's half and guesses ML-KEM's shared secret."""
    halves = hashlib.shake_256(private).digest(96)
    lattice = MLKEM768PrivateKey.from_seed_bytes(halves[:64])
    curve = X25519PrivateKey.from_private_bytes(halves[64:])
    public = lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()
    first = lattice.decapsulate(sealed[:1088]) if broken is None else broken
    second = curve.exchange(X25519PublicKey.from_public_bytes(sealed[1088:1120]))
    key, nonce = schedule(SUITE, combined(first, second, sealed[1088:1120], public), info)
    return AESGCM(key).decrypt(nonce, sealed[1120:], b"")


# --- published --------------------------------------------------------------------------------------------


def test_opens_what_the_post_quantum_draft_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draft's vectors use another KDF or cipher beside the same KEM: the suite is theirs, the code is ours."""
    with cryptography_vectors.open_vector_file("HPKE/hpke-pq-test-vectors.json", "r") as file:
        vectors = [v for v in json.load(file) if (v["mode"], v["kem_id"], v["aead_id"]) == (0, 0x647A, 3)]
    kdfs = {1: KDF.HKDF_SHA256, 17: KDF.SHAKE256}
    assert {vector["kdf_id"] for vector in vectors} == set(kdfs)
    monkeypatch.setattr(hpke, "joined", lambda parts: parts[0])  # the vectors' info, without ours around it
    for vector in vectors:
        suite = Suite(KEM.MLKEM768_X25519, kdfs[vector["kdf_id"]], AEAD.CHACHA20_POLY1305)
        monkeypatch.setattr(hybrid, "_SUITE", suite)
        raw = {name: bytes.fromhex(vector[name]) for name in ("skRm", "pkRm", "enc", "info", "key", "base_nonce")}
        key, plain = HybridKey(Secret(raw["skRm"])), bytes.fromhex(vector["encryptions"][0]["pt"])
        assert key.public == raw["pkRm"]
        sealed = raw["enc"] + ChaCha20Poly1305(raw["key"]).encrypt(raw["base_nonce"], plain, b"")
        assert key.open(sealed, raw["info"]) == plain
        for altered in (sealed[:-1] + bytes([sealed[-1] ^ 1]), bytes([sealed[0] ^ 1]) + sealed[1:]):
            with pytest.raises(CannotOpen):
                key.open(altered, raw["info"])
        with pytest.raises(CannotOpen):
            key.open(sealed, raw["info"] + b"!")


def known_answers() -> Iterator[dict[str, bytes]]:
    case: dict[str, bytes] = {}
    with cryptography_vectors.open_vector_file("asymmetric/MLKEM/kat_MLKEM_768.rsp", "r") as file:
        for line in file:
            name, equals, value = (part.strip() for part in line.partition("="))
            if equals and name != "count":
                case[name] = bytes.fromhex(value)
            if name == "ss":
                yield case
                case = {}


def test_opens_what_known_answers_of_ml_kem_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer's ciphertext, and the one that must be rejected in silence (`ct_n` gives `ss_n`), inside a message
    that is made by the book around the shared secret that the answer says."""
    cases = list(known_answers())[:200]
    scalar, ephemeral = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    theirs = ephemeral.public_key().public_bytes_raw()
    for case in cases:
        halves = case["d"] + case["z"] + scalar.private_bytes_raw()
        monkeypatch.setattr(hybrid, "_expanded", lambda private, halves=halves: halves)
        key = HybridKey.generate()
        assert key.public[:LATTICE] == case["pk"]
        for ciphertext, shared in (("ct", "ss"), ("ct_n", "ss_n")):
            secret = combined(case[shared], ephemeral.exchange(scalar.public_key()), theirs, key.public)
            aead_key, nonce = schedule(SUITE, secret, joined(b"info", b""))
            sealed = case[ciphertext] + theirs + AESGCM(aead_key).encrypt(nonce, b"topic key", b"")
            assert key.open(sealed, b"info") == b"topic key"
    assert len(cases) == 200


# --- ours -------------------------------------------------------------------------------------------------


def test_opens_here_and_by_the_book() -> None:
    key = HybridKey.generate()
    sealed = hybrid.seal(key.public, b"a key", b"info", b"aad")
    assert len(sealed) == 5 + hybrid.OVERHEAD_BYTES
    assert key.open(sealed, b"info", b"aad") == b"a key"
    assert open_by_the_book(key.private.reveal(), sealed, joined(b"info", b"aad")) == b"a key"
    assert HybridKey(key.private).public == key.public


def test_x25519_alone_opens_nothing() -> None:
    """Who computes discrete logarithms has the X25519 half. It opens a weaker variant whose ML-KEM half is known."""
    key = HybridKey.generate()
    sealed = hybrid.seal(key.public, b"a key", b"info")
    private, info = key.private.reveal(), joined(b"info", b"")
    lattice = MLKEM768PrivateKey.from_seed_bytes(hashlib.shake_256(private).digest(96)[:64])
    assert open_by_the_book(private, sealed, info, broken=lattice.decapsulate(sealed[:1088])) == b"a key"
    with pytest.raises(InvalidTag):
        open_by_the_book(private, sealed, info, broken=bytes(32))


def test_opens_for_its_owner_purpose_and_data_only() -> None:
    key, other = HybridKey.generate(), HybridKey.generate()
    sealed = hybrid.seal(key.public, b"key", b"topic key", b"topic 1")
    for opener, info, aad in [
        (other, b"topic key", b"topic 1"),
        (key, b"topic kex", b"topic 1"),
        (key, b"topic key", b"topic 2"),
        (key, b"topic keyt", b"opic 1"),
    ]:
        with pytest.raises(CannotOpen):
            opener.open(sealed, info, aad)


def test_every_altered_or_missing_byte_is_noticed() -> None:
    key = HybridKey.generate()
    sealed = hybrid.seal(key.public, b"key", b"i")
    for at in range(0, len(sealed), 3):
        altered = bytearray(sealed)
        altered[at] ^= 0x40
        with pytest.raises(CannotOpen):
            key.open(bytes(altered), b"i")
        with pytest.raises(CannotOpen):
            key.open(sealed[:at], b"i")


def test_refuses_what_is_no_key() -> None:
    good = HybridKey.generate().public
    assert hybrid.is_usable(good)
    for public in (
        b"",
        good[:-1],
        good + b"\0",
        b"\xff" * LATTICE + good[LATTICE:],  # coefficients beyond the modulus
        good[:LATTICE] + bytes(SCALAR),  # of small order
    ):
        assert not hybrid.is_usable(public)
        with pytest.raises(Misuse):
            hybrid.seal(public, b"key", b"i")
    with pytest.raises(Misuse):
        HybridKey(Secret(bytes(16)))
