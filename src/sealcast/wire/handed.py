"""From physical columns to those that a user reads: the way back from `given`.

    position, publisher, published_at, sequence, the attributes of the topic's schema, payload, content_type

`columns_of` names them with their Arrow types. An attribute of one of these names keeps it, and the other column gets
an underscore. A table of `payload`, `content_type` and the attributes can be published as it is.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sealcast.model.event import own_column
from sealcast.model.schema import Attribute, Schema, Type

_MOMENT: Final = pa.timestamp("us", "UTC")
_BEFORE: Final = (
    ("position", pa.utf8()),
    ("publisher", pa.utf8()),
    ("published_at", _MOMENT),
    ("sequence", pa.int64()),
)
_AFTER: Final = (("payload", pa.binary()), ("content_type", pa.utf8()))
_TYPES: Final = {
    Type.INT: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.STRING: pa.utf8(),
    Type.BOOL: pa.bool_(),
    Type.TIMESTAMP: _MOMENT,
}
#: What 64 bits hold, in decimal digits.
INT64_DIGITS: Final = 19


def columns_of(schema: Schema) -> pa.Schema:
    """What reading a topic gives."""
    before = [pa.field(own_column(name, schema.names), kind, nullable=False) for name, kind in _BEFORE]
    values = [pa.field(attribute.name, _type_of(attribute)) for attribute in schema.attributes]
    after = [pa.field(own_column(name, schema.names), kind, nullable=False) for name, kind in _AFTER]
    return pa.schema([*before, *values, *after])


def handed_column(attribute: Attribute, physical: pa.Array) -> pa.Array:
    """An attribute's physical column in its own type."""
    match attribute.type:
        case Type.TIMESTAMP:
            return physical.view(_MOMENT)
        case Type.DECIMAL:
            return _decimals(physical, _type_of(attribute))
        case _:
            return physical


def _type_of(attribute: Attribute) -> pa.DataType:
    if attribute.type is Type.DECIMAL:
        return pa.decimal128(INT64_DIGITS, attribute.scale)
    return _TYPES[attribute.type]


def _decimals(ticks: pa.Array, kind: pa.DataType) -> pa.Array:
    """Whole ticks as decimals of that scale: Arrow has them as 128 bits, of which these fill the lower half."""
    values: npt.NDArray[Any] = np.frombuffer(ticks.buffers()[1], np.int64)[ticks.offset : ticks.offset + len(ticks)]
    wide = np.empty((len(ticks), 2), np.int64)
    wide[:, 0] = values
    wide[:, 1] = values >> 63
    valid = None
    if ticks.null_count:
        valid = pa.py_buffer(np.packbits(ticks.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(kind, len(ticks), [valid, pa.py_buffer(wide)])
