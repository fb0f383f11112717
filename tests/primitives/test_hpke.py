"""HPKE: opened by a second implementation written from RFC 9180, and by nobody it was not sealed to."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import CannotOpen, Misuse
from sealcast.primitives import hpke
from sealcast.primitives.secrets import Secret

KEM = b"KEM" + (0x20).to_bytes(2, "big")
SUITE = b"HPKE" + (0x20).to_bytes(2, "big") + (1).to_bytes(2, "big") + (2).to_bytes(2, "big")


def extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + material, "sha256")


def expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labelled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, labelled + b"\x01", "sha256")[:length]


def open_by_the_book(private: bytes, sealed: bytes, info: bytes) -> bytes:
    """RFC 9180, sections 4.1, 5.1 and 5.2, base mode, one message."""
    key, enc = X25519PrivateKey.from_private_bytes(private), sealed[:32]
    shared = key.exchange(X25519PublicKey.from_public_bytes(enc))
    eae = extract(KEM, b"", b"eae_prk", shared)
    secret = expand(KEM, eae, b"shared_secret", enc + key.public_key().public_bytes_raw(), 32)
    aead_key, nonce = schedule(SUITE, secret, info)
    return AESGCM(aead_key).decrypt(nonce, sealed[32:], b"")


def schedule(suite: bytes, secret: bytes, info: bytes) -> tuple[bytes, bytes]:
    """The AEAD's key and first nonce (section 5.1), from the KEM's shared secret."""
    context = b"\0" + extract(suite, b"", b"psk_id_hash", b"") + extract(suite, b"", b"info_hash", info)
    inner = extract(suite, secret, b"secret", b"")
    return expand(suite, inner, b"key", context, 32), expand(suite, inner, b"base_nonce", context, 12)


def joined(*parts: bytes) -> bytes:
    return b"".join(len(p).to_bytes(4, "big") + p for p in parts)


@given(st.binary(max_size=64), st.binary(max_size=20), st.binary(max_size=20))
@settings(max_examples=25, deadline=None)
def test_opens_here_and_by_the_book(plaintext: bytes, info: bytes, aad: bytes) -> None:
    key = hpke.KemKey(Secret(hashlib.sha256(plaintext).digest()))
    sealed = hpke.seal(key.public, plaintext, info, aad)
    assert len(sealed) == len(plaintext) + hpke.OVERHEAD_BYTES
    assert key.open(sealed, info, aad) == plaintext
    assert open_by_the_book(key.private.reveal(), sealed, joined(info, aad)) == plaintext


def test_opens_for_its_owner_purpose_and_data_only() -> None:
    key, other = hpke.KemKey.generate(), hpke.KemKey.generate()
    sealed = hpke.seal(key.public, b"key", b"pair key", b"topic 1")
    for opener, info, aad in [
        (other, b"pair key", b"topic 1"),
        (key, b"pair kex", b"topic 1"),
        (key, b"pair key", b"topic 2"),
        (key, b"pair keyt", b"opic 1"),  # the boundary between info and aad is bound too
    ]:
        with pytest.raises(CannotOpen):
            opener.open(sealed, info, aad)


def test_every_altered_or_missing_byte_is_noticed() -> None:
    key = hpke.KemKey.generate()
    sealed = hpke.seal(key.public, b"key", b"i")
    for at in range(len(sealed)):
        altered = bytearray(sealed)
        altered[at] ^= 0x40
        with pytest.raises(CannotOpen):
            key.open(bytes(altered), b"i")
        with pytest.raises(CannotOpen):
            key.open(sealed[:at], b"i")


@pytest.mark.parametrize("public", [bytes(32), (1).to_bytes(32, "little"), bytes(31), b""])
def test_refuses_keys_that_everybody_can_open(public: bytes) -> None:
    with pytest.raises(Misuse):
        hpke.seal(public, b"key", b"i")
    with pytest.raises(Misuse):
        hpke.KemKey(Secret(bytes(16)))
