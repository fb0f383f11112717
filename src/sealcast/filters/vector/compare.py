"""Two columns compared, exactly: where the comparison is true, where it is known at all, and which rows are hard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sealcast.filters.tree import Comparison
from sealcast.filters.values import ORDER
from sealcast.filters.vector.axes import Bools
from sealcast.filters.vector.batch import Batch, Rows
from sealcast.filters.vector.operands import Column, aligned, both, either
from sealcast.model.schema import Type
from sealcast.wire.computing import pc

_EXACT_DOUBLE: Final = 2**53
_TEXT_ORDER: Final[dict[Comparison, Callable[[Any, Any], Any]]] = {
    Comparison.EQ: pc.equal,
    Comparison.NE: pc.not_equal,
    Comparison.LT: pc.less,
    Comparison.LE: pc.less_equal,
    Comparison.GT: pc.greater,
    Comparison.GE: pc.greater_equal,
}


def compared(
    op: Comparison, a: Column, b: Column, batch: Batch, rows: Rows | None
) -> tuple[Bools, Bools | None, Bools | None]:
    """(true, known, hard); true is meaningless where it is not known. Unlike kinds compare to false."""
    known, hard = both(a.present, b.present), either(a.hard, b.hard)
    false = np.zeros(batch.size if rows is None else rows.size, np.bool_)
    if a.is_number and b.is_number:
        true, hard = _numbers(op, a, b, hard)
        return true, known, hard
    if a.type is not b.type or a.type is None:
        return false, known, hard
    if a.type is Type.STRING:
        return _texts(op, a, b, batch, rows), known, hard
    if a.type is Type.BOOL and op not in (Comparison.EQ, Comparison.NE):
        return false, known, hard
    return ORDER[op](a.values, b.values), known, hard


def _numbers(op: Comparison, a: Column, b: Column, hard: Bools | None) -> tuple[Bools, Bools | None]:
    if a.type is b.type is Type.FLOAT:
        return ORDER[op](a.values, b.values), hard
    if Type.FLOAT in (a.type, b.type):
        return _mixed(op, a, b, hard)
    scale = max(a.scale, b.scale)
    left, hard = aligned(a, scale, hard)
    right, hard = aligned(b, scale, hard)
    return ORDER[op](left, right), hard


def _mixed(op: Comparison, a: Column, b: Column, hard: Bools | None) -> tuple[Bools, Bools | None]:
    """A whole number that is a double without rounding compares as one; anything else is hard."""
    whole = b if a.type is Type.FLOAT else a
    # Below, not up to: 2**53 + 1 has already become 2**53 here.
    easy = (np.abs(whole.values.astype(np.float64)) < _EXACT_DOUBLE) & (whole.scale == 0)
    true = ORDER[op](a.values.astype(np.float64), b.values.astype(np.float64))
    return true, hard if easy.all() else either(hard, ~easy)


def _texts(op: Comparison, a: Column, b: Column, batch: Batch, rows: Rows | None) -> Bools:
    """Arrow compares the bytes of UTF-8, whose order is that of code points."""
    left, right = batch.column(a.name), batch.column(b.name)
    if rows is not None:
        chosen = pa.array(rows)
        left, right = left.take(chosen), right.take(chosen)
    return np.asarray(pc.fill_null(_TEXT_ORDER[op](left, right), False))
