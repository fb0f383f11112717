"""What sealed pieces and hop pieces share on the wire: their envelope, typed arrays (RFC 8746) and small parts.

`PieceFormat` writes and reads the fields of a piece by tables; what no table holds, each kind of piece adds itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from sealcast.errors import Bug, FrameRejected
from sealcast.model.event import Position
from sealcast.model.rejection import Reason, Rejection
from sealcast.primitives.aead import MAX_OFFSET
from sealcast.wire import cbor
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


Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class PieceFormat(Generic[Piece]):
    """The bytes of one kind of piece: `[magic, version, {label: field}]`, checked as a whole by `check`."""

    make: Callable[..., Piece]
    check: Callable[[Piece], None]
    what: str
    magic: str
    version: int
    #: Label, field, and the kind of array it is on the wire.
    arrays: Mapping[int, tuple[str, int]]
    raw: Mapping[int, str]
    #: Label, field, and the most that it can be.
    ints: Mapping[int, tuple[str, int]]
    #: Label and field of what the kind of piece writes and reads itself.
    others: Mapping[int, str]
    max_items: int

    def encode(self, piece: Piece, **others: object) -> bytes:
        """The bytes of a piece. A piece that contradicts itself is a bug and is never written."""
        try:
            self.check(piece)
        except FrameRejected as error:
            raise Bug(f"{self.what} of our own making: {error.message}") from None
        fields: dict[int, object] = {label: others[name] for label, name in self.others.items()}
        fields |= {label: getattr(piece, name) for label, (name, _) in self.ints.items()}
        fields |= {label: bytes(getattr(piece, name)) for label, name in self.raw.items()}
        fields |= {label: tagged(getattr(piece, name), kind) for label, (name, kind) in self.arrays.items()}
        data = cbor.encode([self.magic, self.version, fields])
        if len(data) > MAX_PIECE_BYTES:
            raise Bug(f"{self.what} of {len(data)} bytes; {MAX_PIECE_BYTES} are allowed")
        return data

    def fields(self, data: bytes | memoryview) -> dict[str, Any]:
        """The fields by name, none of them copied. `others` are as they came: the kind of piece reads them itself."""
        outer = cbor.decode(
            data, max_bytes=MAX_PIECE_BYTES, max_depth=4, max_items=self.max_items, tags=TAGS, views=True
        )
        rest = cbor.versioned(outer, self.magic, self.version, self.what)
        labels = {*self.arrays, *self.raw, *self.ints, *self.others}
        if len(rest) != 1 or not isinstance(rest[0], dict) or set(rest[0]) != labels:
            raise cbor.refused(f"{self.what} has the labels 1 to {len(labels)}, each once")
        given = rest[0]
        found: dict[str, Any] = {name: raw(given[label], name) for label, name in self.raw.items()}
        found |= {name: whole(given[label], name, limit) for label, (name, limit) in self.ints.items()}
        found |= {name: array(given[label], name, kind) for label, (name, kind) in self.arrays.items()}
        return found | {name: given[label] for label, name in self.others.items()}

    def made(self, fields: dict[str, Any]) -> Piece:
        """The piece of all its fields, if it does not contradict itself."""
        piece = self.make(**fields)
        self.check(piece)
        return piece
