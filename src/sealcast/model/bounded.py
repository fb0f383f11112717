"""Neighbours put together, as many as are handled at once: frames in one append, messages in one post."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def bounded(
    items: Iterable[T], size: Callable[[T], int], most_bytes: int, most: int | None = None
) -> Iterator[list[T]]:
    """Lists of neighbouring items, in order. Each list has at most `most` items and `most_bytes` bytes, but one item at
    least. `size` gives the bytes of an item."""
    held, total = list[T](), 0
    for item in items:
        more = size(item)
        if held and (total + more > most_bytes or len(held) == most):
            yield held
            held, total = [], 0
        held.append(item)
        total += more
    if held:
        yield held


def runs(numbers: Iterable[int], most: int) -> Iterator[range]:
    """Ascending numbers as ranges of neighbours, each of at most `most`."""
    held = range(0)
    for number in numbers:
        if held and (number != held.stop or len(held) == most):
            yield held
            held = range(0)
        held = range(held.start if held else number, number + 1)
    if held:
        yield held
