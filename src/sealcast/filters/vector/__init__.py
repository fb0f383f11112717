"""Conditions over a batch of events at once. `evaluate` is the reference; this agrees with it, faster.

intervals, leaves   a comparison with a constant as exact bounds: also what the index is made of
axes                columns as numbers on which bounds are compared
operands, compare   attributes against attributes, arithmetic
evaluator           three-valued logic over masks
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.filters.tree import Condition
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.model.schema import Schema

__all__ = ["Evaluator", "evaluate"]


def evaluate(
    condition: Condition,
    columns: pa.RecordBatch,
    schema: Schema,
    rows: NDArray[np.int64] | None = None,
    payloads: Sequence[bytes] | None = None,
) -> NDArray[np.bool_]:
    """Of which events (all, or those in `rows`) the condition is true; unknown is not true."""
    return Evaluator(columns, schema, payloads).true(condition, rows)
