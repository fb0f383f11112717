"""Filter posts: read to what was written, refused in everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FrameRejected, Misuse
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey, VerifyKey
from sealcast.protections.layered import messages
from sealcast.protections.layered.tree import MAX_LAYERS
from sealcast.wire import cbor, limits, posts
from sealcast.wire.posts import PostedFilter
from tests.effort import examples
from tests.vectors import make_posts as made

VECTORS = json.loads(made.FILE.read_text())
NAMED = {v.get("why") or v["good"]: v for v in VECTORS["vectors"]}

names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20)
elements = st.binary(min_size=33, max_size=33)
conjunctions = st.lists(st.lists(elements, min_size=1, max_size=4), min_size=1, max_size=4).map(messages.arranged)
filters = st.builds(
    PostedFilter, conjunctions, st.lists(names, min_size=1, max_size=16, unique=True).map(tuple), st.booleans()
)


def test_the_vectors_are_what_the_code_makes() -> None:
    assert made.FILE.read_text() == made.text(), "run `python -m tests.vectors.make_posts` and say why"


@pytest.mark.parametrize("name", NAMED)
def test_vectors(name: str) -> None:
    vector = NAMED[name]
    data, key = bytes.fromhex(vector["post"]), VerifyKey(bytes.fromhex(VECTORS["verify_key"]))
    if vector.get("reason") == "signature":
        post = posts.parse(data)
        assert not key.verify(post.to_be_signed, post.signature)
    elif "reason" in vector:
        with pytest.raises(FrameRejected) as caught:
            posts.parse(data)
        assert caught.value.reason == vector["reason"]
    else:
        post = posts.parse(data)
        assert key.verify(post.to_be_signed, post.signature)
        again = SigningKey(Secret(bytes.fromhex(VECTORS["seed"]))).sign(posts.to_be_signed(post.header))
        assert posts.encode(post.header, again, posts.encode_body(post.filters), post.token) == data


def test_items_that_are_no_tokens_are_refused_before_they_are_read() -> None:
    body = cbor.encode([[[[0] * 1_000_000], ["a"], False]])
    with pytest.raises(FrameRejected, match="a length beyond the end"):
        posts._parse_body(body)
    most = limits.MAX_FILTER_TOKENS
    slots = messages.arranged([[n.to_bytes(33, "big") for n in range(most)]])
    assert len(posts._parse_body(posts.encode_body([PostedFilter(slots, ("a",), False)]))) == 1


@given(st.lists(filters, max_size=5), st.booleans(), st.integers(0, limits.MAX_POST_NUMBER))
def test_what_is_written_is_read(wanted: list[PostedFilter], fresh: bool, number: int) -> None:
    post = posts.parse(made.post(tuple(wanted), fresh=fresh, number=number))
    assert post.filters == tuple(wanted)
    assert (post.header.fresh, post.header.number, post.token) == (fresh, number, made.TOKEN)


@examples(60, soak=300)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_byte_of_a_post_can_be_changed(at: int, flip: int) -> None:
    good = made.post()
    at %= len(good)
    bent = good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :]
    try:
        post = posts.parse(bent)
    except FrameRejected:
        return
    assert not made.signer().verify_key.verify(post.to_be_signed, post.signature)


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(FrameRejected):
        posts.parse(noise)


@given(st.integers(0, 2_500))
def test_many_filters_go_in_several_posts_in_their_order(count: int) -> None:
    one = made.GOOD[0]
    many = [one._replace(remove=bool(i % 2)) for i in range(count)]
    parts = posts.batches(many)
    assert [each for part in parts for each in part] == many
    assert all(len(part) <= limits.MAX_POST_FILTERS for part in parts)
    assert len(parts) == max(1, -(-count // limits.MAX_POST_FILTERS))


def test_large_filters_go_in_several_posts_too() -> None:
    wide = tuple(sorted(i.to_bytes(512, "big") for i in range(4_000)))
    many = [PostedFilter((wide,), ("alice",), False)] * 5
    parts = posts.batches(many)
    assert [len(part) for part in parts] == [2, 2, 1]
    assert all(len(made.post(tuple(part))) <= limits.MAX_POST_BYTES for part in parts)
    with pytest.raises(Misuse):
        made.post(tuple(many))


def test_limits_are_those_of_the_scheme() -> None:
    assert (limits.MAX_FILTER_SLOTS, limits.MAX_FILTER_TOKENS) == (messages.MAX_SLOTS, messages.MAX_TOKENS)
    assert limits.MAX_PATH_HOPS == MAX_LAYERS


@pytest.mark.parametrize("field", [{"number": -1}, {"sender": ""}, {"epoch": 2**32}, {"topic": b""}])
def test_headers_that_cannot_be_are_not_made(field: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        made.post(**field)
