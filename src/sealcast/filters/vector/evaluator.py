"""Three-valued logic over masks: of each event a condition is true, false, or neither.

A comparison with a constant is a question about bounds (`leaves`); a pattern, and a function of one text, is asked once
per distinct text; what is left is computed (`operands`, `compare`), and what cannot be computed exactly in 64 bits goes
to the reference evaluator, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.filters import patterns, tree
from sealcast.filters.cost import names, walk
from sealcast.filters.evaluate import FilterInput, holds
from sealcast.filters.like import compile_like
from sealcast.filters.tree import Comparison, Condition, Operand
from sealcast.filters.vector.asked import FALSE, TRUE
from sealcast.filters.vector.axes import Bools, Places, Texts
from sealcast.filters.vector.batch import Batch, Rows
from sealcast.filters.vector.bounds import Bounds, Prepared
from sealcast.filters.vector.compare import compared
from sealcast.filters.vector.operands import operand
from sealcast.model.schema import Schema, Type

#: True, false; unknown is neither.
Masks = tuple[Bools, Bools]
#: Up to this many events, asking the reference evaluator is cheaper than setting up masks.
FEW_ROWS: Final = 4


class Evaluator:
    """One batch of events, asked by many conditions. Whoever asks the same of every batch keeps a `Prepared`."""

    def __init__(
        self,
        columns: pa.RecordBatch,
        schema: Schema,
        payloads: Sequence[bytes] | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        self._batch = Batch(columns, schema, payloads)
        self._schema = schema
        self._prepared = Prepared() if prepared is None else prepared
        #: Of a column's distinct texts, the numbers that its lexicon gave them.
        self._numbers: dict[str, NDArray[np.int64]] = {}

    def true(self, condition: Condition, rows: NDArray[np.int64] | None = None) -> Bools:
        """Of which events (all, or those in `rows`, in their order) the condition is true."""
        if rows is not None and rows.size <= FEW_ROWS:
            return self._asked(condition, rows)[0]
        return self._masks(condition, rows)[0]

    def _size(self, rows: Rows | None) -> int:
        return self._batch.size if rows is None else rows.size

    def _masks(self, condition: Condition, rows: Rows | None) -> Masks:
        match condition:
            case tree.Not(inner):
                true, false = self._masks(inner, rows)
                return false, true
            case tree.And(items):
                return self._all([self._masks(item, rows) for item in items])
            case tree.Or(items):
                false, true = self._all([self._masks(item, rows)[::-1] for item in items])
                return true, false
            case _:
                return self._leaf(condition, rows)

    @staticmethod
    def _all(parts: list[Masks]) -> Masks:
        """True where all are, false where one is."""
        return np.logical_and.reduce([t for t, _ in parts]), np.logical_or.reduce([f for _, f in parts])

    # --- leaves ---------------------------------------------------------------------------------

    def _leaf(self, condition: Condition, rows: Rows | None) -> Masks:
        bounded = self._bounded(condition, rows)
        if bounded is not None:
            return bounded
        match condition:
            case tree.Compare(op, left, right):
                return self._compare(op, left, right, condition, rows)
            case tree.Between() if any(isinstance(node, tree.Call | tree.Predicate) for node, _ in walk(condition)):
                return self._once_per_text(condition, rows)
            case tree.Between(inner, low, high, negated):
                above = self._compare(Comparison.GE, inner, low, tree.Compare(Comparison.GE, inner, low), rows)
                below = self._compare(Comparison.LE, inner, high, tree.Compare(Comparison.LE, inner, high), rows)
                true, false = self._all([above, below])
                return (false, true) if negated else (true, false)
            case tree.Like(tree.Name(name), pattern, escape, negated) if self._is_text(name):
                compiled = compile_like(pattern, escape)
                true, false = self._per_text(name, condition, compiled.matches, rows)
                return (false, true) if negated else (true, false)
            case tree.PathMatch(name, levels) if self._is_text(name):
                return self._per_text(name, condition, lambda text: patterns.path_matches(levels, text), rows)
            case tree.Regex(name, pattern) if self._is_text(name):
                return self._per_text(name, condition, patterns.regex_matcher(pattern), rows)
            case tree.IsNull(inner, negated):
                return self._is_null(inner, negated, condition, rows)
            case tree.Truth(tree.Predicate(inner)):
                return self._masks(inner, rows)
            case _:
                return self._once_per_text(condition, rows)

    def _once_per_text(self, condition: Condition, rows: Rows | None) -> Masks:
        """What reads one text and nothing else says the same whenever that text comes; the rest is asked each time."""
        name, *others = names(condition) or ("",)
        more = any(isinstance(node, tree.XPath | tree.Now) for node, _ in walk(condition))
        if others or more or not self._is_text(name):
            return self._asked(condition, rows)
        true, false = self._per_text(name, condition, lambda text: holds(condition, FilterInput({name: text})), rows)
        present = self._batch.distinct(name).present
        if present is not None:
            absent = ~(present if rows is None else present.take(rows))
            of_null = holds(condition, FilterInput({}))
            true, false = true | (absent & (of_null is True)), false | (absent & (of_null is False))
        return true, false

    def _asked(self, condition: Condition, rows: Rows | None) -> Masks:
        """By the reference evaluator, event by event."""
        true, false = np.zeros(self._size(rows), np.bool_), np.zeros(self._size(rows), np.bool_)
        for i, row in enumerate(range(self._batch.size) if rows is None else rows.tolist()):
            truth = holds(condition, self._batch.event(row))
            true[i], false[i] = truth is True, truth is False
        return true, false

    def _compare(self, op: Comparison, left: Operand, right: Operand, said: Condition, rows: Rows | None) -> Masks:
        a, b = operand(left, self._batch, rows), operand(right, self._batch, rows)
        if a is None or b is None:
            return self._once_per_text(said, rows)
        true, known, hard = compared(op, a, b, self._batch, rows)
        if known is None:
            true, false = true, ~true
        else:
            true, false = true & known, ~true & known
        return self._corrected(true, false, hard, said, rows)

    def _corrected(self, true: Bools, false: Bools, hard: Bools | None, said: Condition, rows: Rows | None) -> Masks:
        """The hard rows as the reference evaluator has them."""
        if hard is not None:
            which = np.flatnonzero(hard)
            true[which], false[which] = self._asked(said, which if rows is None else rows[which])
        return true, false

    def _is_null(self, inner: Operand, negated: bool, said: Condition, rows: Rows | None) -> Masks:
        column = operand(inner, self._batch, rows)
        if column is None:
            return self._once_per_text(said, rows)
        size = self._size(rows)
        present = np.ones(size, np.bool_) if column.present is None else column.present
        true = present.copy() if negated else ~present
        return self._corrected(true, ~true, column.hard, said, rows)

    # --- bounds ---------------------------------------------------------------------------------

    def _bounded(self, condition: Condition, rows: Rows | None) -> Masks | None:
        bounds = self._prepared.bounds(condition, self._schema)
        return None if bounds is None else (self._where(bounds[0], rows), self._where(bounds[1], rows))

    def _where(self, bounds: Bounds, rows: Rows | None) -> Bools:
        size = self._size(rows)
        if bounds.axis is None:
            return np.full(size, bounds.everywhere)
        if not self._batch.has(bounds.axis.name):
            return np.full(size, bounds.null)
        if isinstance(bounds.axis, Texts):
            places = bounds.axis.places(self._batch.encoded(bounds.axis.name))
        else:
            places = Places(*self._batch.numbers(bounds.axis.name))
        if rows is not None:
            places = places.take(rows)
        inside = bounds.hold(places.values)
        return inside if places.present is None else np.where(places.present, inside, bounds.null)

    # --- texts ----------------------------------------------------------------------------------

    def _is_text(self, name: str) -> bool:
        return self._batch.has(name) and self._schema.by_name[name].type is Type.STRING

    def _per_text(
        self, name: str, pattern: Condition, matches: Callable[[str], bool | None], rows: Rows | None
    ) -> Masks:
        """Once per text and pattern, whatever the batch; a text that is NULL is neither true nor false."""
        distinct, lexicon = self._batch.distinct(name), self._prepared.lexicon(name)
        if name not in self._numbers:
            self._numbers[name] = lexicon.numbers(distinct.texts)
        which = distinct.which if rows is None else distinct.which.take(rows)
        if distinct.present is None:
            said = lexicon.ask(pattern, matches, self._numbers[name].take(which))
            return said == TRUE, said == FALSE
        there = np.flatnonzero(distinct.present if rows is None else distinct.present.take(rows))
        said = np.zeros(which.size, np.uint8)
        said[there] = lexicon.ask(pattern, matches, self._numbers[name].take(which[there]))
        return said == TRUE, said == FALSE
