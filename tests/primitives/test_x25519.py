"""Agreement: RFC 7748's numbers, and that what comes out is bound to both keys and to what it is for."""

from __future__ import annotations

import pickle

import pytest

from sealcast.errors import Misuse, Rejected
from sealcast.primitives import kdf
from sealcast.primitives.secrets import Secret
from sealcast.primitives.x25519 import AgreementKey

# RFC 7748, section 6.1: Bob's keys, Alice's public key, and what they share.
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
SMALL_ORDER = [bytes(32), (1).to_bytes(32, "little"), (2**255 - 20).to_bytes(32, "little")]


def test_the_numbers_of_the_rfc_through_the_derivation_as_it_is_written_down() -> None:
    bob = AgreementKey(Secret(BOB))
    assert bob.public == BOB_PUBLIC
    extracted = Secret(kdf.hkdf_extract(b"sealcast/1 agreement", SHARED))
    assert bob.agreed(ALICE_PUBLIC, b"for") == kdf.derive(extracted, ALICE_PUBLIC, BOB_PUBLIC, b"for")


def test_both_sides_agree_and_nobody_else_does() -> None:
    a, b, c = (AgreementKey.generate() for _ in range(3))
    assert a.agreed(b.public, b"x") == b.agreed(a.public, b"x")
    assert a.agreed(b.public, b"x") != a.agreed(b.public, b"y")
    assert a.agreed(b.public, b"x") != c.agreed(b.public, b"x")


@pytest.mark.parametrize("peer", [*SMALL_ORDER, b"", bytes(31)])
def test_a_key_that_gives_everyone_the_same_is_refused(peer: bytes) -> None:
    with pytest.raises(Rejected):
        AgreementKey.generate().agreed(peer, b"x")


def test_it_stays_where_it_is() -> None:
    key = AgreementKey.generate()
    assert key.private.reveal().hex() not in repr(key)
    with pytest.raises(Misuse, match="cannot be pickled"):
        pickle.dumps(key)
    with pytest.raises(Misuse):
        AgreementKey(Secret(b"short"))
