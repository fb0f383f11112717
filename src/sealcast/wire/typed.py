"""Arrays and small parts that pieces are made of, on the wire: what they are checked for when they are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sealcast.model.event import Position
from sealcast.model.rejection import Reason, Rejection
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_COUNTS, MAX_EVENTS_PER_FRAME

#: RFC 8746: u8; u32 and u64, little-endian.
UINT8, UINT32, UINT64 = 64, 70, 71
DTYPE: Final = {UINT8: "u1", UINT32: "<u4", UINT64: "<u8"}
TAGS: Final = frozenset(DTYPE)

Array = npt.NDArray[Any]


def tagged(values: Array, kind: int) -> cbor.Tag:
    """An array as it is written."""
    return cbor.Tag(kind, np.ascontiguousarray(values, dtype=DTYPE[kind]).tobytes())


def array(value: object, name: str, kind: int) -> Array:
    """An array as it was read: a view of the bytes it came in."""
    dtype = np.dtype(DTYPE[kind])
    if not isinstance(value, cbor.Tag) or value.number != kind or not isinstance(value.value, memoryview):
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


def rejection(reason: object, detail: object, events: object, position: Position) -> Rejection:
    if not isinstance(reason, str) or reason not in Reason._value2member_map_:
        raise cbor.refused("a rejection's reason is one of those that admission has")
    if not isinstance(detail, str):
        raise cbor.refused("a rejection's detail is text")
    return Rejection(position, Reason(reason), detail, whole(events, "events", MAX_EVENTS_PER_FRAME))


def row(value: object) -> int:
    """Of a rejection: -1 when it is about the whole frame."""
    return -1 if value == -1 else whole(value, "row", MAX_EVENTS_PER_FRAME - 1)


def counts(value: object) -> dict[str, int]:
    if not isinstance(value, dict) or len(value) > MAX_COUNTS or not all(isinstance(name, str) for name in value):
        raise cbor.refused(f"counts are at most {MAX_COUNTS} numbers by name")
    return {str(name): whole(count, "a count", 2**63 - 1) for name, count in value.items()}


def starts(lengths: Iterable[int]) -> npt.NDArray[np.int64]:
    """Where each of the parts of those lengths starts, and the end."""
    return np.concatenate(([0], np.cumsum(np.fromiter(lengths, np.int64), dtype=np.int64)))
