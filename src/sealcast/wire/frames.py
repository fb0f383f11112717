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
from sealcast.wire import cbor, cose, limits
from sealcast.wire.frame import (
    BOOT_BYTES,
    DIGEST_BYTES,
    MAGIC,
    SIGNATURE_CONTEXT,
    TOPIC_BYTES,
    VERSION,
)

_BYTES, _TEXT = 2, 3
_START: Final = b"\x85" + cbor.encode(MAGIC)
_SIGN1: Final = b"\xd2\x84" + cbor.encode(cose.SIGN1_PROTECTED) + b"\xa0"
_SIGNATURE: Final = b"\x58\x40"
_HEADER: Final = b"\xaa\x01\x50"
_DIGEST: Final = b"\x58\x20"
_ENCRYPT0: Final = b"\xd0\x83\x58\x2a\xa2\x01"
_COMMITMENT: Final = cbor.encode(cose.LABEL_COMMITMENT) + b"\x58\x20"
_NONCE: Final = b"\xa1\x05\x4c"
#: Where a frame's ciphertext begins, at the latest: nothing behind it is looked at.
_HEAD_BYTES: Final = 128 + limits.MAX_TOKEN_BYTES + limits.MAX_SIGNED_BYTES
#: What goes before a header, which is a string there as it is in the frame, to make `frame.to_be_signed`.
BEFORE_HEADER: Final = cbor.encode(["Signature1", cose.SIGN1_PROTECTED, SIGNATURE_CONTEXT, b""])[:-1]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

#: By the first byte of a number or a string: how many bytes it and its number take; by how many bits eight bytes from
#: there on are shifted, to the left and then to the right, to be that number; and the least that is spelt like this,
#: which no number is where there is no such spelling. What is spelt with eight bytes of its own is read anew.
_LONG: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_CODES: Final = [code & 31 for code in range(256)]
_STEP: Final = np.array([1 + _LONG.get(code, 0) for code in _CODES])
_LEFT: Final = np.array([3 if code < 24 else 8 for code in _CODES], np.uint64)
_RIGHT: Final = np.array([59 if code < 24 else 64 - 8 * _LONG.get(code, 1) for code in _CODES], np.uint64)
_FIRST: Final = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}
_NEVER: Final = (1 << 64) - 1
_LEAST: Final = {
    kind: np.array(
        [_FIRST.get(code & 31, 0) if code >> 5 == kind and code & 31 < 28 else _NEVER for code in range(256)], np.uint64
    )
    for kind in (0, _BYTES, _TEXT)
}
_LONGEST: Final = 27
#: The highest bits of the first n of eight bytes.
_WITHIN: Final = np.array([int.from_bytes(b"\x80" * n + bytes(8 - n), "big") for n in range(9)], np.uint64)


@dataclass(frozen=True, slots=True)
class HeaderFields:
    """What the signed header of each frame says: numbers, and offsets into the frame for what is longer."""

    #: Where topic, publisher and boot, with which a header begins, end: equal bytes up to there, equal sender.
    sender_end: Ints
    publisher: tuple[Ints, Ints]
    sequence: Ints
    count: Ints
    time: Ints
    schema: Ints
    epoch: Ints
    root: Ints
    token_digest: Ints


@dataclass(frozen=True, slots=True)
class Frames:
    """Where the fields of each frame stand, by offset into the frame; only `good` ones say anything."""

    good: Bools
    #: How many bytes it has.
    size: Ints
    #: Behind the token comes what is signed, as a string: its length, and where `signed` begins, its bytes.
    token: tuple[Ints, Ints]
    signed: tuple[Ints, Ints]
    #: Where the header begins as a string, with its length.
    header_string: Ints
    header: tuple[Ints, Ints]
    fields: HeaderFields
    signature: Ints
    algorithm: Ints
    commitment: Ints
    nonce: Ints
    ciphertext: Ints


