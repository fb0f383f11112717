"""Where everything stands in a message of one schema, computed once.

    message = 0x00 | salt (16) | record
    record  = presence bitmap | a fixed cell per attribute | content type length u8 | payload length u32
              | string bytes in schema order | content type bytes | payload bytes

Cells are little-endian: i64 for int, decimal (ticks of 10**-scale) and timestamp (microseconds since 1970), f64 for
float, u8 for bool, u32 byte length for string. Bit j % 8 of bitmap byte j / 8 says that attribute j is present; the
cell of an absent one is zero. Fixed cells come first so that those of a batch form a matrix, whose columns are the
columns.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy.typing as npt
import pyarrow as pa

from sealcast.errors import EventRejected, Misuse
from sealcast.model.event import MAX_CONTENT_TYPE_LENGTH
from sealcast.model.schema import Schema, Type
from sealcast.wire.limits import SALT_BYTES

#: Where the record starts in its message.
RECORD_AT: Final = 1 + SALT_BYTES
#: The last of the fixed part: content type length and payload length.
TRAILER_BYTES: Final = 5

MIN_INT64: Final = -(2**63)

_CELL: Final = {
    Type.INT: "q",
    Type.DECIMAL: "q",
    Type.TIMESTAMP: "q",
    Type.FLOAT: "d",
    Type.BOOL: "B",
    Type.STRING: "I",
}
#: How the values of each type travel in columns.
ARROW_TYPES: Final = {
    Type.INT: pa.int64(),
    Type.DECIMAL: pa.int64(),
    Type.TIMESTAMP: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.BOOL: pa.bool_(),
    Type.STRING: pa.utf8(),
}


class MessageLayout:
    """The places of one schema's parts."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.arrow_schema = arrow_schema(schema)
        self.presence_bytes = (len(schema.attributes) + 7) // 8
        cells = [_CELL[a.type] for a in schema.attributes]
        #: Byte, salt, bitmap, every cell, content type length, payload length.
        self.fixed = struct.Struct(f"<B{SALT_BYTES}s{self.presence_bytes}s{''.join(cells)}BI")
        self.fixed_bytes = self.fixed.size
        first = RECORD_AT + self.presence_bytes
        #: Where each attribute's cell starts in the message.
        self.cell_at = [first + struct.calcsize("<" + "".join(cells[:j])) for j in range(len(cells))]
        self.string_columns = [j for j, a in enumerate(schema.attributes) if a.type is Type.STRING]


def arrow_schema(schema: Schema) -> pa.Schema:
    """The physical columns of a schema's events."""
    return pa.schema([pa.field(a.name, ARROW_TYPES[a.type]) for a in schema.attributes])


def check_columns(columns: pa.RecordBatch, wanted: pa.Schema) -> None:
    """Misuse unless these are the physical columns of a schema's events."""
    if columns.schema.names != wanted.names or columns.schema.types != wanted.types:
        raise Misuse(f"the columns are to be those of the schema, {', '.join(wanted.names)}, in physical types")


def plain(array: pa.Array) -> npt.NDArray[Any]:
    """An Arrow array as numpy has it."""
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def content_type_bytes(text: str) -> bytes:
    """A content type as it travels: 1 to 255 visible ASCII characters (spaces too), or EventRejected."""
    if 0 < len(text) <= MAX_CONTENT_TYPE_LENGTH and text.isascii() and text.isprintable():
        return text.encode("ascii")
    raise EventRejected(f"a content type is 1 to {MAX_CONTENT_TYPE_LENGTH} printable ASCII characters")
