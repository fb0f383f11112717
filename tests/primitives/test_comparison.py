"""Ciphers to compare with: that they are what they say, and that only the lab has them."""

from __future__ import annotations

import pickle
import re
import subprocess
from pathlib import Path

import pytest

from sealcast.errors import CannotOpen, Misuse
from sealcast.primitives.comparison import BlockCipher, Unauthenticated, Uncommitted
from sealcast.primitives.secrets import Secret

SOURCE = Path(__file__).parents[2] / "src" / "sealcast"


def test_3des_with_one_key_three_times_is_des() -> None:
    """The worked example that every textbook has."""
    key = bytes.fromhex("133457799BBCDFF1")
    assert BlockCipher("3des", Secret(3 * key)).encrypt(bytes.fromhex("0123456789ABCDEF")).hex() == "85e813540f0ab405"


def test_aes_is_that_of_fips_197() -> None:
    cipher = BlockCipher("aes-256", Secret(bytes(range(32))))
    assert cipher.encrypt(bytes.fromhex("00112233445566778899aabbccddeeff")).hex() == "8ea2b7ca516745bfeafc49904b496089"


def test_ctr_is_openssls_and_lets_itself_be_altered() -> None:
    key, nonce, message = bytes(range(32)), bytes(range(12)), b"attack at dawn, from the east"
    sealed = Unauthenticated(Secret(key)).seal(nonce, message)
    arguments = ["openssl", "enc", "-aes-256-ctr", "-K", key.hex(), "-iv", (nonce + bytes(4)).hex()]
    assert sealed == subprocess.run(arguments, input=message, capture_output=True, check=True).stdout
    altered = sealed[:-4] + bytes(a ^ b ^ c for a, b, c in zip(sealed[-4:], b"east", b"west", strict=True))
    assert Unauthenticated(Secret(key)).open(nonce, altered).endswith(b"from the west")


def test_gcm_does_not_let_itself_be_altered() -> None:
    cipher, nonce = Uncommitted(Secret(bytes(32))), bytes(12)
    sealed = cipher.seal(nonce, b"attack")
    assert cipher.open(nonce, sealed) == b"attack" and cipher.encrypt(nonce, b"attack", None) == sealed
    with pytest.raises(CannotOpen):
        cipher.open(nonce, b"x" + sealed[1:])


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(Misuse, match="there is no 'des' to compare with"):
        BlockCipher("des", Secret(bytes(8)))


@pytest.mark.parametrize("made", [BlockCipher("3des", Secret(bytes(range(24)))), Uncommitted(Secret(bytes(32)))])
def test_they_stay_in_their_process(made: object) -> None:
    with pytest.raises(Misuse):
        pickle.dumps(made)


def test_only_the_lab_uses_them() -> None:
    """These protect nothing, and nothing may come to rely on them."""
    users = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if re.search(r"primitives(\.| import .*\b)comparison\b", path.read_text())
    }
    assert users == {"lab"}
