"""What asking a condition costs, in units of work: counted beforehand and never measured, so it is the same each time.

A unit is a few nanoseconds of one core, at the worst that an adversary can make of a text or a payload. Most of the
time asking is much cheaper. Conditions that are all bounds are looked up and cost nothing here; these are for what an
index leaves to be asked, event by event.

    each event       every node of the tree; a pattern, what it costs to begin with it
    each character   of the texts that patterns and functions read: as many units as one of them may take for one
    each payload     what an XPath may cost on it (xpath.py)
    each time        compiling the patterns, should they have been forgotten
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.filters import tree
from sealcast.filters.cost import walk
from sealcast.filters.lengths import longest
from sealcast.filters.like import compile_like
from sealcast.filters.patterns import compile_regex
from sealcast.filters.tree import Condition
from sealcast.filters.xpath import Document
from sealcast.model.schema import Schema
from sealcast.wire.computing import pc

#: A node that is computed by columns, and one for which the reference evaluator may have to be asked.
_NODE: Final = 4
_HARD_NODE: Final = 200
#: Beginning with a pattern; a segment of LIKE; a character that a segment with `_` passes.
_PATTERN: Final = 40
_SEGMENT: Final = 20
_STEP: Final = 32
#: A character that a function reads, changes and writes.
_COPIED: Final = 16
#: Compiling a pattern: any, one instruction of a regular expression, one character of another pattern or an XPath.
_COMPILED: Final = 10_000
_INSTRUCTION: Final = 50
_CHARACTER: Final = 200
#: What is counted stays below: sums of it do not overflow.
MOST: Final = 1 << 40

Units = NDArray[np.int64]


class Work(NamedTuple):
    """What a condition costs."""

    once: int
    each_event: int
    #: By attribute.
    each_character: Mapping[str, int]
    xpaths: tuple[str, ...]

    @classmethod
    def of(cls, condition: Condition, schema: Schema) -> Work:
        once = each = 0
        characters, xpaths = Counter[str](), list[str]()
        for node, _ in walk(condition):
            match node:
                case tree.Regex(name, pattern):
                    program = compile_regex(pattern).programsize
                    once, each = once + _COMPILED + _INSTRUCTION * program, each + _PATTERN
                    characters[name] += program
                case tree.Like(operand, pattern, escape):
                    segments = compile_like(pattern, escape).segments
                    once += _COMPILED + _CHARACTER * len(pattern)
                    each += _PATTERN + _SEGMENT * len(segments)
                    step = 1 if all(s.plain is not None for s in segments) else _STEP
                    constant, times = longest(operand).multiplied(step)
                    each += constant
                    characters.update(times)
                case tree.Call() | tree.InSplit():
                    constant, times = longest(node).multiplied(_COPIED)
                    each += _HARD_NODE + constant
                    characters.update(times)
                case tree.PathMatch(name, levels):
                    each += _PATTERN + _SEGMENT * len(levels)
                    characters[name] += 1
                case tree.XPath(expression):
                    once, each = once + _COMPILED + _CHARACTER * len(expression), each + _PATTERN
                    xpaths.append(expression)
                case _:
                    each += _HARD_NODE if _is_hard(node, schema) else _NODE
        return cls(once, each, dict(characters), tuple(xpaths))


def _is_hard(node: tree.Condition | tree.Operand, schema: Schema) -> bool:
    """Whether some events may have to be decided one by one."""
    match node:
        case tree.Name() | tree.Literal() | tree.And() | tree.Or() | tree.Not() | tree.IsNull(tree.Name()):
            return False
        case tree.Compare(_, tree.Name(left), tree.Name(right)):
            kinds = [schema.by_name[name] for name in (left, right) if name in schema.by_name]
            return len({(kind.type, kind.scale) for kind in kinds}) > 1
        case tree.Compare(_, tree.Name(), tree.Literal()) | tree.Compare(_, tree.Literal(), tree.Name()):
            return False
        case _:
            return True


class Measure:
    """Events of one batch, as far as work depends on them."""

    def __init__(self, columns: pa.RecordBatch, payloads: Sequence[bytes] | None) -> None:
        self._columns, self._payloads = columns, payloads
        self._lengths: dict[str, Units] = {}
        self._documents: dict[int, Document | None] = {}

    def longest(self, name: str) -> int:
        """Bytes of the longest text of an attribute."""
        return int(self._of(name).max(initial=0))

    def each(self, work: Work, rows: Units) -> Units:
        """What it costs on each of these events."""
        units = np.full(rows.size, work.each_event, np.int64)
        for name, weight in work.each_character.items():
            units += weight * self._of(name).take(rows)
        for expression in work.xpaths:
            units += np.fromiter((self._xpath(expression, row) for row in rows.tolist()), np.int64, rows.size)
        return np.minimum(units, MOST)

    def _xpath(self, expression: str, row: int) -> int:
        """Parsing the payload, and asking it; what is too much to try is not tried."""
        if self._payloads is None:
            return 0
        if row not in self._documents:
            self._documents[row] = Document.parse(self._payloads[row])
        document = self._documents[row]
        return len(self._payloads[row]) + (0 if document is None else document.work(expression) or 0)

    def _of(self, name: str) -> Units:
        """Bytes of an attribute's texts."""
        if name not in self._lengths:
            known = name in self._columns.schema.names and pa.types.is_string(self._columns.schema.field(name).type)
            lengths = pc.fill_null(pc.binary_length(self._columns.column(name)), 0) if known else None
            size = self._columns.num_rows
            self._lengths[name] = np.zeros(size, np.int64) if lengths is None else np.asarray(lengths).astype(np.int64)
        return self._lengths[name]
