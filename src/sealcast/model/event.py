"""An event, the name of its place, and the event as a subscriber gets it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from itertools import accumulate, repeat
from operator import eq
from typing import Final, overload

from sealcast.errors import Misuse
from sealcast.model.dataclass import dataclass
from sealcast.model.schema import Value

MAX_PAYLOAD_BYTES: Final = 1 << 20
MAX_CONTENT_TYPE_LENGTH: Final = 255
DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"


def own_column(name: str, attributes: Iterable[str]) -> str:
    """The column of what an event has beside its attributes (`payload`, ...) in a table of events. An attribute of that
    name keeps it, and the other gets underscores. Case does not count, for it does not to Spark."""
    taken = {attribute.lower() for attribute in attributes}
    while name in taken:
        name = f"_{name}"
    return name


@dataclass(frozen=True, slots=True)
class Event:
    """What a publisher says: attributes, which filters read, and an opaque payload, which they do not."""

    attributes: Mapping[str, object]
    payload: bytes = b""
    content_type: str = DEFAULT_CONTENT_TYPE


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where an event stands: partition and offset of its frame in the topic's log, row within the frame.

    It is also the event's id, unique in its topic: nonces, mailboxes and the ledger all speak of positions.
    """

    partition: int
    offset: int
    row: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}/{self.row}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """From `partition/offset/row`."""
        parts = text.split("/")
        if len(parts) != 3 or not all(p.isascii() and p.isdigit() for p in parts):
            raise Misuse(f"an event is named partition/offset/row, as `pub` and `sub` print it, not {text!r}")
        return cls(*map(int, parts))


class Positions(Sequence[Position]):
    """The positions of a publisher's events, in order: a few numbers a frame until somebody asks for one."""

    __slots__ = ("_ends", "_frames", "_partition")

    def __init__(self, partition: int, frames: Iterable[tuple[int, int]] = ()) -> None:
        """`frames` are the offset of each frame, and how many events it has."""
        self._partition, self._frames = partition, [each for each in frames if each[1]]
        self._ends = list(accumulate(count for _, count in self._frames))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Position]:
        for offset, count in self._frames:
            yield from map(Position, repeat(self._partition, count), repeat(offset), range(count))

    @overload
    def __getitem__(self, index: int) -> Position: ...
    @overload
    def __getitem__(self, index: slice) -> list[Position]: ...
    def __getitem__(self, index: int | slice) -> Position | list[Position]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"there are {len(self)} positions")
        frame = bisect_right(self._ends, at)
        offset, count = self._frames[frame]
        return Position(self._partition, offset, at - self._ends[frame] + count)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"[{', '.join(map(str, self[:3]))}{', ...' if len(self) > 3 else ''}]"


@dataclass(frozen=True, slots=True)
class OpenedEvent:
    """An event that a subscriber opened and whose publisher it verified."""

    position: Position
    publisher: str
    published_at: datetime
    sequence: int
    attributes: Mapping[str, Value]
    payload: bytes = field(repr=False)
    content_type: str = DEFAULT_CONTENT_TYPE
    #: The start of its publisher under which it has this sequence number. One event has several where it was sent to
    #: several brokers.
    boot: bytes = field(default=b"", repr=False, compare=False)
    #: The `traceparent` (W3C Trace Context) that it was published under, if its publisher traces.
    traceparent: str | None = field(default=None, repr=False, compare=False)
