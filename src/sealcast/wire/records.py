"""Messages: an event's bytes. The same ones are hashed by the publisher, sealed by the broker, read by the subscriber.

`layout` says where everything stands in a message. There is exactly one encoding of an event and a salt: what decodes
encodes to the same bytes again. The leading 0x00 makes SHA-256 of a message its Merkle leaf hash; the salt keeps
a neighbour, who sees that hash in a path, from testing guesses of the event.

One event at a time, in plain Python: `encode`, `decode_one`. A batch at a time, vectorised: `encode_columns`, `decode`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.errors import EventRejected, Misuse
from sealcast.model import moments
from sealcast.model.event import DEFAULT_CONTENT_TYPE, MAX_PAYLOAD_BYTES
from sealcast.model.schema import Attribute, Physical, Schema, Type, Value
from sealcast.wire import columns as vectorised
from sealcast.wire.columns import Decoded
from sealcast.wire.computing import pc
from sealcast.wire.domain import check_domain
from sealcast.wire.layout import (
    MIN_INT64,
    RECORD_AT,
    TRAILER_BYTES,
    MessageLayout,
    arrow_schema,
    check_columns,
    content_type_bytes,
    plain,
)
from sealcast.wire.limits import MAX_MESSAGE_BYTES, SALT_BYTES

__all__ = ["Decoded", "RecordCodec", "arrow_schema", "check_domain", "fresh_salts"]


def fresh_salts(count: int) -> bytes:
    """Salts for `count` messages, in one piece: one call, for a call per salt would cost as much as sealing."""
    return os.urandom(SALT_BYTES * count)


class RecordCodec:
    """Messages of one schema: to bytes and back."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.layout = MessageLayout(schema)

    # --- to bytes --------------------------------------------------------------------------------

    def encode(
        self,
        values: Sequence[Mapping[str, Value]],
        payloads: Sequence[bytes],
        content_types: Sequence[str] | str = DEFAULT_CONTENT_TYPE,
        salts: bytes | None = None,
    ) -> list[bytes]:
        """The messages of parsed events (`Schema.parse`): for a publisher that has Python values."""
        count = len(values)
        kinds = [content_types] * count if isinstance(content_types, str) else content_types
        salts = fresh_salts(count) if salts is None else salts
        if not len(payloads) == len(kinds) == count or len(salts) != SALT_BYTES * count:
            raise Misuse("encode takes a payload, a content type and a salt for each event")
        return [
            self._encode_one(values[i], payloads[i], kinds[i], salts[SALT_BYTES * i : SALT_BYTES * (i + 1)])
            for i in range(count)
        ]

    def _encode_one(self, values: Mapping[str, Value], payload: bytes, content_type: str, salt: bytes) -> bytes:
        present, cells, tail = 0, [], []
        for j, attribute in enumerate(self.schema.attributes):
            cell: Physical | None = attribute.to_physical(values.get(attribute.name))
            if cell is None:
                cell = 0
            else:
                present |= 1 << j
                if isinstance(cell, str):
                    text = cell.encode()
                    tail.append(text)
                    cell = len(text)
                elif isinstance(cell, float):
                    cell += 0.0  # -0.0 becomes 0.0: equal values have equal bytes
            cells.append(cell)
        kind = content_type_bytes(content_type)
        _check_payload(len(payload))
        bitmap = present.to_bytes(self.layout.presence_bytes, "little")
        fixed = self.layout.fixed.pack(0, salt, bitmap, *cells, len(kind), len(payload))
        message = b"".join((fixed, *tail, kind, payload))
        _check_message(len(message))
        return message

    def encode_columns(
        self,
        columns: pa.RecordBatch,
        payloads: pa.Array,
        content_types: pa.Array | str = DEFAULT_CONTENT_TYPE,
        salts: bytes | None = None,
    ) -> list[bytes]:
        """The messages of physical columns that passed `check_domain`: for a publisher on Arrow."""
        count, layout = columns.num_rows, self.layout
        check_columns(columns, layout.arrow_schema)
        salts = fresh_salts(count) if salts is None else salts
        if len(payloads) != count or payloads.null_count or len(salts) != SALT_BYTES * count:
            raise Misuse("encode_columns takes a payload and a salt for each event")
        if not count:
            return []
        payloads, kinds = payloads.cast(pa.binary()), _content_types(content_types, count)
        strings = [pc.fill_null(columns.column(j).cast(pa.binary()), b"") for j in layout.string_columns]
        fixed = np.zeros((count, layout.fixed_bytes), dtype=np.uint8)
        fixed[:, 1:RECORD_AT] = np.frombuffer(salts, dtype=np.uint8).reshape(count, SALT_BYTES)
        for j, attribute in enumerate(self.schema.attributes):
            column = columns.column(j)
            fixed[:, RECORD_AT + j // 8] |= plain(column.is_valid()).astype(np.uint8) << (j % 8)
            _put(fixed, layout.cell_at[j], _cells(attribute, column))
        _check_payload(int(_put(fixed, layout.fixed_bytes - 4, _lengths(payloads)).max()))
        sizes = len(kinds.as_py()) if isinstance(kinds, pa.Scalar) else _lengths(kinds)
        fixed[:, layout.fixed_bytes - TRAILER_BYTES] = sizes
        heads = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(layout.fixed_bytes), count, [None, pa.py_buffer(fixed)]
        ).cast(pa.binary())
        joined = pc.binary_join_element_wise(heads, *strings, kinds, payloads, pa.scalar(b"", pa.binary()))
        _check_message(int(_lengths(joined).max()))
        messages: list[bytes] = joined.to_pylist()
        return messages

    # --- to values -------------------------------------------------------------------------------

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """The columns of a batch of messages from anywhere; what is no record of this schema is named, row by row."""
        return vectorised.decode(self.layout, messages)

    def decode_joined(self, joined: bytes, lengths: NDArray[np.int64]) -> Decoded:
        """Decodes messages that are in one piece already, given how long each of them is."""
        return vectorised.decode_joined(self.layout, joined, lengths)

    def decode_one(self, message: bytes) -> tuple[dict[str, Value], bytes, str]:
        """Values, payload and content type of one message; EventRejected when it is no record of this schema."""
        layout = self.layout
        if not layout.fixed_bytes <= len(message) <= MAX_MESSAGE_BYTES:
            raise EventRejected(f"a message of this schema has {layout.fixed_bytes} to {MAX_MESSAGE_BYTES} bytes")
        zero, _, bitmap, *cells, kind_length, payload_length = layout.fixed.unpack_from(message)
        present = int.from_bytes(bitmap, "little")
        if zero or present >> len(cells):
            raise EventRejected("a message starts with a zero byte and names only attributes that exist")
        at = layout.fixed_bytes
        values: dict[str, Value] = {}
        for j, (attribute, cell) in enumerate(zip(self.schema.attributes, cells, strict=True)):
            text = b""
            if attribute.type is Type.STRING:
                text, at = message[at : at + cell], at + cell
            values[attribute.name] = _value(attribute, cell, text, bool(present >> j & 1))
        start = at + kind_length
        if start + payload_length != len(message):
            raise EventRejected("a message's lengths add up to its own")
        _check_payload(payload_length)
        kind = message[at:start].decode("latin-1")
        content_type_bytes(kind)
        return values, message[start:], kind


