"""Sealing: against GCM by the book, against the attacks that bare GCM falls to, and nonces that never repeat."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Bug, CannotOpen, Misuse
from sealcast.model.event import Position
from sealcast.primitives import aead
from sealcast.primitives.aead import COMMITMENT_BYTES, KeyRing, SealingKey
from sealcast.primitives.secrets import KEY_BYTES, Secret
from tests.primitives import gcm_by_the_book as book

SECRET = Secret(bytes(range(32)))
NONCE = aead.nonce(Position(1, 2, 3))

# McGrew and Viega's GCM specification, test cases 13 and 14: AES-256, key and nonce of zeros.
PUBLISHED = [
    (b"", "530f8afbc74536b9a963b4f1c4cb738b"),
    (bytes(16), "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"),
]

positions = st.builds(
    Position,
    st.integers(0, aead.MAX_PARTITION),
    st.integers(0, aead.MAX_OFFSET),
    st.integers(0, aead.MAX_ROW),
)


def expanded(secret: bytes, aad: bytes, bits: int = 256) -> bytes:
    label = b"sealcast/1 aead" + (b"" if bits == 256 else f" {bits}".encode())
    info = label + len(aad).to_bytes(4, "big") + aad
    return HKDFExpand(algorithm=SHA512(), length=64, info=info).derive(secret)


# --- is what it says ----------------------------------------------------------------------------


@pytest.mark.parametrize(("plaintext", "sealed"), PUBLISHED)
def test_published_vectors(plaintext: bytes, sealed: str) -> None:
    assert AESGCM(bytes(32)).encrypt(bytes(12), plaintext, None).hex() == sealed
    assert book.seal(bytes(32), bytes(12), plaintext).hex() == sealed


sizes = st.sampled_from(aead.KEY_BITS)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=60), st.binary(max_size=50), positions, sizes)
@settings(max_examples=30)
def test_is_gcm_by_the_book_under_the_expanded_key(
    secret: bytes, aad: bytes, plaintext: bytes, at: Position, bits: int
) -> None:
    key = SealingKey(Secret(secret), aad, bits)
    nonce = aead.nonce(at)
    both = expanded(secret, aad, bits)
    aes = both[: bits // 8]
    assert key.commitment == both[32:]
    assert key.seal(nonce, plaintext) == book.seal(aes, nonce, plaintext)
    assert key.seal(nonce, plaintext, b"more") == book.seal(aes, nonce, plaintext, b"more")


def test_a_key_of_one_size_opens_nothing_of_another() -> None:
    keys = [SealingKey(SECRET, b"topic", bits) for bits in aead.KEY_BITS]
    assert len({key.commitment for key in keys}) == 3
    for sealer in keys:
        sealed = sealer.seal(NONCE, b"event")
        for opener in keys:
            if opener is sealer:
                assert opener.open(NONCE, sealer.commitment, sealed) == b"event"
                continue
            with pytest.raises(CannotOpen, match="another key"):
                opener.open(NONCE, sealer.commitment, sealed)
            with pytest.raises(CannotOpen):
                opener.open(NONCE, opener.commitment, sealed)
    for bits in (0, 64, 255, 512):
        with pytest.raises(Misuse, match=f"not {bits}"):
            SealingKey(SECRET, b"", bits)


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(0, 2**20), sizes)
def test_many_at_once_are_the_same_as_one_by_one(plaintexts: list[bytes], first: int, bits: int) -> None:
    key, count = SealingKey(SECRET, b"topic", bits), len(plaintexts)
    nonces = aead.nonces(5, first + np.arange(count), np.arange(count))
    each = [nonces[12 * i : 12 * i + 12] for i in range(count)]
    sealed = key.seal_many(nonces, plaintexts)
    assert sealed == [key.seal(n, p) for n, p in zip(each, plaintexts, strict=True)]
    assert [key.open(n, key.commitment, s) for n, s in zip(each, sealed, strict=True)] == plaintexts

    keys = [hashlib.sha256(bytes([i])).digest() for i in range(count)]
    alone = [SealingKey(Secret(k), b"topic", bits) for k in keys]
    commitments, own = aead.seal_each(keys, b"topic", nonces, plaintexts, bits)
    assert own == [k.seal(n, p) for k, n, p in zip(alone, each, plaintexts, strict=True)]
    assert commitments == b"".join(k.commitment for k in alone)
    assert KeyRing(alone).seal_under(range(count), NONCE, b"x") == [k.seal(NONCE, b"x") for k in alone]


def test_a_key_wraps_a_key() -> None:
    outer, inner = SealingKey(SECRET, b""), Secret.random()
    wrapped = outer.wrap(NONCE, inner)
    assert len(wrapped) == aead.WRAPPED_BYTES
    assert outer.unwrap(NONCE, wrapped) == inner
    for broken in (wrapped[:-1], wrapped + b"\0", bytes(48), b""):
        with pytest.raises(CannotOpen):
            outer.unwrap(NONCE, broken)
    with pytest.raises(Misuse):
        outer.wrap(NONCE, Secret(bytes(16)))


# --- opens for whom it should -------------------------------------------------------------------


def test_opens_under_its_key_nonce_commitment_and_data_only() -> None:
    key = SealingKey(SECRET, b"topic, epoch 1")
    sealed = key.seal(NONCE, b"event", b"header")
    assert key.open(NONCE, key.commitment, sealed, b"header") == b"event"
    other, later = SealingKey(Secret.random(), b"topic, epoch 1"), SealingKey(SECRET, b"topic, epoch 2")
    for opener, nonce, commitment, aad in [
        (other, NONCE, key.commitment, b"header"),
        (other, NONCE, other.commitment, b"header"),
        (later, NONCE, key.commitment, b"header"),
        (later, NONCE, later.commitment, b"header"),
        (key, aead.nonce(Position(1, 2, 4)), key.commitment, b"header"),
        (key, NONCE, other.commitment, b"header"),
        (key, NONCE, b"", b"header"),
        (key, NONCE, key.commitment, b"another"),
        (key, NONCE, key.commitment, None),
    ]:
        with pytest.raises(CannotOpen):
            opener.open(nonce, commitment, sealed, aad)


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    key = SealingKey(SECRET, b"")
    sealed = key.seal(NONCE, b"an event of some length")
    for at in range(len(sealed)):
        for flip in (1, 0x80):
            altered = bytearray(sealed)
            altered[at] ^= flip
            with pytest.raises(CannotOpen):
                key.open(NONCE, key.commitment, bytes(altered))
        with pytest.raises(CannotOpen):
            key.open(NONCE, key.commitment, sealed[:at])
    for at in range(32):
        altered = bytearray(key.commitment)
        altered[at] ^= 1
        with pytest.raises(CannotOpen):
            key.open(NONCE, bytes(altered), sealed)


def test_one_that_does_not_open_fails_the_batch() -> None:
    key = SealingKey(SECRET, b"")
    nonces = aead.nonces(0, [1, 2], [0, 0])
    wrapped = key.seal_many(nonces, [bytes(32), bytes([1] * 32)])
    assert key.unwrap_many(nonces, wrapped) == [bytes(32), bytes([1] * 32)]
    with pytest.raises(CannotOpen):
        key.unwrap_many(nonces, wrapped[::-1])


# --- the attack that the commitment answers -----------------------------------------------------


def test_bare_gcm_opens_under_two_keys_and_ours_does_not() -> None:
    """One ciphertext, two keys, two events: a malicious publisher shows one to the broker and one to a subscriber."""
    alice, bob = SealingKey(Secret(b"a" * 32), b"topic"), SealingKey(Secret(b"b" * 32), b"topic")
    key_a, key_b = (expanded(bytes([c]) * 32, b"topic")[:32] for c in b"ab")
    forged = book.opens_under_both(key_a, key_b, NONCE, b"chosen by me 16B")

    # Bare AES-GCM is fooled: both keys accept, and see different things.
    seen_a, seen_b = (AESGCM(key).decrypt(NONCE, forged, None) for key in (key_a, key_b))
    assert seen_a != seen_b
    with pytest.raises(InvalidTag):
        AESGCM(bytes(32)).decrypt(NONCE, forged, None)

    # Ours: one commitment travels with it, and whichever key it is, the other refuses.
    assert alice.open(NONCE, alice.commitment, forged) == seen_a
    with pytest.raises(CannotOpen, match="another key"):
        bob.open(NONCE, alice.commitment, forged)
    with pytest.raises(CannotOpen, match="another key"):
        alice.open(NONCE, bob.commitment, forged)


# --- nonces -------------------------------------------------------------------------------------


@given(positions, positions, st.integers(0, aead.MAX_SLOT), st.integers(0, aead.MAX_SLOT))
def test_nonces_are_equal_only_for_equal_positions_and_slots(one: Position, two: Position, s: int, t: int) -> None:
    assert (aead.nonce(one, s) == aead.nonce(two, t)) == ((one, s) == (two, t))


@given(
    st.integers(0, aead.MAX_PARTITION),
    st.lists(
        st.tuples(st.integers(0, aead.MAX_OFFSET), st.integers(0, aead.MAX_ROW), st.integers(0, 255)), max_size=20
    ),
)
def test_many_nonces_are_the_same_as_one_by_one(partition: int, places: list[tuple[int, int, int]]) -> None:
    offsets, rows, slots = (np.array(c, dtype=np.int64) for c in zip(*places, strict=True)) if places else ([], [], 0)
    expected = b"".join(aead.nonce(Position(partition, o, r), s) for o, r, s in places)
    assert aead.nonces(partition, offsets, rows, slots) == expected
    if places:
        slot = places[0][2]
        expected = b"".join(aead.nonce(Position(partition, o, r), slot) for o, r, _ in places)
        assert aead.nonces(partition, offsets, rows, slot) == expected


def test_the_layout_is_the_documented_one() -> None:
    assert aead.nonce(Position(0x01020304, 0x0506070809, 0x0A0B), 0x0C) == bytes(range(1, 13))


@pytest.mark.parametrize(
    ("partition", "offset", "row", "slot"),
    [(-1, 0, 0, 0), (2**32, 0, 0, 0), (0, -1, 0, 0), (0, 2**40, 0, 0), (0, 0, -1, 0), (0, 0, 2**16, 0), (0, 0, 0, 256)],
)
def test_positions_that_would_wrap_around_are_refused(partition: int, offset: int, row: int, slot: int) -> None:
    with pytest.raises(Misuse, match="does not fit a nonce"):
        aead.nonce(Position(partition, offset, row), slot)
    with pytest.raises(Misuse, match="does not fit a nonce"):
        aead.nonces(partition, [0, offset], [0, row], slot)


def test_what_a_repeated_nonce_would_give_away() -> None:
    """Why positions: under one nonce the difference of two ciphertexts is the difference of the plaintexts."""
    key = SealingKey(SECRET, b"")
    one, two = b"buy  100", b"sell 100"
    difference = bytes(a ^ b for a, b in zip(one, two, strict=True))
    same = [key.seal(NONCE, p)[:8] for p in (one, two)]
    assert bytes(a ^ b for a, b in zip(*same, strict=True)) == difference
    apart = [key.seal(aead.nonce(Position(1, 2, row)), p)[:8] for row, p in enumerate((one, two))]
    assert bytes(a ^ b for a, b in zip(*apart, strict=True)) != difference


# --- misuse -------------------------------------------------------------------------------------


def test_calls_that_make_no_sense_do_nothing() -> None:
    key = SealingKey(SECRET, b"")
    with pytest.raises(Misuse):
        SealingKey(Secret(bytes(16)), b"")
    for nonce in (b"", bytes(11), bytes(13)):
        with pytest.raises(Misuse):
            key.seal(nonce, b"x")
        with pytest.raises(Misuse):
            key.open(nonce, key.commitment, bytes(20))
    with pytest.raises(Misuse):
        key.seal_many(bytes(12), [b"a", b"b"])
    with pytest.raises(Misuse):
        aead.seal_each([bytes(32)], b"", bytes(24), [b"a", b"b"])
    with pytest.raises(Misuse):
        aead.nonces(0, [1, 2], [0])


def test_a_key_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aead, "MAX_SEALS_PER_KEY", 3)
    key = SealingKey(SECRET, b"")
    key.seal_many(aead.nonces(0, [0, 1], [0, 0]), [b"", b""])
    key.seal(aead.nonce(Position(0, 2, 0)), b"")
    with pytest.raises(Bug, match="new epoch"):
        key.seal(aead.nonce(Position(0, 3, 0)), b"")
    with pytest.raises(Bug, match="new epoch"):
        KeyRing([key]).account([1])


@given(st.lists(st.sampled_from(["good", "ciphertext", "nonce", "commitment", "key"]), max_size=6))
def test_many_are_opened_as_each_is(kinds: list[str]) -> None:
    """Under one key, and each under its own: one that was altered costs itself alone."""
    keys = [bytes([number]) * KEY_BYTES for number in range(len(kinds))]
    places = aead.nonces(0, list(range(len(kinds))), [0] * len(kinds))
    nonces = [places[at : at + aead.NONCE_BYTES] for at in range(0, len(places), aead.NONCE_BYTES)]
    plaintexts = [b"event %d" % number for number in range(len(kinds))]
    one = SealingKey(Secret(bytes(KEY_BYTES)), b"aad")
    joined, own = aead.seal_each(keys, b"aad", places, plaintexts)
    split = [joined[at : at + COMMITMENT_BYTES] for at in range(0, len(joined), COMMITMENT_BYTES)]
    for sealed, commitments in ((one.seal_many(places, plaintexts), [one.commitment] * len(kinds)), (own, split)):
        altered = [(key, *each) for key, *each in zip(keys, nonces, commitments, sealed, strict=True)]
        for at, kind in enumerate(kinds):
            key, nonce, commitment, ciphertext = altered[at]
            altered[at] = (
                bytes(KEY_BYTES) if kind == "key" and sealed is own else key,
                bytes(11) + b"\1" if kind == "nonce" else nonce,
                bytes(COMMITMENT_BYTES) if kind in ("commitment", "key") else commitment,
                ciphertext[:-1] + bytes([ciphertext[-1] ^ (kind == "ciphertext")]),
            )
        expected = [plain if kind == "good" else None for kind, plain in zip(kinds, plaintexts, strict=True)]
        given_keys, *columns = ([*column] for column in zip(*altered, strict=True)) if altered else ([], [], [], [])
        if sealed is own:
            assert aead.open_each(given_keys, b"aad", *columns) == expected
        else:
            assert one.open_many(*columns) == expected
