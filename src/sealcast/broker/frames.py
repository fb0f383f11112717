"""The frames of a task: read to be authenticated, and then handled, as many at a time as are handled at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import numpy as np

from sealcast.broker.copies import FrameReader
from sealcast.broker.gate import Rulings
from sealcast.broker.opening import MAX_NAMED_PER_FRAME
from sealcast.broker.rulings import received_of
from sealcast.log.offsets import Arrival
from sealcast.log.port import Record
from sealcast.model.bounded import bounded
from sealcast.model.stages import Ruled
from sealcast.wire.limits import MAX_PIECE_REJECTIONS

#: So that every refusal can be named, should all of them be hostile; one line more counts those that are not named.
MAX_FRAMES_PER_PIECE: Final = MAX_PIECE_REJECTIONS // (MAX_NAMED_PER_FRAME + 1)
#: Frames that a task holds. More, and they are read twice.
MAX_HELD_BYTES: Final = 32 << 20


class ReadableFrames(Protocol):
    """A broker's log, as a task reads it."""

    def partition(self, number: int, /) -> FrameReader: ...


class HeldFrames:
    """Frames of a log, of which those that were read first are held in memory, so that they are not read again."""

    def __init__(self, log: ReadableFrames, most: int = MAX_HELD_BYTES) -> None:
        self.log, self._left = log, most
        #: Without a gap, by partition.
        self._held: dict[int, list[Record]] = {}

    def first(self, partition: int, first: int, end: int) -> Iterator[Record]:
        """Frames of a partition that are there, for the first time: one span of each."""
        held = self._held[partition] = []
        for record in self.log.partition(partition).read_seen(first, end):
            if self._left >= len(record.data):
                held.append(record)
                self._left -= len(record.data)
            else:
                self._left = 0  # what is held has no gaps
            yield record

    def read(self, partition: int, first: int, end: int) -> Iterator[Record]:
        """Frames of a partition, wherever they are."""
        held = self._held.get(partition, [])
        if held and held[0].offset <= first <= held[-1].offset:
            yield from held[first - held[0].offset : end - held[0].offset]
            first = held[-1].offset + 1
        if first < end:
            yield from self.log.partition(partition).read(first, end)


def frames_of(rulings: Rulings, frames: HeldFrames, pinned: Mapping[str, int], room: int) -> Iterator[Ruled]:
    """The frames that rulings are about: of one partition and without a gap, as many as are handled at once."""
    arrival = Arrival(pinned["since"], pinned["time"])
    rulings = rulings[np.lexsort((rulings["offset"], rulings["partition"]))]
    jumps = (np.diff(rulings["partition"]) != 0) | (np.diff(rulings["offset"]) != 1)
    for span in np.split(rulings, np.flatnonzero(jumps) + 1):
        partition, first, end = int(span["partition"][0]), int(span["offset"][0]), int(span["offset"][-1]) + 1
        records = frames.read(partition, first, end)
        for held in bounded(records, lambda record: len(record.data), room, MAX_FRAMES_PER_PIECE):
            codes = span["code"][held[0].offset - first : held[-1].offset + 1 - first]
            yield Ruled(received_of(partition, held, arrival), codes)
