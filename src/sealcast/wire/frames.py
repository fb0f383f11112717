"""Frames by the thousand: a batch of them taken apart at once, where each field stands and what its numbers are.

`frame.parse` reads one frame and says what is wrong with it, at the price of verifying a signature. A broker reads
whole batches, most of which are honest, and deterministic CBOR leaves an honest frame one spelling. So here that one
spelling is checked, for all frames of a batch together: field by field, numpy's columns in place of Python's loops.
Whatever differs in any byte is not `good`, and `frame.parse` says why. A test holds the two together: what is good here
parses there, to the same values, and what parses there is good here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.primitives.aead import COMMITMENT_BYTES, NONCE_BYTES, TAG_BYTES
from sealcast.primitives.sign import SIGNATURE_BYTES
from sealcast.wire import cbor, cose
from sealcast.wire.frame import (
    BOOT_BYTES,
    DIGEST_BYTES,
    MAGIC,
    SIGNATURE_CONTEXT,
    TOPIC_BYTES,
    VERSION,
    byte_string_head,
)
from sealcast.wire.limits import (
    MAX_EPOCH,
    MAX_EVENTS_PER_FRAME,
    MAX_FRAME_BYTES,
    MAX_PUBLISHER_BYTES,
    MAX_SEQUENCE,
    MAX_SIGNED_BYTES,
    MAX_TIME_MICROS,
    MAX_TOKEN_BYTES,
)

_BYTES, _TEXT = 2, 3
_START: Final = b"\x85" + cbor.encode(MAGIC) + cbor.encode(VERSION)
_SIGN1: Final = b"\xd2\x84" + cbor.encode(cose.SIGN1_PROTECTED) + b"\xa0"
_SIGNATURE: Final = b"\x58\x40"
_HEADER: Final = b"\xaa\x01\x50"
_DIGEST: Final = b"\x58\x20"
_ENCRYPT0: Final = b"\xd0\x83\x58\x2a\xa2\x01"
_COMMITMENT: Final = cbor.encode(cose.LABEL_COMMITMENT) + b"\x58\x20"
_NONCE: Final = b"\xa1\x05\x4c"
#: Where a frame's ciphertext begins, at the latest: nothing behind it is looked at.
_HEAD_BYTES: Final = 128 + MAX_TOKEN_BYTES + MAX_SIGNED_BYTES
#: The bytes that go before a header to make what is signed; its length comes between.
_TO_BE_SIGNED: Final = cbor.encode(["Signature1", cose.SIGN1_PROTECTED, SIGNATURE_CONTEXT, b""])[:-1]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Frames:
    """Where the fields of each frame stand, by offset into the frame; only `good` ones say anything."""

    good: Bools
    token: tuple[Ints, Ints]
    signed: tuple[Ints, Ints]
    #: The header, and how far into it topic, publisher and boot reach: equal bytes, equal sender.
    header: tuple[Ints, Ints]
    sender_end: Ints
    publisher: tuple[Ints, Ints]
    signature: Ints
    schema: Ints
    root: Ints
    token_digest: Ints
    commitment: Ints
    nonce: Ints
    ciphertext: Ints
    sequence: Ints
    count: Ints
    time: Ints
    epoch: Ints
    algorithm: Ints


def parse_many(frames: Sequence[bytes]) -> Frames:
    """Takes frames apart."""
    at = _Cursor(frames)
    at.expect(_START)
    token = at.string(_BYTES, MAX_TOKEN_BYTES)
    signed = at.open_string(_BYTES, MAX_SIGNED_BYTES)
    at.expect(_SIGN1)
    header = at.open_string(_BYTES, MAX_SIGNED_BYTES)
    at.expect(_HEADER)
    at.skip(TOPIC_BYTES)
    at.expect(b"\x02")
    publisher = at.string(_TEXT, MAX_PUBLISHER_BYTES)
    at.good &= (publisher[1] > publisher[0]) & at.text(publisher)
    at.expect(b"\x03\x50")
    at.skip(BOOT_BYTES)
    sender_end = at.place.copy()
    at.expect(b"\x04")
    sequence = at.number(MAX_SEQUENCE)
    at.expect(b"\x05")
    count = at.number(MAX_EVENTS_PER_FRAME)
    at.good &= count > 0
    at.expect(b"\x06")
    time = at.number(MAX_TIME_MICROS)
    at.expect(b"\x07" + _DIGEST)
    schema = at.skip(DIGEST_BYTES)
    at.expect(b"\x08")
    epoch = at.number(MAX_EPOCH)
    at.expect(b"\x09" + _DIGEST)
    root = at.skip(DIGEST_BYTES)
    at.expect(b"\x0a" + _DIGEST)
    token_digest = at.skip(DIGEST_BYTES)
    at.ends(header)
    at.expect(_SIGNATURE)
    signature = at.skip(SIGNATURE_BYTES)
    at.ends(signed)
    sealed = at.open_string(_BYTES, MAX_FRAME_BYTES)
    at.expect(_ENCRYPT0)
    algorithm = at.byte().astype(np.int64)
    at.good &= (algorithm >= 1) & (algorithm <= 3)
    at.skip(1)
    at.expect(_COMMITMENT)
    commitment = at.skip(COMMITMENT_BYTES)
    at.expect(_NONCE)
    at.expect(bytes(NONCE_BYTES - 8))
    at.good &= at.big_endian(8) == sequence.astype(np.uint64)
    nonce = at.skip(8) - (NONCE_BYTES - 8)
    ciphertext = at.open_string(_BYTES, MAX_FRAME_BYTES)
    at.good &= (ciphertext[1] == at.whole) & (sealed[1] == at.whole) & (ciphertext[1] - ciphertext[0] > TAG_BYTES)
    return Frames(
        good=at.good,
        token=token,
        signed=signed,
        header=header,
        sender_end=sender_end,
        publisher=publisher,
        signature=signature,
        schema=schema,
        root=root,
        token_digest=token_digest,
        commitment=commitment,
        nonce=nonce,
        ciphertext=ciphertext[0],
        sequence=sequence,
        count=count,
        time=time,
        epoch=epoch,
        algorithm=algorithm,
    )


class _Cursor:
    """A place in each frame, moving forward through all of them together. Past its end a frame reads as zeros, and is
    not good."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        heads = [data[:_HEAD_BYTES] for data in frames]
        lengths = np.fromiter(map(len, heads), np.int64, len(heads))
        self._raw = np.frombuffer(b"".join(heads) + bytes(16), np.uint8)
        self._start = np.cumsum(lengths) - lengths
        self._end = lengths
        self.whole = np.fromiter(map(len, frames), np.int64, len(frames))
        self.place = np.zeros(len(frames), np.int64)
        self.good = self.whole <= MAX_FRAME_BYTES

    def byte(self, ahead: int = 0) -> NDArray[np.uint8]:
        within = self.place + ahead < self._end
        self.good &= within
        return self._raw[np.where(within, self._start + self.place + ahead, self._raw.size - 1)]

    def big_endian(self, size: int) -> NDArray[np.uint64]:
        """The next `size` bytes as a number; the place stays."""
        value = np.zeros(self.place.size, np.uint64)
        for ahead in range(size):
            value = (value << np.uint64(8)) | self.byte(ahead)
        return value

    def expect(self, wanted: bytes) -> None:
        inside = self.place + len(wanted) <= self._end
        self.good &= inside
        first = np.where(inside, self._start + self.place, 0)
        found = self._raw[first[:, None] + np.arange(len(wanted))] if self._raw.size >= len(wanted) else None
        self.good &= False if found is None else (found == np.frombuffer(wanted, np.uint8)).all(axis=1)
        self.place = self.place + len(wanted)

    def skip(self, size: int) -> Ints:
        """Where those bytes stand."""
        start = self.place
        self.place = start + size
        self.good &= self.place <= self._end
        return start

    def number(self, most: int) -> Ints:
        return self._head(0, most)

    def open_string(self, kind: int, most: int) -> tuple[Ints, Ints]:
        """A string whose contents come next: where it starts and ends."""
        size = self._head(kind, most)
        return self.place, self.place + size

    def string(self, kind: int, most: int) -> tuple[Ints, Ints]:
        start, end = self.open_string(kind, most)
        self.place = end
        return start, end

    def text(self, span: tuple[Ints, Ints]) -> Bools:
        """Whether these bytes are UTF-8. ASCII is seen at once; anything else is decoded, one by one."""
        size = np.where(self.good, span[1] - span[0], 0)
        within = np.arange(size.max(initial=0)) < size[:, None]
        raw = self._raw[np.where(within, (self._start + span[0])[:, None] + np.arange(within.shape[1]), 0)]
        fine: Bools = np.logical_not(((raw >= 0x80) & within).any(axis=1))
        for row in np.flatnonzero(~fine).tolist():
            try:
                raw[row, : size[row]].tobytes().decode()
            except UnicodeDecodeError:
                continue
            fine[row] = True
        return fine

    def ends(self, span: tuple[Ints, Ints]) -> None:
        self.good &= self.place == span[1]

    def _head(self, kind: int, most: int) -> Ints:
        """A number, or a string's length, in its shortest spelling."""
        first = self.byte()
        self.good &= first >> 5 == kind
        short = first & 31
        value = short.astype(np.uint64)
        step = np.ones(short.size, np.int64)
        self.place = self.place + 1
        for code, size, least in ((24, 1, 24), (25, 2, 1 << 8), (26, 4, 1 << 16), (27, 8, 1 << 32)):
            mine = short == code
            if not mine.any():
                continue
            before = self.good
            self.good = before.copy()
            longer = self.big_endian(size)
            self.good = np.where(mine, self.good & (longer >= least), before)
            value = np.where(mine, longer, value)
            step = np.where(mine, 1 + size, step)
        self.good &= (short < 28) & (value <= most)
        self.place = self.place + step - 1
        return np.where(value <= most, value, 0).astype(np.int64)


def to_be_signed(header: bytes) -> bytes:
    """What a publisher signs, from the bytes of its header: `frame.to_be_signed` without taking them apart."""
    return _TO_BE_SIGNED + byte_string_head(len(header)) + header


def body_aad(protected: bytes, signed: bytes) -> bytes:
    """The associated data of a body: `frame.body_aad`, from the bytes of both."""
    return b"\x83\x68Encrypt0\x58\x2a" + protected + byte_string_head(len(signed)) + signed


def topic_of(sender: bytes) -> bytes:
    """The topic in the first bytes of a good header (`Frames.sender_end`)."""
    return sender[len(_HEADER) : len(_HEADER) + TOPIC_BYTES]


def publisher_of(sender: bytes) -> str:
    """The publisher in the first bytes of a good header; behind it comes the boot, of a fixed size."""
    text = sender[len(_HEADER) + TOPIC_BYTES + 1 : -BOOT_BYTES - 2]
    head = 1 if text[0] < 0x78 else 2 if text[0] == 0x78 else 3
    return text[head:].decode()
