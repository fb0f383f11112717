"""What is compiled is remembered up to so many bytes: who sends many long texts fills no memory with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from sealcast.filters import readers
from sealcast.filters.remembered import Remembered
from sealcast.trust.tokens import claims


def names(number: int, many: int = 250) -> str:
    return f"name IN ({', '.join(repr(f'{number:04}-{i:04}') for i in range(many))})"


@pytest.mark.parametrize("cache", [readers.predicate, claims._template])
def test_many_long_texts_fill_no_memory(cache: Remembered[str, Any]) -> None:
    before = len(cache)
    for number in range(40):
        cache(normal(cache, number))
        assert cache.bytes <= 16 << 20
    assert len(cache) < before + 40, "some were let go"
    assert cache(normal(cache, 39)) is cache(normal(cache, 39))


def test_a_bound_on_their_number_keeps_them_all() -> None:
    """The weakened variant: as many as were allowed by number weigh several times as much."""
    by_number: Callable[[str], object] = lru_cache(256)(readers._predicate)
    texts = [names(number) for number in range(40)]
    for text in texts:
        by_number(text)
    assert by_number.cache_info().currsize == 40  # type: ignore[attr-defined]
    assert sum(readers.CONDITION_BYTES * len(text) for text in texts) > 3 * (16 << 20)


def normal(cache: Remembered[str, Any], number: int) -> str:
    """A long text that this cache takes."""
    if cache is readers.predicate:
        return names(number)
    return ", ".join(f"t{i:02}={'v' * 22}{number:04}" for i in range(30))
