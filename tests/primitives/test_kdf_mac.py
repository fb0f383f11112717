"""Keys from keys and tags: published vectors, another implementation, and contexts that must not run together."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.primitives import kdf, mac
from sealcast.primitives.secrets import Secret

# RFC 5869, appendix A: input, salt, info, length, pseudorandom key, output.
RFC_5869 = {
    "A.1": (
        b"\x0b" * 22,
        bytes(range(13)),
        bytes(range(0xF0, 0xFA)),
        42,
        "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    "A.2": (
        bytes(range(0x50)),
        bytes(range(0x60, 0xB0)),
        bytes(range(0xB0, 0x100)),
        82,
        "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
        "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    "A.3": (
        b"\x0b" * 22,
        b"",
        b"",
        42,
        "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
}

SECRET = Secret(bytes(range(32)))
parts = st.lists(st.binary(max_size=20), min_size=1, max_size=5).map(tuple)


@pytest.mark.parametrize("name", RFC_5869)
def test_published_vectors(name: str) -> None:
    material, salt, info, length, key, output = RFC_5869[name]
    assert kdf.hkdf_extract(salt, material).hex() == key
    assert kdf.hkdf_expand(bytes.fromhex(key), info, length).hex() == output


@given(parts, st.integers(1, 200))
def test_is_hkdf_of_the_documented_info(context: tuple[bytes, ...], length: int) -> None:
    info = b"sealcast/1" + length.to_bytes(2, "big") + b"".join(len(p).to_bytes(4, "big") + p for p in context)
    other = HKDFExpand(algorithm=SHA256(), length=length, info=info).derive(SECRET.reveal())
    assert kdf.derive(SECRET, *context, length=length).reveal() == other


@given(parts, parts)
def test_different_contexts_give_different_keys_and_tags(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> None:
    assert (kdf.derive(SECRET, *one) == kdf.derive(SECRET, *other)) == (one == other)
    assert (mac.tag(SECRET, *one) == mac.tag(SECRET, *other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"), [((b"ab", b"c"), (b"a", b"bc")), ((b"a",), (b"a", b"")), ((b"", b"a"), (b"a", b""))]
)
def test_plain_concatenation_would_run_these_together(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> None:
    """The attack that the injective encoding answers: it works on a MAC over joined parts and not on ours."""
    weak = hmac.digest(SECRET.reveal(), b"".join(one), "sha256")
    assert weak == hmac.digest(SECRET.reveal(), b"".join(other), "sha256")
    assert mac.tag(SECRET, *one) != mac.tag(SECRET, *other)
    assert kdf.derive(SECRET, *one) != kdf.derive(SECRET, *other)


def test_a_short_key_is_no_prefix_of_a_long_one() -> None:
    assert not kdf.derive(SECRET, b"x", length=64).reveal().startswith(kdf.derive(SECRET, b"x", length=32).reveal())


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(32, 100))
def test_many_at_once_are_the_same_keys_as_one_by_one(contexts: list[bytes], size: int) -> None:
    secret = Secret(hashlib.shake_256(b"seed").digest(size))
    assert kdf.derive_many(secret, contexts) == [kdf.derive(secret, c).reveal() for c in contexts]


def test_refuses_what_gives_weak_keys() -> None:
    with pytest.raises(Misuse, match="context"):
        kdf.derive(SECRET)
    with pytest.raises(Misuse, match="at least 32"):
        kdf.derive(Secret(bytes(31)), b"x")
    with pytest.raises(Misuse, match="at least 32"):
        kdf.derive_many(Secret(bytes(16)), [b"x"])
    for length in (0, -1, 255 * 32 + 1):
        with pytest.raises(Misuse):
            kdf.derive(SECRET, b"x", length=length)
    with pytest.raises(Misuse, match="bytes, not str"):
        kdf.derive(SECRET, "text")  # type: ignore[arg-type]
    with pytest.raises(Misuse):
        mac.tag(Secret(bytes(16)), b"x")


@given(parts, st.integers(0, 31), st.integers(1, 255))
def test_a_tag_verifies_whole_and_unaltered_only(message: tuple[bytes, ...], at: int, flip: int) -> None:
    tag = bytearray(mac.tag(SECRET, *message))
    assert mac.verify(SECRET, bytes(tag), *message)
    assert not mac.verify(SECRET, bytes(tag[:16]), *message)
    assert not mac.verify(SECRET, b"", *message)
    tag[at] ^= flip
    assert not mac.verify(SECRET, bytes(tag), *message)
