"""Statements of what a broker took: read to what was written, refused in everything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FrameRejected, Misuse
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.wire import cbor, cose, posts, taken
from sealcast.wire.taken import TakenHeader
from tests.effort import examples

KEY = SigningKey(Secret(bytes(range(32))))
HEADER = TakenHeader(bytes(16), "above", "below", 7, bytes(range(32)))
names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20)
stated = st.builds(
    TakenHeader, st.binary(min_size=16, max_size=16), names, names, st.integers(1, 2**63 - 1), st.just(HEADER.tag)
)


def made(header: TakenHeader) -> bytes:
    return taken.encode(header, KEY.sign(taken.to_be_signed(header)))


@examples(20, soak=500)
@given(stated)
def test_it_says_what_was_stated(header: TakenHeader) -> None:
    data = made(header)
    said = taken.parse(data)
    assert taken.is_statement(data) and said.header == header
    assert KEY.verify_key.verify(said.to_be_signed, said.signature)
    assert taken.encode(said.header, said.signature) == data


def test_its_bytes() -> None:
    assert made(HEADER)[:17].hex() == "836e" + b"sealcast-taken".hex() + "01"
    assert taken.to_be_signed(HEADER).count(b"sealcast/1 taken") == 1


def test_neither_is_taken_for_the_other() -> None:
    header = posts.PostHeader(bytes(16), "b", "a", "p", 1, 1, 7, False, posts.digest(b"\x80"), bytes(32))
    post = posts.encode(header, KEY.sign(posts.to_be_signed(header)), b"\x80")
    assert not taken.is_statement(post)
    with pytest.raises(FrameRejected):
        taken.parse(post)
    with pytest.raises(FrameRejected):
        posts.parse(made(HEADER))


@pytest.mark.parametrize(
    "data",
    [
        cbor.encode(["sealcast-taken", 2, b""]),
        cbor.encode(["sealcast-taken", 1, b"", b""]),
        cbor.encode(["sealcast-taken", 1, "text"]),
        cbor.encode(["sealcast-taken", 1, cose.encode_sign1(cbor.encode({1: bytes(16)}), bytes(64))]),
        made(HEADER) + b"\0",
        made(HEADER)[:-1],
        bytes(5_000),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(FrameRejected):
        taken.parse(data)


@pytest.mark.parametrize("change", [{"records": 0}, {"records": -1}, {"tag": b"short"}, {"sender": ""}])
def test_what_cannot_be_stated_is_not_made(change: dict[str, object]) -> None:
    fields = {name: getattr(HEADER, name) for name in ("topic", "receiver", "sender", "records", "tag")}
    with pytest.raises(Misuse):
        made(TakenHeader(**{**fields, **change}))
