"""The blocks of a batch of events, read at once: what `parse_block` does for one, on arrays.

Reading a block by itself costs as much as all that a broker does with a trapdoor it has seen before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Indices, runs
from sealcast.filters.labels import Labeller
from sealcast.model.schema import Schema
from sealcast.wire.limits import MAX_TRAPDOORS
from sealcast.wire.searching import (
    BLOCK_HEAD,
    BLOCK_MAGIC,
    FIRST_POINT,
    SECOND_POINT,
    TAG_BYTES,
    TRAPDOOR_BYTES,
    SealedRejected,
    parse_block,
)


@lru_cache(256)
def most_trapdoors(schema: Schema) -> int:
    """The most trapdoors that an event of this schema has. A publisher that sends more has made some of them up, and
    each would cost brokers a multiplication and a look through a bucket."""
    return min(Labeller(schema).most(), MAX_TRAPDOORS)


@dataclass(frozen=True, eq=False, slots=True)
class TrapdoorBlocks:
    """Trapdoors of many events: trapdoor i is `trapdoor(i)`, has a tag, and belongs to an event."""

    data: bytes
    offsets: Indices
    events: Indices
    tags: NDArray[np.uint32]
    #: Events whose blocks were refused, and why. None of their trapdoors is here.
    refused: dict[int, SealedRejected] = field(default_factory=dict)

    @classmethod
    def read(cls, blocks: Sequence[bytes], tag_bits: int) -> TrapdoorBlocks:
        sizes = np.fromiter(map(len, blocks), np.int64, len(blocks))
        # Zeros behind the end, so that the head of a block that is too short can be looked at.
        data = b"".join((*blocks, bytes(BLOCK_HEAD)))
        raw = np.frombuffer(data, np.uint8)
        firsts = np.cumsum(sizes) - sizes
        heads = raw[firsts[:, None] + np.arange(BLOCK_HEAD)].astype(np.int64)
        counts = heads[:, -2] << 8 | heads[:, -1]
        good = (heads[:, : len(BLOCK_MAGIC)] == np.frombuffer(BLOCK_MAGIC, np.uint8)).all(axis=1)
        good &= (sizes == BLOCK_HEAD + counts * TRAPDOOR_BYTES) & (counts <= MAX_TRAPDOORS)
        offsets, events = _trapdoors(firsts, counts, good)
        tags = _numbers(raw, offsets)
        wrong = _wrong(raw, offsets, tags, tag_bits) | _disordered(data, offsets, events, tags)
        good[events[wrong]] = False
        if not good.all():
            offsets, events = _trapdoors(firsts, counts, good)
            tags = _numbers(raw, offsets)
        refused = {event: _refusal(blocks[event], tag_bits) for event in np.flatnonzero(~good).tolist()}
        return cls(data, offsets, events, tags, refused)


def _trapdoors(firsts: Indices, counts: Indices, good: NDArray[np.bool_]) -> tuple[Indices, Indices]:
    """Where each trapdoor of the good blocks begins, and the event that it belongs to."""
    counts = np.where(good, counts, 0)
    within = runs(np.zeros_like(counts), counts)
    events = np.repeat(np.arange(counts.size), counts)
    return firsts[events] + BLOCK_HEAD + within * TRAPDOOR_BYTES, events


def _numbers(raw: NDArray[np.uint8], offsets: Indices) -> NDArray[np.uint32]:
    tags: NDArray[np.uint32] = raw[offsets[:, None] + np.arange(TAG_BYTES)].view(">u4").reshape(-1).astype(np.uint32)
    return tags


def _wrong(raw: NDArray[np.uint8], offsets: Indices, tags: NDArray[np.uint32], tag_bits: int) -> NDArray[np.bool_]:
    heads = raw[offsets[:, None] + np.array([FIRST_POINT.start, SECOND_POINT.start])]
    wrong: NDArray[np.bool_] = (tags > (1 << tag_bits) - 1) | ((heads | 1) != 3).any(axis=1)
    return wrong


def _disordered(data: bytes, offsets: Indices, events: Indices, tags: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which trapdoors do not stand below the next one of their event."""
    wrong = np.zeros(offsets.size, np.bool_)
    same = events[:-1] == events[1:]
    wrong[:-1] = same & (tags[:-1] > tags[1:])
    for number in np.flatnonzero(same & (tags[:-1] == tags[1:])).tolist():
        one, other = offsets[number], offsets[number + 1]
        wrong[number] = data[one : one + TRAPDOOR_BYTES] >= data[other : other + TRAPDOOR_BYTES]
    return wrong


def _refusal(block: bytes, tag_bits: int) -> SealedRejected:
    """The reason that reading it alone gives."""
    try:
        parse_block(block, tag_bits)
    except SealedRejected as refusal:
        return refusal
    raise AssertionError("a block that reads well alone was refused in a batch")