# --- inside -------------------------------------------------------------------------------------


def _value(attribute: Attribute, cell: Any, text: bytes, present: bool) -> Value:
    if not present:
        if cell or (isinstance(cell, float) and math.copysign(1, cell) < 0):
            raise _refused(attribute, "is absent and yet has a value")
        return None
    match attribute.type:
        case Type.STRING:
            try:
                return text.decode()
            except UnicodeDecodeError:
                raise _refused(attribute, "is not UTF-8") from None
        case Type.BOOL:
            if cell > 1:
                raise _refused(attribute, "a bool is 0 or 1")
            return bool(cell)
        case Type.FLOAT:
            if not math.isfinite(cell) or (cell == 0 and math.copysign(1, cell) < 0):
                raise _refused(attribute, "is not a finite number, or a zero with a sign")
            return float(cell)
        case Type.TIMESTAMP if not moments.FIRST <= cell <= moments.LAST:
            raise _refused(attribute, "is outside the calendar's years 1 to 9999")
        case Type.DECIMAL if cell == MIN_INT64:
            raise _refused(attribute, "does not fit")
        case _:
            return attribute.from_physical(cell)


def _refused(attribute: Attribute, why: str) -> EventRejected:
    return EventRejected(f"attribute {attribute.name!r}: {why}", attribute=attribute.name)


def _check_payload(size: int) -> None:
    if size > MAX_PAYLOAD_BYTES:
        raise EventRejected(f"a payload of {size} bytes; {MAX_PAYLOAD_BYTES} are allowed")


def _check_message(size: int) -> None:
    if size > MAX_MESSAGE_BYTES:
        raise EventRejected(f"an event that takes {size} bytes; {MAX_MESSAGE_BYTES} are allowed")


def _content_types(given: pa.Array | str, count: int) -> pa.Array | pa.Scalar:
    if isinstance(given, str):
        return pa.scalar(content_type_bytes(given), pa.binary())
    if len(given) != count or given.null_count:
        raise Misuse("encode_columns takes one content type, or one for each event")
    for kind in pc.unique(given).to_pylist():
        content_type_bytes(kind)
    return given.cast(pa.binary())


def _cells(attribute: Attribute, column: pa.Array) -> vectorised.Cells:
    match attribute.type:
        case Type.STRING:
            return _lengths(pc.fill_null(column, ""))
        case Type.BOOL:
            return plain(pc.fill_null(column, False)).astype(np.uint8)
        case Type.FLOAT:
            return (plain(pc.fill_null(column, 0.0)) + 0.0).astype("<f8")
        case _:
            return plain(pc.fill_null(column, 0)).astype("<i8")


def _lengths(array: pa.Array) -> vectorised.Cells:
    return plain(pc.binary_length(array)).astype("<u4")


def _put(fixed: vectorised.Bytes, at: int, cell: vectorised.Cells) -> vectorised.Cells:
    size = cell.dtype.itemsize
    fixed[:, at : at + size] = np.ascontiguousarray(cell).view(np.uint8).reshape(-1, size)
    return cell
