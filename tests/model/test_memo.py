"""A memo for batches: each new key is made once, and only so many are kept."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sealcast.model.memo import Memo


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=8), st.integers(0, 6))
def test_values_are_right_and_bounded(batches: list[list[int]], size: int) -> None:
    memo, asked = Memo[int, str](size), list[int]()

    def made(keys: Sequence[int]) -> list[str]:
        assert len(set(keys)) == len(keys)
        asked.extend(keys)
        return [str(key) for key in keys]

    recent: list[int] = []
    for keys in batches:
        before = len(asked)
        assert memo.many(keys, made) == [str(key) for key in keys]
        assert not set(asked[before:]) & set(recent), "what was asked for last is still known"
        recent = ([key for key in recent if key not in keys] + list(dict.fromkeys(keys)))[-size:] if size else []
        assert len(memo._known) <= size
    assert memo.made == len(asked)
    memo.clear()
    assert memo.many([1], made) == ["1"] and asked[-1] == 1
