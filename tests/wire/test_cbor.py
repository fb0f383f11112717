"""CBOR: RFC 8949's own examples, a second implementation, and every spelling but the one."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FrameRejected, Misuse
from sealcast.wire import cbor
from sealcast.wire.cbor import TaggedValue
from tests.effort import examples

# Of RFC 8949, appendix A: value and encoding, as far as our subset goes.
EXAMPLES: list[tuple[object, str]] = [
    (0, "00"),
    (23, "17"),
    (24, "1818"),
    (255, "18ff"),
    (256, "190100"),
    (1000, "1903e8"),
    (1000000, "1a000f4240"),
    (1000000000000, "1b000000e8d4a51000"),
    (2**64 - 1, "1bffffffffffffffff"),
    (-1, "20"),
    (-100, "3863"),
    (-1000, "3903e7"),
    (-(2**64), "3bffffffffffffffff"),
    (False, "f4"),
    (True, "f5"),
    (None, "f6"),
    (b"", "40"),
    (b"\x01\x02\x03\x04", "4401020304"),
    ("", "60"),
    ("IETF", "6449455446"),
    ("\u6c34", "63e6b0b4"),
    ([], "80"),
    ([1, [2, 3], [4, 5]], "8301820203820405"),
    ({}, "a0"),
    ({1: 2, 3: 4}, "a201020304"),
    ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
    (TaggedValue(23, b"\x01\x02\x03\x04"), "d74401020304"),
]

MUST_FAIL = {
    "empty": ("", "truncated"),
    "a long zero": ("1800", "shortest"),
    "23 in two bytes": ("1817", "shortest"),
    "255 in three bytes": ("1900ff", "shortest"),
    "65535 in five bytes": ("1a0000ffff", "shortest"),
    "2**32 - 1 in nine bytes": ("1b00000000ffffffff", "shortest"),
    "a long length": ("580161", "shortest"),
    "reserved 28": ("1c", "reserved"),
    "an indefinite byte string": ("5f4101ff", "indefinite"),
    "an indefinite array": ("9f01ff", "indefinite"),
    "an indefinite map": ("bf0101ff", "indefinite"),
    "break alone": ("ff", "floats and simple"),
    "a half float": ("f93c00", "floats"),
    "a double": ("fb3ff199999999999a", "floats"),
    "undefined": ("f7", "simple"),
    "simple in two bytes": ("f818", "simple"),
    "keys out of order": ("a203040102", "out of order"),
    "a key twice": ("a201020103", "twice"),
    "shortest key first (RFC 7049)": ("a220001818 00".replace(" ", ""), "out of order"),
    "a byte string as key": ("a1410100", "keys are"),
    "an array as key": ("a18000", "deep"),
    "true as key": ("a1f500", "keys are"),
    "bad UTF-8": ("62c328", "UTF-8"),
    "a lone surrogate": ("63eda080", "UTF-8"),
    "bytes behind the end": ("0000", "follow"),
    "a truncated integer": ("19ff", "truncated"),
    "a truncated string": ("44010203", "truncated"),
    "an array that claims the world": ("9bffffffffffffffff", "beyond the end"),
    "a map that claims the world": ("bbffffffffffffffff", "beyond the end"),
    "a string that claims the world": ("5bffffffffffffffff", "truncated"),
    "an array of four billion": ("9affffffff", "beyond the end"),
    "a tag nobody allowed": ("c000", "tag 0"),
    "a bignum": ("c24101", "tag 2"),
    "nested too deep": ("81" * 9 + "00", "deep"),
    "very deep": ("81" * 100_000 + "00", "deep"),
}

leaves = st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.binary(max_size=30) | st.text(max_size=30)
keys = st.integers(-(2**64), 2**64 - 1) | st.text(max_size=30)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
).filter(lambda v: depth(v) <= 8)


def depth(value: object) -> int:
    match value:
        case list():
            return 1 + max(map(depth, value), default=0)
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case _:
            return 0


@pytest.mark.parametrize(("value", "encoded"), EXAMPLES, ids=[e for _, e in EXAMPLES])
def test_the_examples_of_the_rfc(value: object, encoded: str) -> None:
    assert cbor.encode(value).hex() == encoded
    assert cbor.decode(bytes.fromhex(encoded), tags=frozenset({23})) == value


@given(values)
def test_a_second_implementation_reads_what_we_write(value: object) -> None:
    encoded = cbor.encode(value)
    assert cbor2.loads(encoded) == value
    assert cbor.decode(encoded) == value
    assert cbor.encode(cbor.decode(encoded)) == encoded


@given(st.binary(max_size=60))
@examples(60, soak=300)
def test_whatever_is_read_is_written_the_same_and_the_rest_is_refused(data: bytes) -> None:
    try:
        value = cbor.decode(data, tags=frozenset(range(32)))
    except FrameRejected as error:
        assert error.reason == "frame"
    else:
        assert cbor.encode(value) == data


@given(values, st.data())
def test_one_altered_byte_is_refused_or_another_value(value: object, data: st.DataObject) -> None:
    encoded = bytearray(cbor.encode(value))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    with suppress(FrameRejected):
        assert cbor.encode(cbor.decode(bytes(encoded))) == encoded


@pytest.mark.parametrize("name", MUST_FAIL)
def test_every_other_spelling_is_refused(name: str) -> None:
    encoded, why = MUST_FAIL[name]
    with pytest.raises(FrameRejected, match=why) as caught:
        cbor.decode(bytes.fromhex(encoded))
    assert caught.value.reason == "frame"


@pytest.mark.parametrize(
    "name", ["a long zero", "a half float", "keys out of order", "an indefinite array", "a bignum"]
)
def test_a_general_decoder_takes_them(name: str) -> None:
    """Why the strictness: these have a meaning elsewhere, so two readers of one signed thing could disagree."""
    cbor2.loads(bytes.fromhex(MUST_FAIL[name][0]))


def test_keys_are_sorted_as_bytes() -> None:
    # RFC 7049's canonical order would put -1 (one byte) before 24 (two bytes).
    assert cbor.encode({-1: 0, 24: 0, 0: 0, "a": 0}).hex() == "a4000018180020006161" + "00"


def test_limits() -> None:
    with pytest.raises(FrameRejected, match="are allowed"):
        cbor.decode(bytes(11), max_bytes=10)
    with pytest.raises(FrameRejected, match="beyond the end|too many"):
        cbor.decode(cbor.encode([0] * 10), max_items=10)
    assert cbor.decode(cbor.encode([0] * 10), max_items=11) == [0] * 10
    nested: object = 0
    for _ in range(8):
        nested = [nested]
    assert cbor.decode(cbor.encode(nested)) == nested
    with pytest.raises(Misuse, match="deep"):
        cbor.encode([nested])
    with pytest.raises(FrameRejected, match="deep"):
        cbor.decode(bytes.fromhex("d7" * 9 + "00"), tags=frozenset({23}))


def test_views_share_the_input() -> None:
    data = cbor.encode([b"abc", "t"])
    view, text = cbor.decode(memoryview(data), views=True)
    assert isinstance(view, memoryview)
    assert view.obj is data
    assert (bytes(view), text) == (b"abc", "t")


@pytest.mark.parametrize(
    "value", [1.5, object(), {1, 2}, 2**64, -(2**64) - 1, bytearray(b"x"), [1.0], {b"k": 1}, {True: 1}, "\ud800"]
)
def test_what_has_no_place_is_not_written(value: object) -> None:
    with pytest.raises(Misuse):
        cbor.encode(value)


@pytest.mark.parametrize("version", [2, 65_535])
def test_another_release_is_told_by_its_version(version: int) -> None:
    with pytest.raises(FrameRejected, match=f"of version {version}; this release reads version 1") as caught:
        cbor.versioned(["SC", version, b""], "SC", 1, "a thing")
    assert caught.value.reason == "version"


@pytest.mark.parametrize("version", [True, -1, 65_536, 1 << 60, "1" * 1_000_000, b"\0" * 1_000_000, [[]] * 9, None])
def test_what_is_no_version_is_not_quoted(version: object) -> None:
    with pytest.raises(FrameRejected, match="its version is no number") as caught:
        cbor.versioned(["SC", version, b""], "SC", 1, "a thing")
    assert len(caught.value.message) < 100


def test_everyone_who_reads_says_how_many_items_there_may_be() -> None:
    """Items cost more than bytes do. A reader that does not say how many it wants reads as many as a stranger sends."""
    found = 0
    for path in (Path(__file__).parents[2] / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "cbor.decode":
                found += 1
                assert "max_items" in {keyword.arg for keyword in node.keywords}, f"{path}:{node.lineno}"
    assert found > 20
