"""A filter post: what a subscriber or a broker sends up to its broker, filters under layers, signed by who sends them.

    post    = ["sealcast-post", 1, token (bytes), signed (bytes: COSE_Sign1), body (bytes)]
    token   : a subscriber's right to read; empty in what a broker passes on
    signed  : the header, by the sender; it names token and body by their SHA-256
    body    = [message, ...], message = [[[token, ...], ...], [name, ...], remove]        slots, path, add or end

A header is for one receiver and one tree, and numbered: a post that was copied to another broker, or comes again, does
nothing. Whoever carries posts sees who sends to whom, how many filters and how many tokens each has; tokens it cannot
read. A body may be empty: then the post brings a newer token, or takes everything back (`fresh`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final, NamedTuple, Protocol

from sealcast.errors import FrameRejected, Misuse
from sealcast.model.bounded import bounded
from sealcast.wire import cbor, cose, headers, limits
from sealcast.wire.frame import DIGEST_BYTES, TOPIC_BYTES, token_digest
from sealcast.wire.headers import HeaderFormat, is_name

MAGIC: Final = "sealcast-post"
VERSION: Final = 1
#: Separates what is signed here from frames and whatever else an entity's key signs.
SIGNATURE_CONTEXT: Final = b"sealcast/1 post"
#: Tokens are not shorter than a point of the smallest curve.
MIN_ELEMENT_BYTES: Final = 32

Slots = tuple[tuple[bytes, ...], ...]


class Filter(Protocol):
    """One conjunction on its way up; `protections.layered.messages.FilterMessage` is one."""

    @property
    def slots(self) -> Slots: ...
    @property
    def path(self) -> tuple[str, ...]: ...
    @property
    def remove(self) -> bool: ...


class PostedFilter(NamedTuple):
    """One as it was read: well formed, sorted, and nothing more is known yet."""

    slots: Slots
    path: tuple[str, ...]
    remove: bool


@dataclass(frozen=True, slots=True)
class PostHeader:
    """What the sender signs."""

    topic: Annotated[bytes, headers.byte_string(TOPIC_BYTES)]
    receiver: Annotated[str, headers.name]
    sender: Annotated[str, headers.name]
    #: The tree: whose events these filters are for, and under which keys.
    publisher: Annotated[str, headers.name]
    epoch: Annotated[int, headers.whole(0, limits.MAX_EPOCH)]
    generation: Annotated[int, headers.whole(0, limits.MAX_GENERATION)]
    #: Grows from post to post of one sender to one receiver in one tree.
    number: Annotated[int, headers.whole(0, limits.MAX_POST_NUMBER)]
    #: Whatever the sender asked for in this tree before has ended; what is in this post is all.
    fresh: Annotated[bool, headers.truth]
    #: SHA-256 of the body and of the token that come with it.
    body: Annotated[bytes, headers.byte_string(DIGEST_BYTES)]
    token: Annotated[bytes, headers.byte_string(DIGEST_BYTES)]


_HEADERS: Final = HeaderFormat(PostHeader, "a post's header", SIGNATURE_CONTEXT)


@dataclass(frozen=True, slots=True)
class SignedPost:
    """A post whose token and body are those that the header names. The signature is not verified yet, and the body has
    not been looked into: whoever does not know the sender yet spends nothing on it."""

    header: PostHeader
    body: bytes
    token: bytes
    signature: bytes
    to_be_signed: bytes

    def filters(self) -> tuple[PostedFilter, ...]:
        """What the body says; FrameRejected when it is none."""
        return _parse_body(self.body)


@dataclass(frozen=True, slots=True)
class Post:
    """A post, taken apart: well formed, its token and body those that the header names. The signature is not verified
    yet."""

    header: PostHeader
    filters: tuple[PostedFilter, ...]
    token: bytes
    signature: bytes
    to_be_signed: bytes


# --- making -------------------------------------------------------------------------------------


def encode_body(filters: Iterable[Filter]) -> bytes:
    """The filters of one post; Misuse when they are too many or too large for one."""
    body = cbor.encode([[f.slots, f.path, f.remove] for f in filters])
    try:
        _parse_body(body)
    except FrameRejected as error:
        raise Misuse(f"these filters make no post: {error.message}", hint="send them in several") from None
    return body


def digest(data: bytes) -> bytes:
    """How a header names a body."""
    return hashlib.sha256(data).digest()


def to_be_signed(header: PostHeader) -> bytes:
    """The bytes that the sender signs."""
    return _HEADERS.to_be_signed(header)


def encode(header: PostHeader, signature: bytes, body: bytes, token: bytes = b"") -> bytes:
    """The post, with the signature made over `to_be_signed(header)`."""
    if header.body != digest(body) or header.token != token_digest(token):
        raise Misuse("a post's header names its own body and token")
    data = cbor.encode([MAGIC, VERSION, token, cose.encode_sign1(_HEADERS.encode(header), signature), body])
    if len(data) > limits.MAX_POST_BYTES or len(token) > limits.MAX_TOKEN_BYTES:
        raise Misuse(
            f"a post has at most {limits.MAX_POST_BYTES} bytes, not {len(data)}", hint="send its filters in several"
        )
    return data


def batches(filters: Sequence[Filter]) -> list[list[Filter]]:
    """The filters in as few posts as they need, in their order; at least one, be it empty."""
    few = bounded(filters, _size, _BODY_BYTES, limits.MAX_POST_FILTERS)
    return [part for each in few for part in bounded(each, _tokens, limits.MAX_POST_TOKENS, len(each))] or [[]]


def _tokens(each: Filter) -> int:
    return sum(map(len, each.slots))


def _size(each: Filter) -> int:
    tokens = sum(len(token) + 3 for slot in each.slots for token in slot) + 3 * len(each.slots)
    return tokens + sum(len(name.encode()) + 2 for name in each.path) + 8


#: What is left for filters beside the largest header and token.
_BODY_BYTES: Final = limits.MAX_POST_BYTES - 8192


# --- reading ------------------------------------------------------------------------------------


def parse(data: bytes) -> Post:
    """Take a post apart; FrameRejected (`frame` or `version`) when it is not one."""
    signed = parse_signed(data)
    return Post(signed.header, signed.filters(), signed.token, signed.signature, signed.to_be_signed)


def parse_signed(data: bytes) -> SignedPost:
    """Take a post apart, all but its body; FrameRejected as `parse`."""
    outer = cbor.decode(data, max_bytes=limits.MAX_POST_BYTES, max_depth=1, max_items=8)
    match cbor.versioned(outer, MAGIC, VERSION, "a post"):
        case [bytes(token), bytes(signed), bytes(body)]:
            pass
        case _:
            raise cbor.refused("not a post")
    if len(token) > limits.MAX_TOKEN_BYTES:
        raise cbor.refused(f"a token has at most {limits.MAX_TOKEN_BYTES} bytes, not {len(token)}")
    about = _HEADERS.parse(signed)
    if about.header.token != token_digest(token):
        raise cbor.refused("the token is not the one that the sender signed for")
    if about.header.body != digest(body):
        raise cbor.refused("the body is not the one that the sender signed")
    return SignedPost(about.header, body, token, about.signature, about.to_be_signed)


def _parse_body(body: bytes) -> tuple[PostedFilter, ...]:
    # A slot has a token at least, and a token so many bytes: more items than that are no filters.
    tokens = min(limits.MAX_POST_TOKENS, len(body) // MIN_ELEMENT_BYTES)
    most = limits.MAX_POST_FILTERS * (limits.MAX_PATH_HOPS + 4) + 2 * tokens
    messages = cbor.decode(body, max_bytes=limits.MAX_POST_BYTES, max_depth=4, max_items=most)
    if not isinstance(messages, list) or len(messages) > limits.MAX_POST_FILTERS:
        raise cbor.refused(f"a post has at most {limits.MAX_POST_FILTERS} filters")
    found = tuple(map(_filter, messages))
    if sum(map(_tokens, found)) > limits.MAX_POST_TOKENS:
        raise cbor.refused(f"a post has at most {limits.MAX_POST_TOKENS} tokens")
    return found


def _filter(message: object) -> PostedFilter:
    match message:
        case [list(slots), list(path), bool(remove)]:
            pass
        case _:
            raise cbor.refused("a filter has slots, a path, and says whether it ends")
    if not 0 < len(path) <= limits.MAX_PATH_HOPS or not all(map(is_name, path)) or len(set(path)) != len(path):
        raise cbor.refused(f"a path has 1 to {limits.MAX_PATH_HOPS} names, none twice")
    if not 0 < len(slots) <= limits.MAX_FILTER_SLOTS:
        raise cbor.refused(f"a filter has 1 to {limits.MAX_FILTER_SLOTS} slots")
    found = tuple(_slot(slot) for slot in slots)
    if sum(map(len, found)) > limits.MAX_FILTER_TOKENS:
        raise cbor.refused(f"a filter has at most {limits.MAX_FILTER_TOKENS} tokens")
    # One order, which tells nothing: slots and tokens as they were asked for would tell what they are about.
    if any(a > b for a, b in pairwise(found)):
        raise cbor.refused("the slots of a filter are sorted")
    return PostedFilter(found, tuple(path), remove)


def _slot(slot: object) -> tuple[bytes, ...]:
    if not isinstance(slot, list) or not slot:
        raise cbor.refused("a slot has a token at least")
    for token in slot:
        if not isinstance(token, bytes) or not MIN_ELEMENT_BYTES <= len(token) <= limits.MAX_ELEMENT_BYTES:
            raise cbor.refused(f"a token has {MIN_ELEMENT_BYTES} to {limits.MAX_ELEMENT_BYTES} bytes")
    if any(a >= b for a, b in pairwise(slot)):
        raise cbor.refused("the tokens of a slot are sorted, none twice")
    return tuple(slot)
