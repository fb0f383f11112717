"""The frame: one publisher's batch of events, signed once and sealed to the broker. What a topic's log holds.

    frame   = ["sealcast-frame", 2, token (bytes), signed (bytes: COSE_Sign1), sealed (bytes: COSE_Encrypt0)]
    token   : the key center's word that the publisher may; the header names it by its SHA-256
    signed  : the header, by the publisher; its root commits to every message
    sealed  : the body, all messages, to the broker; associated data is `signed`, byte for byte

Making one (the keys live in schemes/):           Reading one:
    header = Header(..., root=...)                    frame = parse(data)                 no keys needed
    signature over to_be_signed(header)               verify frame.signature over frame.to_be_signed
    signed = encode_signed(header, signature)         open frame.ciphertext under frame.commitment, frame.nonce,
    seal encode_body(messages), nonce body_nonce(     associated data frame.body_aad
      header), associated data body_aad(signed, c)    messages = decode_body(body, frame.header.count)
    encode(signed, commitment, ciphertext, token=...) recompute the root over them

Brokers read thousands at a time: `wire.frames` takes a whole batch apart at once, and is held to `parse` by its tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Annotated, Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import FrameRejected, Misuse
from sealcast.model.dataclass import dataclass
from sealcast.primitives.aead import DEFAULT_KEY_BITS, NONCE_BYTES
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.wire import cbor, cose, headers, limits, traceparent
from sealcast.wire.headers import HeaderFormat, SignedHeader

MAGIC: Final = "sealcast-frame"
VERSION: Final = 2
#: Separates what is signed here from whatever else an entity's key may come to sign.
SIGNATURE_CONTEXT: Final = b"sealcast/1 frame"
TOPIC_BYTES: Final = 16
BOOT_BYTES: Final = 16
DIGEST_BYTES: Final = 32
#: What a header names when there is no token. Topics with a key center admit no such frame.
NO_TOKEN: Final = bytes(DIGEST_BYTES)
#: RFC 8746: an array of unsigned 32-bit integers, little-endian.
TAG_UINT32_LE: Final = 70

#: A body is an array of two, its first item tagged.
_BODY: Final = bytes([0x82, 0xD8, TAG_UINT32_LE])
_ONE: Final = _BODY + b"\x44"
#: Of three with a predicate over readers behind the messages; of four with the context of a trace behind that.
_WITH_READERS: Final = b"\x83"
_WITH_TRACE: Final = b"\x84"
#: How a body begins that has more than messages; `bare_body` takes the rest off.
WITH_MORE: Final = frozenset({_WITH_READERS, _WITH_TRACE})
_MAGIC_BYTES: Final = cbor.encode(MAGIC)
_SMALLER: Final = "publish in smaller batches"


@dataclass(frozen=True, slots=True)
class Header:
    """What the publisher signs. It says which events (root), whose, for which topic and epoch, and in which order."""

    topic: Annotated[bytes, headers.byte_string(TOPIC_BYTES)]
    publisher: Annotated[str, headers.name]
    #: Fresh random bytes for each start of the publisher: sequence numbers begin anew with it.
    boot: Annotated[bytes, headers.byte_string(BOOT_BYTES)]
    #: Of the first event; the others follow one by one. Never given twice under one boot, even when an append failed.
    sequence: Annotated[int, headers.whole(0, limits.MAX_SEQUENCE)]
    count: Annotated[int, headers.whole(1, limits.MAX_EVENTS_PER_FRAME)]
    #: Microseconds since 1970.
    time: Annotated[int, headers.whole(0, limits.MAX_TIME_MICROS)]
    schema: Annotated[bytes, headers.byte_string(DIGEST_BYTES)]
    epoch: Annotated[int, headers.whole(0, limits.MAX_EPOCH)]
    root: Annotated[bytes, headers.byte_string(HASH_BYTES)]
    #: SHA-256 of the token that comes with it: the signature is made for this token and no other.
    token: Annotated[bytes, headers.byte_string(DIGEST_BYTES)] = NO_TOKEN


_HEADERS: Final = HeaderFormat(Header, "a header", SIGNATURE_CONTEXT)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame, taken apart: well formed, and nothing more is known yet."""

    header: Header
    #: As it came: whether it is the one that the header names is for `token_digest` to say.
    token: bytes
    signature: bytes
    to_be_signed: bytes
    #: The COSE_Sign1, byte for byte.
    signed: bytes
    #: The COSE_Encrypt0, byte for byte.
    sealed: bytes
    commitment: bytes
    nonce: bytes
    ciphertext: bytes
    body_aad: bytes
    #: The key size it says it was sealed with.
    key_bits: int


