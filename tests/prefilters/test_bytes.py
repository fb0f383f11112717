"""Filters as bytes: what is written reads the same; what was damaged, forged or is foreign is refused, with why."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse, NotFound
from sealcast.prefilters import FILTERS, Full, Prefilter, PrefilterReason, PrefilterRejected, from_bytes, sized
from sealcast.prefilters.port import MAX_ITEMS, Packed, pack
from tests.prefilters.oracle import keys


def filled(kind: str, items: int = 300, rate: float = 0.01, seed: int = 1) -> Prefilter:
    made = sized(kind, items, rate, seed)
    made.insert(keys(items, seed=2))
    return made


@pytest.mark.parametrize("kind", FILTERS)
@given(items=st.integers(1, 3_000), rate=st.floats(1e-8, 0.5), seed=st.integers(0, 2**64 - 1))
def test_what_is_written_reads_the_same(kind: str, items: int, rate: float, seed: int) -> None:
    written = sized(kind, items, rate, seed)
    members, asked = keys(items * 4 // 5, seed=3), keys(500, seed=4)
    written.insert(members)
    read = from_bytes(written.to_bytes())
    assert type(read) is type(written) and read.to_bytes() == written.to_bytes()
    assert read.may_contain(members).all()
    assert np.array_equal(read.may_contain(asked), written.may_contain(asked))
    assert (read.memory, read.false_positive_rate) == (written.memory, written.false_positive_rate)
    several = np.concatenate([members[:50], asked[:50], np.array([0, 2**63, 2**64 - 1], np.uint64)])
    assert [read.may_contain_one(key) for key in several.tolist()] == read.may_contain(several).tolist()
    read.insert(asked[: items // 10])  # it is whole: it takes more
    assert read.may_contain(asked[: items // 10]).all()


#: A filter that one machine wrote is asked by another one, perhaps with another version of a library.
VECTORS = {
    "none": "24d413ba14a742e42ef6b3bdbc8b01fc",
    "bloom": "f40ebb9e13329600b150eb3ff8ea3e42",
    "cuckoo": "a82c08db4f6ccb1a67d787c675e53b38",
}


@pytest.mark.parametrize("kind", FILTERS)
def test_the_bytes_stay_what_they_are(kind: str) -> None:
    made = sized(kind, 300, 0.01, seed=1)
    made.insert(np.arange(100, dtype=np.uint64) * np.uint64(0x0123456789ABCDEF))  # few: nothing is left to chance
    assert hashlib.sha256(made.to_bytes()).hexdigest()[:32] == VECTORS[kind]


# --- what is refused ------------------------------------------------------------------------------------

Damage = Callable[[bytes], bytes]
DAMAGE: dict[str, tuple[Damage, PrefilterReason]] = {
    "nothing": (lambda _: b"", PrefilterReason.LENGTH),
    "cut in the head": (lambda data: data[:20], PrefilterReason.LENGTH),
    "cut in the body": (lambda data: data[:-20], PrefilterReason.LENGTH),
    "one byte short": (lambda data: data[:-1], PrefilterReason.LENGTH),
    "one byte more": (lambda data: data + b"\0", PrefilterReason.LENGTH),
    "twice": (lambda data: data + data, PrefilterReason.LENGTH),
    "foreign": (lambda data: b"PK\3\4" + data[4:], PrefilterReason.MAGIC),
    "of the next version": (lambda data: data[:4] + b"\2\0" + data[6:], PrefilterReason.VERSION),
    "a bit of the table": (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], PrefilterReason.CHECKSUM),
    "another seed": (lambda data: data[:16] + bytes([data[16] ^ 1]) + data[17:], PrefilterReason.CHECKSUM),
    "another checksum": (lambda data: data[:-1] + bytes([data[-1] ^ 128]), PrefilterReason.CHECKSUM),
}


@pytest.mark.parametrize("kind", ["bloom", "cuckoo"])
@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_bytes_are_refused(kind: str, name: str) -> None:
    damage, reason = DAMAGE[name]
    with pytest.raises(PrefilterRejected) as refused:
        from_bytes(damage(filled(kind).to_bytes()))
    assert refused.value.reason is reason and refused.value.as_json()["reason"] == reason.value


@given(at=st.integers(0, 8 * 600), data=st.data())
def test_no_single_bit_changes_unseen(at: int, data: st.DataObject) -> None:
    whole = bytearray(filled(data.draw(st.sampled_from(list(FILTERS)))).to_bytes())
    at %= 8 * len(whole)
    whole[at // 8] ^= 1 << at % 8
    with pytest.raises(PrefilterRejected):
        from_bytes(bytes(whole))


FORGED: dict[str, tuple[Packed, PrefilterReason]] = {
    "an unknown kind": (Packed("xor", 0, (1, 1, 1), bytes(8)), PrefilterReason.KIND),
    "no kind": (Packed("", 0, (1, 1, 1), bytes(8)), PrefilterReason.KIND),
    "none with a body": (Packed("none", 0, (0, 0, 0), bytes(8)), PrefilterReason.SHAPE),
    "bloom without hash functions": (Packed("bloom", 0, (0, 10, 0), bytes(8)), PrefilterReason.SHAPE),
    "bloom with too many hash functions": (Packed("bloom", 0, (2**63, 10, 0), bytes(8)), PrefilterReason.SHAPE),
    "bloom for nothing": (Packed("bloom", 0, (3, 0, 0), bytes(8)), PrefilterReason.SHAPE),
    "bloom for too much": (Packed("bloom", 0, (3, MAX_ITEMS + 1, 0), bytes(8)), PrefilterReason.SHAPE),
    "bloom more than full": (Packed("bloom", 0, (3, 10, 11), bytes(8)), PrefilterReason.SHAPE),
    "bloom without a table": (Packed("bloom", 0, (3, 10, 0), b""), PrefilterReason.SHAPE),
    "bloom with half a word": (Packed("bloom", 0, (3, 10, 0), bytes(12)), PrefilterReason.SHAPE),
    "cuckoo without buckets": (Packed("cuckoo", 0, (0, 4, 16), b""), PrefilterReason.SHAPE),
    "cuckoo with too many buckets": (Packed("cuckoo", 0, (2**63, 4, 16), bytes(8)), PrefilterReason.SHAPE),
    "cuckoo with too wide buckets": (Packed("cuckoo", 0, (1, 2**62, 16), bytes(8)), PrefilterReason.SHAPE),
    "cuckoo with odd buckets": (Packed("cuckoo", 0, (1, 5, 16), bytes(8)), PrefilterReason.SHAPE),
    "cuckoo with wide fingerprints": (Packed("cuckoo", 0, (1, 1, 2**40), bytes(8)), PrefilterReason.SHAPE),
    "cuckoo with another table": (Packed("cuckoo", 0, (3, 4, 16), bytes(16)), PrefilterReason.SHAPE),
    "cuckoo with bits between entries": (Packed("cuckoo", 0, (1, 5, 12), b"\xff" * 8), PrefilterReason.SHAPE),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_sizes_are_refused_though_the_checksum_is_right(name: str) -> None:
    parts, reason = FORGED[name]
    with pytest.raises(PrefilterRejected) as refused:
        from_bytes(pack(parts))
    assert refused.value.reason is reason


@pytest.mark.parametrize(
    ("items", "rate"), [(0, 0.1), (-1, 0.1), (MAX_ITEMS + 1, 0.1), (10, 0.0), (10, 1.0), (10, 2.0)]
)
@pytest.mark.parametrize("kind", ["bloom", "cuckoo"])
def test_sizes_that_make_no_sense_are_refused(kind: str, items: int, rate: float) -> None:
    with pytest.raises(Misuse):
        sized(kind, items, rate)


@pytest.mark.parametrize("kind", ["bloom", "cuckoo"])
def test_a_rate_that_cannot_be_reached_is_refused(kind: str) -> None:
    with pytest.raises(Misuse, match="rate"):
        sized(kind, 10, 1e-12)
    with pytest.raises(Misuse, match="bytes"):
        sized(kind, MAX_ITEMS, 1e-8)


def test_an_unknown_kind_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(NotFound, match="did you mean 'cuckoo'"):
        sized("cuckou", 10, 0.1)


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize("key", [-1, 2**64])
def test_a_number_that_is_not_a_key_is_refused(kind: str, key: int) -> None:
    with pytest.raises(Misuse, match="64 bits"):
        filled(kind).may_contain_one(key)


# --- Bloom ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.1, 0.03, 0.01, 0.001])
def test_a_bloom_filter_has_the_rate_of_theory(rate: float) -> None:
    bloom, queries = sized("bloom", 50_021, rate, seed=5), 1_000_000
    members = keys(50_021, seed=6)
    bloom.insert(members)
    measured, theory = bloom.may_contain(keys(queries, seed=7)).mean(), bloom.false_positive_rate
    assert bloom.may_contain(members).all()
    assert abs(measured - theory) <= 3 * np.sqrt(theory * (1 - theory) / queries)
    assert measured <= rate + 3 * np.sqrt(rate * (1 - rate) / queries)
    assert bloom.memory * 8 <= -50_021 * np.log(rate) / np.log(2) ** 2 * 1.005 + 64  # hardly more than the least


def test_a_bloom_filter_refuses_to_delete_and_to_overflow() -> None:
    bloom = filled("bloom")
    before = bloom.to_bytes()
    with pytest.raises(Misuse, match="a bloom filter cannot delete keys"):
        bloom.delete(keys(1, seed=2))
    with pytest.raises(Full, match="made for 300 keys"):
        bloom.insert(keys(1, seed=8))
    assert bloom.to_bytes() == before
