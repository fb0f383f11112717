"""An event, the name of its place, and the event as a subscriber gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sealcast.errors import Misuse
from sealcast.model.schema import Value

MAX_PAYLOAD_BYTES: Final = 1 << 20
MAX_CONTENT_TYPE_LENGTH: Final = 255
DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"


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
