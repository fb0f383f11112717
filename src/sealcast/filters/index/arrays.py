"""An index as named arrays and back: what a snapshot stores. Everything that is no array is JSON in the array `facts`.

Names are paths: `part0/axis2/table` is the table of axis 2 of the first part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Corrupt, SchemaRejected
from sealcast.filters.index.blocks import Blocks
from sealcast.filters.index.boxes import Side
from sealcast.filters.index.compile import NO_RESIDUAL
from sealcast.filters.index.core import Index
from sealcast.filters.index.dense import Dense
from sealcast.filters.index.fan import Fan, IndexPart
from sealcast.filters.index.grid import BoxGrid
from sealcast.filters.index.postings import Keys, Postings
from sealcast.filters.index.tables import Table
from sealcast.filters.index.treejson import from_json, to_json
from sealcast.filters.vector.axes import Axis, Line, Texts
from sealcast.model.schema import Schema

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Facts = dict[str, Any]

FACTS: Final = "facts"
_FORMAT: Final = 1


def to_arrays(index: Index) -> dict[str, Array]:
    arrays: dict[str, Array] = {
        "fan/starts": index.fan.starts,
        "fan/subscriptions": index.fan.subscriptions,
        "always": index.always,
        "residual_of": index.residual_of,
    }
    facts: Facts = {
        "format": _FORMAT,
        "schema": index.schema.to_json(),
        "count": index.count,
        "axes": [_put_axis(axis, f"axis{a}", arrays) for a, axis in enumerate(index.axes)],
        "dense": None if index.dense is None else _put_dense(index.dense, arrays),
        "parts": [_put_part(part, f"part{i}", arrays) for i, part in enumerate(index.parts)],
        "residuals": [to_json(condition) for condition in index.residuals],
    }
    arrays[FACTS] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    return arrays


def from_arrays(arrays: Arrays) -> Index:
    """The index; Corrupt if the arrays do not fit together as `to_arrays` makes them."""
    source = _Source(arrays)
    try:
        facts = json.loads(source.take(FACTS, "uint8").tobytes())
        if facts["format"] != _FORMAT:
            raise Corrupt(
                f"an index of format {facts['format']}, not {_FORMAT}", hint="build it again from the filters"
            )
        schema = Schema.from_json(facts["schema"])
        axes = [_take_axis(given, f"axis{a}", source) for a, given in enumerate(facts["axes"])]
        residuals = [from_json(given) for given in facts["residuals"]]
        residual_of = source.take("residual_of", "int64")
        source.boxes, source.count, source.axes = residual_of.size, int(facts["count"]), axes
        fan = Fan(source.starts("fan/starts", residual_of.size + 1), source.take("fan/subscriptions", "int64"))
        source.within(fan.subscriptions, source.count, "fan/subscriptions")
        source.same(int(fan.starts[-1]), fan.subscriptions.size, "fan/subscriptions")
        source.within(residual_of - NO_RESIDUAL, len(residuals) - NO_RESIDUAL, "residual_of")
        always = source.ids("always")
        dense = None if facts["dense"] is None else _take_dense(facts["dense"], source)
        parts = [_take_part(given, f"part{i}", source, fan) for i, given in enumerate(facts["parts"])]
        return Index(schema, source.count, axes, fan, dense, parts, always, residual_of, residuals)
    except (KeyError, TypeError, ValueError, SchemaRejected) as error:
        raise Corrupt(f"these arrays are no index: {type(error).__name__}") from None


@dataclass
class _Source:
    """Arrays by name, refused if they are missing, of another kind, or point outside of what they point into."""

    arrays: Arrays
    boxes: int = 0
    count: int = 0
    axes: list[Axis] = field(default_factory=list)

    def take(self, name: str, kind: str, dimensions: int = 1) -> Array:
        array = self.arrays.get(name)
        if array is None or array.dtype.name != kind or array.ndim != dimensions:
            raise Corrupt(f"the index's array {name!r} is missing or of another kind")
        return array

    def ids(self, name: str) -> Array:
        """Numbers of boxes."""
        array = self.take(name, "int64")
        self.within(array, self.boxes, name)
        return array

    def starts(self, name: str, size: int) -> Array:
        array = self.take(name, "int64")
        self.same(array.size, size, name)
        if array[0] != 0 or (np.diff(array) < 0).any():
            raise Corrupt(f"the index's array {name!r} does not ascend from zero")
        return array

    def within(self, array: Array, limit: int, name: str) -> None:
        if array.size and not 0 <= int(array.min()) <= int(array.max()) < limit:
            raise Corrupt(f"the index's array {name!r} points outside of what it points into")

    def same(self, given: int, wanted: int, name: str) -> None:
        if given != wanted:
            raise Corrupt(f"the index's array {name!r} has a length that does not fit the others")


# --- axes ---------------------------------------------------------------------------------------


def _put_axis(axis: Axis, path: str, arrays: dict[str, Array]) -> Facts:
    if isinstance(axis, Line):
        return {"name": axis.name, "real": axis.real}
    encoded = [text.encode() for text in axis.texts]
    arrays[f"{path}/bytes"] = np.frombuffer(b"".join(encoded), np.uint8)
    arrays[f"{path}/starts"] = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return {"name": axis.name, "texts": len(encoded)}


def _take_axis(facts: Facts, path: str, source: _Source) -> Axis:
    if "real" in facts:
        return Line(str(facts["name"]), bool(facts["real"]))
    raw = source.take(f"{path}/bytes", "uint8").tobytes()
    starts = source.starts(f"{path}/starts", int(facts["texts"]) + 1).tolist()
    source.same(starts[-1], len(raw), f"{path}/bytes")
    texts = tuple(raw[start:stop].decode() for start, stop in pairwise(starts))
    return Texts(str(facts["name"]), texts)


# --- tables and sides ---------------------------------------------------------------------------


def _put_sides(sides: Mapping[int, Side], path: str, arrays: dict[str, Array]) -> list[int]:
    for a, side in sides.items():
        arrays[f"{path}/axis{a}/low"], arrays[f"{path}/axis{a}/high"] = side.low, side.high
        arrays[f"{path}/axis{a}/null"] = side.null
    return list(sides)


def _take_sides(numbers: list[int], path: str, size: int, source: _Source) -> dict[int, Side]:
    sides: dict[int, Side] = {}
    for a in map(int, numbers):
        kind = np.dtype(source.axes[a].dtype).name
        low, high = source.take(f"{path}/axis{a}/low", kind), source.take(f"{path}/axis{a}/high", kind)
        null = source.take(f"{path}/axis{a}/null", "bool")
        for array in (low, high, null):
            source.same(array.size, size, f"{path}/axis{a}")
        sides[a] = Side(low, high, null)
    return sides


def _put_tables(tables: Mapping[int, Table], path: str, arrays: dict[str, Array]) -> dict[str, Facts]:
    for a, table in tables.items():
        arrays[f"{path}/axis{a}/table"], arrays[f"{path}/axis{a}/grid"] = table.words, table.grid.table
    return {str(a): table.grid.facts() for a, table in tables.items()}


def _take_tables(facts: Facts, path: str, source: _Source) -> dict[int, Table]:
    tables: dict[int, Table] = {}
    for key, given in facts.items():
        kind = "int64" if given["kind"] != "edges" else np.dtype(source.axes[int(key)].dtype).name
        grid = BoxGrid(**given, table=source.take(f"{path}/axis{key}/grid", kind))
        words = source.take(f"{path}/axis{key}/table", "uint64", 3)
        source.same(words.shape[0], grid.count + 1, f"{path}/axis{key}/table")
        if grid.kind == "cells":
            source.within(grid.table, grid.count, f"{path}/axis{key}/grid")
        tables[int(key)] = Table(grid, words)
    return tables


# --- parts --------------------------------------------------------------------------------------


def _put_dense(dense: Dense, arrays: dict[str, Array]) -> Facts:
    arrays["dense/words"], arrays["dense/filled"] = dense.words, dense.filled
    return {"tables": _put_tables(dense.tables, "dense", arrays), "sides": _put_sides(dense.sides, "dense", arrays)}


def _take_dense(facts: Facts, source: _Source) -> Dense:
    words, filled = source.take("dense/words", "int64"), source.take("dense/filled", "uint64")
    source.within(words, max(1, -(-source.count // 64)), "dense/words")
    source.same(filled.size, words.size, "dense/filled")
    tables = _take_tables(facts["tables"], "dense", source)
    for table in tables.values():
        source.same(table.words.shape[2], 2 * words.size, "dense/table")
    return Dense(words, tables, _take_sides(facts["sides"], "dense", 64 * words.size, source), filled)


def _put_part(part: IndexPart, path: str, arrays: dict[str, Array]) -> Facts:
    finder = part.finder
    arrays[f"{path}/boxes"] = finder.boxes
    facts: Facts = {"plain": part.plain, "sides": _put_sides(finder.sides, path, arrays)}
    if isinstance(finder, Postings):
        arrays[f"{path}/starts"] = finder.starts
        return {**facts, "axis": finder.axis, "keys": asdict(finder.keys)}
    for a, coarse in finder.coarse.items():
        arrays[f"{path}/axis{a}/coarse"] = coarse
    return {**facts, "tables": _put_tables(finder.tables, path, arrays)}


def _take_part(facts: Facts, path: str, source: _Source, fan: Fan) -> IndexPart:
    boxes = source.ids(f"{path}/boxes")
    sides = _take_sides(facts["sides"], path, boxes.size, source)
    finder: Blocks | Postings
    if "keys" in facts:
        keys = Keys(**facts["keys"])
        starts = source.starts(f"{path}/starts", keys.count + 1)
        source.same(int(starts[-1]), boxes.size, f"{path}/boxes")
        finder = Postings(int(facts["axis"]), keys, starts, boxes, sides)
    else:
        tables = _take_tables(facts["tables"], path, source)
        coarse: dict[int, Array] = {}
        for a, table in tables.items():
            coarse[a] = source.take(f"{path}/axis{a}/coarse", "uint64", 2)
            rows, blocks, double = table.words.shape
            source.same(coarse[a].shape[0], rows, f"{path}/axis{a}/coarse")
            source.same(coarse[a].shape[1], max(1, -(-blocks // 64)), f"{path}/axis{a}/coarse")
            if blocks * double * 32 < boxes.size:
                raise Corrupt(f"the index's array {path}/axis{a}/table is too narrow")
        finder = Blocks(boxes, tables, coarse, sides)
    return IndexPart.of(finder, bool(facts["plain"]), fan)