def token_digest(token: bytes) -> bytes:
    """How a header names a token, or that there is none."""
    return hashlib.sha256(token).digest() if token else NO_TOKEN


# --- making -------------------------------------------------------------------------------------


def to_be_signed(header: Header) -> bytes:
    """The bytes that the publisher signs."""
    return _HEADERS.to_be_signed(header)


def encode_signed(header: Header, signature: bytes) -> bytes:
    """The COSE_Sign1 of a header, with the signature made over `to_be_signed(header)`."""
    return cose.encode_sign1(_HEADERS.encode(header), signature)


def body_nonce(header: Header) -> bytes:
    """The nonce of a frame's body: its first sequence number, big-endian, unique under the key of one boot."""
    return header.sequence.to_bytes(NONCE_BYTES, "big")


def body_aad(signed: bytes, commitment: bytes, key_bits: int = DEFAULT_KEY_BITS) -> bytes:
    """The associated data of a frame's body: it opens beside its own signed header only."""
    return cose.enc_structure(cose.encrypt0_protected(commitment, key_bits), signed)


def encode_body(messages: Sequence[bytes], readers: str = "", trace: bytes = b"") -> bytes:
    """All messages of a frame in one piece, to be sealed; with a predicate over entities, only whom it is true of may
    open them. With the context of a trace (`traceparent`), the broker's work is a part of that trace."""
    if not 0 < len(messages) <= limits.MAX_EVENTS_PER_FRAME:
        raise Misuse(f"a frame holds 1 to {limits.MAX_EVENTS_PER_FRAME} events, not {len(messages)}")
    lengths = np.fromiter(map(len, messages), dtype="<u4", count=len(messages))
    if not lengths.min() or lengths.max() > limits.MAX_MESSAGE_BYTES:
        raise Misuse(f"a message has 1 to {limits.MAX_MESSAGE_BYTES} bytes")
    if len(readers.encode()) > limits.MAX_READERS_BYTES:
        raise Misuse(f"a predicate over readers has at most {limits.MAX_READERS_BYTES} bytes")
    sizes, total = byte_string_head(4 * len(messages)) + lengths.tobytes(), byte_string_head(int(lengths.sum()))
    start, end = (_WITH_READERS + _BODY[1:], cbor.encode(readers)) if readers else (_BODY, b"")
    if trace:
        if not traceparent.is_context(trace):
            raise Misuse(f"the context of a trace has {traceparent.CONTEXT_BYTES} bytes, and no id of zeros")
        start, end = _WITH_TRACE + _BODY[1:], cbor.encode(readers) + cbor.encode(trace)
    body = b"".join((start, sizes, total, *messages, end))  # written out: the encoder would copy the messages twice
    if len(body) > limits.MAX_BODY_BYTES:
        raise Misuse(f"a frame's body has {len(body)} bytes, {limits.MAX_BODY_BYTES} are allowed", hint=_SMALLER)
    return body


def encode(
    signed: bytes, commitment: bytes, ciphertext: bytes, key_bits: int = DEFAULT_KEY_BITS, *, token: bytes
) -> bytes:
    """The frame as the log holds it."""
    if len(token) > limits.MAX_TOKEN_BYTES:
        raise Misuse(f"a token has at most {limits.MAX_TOKEN_BYTES} bytes, not {len(token)}")
    header = parse_signed(signed).header
    sealed = cose.encode_encrypt0(commitment, body_nonce(header), ciphertext, key_bits)
    data = cbor.encode([MAGIC, VERSION, token, signed, sealed])
    if len(data) > limits.MAX_FRAME_BYTES:
        raise Misuse(f"a frame has at most {limits.MAX_FRAME_BYTES} bytes, not {len(data)}", hint=_SMALLER)
    return data


