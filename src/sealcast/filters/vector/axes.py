"""An attribute as an axis: a column of events as places on it, and the bounds of boxes as the same numbers.

    int, decimal, timestamp, bool   the physical int64 itself
    float                           the double itself
    string                          its place among the texts that filters mention: 2i + 1 for the i-th text itself,
                                    an even number for everything between two of them

The texts in their sorted order are a trie laid flat: a prefix is a run of neighbours, so prefixes, equality and order
are all the same question, between which two numbers a place lies.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.errors import Misuse
from sealcast.filters.vector.intervals import INT_MAX, INT_MIN, TOP, Key
from sealcast.model.schema import Attribute, Type
from sealcast.wire.computing import pc

#: int64 or float64, as the axis has it.
Numbers = NDArray[Any]
Bools = NDArray[np.bool_]

#: Where one event is on an axis; None where it is NULL.
Place = int | float | None

#: Bytes of a text that are compared as one number before the texts themselves are.
_HEAD: Final = 8
#: Types of columns of which one value is read by itself, and what its axis has.
_SINGLE: Final[dict[pa.DataType, type[np.int64] | type[np.float64]]] = {
    pa.int64(): np.int64,
    pa.float64(): np.float64,
    pa.bool_(): np.int64,
}


@dataclass(frozen=True, slots=True)
class Places:
    """A batch of events on one axis. `present` is None when no event is NULL; where one is, its place means nothing."""

    values: Numbers
    present: Bools | None

    def take(self, rows: NDArray[np.int64]) -> Places:
        present = None if self.present is None else self.present.take(rows)
        return Places(self.values.take(rows), present)

    @property
    def only(self) -> Place:
        """The place of the one event."""
        return None if self.present is not None and not self.present[0] else self.values[0].item()

    def slice(self, start: int, stop: int) -> Places:
        present = None if self.present is None else self.present[start:stop]
        return Places(self.values[start:stop], present)


@dataclass(frozen=True)
class Line:
    """Numbers, moments and booleans."""

    name: str
    real: bool

    # The least and the greatest place: a box that does not care reaches from one to the other.
    @property
    def least(self) -> int | float:
        return -np.inf if self.real else INT_MIN

    @property
    def greatest(self) -> int | float:
        return np.inf if self.real else INT_MAX

    @property
    def dtype(self) -> type[np.int64] | type[np.float64]:
        return np.float64 if self.real else np.int64

    def key(self, key: Key) -> int | float:
        """Where a bound lies."""
        return key  # type: ignore[no-any-return]

    def places(self, column: pa.Array) -> Places:
        values, present = numbers(column, self.name)
        return Places(values, present)

    def place(self, column: pa.Array) -> Place:
        """`places` of one event."""
        return number(column, self.name)


def numbers(column: pa.Array, name: str) -> tuple[Numbers, Bools | None]:
    """A physical column of numbers, moments or booleans without copying it where Arrow allows; NULLs read as zero."""
    if len(column) == 1 and column.type in _SINGLE:
        return _alone(number(column, name), _SINGLE[column.type])
    present = None if column.null_count == 0 else np.asarray(pc.is_valid(column))
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8()).cast(pa.int64())
    if present is not None:
        column = pc.fill_null(column, pa.scalar(0, column.type))
    values: Numbers = column.to_numpy(zero_copy_only=False)
    if values.dtype == np.float64 and not np.isfinite(values).all():
        raise _not_finite(name)
    return values, present


def number(column: pa.Array, name: str) -> Place:
    """`numbers` of one event: each step of the way for many costs as much as this."""
    value = column[0].as_py()
    if value is None:
        return None
    if isinstance(value, int):
        return int(value)  # booleans are whole numbers on their axis
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _not_finite(name)
        return value
    return Places(*numbers(column, name)).only


def _alone(place: Place, dtype: type[np.int64] | type[np.float64]) -> tuple[Numbers, Bools | None]:
    return (np.zeros(1, dtype), np.zeros(1, np.bool_)) if place is None else (np.array([place], dtype), None)


def _not_finite(name: str) -> Misuse:
    return Misuse(f"column {name!r} holds a number that is not finite; admission lets none pass")


@dataclass(frozen=True)
class Texts:
    """Strings, by the texts that filters mention, in code point order."""

    name: str
    texts: tuple[str, ...]
    least: int = 0
    dtype: type[np.int64] = np.int64

    @classmethod
    def of(cls, name: str, keys: Iterable[Key]) -> Texts:
        return cls(name, tuple(sorted({key[1] for key in keys if key != TOP})))

    @property
    def greatest(self) -> int:
        # Above the least even where no text is mentioned: an interval from here down to there is empty.
        return max(1, 2 * len(self.texts))

    def key(self, key: Key) -> int:
        if key == TOP:
            return self.greatest
        return 2 * bisect.bisect_left(self.texts, key[1]) + 1 + int(key[2])

    def places(self, column: pa.Array) -> Places:
        if len(column) == 1:
            return Places(*_alone(self.place(column), np.int64))
        encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
        indices = encoded.indices
        present = None if indices.null_count == 0 else np.asarray(pc.is_valid(indices))
        if present is not None:
            indices = pc.fill_null(indices, pa.scalar(0, indices.type))
        if len(encoded.dictionary) == 0:
            return Places(np.zeros(len(column), np.int64), present)
        distinct = self._places_of(encoded.dictionary.cast(pa.utf8()))
        return Places(distinct.take(indices.to_numpy(zero_copy_only=False)), present)

    def place(self, column: pa.Array) -> Place:
        """`places` of one event."""
        text = column[0].as_py()
        return None if text is None else self._place_of(text)

    @cached_property
    def _heads(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        return heads(pa.array(self.texts, pa.utf8()))

    def _places_of(self, texts: pa.Array) -> NDArray[np.int64]:
        """By the first eight bytes at once; the few that share them with a mentioned text one by one."""
        known, known_lengths = self._heads
        given, lengths = heads(texts)
        found = np.searchsorted(known, given)
        place = 2 * found
        if not known.size:
            return place.astype(np.int64)
        nearest = np.minimum(found, known.size - 1)
        shared = known[nearest] == given
        # Equal heads and equal lengths that fit in them: the same text.
        same = shared & (known_lengths[nearest] == lengths) & (lengths <= _HEAD)
        place[same] += 1
        for i in np.flatnonzero(shared & ~same):
            place[i] = self._place_of(texts[int(i)].as_py(), int(found[i]))
        return place.astype(np.int64)

    def _place_of(self, text: str, least: int = 0) -> int:
        """Where one text is, given that so many of those mentioned are before it."""
        at = bisect.bisect_left(self.texts, text, lo=least)
        return 2 * at + (at < len(self.texts) and self.texts[at] == text)


def heads(texts: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The first eight bytes of each text as a number, so that numbers are ordered as texts are, and the lengths.

    UTF-8 keeps the order of code points, byte by byte; a shorter text is filled up with zeros, the least byte.
    """
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    data = texts.buffers()[2]
    raw = np.zeros((len(texts), _HEAD), np.uint8)
    if data is not None and data.size:
        stored = np.frombuffer(data, np.uint8)
        for i in range(_HEAD):
            rows = np.flatnonzero(lengths > i)
            if rows.size == 0:
                break
            raw[rows, i] = stored[offsets[rows] + i]
    return raw.view(">u8").astype(np.uint64).reshape(-1), lengths


#: One attribute that some condition bounds.
Axis = Line | Texts


def axis_of(attribute: Attribute, keys: Sequence[Key]) -> Axis:
    """The axis on which these bounds lie."""
    if attribute.type is Type.STRING:
        return Texts.of(attribute.name, keys)
    return Line(attribute.name, real=attribute.type is Type.FLOAT)