def parse_many(frames: Sequence[bytes]) -> Frames:
    """Takes frames apart."""
    at = _Cursor(frames)
    at.expect(_START)
    token = at.string(_BYTES, limits.MAX_TOKEN_BYTES, behind=VERSION)
    signed = at.open_string(_BYTES, limits.MAX_SIGNED_BYTES)
    at.expect(_SIGN1)
    header_string = at.place
    header = at.open_string(_BYTES, limits.MAX_SIGNED_BYTES)
    fields = _header_fields(at)
    at.ends(header)
    at.expect(_SIGNATURE)
    signature = at.skip(SIGNATURE_BYTES)
    at.ends(signed)
    sealed = at.open_string(_BYTES, limits.MAX_FRAME_BYTES)
    at.expect(_ENCRYPT0)
    algorithm = at.number(3)
    at.good &= algorithm > 0
    at.expect(_COMMITMENT)
    commitment = at.skip(COMMITMENT_BYTES)
    at.expect(_NONCE + bytes(NONCE_BYTES - 8))
    at.good &= at.big_endian() == fields.sequence
    nonce = at.skip(8) - (NONCE_BYTES - 8)
    ciphertext = at.open_string(_BYTES, limits.MAX_FRAME_BYTES)
    # Both end where the frame does: so all that was read before was this frame's, and there is nothing behind it.
    at.good &= (ciphertext[1] == at.whole) & (sealed[1] == at.whole) & (ciphertext[1] - ciphertext[0] > TAG_BYTES)
    return Frames(
        good=at.good,
        size=at.whole,
        token=token,
        signed=signed,
        header_string=header_string,
        header=header,
        fields=fields,
        signature=signature,
        algorithm=algorithm,
        commitment=commitment,
        nonce=nonce,
        ciphertext=ciphertext[0],
    )


def _header_fields(at: _Cursor) -> HeaderFields:
    """Takes the signed headers apart, field by field."""
    at.expect(_HEADER)
    at.skip(TOPIC_BYTES)
    publisher = at.string(_TEXT, limits.MAX_PUBLISHER_BYTES, behind=2)
    at.good &= at.text(publisher)
    at.expect(b"\x03\x50")
    at.skip(BOOT_BYTES)
    sender_end = at.place
    sequence = at.number(limits.MAX_SEQUENCE, behind=4)
    count = at.number(limits.MAX_EVENTS_PER_FRAME, behind=5)
    at.good &= count > 0
    time = at.number(limits.MAX_TIME_MICROS, behind=6)
    at.expect(b"\x07" + _DIGEST)
    schema = at.skip(DIGEST_BYTES)
    epoch = at.number(limits.MAX_EPOCH, behind=8)
    at.expect(b"\x09" + _DIGEST)
    root = at.skip(DIGEST_BYTES)
    at.expect(b"\x0a" + _DIGEST)
    token_digest = at.skip(DIGEST_BYTES)
    return HeaderFields(sender_end, publisher, sequence, count, time, schema, epoch, root, token_digest)