# --- reading ------------------------------------------------------------------------------------


def parse(data: bytes) -> Frame:
    """Take a frame apart; FrameRejected (`frame` or `version`) when it is not one."""
    if len(data) > limits.MAX_FRAME_BYTES:
        raise cbor.refused(f"a frame has at most {limits.MAX_FRAME_BYTES} bytes, not {len(data)}")
    _check_version(data)
    outer = cbor.decode(data, max_depth=1, max_items=8)
    if not isinstance(outer, list) or len(outer) != 5 or outer[:2] != [MAGIC, VERSION]:
        raise cbor.refused("not a frame")
    token, signed, sealed = outer[2:]
    if not isinstance(token, bytes) or not isinstance(signed, bytes) or not isinstance(sealed, bytes):
        raise cbor.refused("a frame holds three byte strings: the token, what is signed and what is sealed")
    if len(token) > limits.MAX_TOKEN_BYTES:
        raise cbor.refused(f"a token has at most {limits.MAX_TOKEN_BYTES} bytes, not {len(token)}")
    about = parse_signed(signed)
    box = cose.parse_encrypt0(sealed)
    if box.nonce != body_nonce(about.header):
        raise cbor.refused("the nonce of a frame's body is its sequence number")
    return Frame(
        header=about.header,
        token=token,
        signature=about.signature,
        to_be_signed=about.to_be_signed,
        signed=signed,
        sealed=sealed,
        commitment=box.commitment,
        nonce=box.nonce,
        ciphertext=box.ciphertext,
        body_aad=body_aad(signed, box.commitment, box.key_bits),
        key_bits=box.key_bits,
    )


def parse_signed(signed: bytes) -> SignedHeader[Header]:
    """Take a signed header apart: a frame's, or the one a sealed piece carries for its subscribers."""
    return _HEADERS.parse(signed)


class FrameBody(NamedTuple):
    """An opened body: where its messages begin, one behind the other, and how long each of them is."""

    body: bytes
    begin: int
    lengths: NDArray[np.int64]

    @property
    def joined(self) -> memoryview:
        """All messages in one piece. It is not copied: a frame's messages are some hundred kilobytes."""
        return memoryview(self.body)[self.begin :]

    def messages(self) -> list[bytes]:
        body, bounds = self.body, (np.cumsum(self.lengths) + self.begin).tolist()
        return [body[start:end] for start, end in zip([self.begin, *bounds], bounds, strict=False)]


class JoinedMessages(Sequence[bytes]):
    """Messages that are in one piece, each cut out when somebody asks for it: of most events nobody does."""

    def __init__(self, joined: bytes, lengths: NDArray[np.int64]) -> None:
        self._joined, self._lengths = joined, lengths

    @cached_property
    def _bounds(self) -> list[int]:
        return [0, *np.cumsum(self._lengths).tolist()]

    def __len__(self) -> int:
        return self._lengths.size

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if index < 0:
            raise IndexError(f"there is no message {index}")
        bounds = self._bounds
        return self._joined[bounds[index] : bounds[index + 1]]

    def __iter__(self) -> Iterator[bytes]:
        joined = self._joined
        return (joined[start:end] for start, end in pairwise(self._bounds))


class BareBody(NamedTuple):
    """An opened body as one that has nothing but messages; and what else it had, each empty when it had none."""

    body: bytes
    #: A predicate over readers.
    readers: str = ""
    #: The context of a trace.
    trace: bytes = b""


