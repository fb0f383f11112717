"""What sealed pieces and hop pieces share on the wire: their envelope, typed arrays (RFC 8746) and small parts.

A piece is a dataclass whose fields say in their annotations how they stand on the wire (`WireField`). `PieceFormat`
writes and reads them by that; of the fields that are `own`, each kind of piece sees to the form itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from sealcast.errors import Bug, FrameRejected
from sealcast.model.dataclass import dataclass
from sealcast.model.event import Position
from sealcast.model.rejection import Reason, Rejection
from sealcast.primitives.aead import MAX_OFFSET
from sealcast.wire import cbor
from sealcast.wire.annotations import annotated
from sealcast.wire.limits import MAX_COUNTS, MAX_EVENTS_PER_FRAME, MAX_PIECE_BYTES

#: RFC 8746: u8; u32 and u64, little-endian.
UINT8, UINT32, UINT64 = 64, 70, 71
DTYPE: Final = {UINT8: "u1", UINT32: "<u4", UINT64: "<u8"}
TAGS: Final = frozenset(DTYPE)

Array = npt.NDArray[Any]


def tagged(values: Array, kind: int) -> cbor.TaggedValue:
    """An array as it is written."""
    return cbor.TaggedValue(kind, np.ascontiguousarray(values, dtype=DTYPE[kind]).tobytes())


def array(value: object, name: str, kind: int) -> Array:
    """An array as it was read: a view of the bytes it came in."""
    dtype = np.dtype(DTYPE[kind])
    if not isinstance(value, cbor.TaggedValue) or value.number != kind or not isinstance(value.value, memoryview):
        raise cbor.refused(f"{name} is a typed array, tag {kind}")
    if len(value.value) % dtype.itemsize:
        raise cbor.refused(f"{name} ends within an element")
    return np.frombuffer(value.value, dtype=dtype)


def raw(value: object, name: str) -> memoryview:
    if not isinstance(value, memoryview):
        raise cbor.refused(f"{name} is a byte string")
    return value


def whole(value: object, name: str, limit: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise cbor.refused(f"{name} is a whole number from 0 to {limit}")
    return value


def listed(value: object, name: str, limit: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > limit:
        raise cbor.refused(f"{name} is an array of at most {limit}")
    return value


def rejected(rejection: Rejection) -> list[object]:
    """A rejection as it is written, but for its partition."""
    at = rejection.position
    return [at.offset, at.row, str(rejection.reason), rejection.detail, rejection.events]


def rejection(value: list[Any], partition: int) -> Rejection:
    """The rejection that `rejected` wrote. Its row is -1 when it is about the whole frame."""
    offset, row, reason, detail, events = value
    row = -1 if row == -1 else whole(row, "row", MAX_EVENTS_PER_FRAME - 1)
    position = Position(partition, whole(offset, "offset", MAX_OFFSET), row)
    if not isinstance(reason, str) or reason not in Reason._value2member_map_:
        raise cbor.refused("a rejection's reason is one of those that admission has")
    if not isinstance(detail, str):
        raise cbor.refused("a rejection's detail is text")
    return Rejection(position, Reason(reason), detail, whole(events, "events", MAX_EVENTS_PER_FRAME))


def counts(value: object) -> dict[str, int]:
    if not isinstance(value, dict) or len(value) > MAX_COUNTS or not all(isinstance(name, str) for name in value):
        raise cbor.refused(f"counts are at most {MAX_COUNTS} numbers by name")
    return {str(name): whole(count, "a count", 2**63 - 1) for name, count in value.items()}


def starts(lengths: Iterable[int]) -> npt.NDArray[np.int64]:
    """Where each of the parts of those lengths starts, and the end."""
    return np.concatenate(([0], np.cumsum(np.fromiter(lengths, np.int64), dtype=np.int64)))


# --- pieces -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WireField:
    """How a field stands on the wire: its label, and how its value is written there and read, given its name."""

    label: int
    write: Callable[[Any], object]
    read: Callable[[Any, str], Any]


def array_at(label: int, kind: int) -> WireField:
    """A typed array of that kind."""
    return WireField(label, lambda values: tagged(values, kind), lambda value, name: array(value, name, kind))


def raw_at(label: int) -> WireField:
    """A byte string."""
    return WireField(label, bytes, raw)


def whole_at(label: int, most: int) -> WireField:
    """A whole number from 0 to `most`."""
    return WireField(label, lambda value: value, lambda value, name: whole(value, name, most))


def own_at(label: int) -> WireField:
    """What the kind of piece brings into its form, and out of it, itself."""
    return WireField(label, lambda value: value, lambda value, name: value)


Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class PieceFormat(Generic[Piece]):
    """The bytes of one kind of piece: `[magic, version, {label: field}]`, checked as a whole by `check`."""

    make: type[Piece]
    check: Callable[[Piece], None]
    what: str
    magic: str
    version: int
    max_items: int

    @property
    def fields(self) -> dict[str, WireField]:
        """How each field stands on the wire."""
        return annotated(self.make)

    def encode(self, piece: Piece, **own: object) -> bytes:
        """The bytes of a piece. A piece that contradicts itself is a bug and is never written."""
        try:
            self.check(piece)
        except FrameRejected as error:
            raise Bug(f"{self.what} of our own making: {error.message}") from None
        values = {name: own[name] if name in own else getattr(piece, name) for name in self.fields}
        written = {field.label: field.write(values[name]) for name, field in self.fields.items()}
        data = cbor.encode([self.magic, self.version, written])
        if len(data) > MAX_PIECE_BYTES:
            raise Bug(f"{self.what} of {len(data)} bytes; {MAX_PIECE_BYTES} are allowed")
        return data

    def parse(self, data: bytes | memoryview) -> dict[str, Any]:
        """The fields by name, none of them copied. Those that are `own` are as they came."""
        outer = cbor.decode(
            data, max_bytes=MAX_PIECE_BYTES, max_depth=4, max_items=self.max_items, tags=TAGS, views=True
        )
        rest = cbor.versioned(outer, self.magic, self.version, self.what)
        labels = {field.label for field in self.fields.values()}
        if len(rest) != 1 or not isinstance(rest[0], dict) or set(rest[0]) != labels:
            raise cbor.refused(f"{self.what} has the labels 1 to {len(labels)}, each once")
        return {name: field.read(rest[0][field.label], name) for name, field in self.fields.items()}

    def made(self, fields: dict[str, Any]) -> Piece:
        """The piece of all its fields, if it does not contradict itself."""
        piece = self.make(**fields)
        self.check(piece)
        return piece
