"""What travels between two hops of a batch: many messages of one node as one row, each thing in it once.

An event's body is there once, whomever it goes to; a token is there once, and entries name it by its number. Labels
repeat from event to event far more than they differ, so that this is a fraction of what the messages would take one
by one, and a node that reads it has equal tokens as one object, whose hash is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.errors import Rejected
from sealcast.protections.layered.messages import Entry, Notification
from sealcast.protections.layered.publish import EVENT_BYTES

#: Numbers are packed: int64 and int32, little-endian.
COLUMNS: Final = pa.schema(
    [
        pa.field("node", pa.string(), nullable=False),  # whom the piece is for; nobody: those who subscribed
        pa.field("number", pa.int64(), nullable=False),  # of the piece that the publisher made
        pa.field("places", pa.binary(), nullable=False),  # of events: where they stand in the input
        pa.field("ids", pa.binary(), nullable=False),
        pa.field("body_sizes", pa.binary(), nullable=False),
        pa.field("bodies", pa.binary(), nullable=False),
        pa.field("tokens", pa.binary(), nullable=False),
        pa.field("receivers", pa.list_(pa.string()), nullable=False),
        pa.field("message_to", pa.binary(), nullable=False),  # of messages: receiver, event, how many entries
        pa.field("message_event", pa.binary(), nullable=False),
        pa.field("message_entries", pa.binary(), nullable=False),
        pa.field("entry_keys", pa.binary(), nullable=False),
        pa.field("entry_final", pa.binary(), nullable=False),
        pa.field("entry_sizes", pa.binary(), nullable=False),
        pa.field("entry_tokens", pa.binary(), nullable=False),
    ]
)
DDL: Final = ", ".join(
    f"{field.name} " + {"string": "STRING", "int64": "BIGINT", "binary": "BINARY"}.get(str(field.type), "ARRAY<STRING>")
    for field in COLUMNS
)
#: For whom a piece is that has nothing but final entries.
SUBSCRIBERS: Final = ""


class Writer:
    """Messages -> a row."""

    def __init__(self, node: str, number: int) -> None:
        self._node = node
        self._number = number
        self._events: dict[int, int] = {}
        self._ids: list[bytes] = []
        self._bodies: list[bytes] = []
        self._tokens: dict[bytes, int] = {}
        self._receivers: dict[str, int] = {}
        self._messages: list[tuple[int, int, int]] = []
        self._keys: list[bytes] = []
        self._final = bytearray()
        self._sizes: list[int] = []
        self._entry_tokens: list[int] = []

    def add(self, receiver: str, place: int, message: Notification) -> None:
        event = self._events.setdefault(place, len(self._ids))
        if event == len(self._ids):
            self._ids.append(message.event)
            self._bodies.append(message.body)
        to = self._receivers.setdefault(receiver, len(self._receivers))
        self._messages.append((to, event, len(message.entries)))
        tokens, number = self._tokens, self._tokens.setdefault
        for entry in message.entries:
            self._keys.append(entry.key)
            self._final.append(entry.final)
            self._sizes.append(len(entry.tokens))
            self._entry_tokens += [number(token, len(tokens)) for token in entry.tokens]

    def row(self) -> dict[str, object]:
        messages = np.array(self._messages, "<i4").reshape(-1, 3)
        return {
            "node": self._node,
            "number": self._number,
            "places": np.fromiter(self._events, "<i8", len(self._events)).tobytes(),
            "ids": b"".join(self._ids),
            "body_sizes": np.fromiter(map(len, self._bodies), "<i4", len(self._bodies)).tobytes(),
            "bodies": b"".join(self._bodies),
            "tokens": b"".join(self._tokens),
            "receivers": list(self._receivers),
            "message_to": messages[:, 0].tobytes(),
            "message_event": messages[:, 1].tobytes(),
            "message_entries": messages[:, 2].tobytes(),
            "entry_keys": b"".join(self._keys),
            "entry_final": bytes(self._final),
            "entry_sizes": np.array(self._sizes, "<i4").tobytes(),
            "entry_tokens": np.array(self._entry_tokens, "<i4").tobytes(),
        }


def batch(writers: Mapping[str, Writer]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([writer.row() for writer in writers.values()], schema=COLUMNS)


def messages(row: Mapping[str, Any], element_bytes: int) -> Iterator[tuple[str, int, Notification]]:
    """Receiver, place of the event and message, in the order in which they were added."""
    ids, bodies = _cut(row["ids"], EVENT_BYTES), _cut_by(row["bodies"], _ints(row["body_sizes"]))
    tokens, keys = _cut(row["tokens"], element_bytes), _cut(row["entry_keys"], element_bytes)
    places, receivers = np.frombuffer(row["places"], "<i8").tolist(), row["receivers"]
    numbers, final = _ints(row["entry_tokens"]).tolist(), row["entry_final"]
    ends = np.cumsum(_ints(row["entry_sizes"]), dtype=np.int64).tolist()
    if len(ends) != len(keys) or len(final) != len(keys) or (ends[-1] if ends else 0) != len(numbers):
        raise Rejected("a piece's entries do not add up")
    at = start = 0
    to, event, count = (_ints(row[name]).tolist() for name in ("message_to", "message_event", "message_entries"))
    for receiver, which, entries in zip(to, event, count, strict=True):
        found = []
        for _ in range(entries):
            end = ends[at]
            found.append(Entry(tuple([tokens[i] for i in numbers[start:end]]), keys[at], bool(final[at])))
            at, start = at + 1, end
        yield receivers[receiver], places[which], Notification(ids[which], tuple(found), bodies[which])


def _ints(packed: bytes) -> NDArray[np.int32]:
    return np.frombuffer(packed, "<i4")


def _cut(joined: bytes, size: int) -> list[bytes]:
    return [joined[at : at + size] for at in range(0, len(joined), size)]


def _cut_by(joined: bytes, sizes: NDArray[np.int32]) -> list[bytes]:
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    return [joined[start:end] for start, end in zip([0, *ends], ends, strict=False)]