def bare_body(body: bytes) -> BareBody:
    """Takes off what stands behind the messages of an opened body."""
    if body[:1] not in WITH_MORE:
        return BareBody(body)
    match cbor.decode(body, max_bytes=limits.MAX_BODY_BYTES, max_depth=2, max_items=8, tags=frozenset({TAG_UINT32_LE})):
        case [_, _, str(readers)] if readers and len(readers.encode()) <= limits.MAX_READERS_BYTES:
            return BareBody(_BODY[:1] + body[1 : len(body) - len(cbor.encode(readers))], readers)
        case [_, _, str(readers), bytes(trace)] if len(
            readers.encode()
        ) <= limits.MAX_READERS_BYTES and traceparent.is_context(trace):
            behind = len(cbor.encode(readers)) + len(cbor.encode(trace))
            return BareBody(_BODY[:1] + body[1 : len(body) - behind], readers, trace)
        case _:
            raise cbor.refused(
                "the third part of a body is a predicate over readers, a short text, and the fourth a trace's context"
            )


def decode_body(body: bytes, count: int) -> list[bytes]:
    """The messages of an opened body; FrameRejected when they are not exactly `count`."""
    return [only_message(body)] if count == 1 else split_body(body, count).messages()


def split_body(body: bytes, count: int) -> FrameBody:
    """`decode_body`, with the messages left in one piece. There is one spelling of a body of so many events and bytes,
    so it is not decoded but compared."""
    opening = _BODY + byte_string_head(4 * count)
    at = len(opening) + 4 * count
    if not count or body[: len(opening)] != opening or len(body) < at:
        raise cbor.refused(f"a body of {count} events starts with as many lengths")
    lengths = np.frombuffer(body, "<u4", count, len(opening)).astype(np.int64)
    if not lengths.min() or lengths.max() > limits.MAX_MESSAGE_BYTES:
        raise cbor.refused(f"a message has 1 to {limits.MAX_MESSAGE_BYTES} bytes")
    total = int(lengths.sum())
    joined = byte_string_head(total)
    begin = at + len(joined)
    if body[at:begin] != joined or len(body) != begin + total:
        raise cbor.refused("the lengths of a body do not add up to its messages")
    return FrameBody(body, begin, lengths)


def only_message(body: bytes) -> bytes:
    """The message of a body of one: where each event is signed by itself, this is what there is most of."""
    message = sole_message(body)
    if not message:
        raise cbor.refused(f"a body of 1 event starts with its length, 1 to {limits.MAX_MESSAGE_BYTES}, said twice")
    return message


def sole_message(body: bytes) -> bytes:
    """The message of a body that has one and nothing else; empty, as no message is, of any other body."""
    # A body that is so long begins in one way: its length says that of its message, and that is said twice.
    opening = _opening_of_one(len(body))
    return body[len(opening) :] if opening and body.startswith(opening) else b""


@lru_cache(4096)
def _opening_of_one(size: int) -> bytes:
    """What a body of one message, of so many bytes in all, begins with; nothing where none is that long."""
    for head in (1, 2, 3, 5):
        length = size - len(_ONE) - 4 - head
        if 0 < length <= limits.MAX_MESSAGE_BYTES and len(byte_string_head(length)) == head:
            return _ONE + length.to_bytes(4, "little") + byte_string_head(length)
    return b""


# --- inside -------------------------------------------------------------------------------------


@lru_cache(4096)
def byte_string_head(length: int) -> bytes:
    """What goes before a byte string of that length."""
    for code, size in ((0x58, 1), (0x59, 2), (0x5A, 4)):
        if length < 1 << 8 * size:
            return bytes([0x40 + length]) if length < 24 else bytes([code]) + length.to_bytes(size, "big")
    raise Misuse(f"nothing here is {length} bytes long")


def _check_version(data: bytes) -> None:
    """Tell a frame of another version from something that is no frame: only the first two elements are ours to know."""
    start = 1 + len(_MAGIC_BYTES)
    if data[1:start] != _MAGIC_BYTES or data[0] >> 5 != 4:
        raise cbor.refused("not a frame")
    version = data[start] if len(data) > start else VERSION
    if version != VERSION and version < 0x1C:  # any other unsigned integer; truncation is for the decoder to say
        named = f"version {version}" if version < 24 else "a version above 23"
        raise FrameRejected("version", f"a frame of {named}; this release reads version {VERSION}")