class _Cursor:
    """A place in each frame, moving forward through all of them together. It may run past a frame's end, into the next
    one or what lies behind the last: whoever uses it checks at the end that it stopped where the frame does."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.whole = np.fromiter(map(len, frames), np.int64, len(frames))
        heads: Sequence[bytes] = frames
        if int(self.whole.max(initial=0)) > _HEAD_BYTES:
            heads = [data[:_HEAD_BYTES] for data in frames]
        lengths = np.minimum(self.whole, _HEAD_BYTES)
        self._raw = raw = b"".join((*heads, bytes(2 * _HEAD_BYTES)))
        #: Eight bytes from every place on. Taking them from all frames is what costs most here, so they are taken once
        #: for a label and the number behind it.
        self._words: Words = np.ndarray((len(raw) - 7,), ">u8", raw, strides=(1,))
        self._start = np.cumsum(lengths) - lengths
        self._at: Ints = self._start.copy()
        self.good = self.whole <= limits.MAX_FRAME_BYTES

    @property
    def place(self) -> Ints:
        """By offset into each frame."""
        place: Ints = self._at - self._start
        return place

    def big_endian(self) -> Ints:
        """The next eight bytes as a number; the place stays."""
        number: Ints = self._word().view(np.int64)
        return number

    def expect(self, wanted: bytes) -> None:
        for ahead in range(0, len(wanted), 8):
            part = wanted[ahead : ahead + 8]
            found = self._word(ahead)
            if len(part) < 8:
                found >>= np.uint64(64 - 8 * len(part))
            self.good &= found == np.uint64(int.from_bytes(part, "big"))
        self._at += len(wanted)

    def skip(self, size: int) -> Ints:
        """Where those bytes stand."""
        start = self.place
        self._at += size
        return start

    def number(self, most: int, behind: int | None = None) -> Ints:
        return self._head(0, most, behind)

    def open_string(self, kind: int, most: int, behind: int | None = None) -> tuple[Ints, Ints]:
        """A string whose contents come next: where it starts and ends."""
        size = self._head(kind, most, behind)
        start = self.place
        return start, start + size

    def string(self, kind: int, most: int, behind: int | None = None) -> tuple[Ints, Ints]:
        start, end = self.open_string(kind, most, behind)
        self._at = self._start + end
        return start, end

    def text(self, span: tuple[Ints, Ints]) -> Bools:
        """Whether these bytes are UTF-8, and there are any. ASCII is seen at once; the rest is decoded one by one."""
        start, size = self._start + span[0], np.where(self.good, span[1] - span[0], 0)
        beyond = np.zeros(size.size, np.bool_)
        for ahead in range(0, int(size.max(initial=0)), 8):
            within = _WITHIN[np.clip(size - ahead, 0, 8)]
            beyond |= (self._words[start + ahead].astype(np.uint64) & within) != 0
        for row in np.flatnonzero(beyond).tolist():
            begin = int(start[row])
            beyond[row] = not cbor.is_utf8(self._raw[begin : begin + int(size[row])])
        return ~beyond & (size > 0)

    def ends(self, span: tuple[Ints, Ints]) -> None:
        self.good &= self.place == span[1]

    def _word(self, ahead: int = 0) -> Words:
        word: Words = self._words[self._at + ahead if ahead else self._at].astype(np.uint64)
        return word

    def _head(self, kind: int, most: int, behind: int | None) -> Ints:
        """A number, or a string's length, in its shortest spelling; 0 for what is none. A label may stand before it."""
        word, label = self._word(), 0 if behind is None else 1
        if behind is not None:
            self.good &= word >> np.uint64(56) == np.uint64(behind)
            word <<= np.uint64(8)
        code = (word >> np.uint64(56)).view(np.int64)
        value = word << _LEFT[code]
        value >>= _RIGHT[code]
        if most >> 32:
            long = np.flatnonzero(code & 31 == _LONGEST)
            if long.size:
                value[long] = self._words[self._at[long] + (1 + label)]
        good = (value >= _LEAST[kind][code]) & (value <= np.uint64(most))
        if not good.all():
            self.good &= good
            value[~good] = 0
        self._at += _STEP[code]
        if label:
            self._at += label
        return value.view(np.int64)


def before_signed(commitment: bytes, key_bits: int) -> bytes:
    """What goes before a frame's signed part, which is a string there as it is in the frame, to make `frame.body_aad`.
    It is the same for all frames that are sealed under one key."""
    return b"\x83\x68Encrypt0" + cbor.encode(cose.encrypt0_protected(commitment, key_bits))


def topic_of(sender: bytes) -> bytes:
    """The topic in the first bytes of a good header (`HeaderFields.sender_end`)."""
    return sender[len(_HEADER) : len(_HEADER) + TOPIC_BYTES]


def publisher_of(sender: bytes) -> str:
    """The publisher in the first bytes of a good header; behind it comes the boot, of a fixed size."""
    text = sender[len(_HEADER) + TOPIC_BYTES + 1 : -BOOT_BYTES - 2]
    head = 1 if text[0] < 0x78 else 2 if text[0] == 0x78 else 3
    return text[head:].decode()
