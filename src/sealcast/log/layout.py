"""The bytes of the embedded log: segment header, record header, marks. Everything little-endian.

    segment  = SEGMENT header (44 bytes), then records, back to back
    SEGMENT  = "SEALSEG1" | first offset u64 | time us u64 and chain [16] of the record before | crc32 u32
    record   = RECORD header (44 bytes) | data
    RECORD   = "SCR1" | length u32 | offset u64 | time us u64 | chain [16] | crc32 u32
    chain    = SHA-256(chain before | first 24 bytes of the header | SHA-256(data)), the first 16 bytes
    MARK     = segment u64 | offset u64 | position u64 | time us u64 | chain [16] | crc32 u32

Two checks with two jobs. The CRC covers the *header*, so that a reader who skips over data never follows a damaged
length. The chain covers the header and the *data* and all that went before: it finds damage, and also records that
were reordered, repeated or removed. The data's digest goes into the chain by itself, so that a writer hashes its
bytes before it takes the lock and only 72 bytes while it holds it. The chain of a log's first record starts from a
random value: a segment of another log never fits.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from typing import Final

from sealcast.errors import Misuse, NotFound
from sealcast.model.dataclass import dataclass

MAX_RECORD_BYTES: Final = 32 << 20
#: Of one `append`: it is written in one piece, into one segment.
MAX_APPEND_BYTES: Final = 256 << 20
MIN_SEGMENT_BYTES: Final = 256
DEFAULT_SEGMENT_BYTES: Final = 64 << 20
CHAIN_BYTES: Final = 16

SEGMENT: Final = struct.Struct("<8sQQ16sI")
SEGMENT_MAGIC: Final = b"SEALSEG1"
RECORD: Final = struct.Struct("<4sIQQ16sI")
RECORD_MAGIC: Final = b"SCR1"
#: What the chain takes of a record's header: all that stands before the chain.
HEAD: Final = struct.Struct("<4sIQQ")
_CRC: Final = struct.Struct("<I")
MARK: Final = struct.Struct("<QQQQ16sI")


@dataclass(frozen=True, slots=True)
class Mark:
    """A place between two records: where the next one will stand, and the chain and time of the one before."""

    #: First offset of the segment, which names its file.
    segment: int
    offset: int
    #: In bytes from the start of the segment's file.
    position: int
    time_us: int
    chain: bytes

    def pack(self) -> bytes:
        return seal(MARK.pack(self.segment, self.offset, self.position, self.time_us, self.chain, 0))

    @classmethod
    def unpack(cls, raw: bytes) -> Mark | None:
        """None when the bytes are not a mark that we wrote."""
        if not intact(raw):
            return None
        segment, offset, position, time_us, chain, _ = MARK.unpack(raw)
        return cls(segment, offset, position, time_us, chain)


def seal(raw: bytes) -> bytes:
    """Replace the last four bytes by the CRC of the others."""
    return raw[:-4] + _CRC.pack(zlib.crc32(raw[:-4]))


def intact(raw: bytes | memoryview) -> bool:
    """Do the last four bytes hold the CRC of the others? All zeros do not: no structure of ours is all zeros."""
    return bool(zlib.crc32(raw[:-4]) == _CRC.unpack(raw[-4:])[0])


def segment_header(mark: Mark) -> bytes:
    return seal(SEGMENT.pack(SEGMENT_MAGIC, mark.offset, mark.time_us, mark.chain, 0))


def chain_of(before: bytes, head: bytes, digest: bytes) -> bytes:
    return hashlib.sha256(before + head + digest).digest()[:CHAIN_BYTES]


def encode(mark: Mark, records: list[tuple[bytes, bytes]], time_us: int) -> tuple[bytes, Mark]:
    """The bytes of (data, digest) records that follow `mark`, and the mark after them."""
    offset, chain = mark.offset, mark.chain
    parts: list[bytes] = []
    for data, digest in records:
        head = HEAD.pack(RECORD_MAGIC, len(data), offset, time_us)
        chain = chain_of(chain, head, digest)
        body = head + chain
        parts += (body, _CRC.pack(zlib.crc32(body)), data)
        offset += 1
    raw = b"".join(parts)
    return raw, Mark(mark.segment, offset, mark.position + len(raw), time_us, chain)


def encode_timed(
    mark: Mark, records: list[tuple[bytes, bytes]], times: Sequence[int], *, ordered: bool
) -> tuple[bytes, Mark]:
    """The same, each record with a time of its own; where the log is `ordered`, none before the one before."""
    parts: list[bytes] = []
    for record, time_us in zip(records, times, strict=True):
        raw, mark = encode(mark, [record], max(time_us, mark.time_us) if ordered else time_us)
        parts.append(raw)
    return b"".join(parts), mark


def check_sizes(records: Sequence[bytes]) -> None:
    """Refuses what no log takes as one append."""
    if not records:
        raise Misuse("an append needs at least one record")
    if max(map(len, records)) > MAX_RECORD_BYTES:
        raise Misuse(f"a record has at most {MAX_RECORD_BYTES} bytes, not {max(map(len, records))}")
    if sum(map(len, records)) > MAX_APPEND_BYTES:
        raise Misuse(
            f"one append takes at most {MAX_APPEND_BYTES} bytes, not {sum(map(len, records))}: append in parts"
        )


def check_span(shown: object, start: int, end: int | None, max_bytes: int | None, last: int) -> None:
    """Refuses to read what makes no sense, or lies beyond the end of a log, which is `last`."""
    if start < 0 or (end is not None and end < start) or (max_bytes is not None and max_bytes <= 0):
        raise Misuse(f"cannot read from {start} to {end}, at most {max_bytes} bytes")
    asked = max(start, end or 0)
    if asked > last:
        raise NotFound(f"{shown} ends at record {last}; record {asked - 1} is not there")
