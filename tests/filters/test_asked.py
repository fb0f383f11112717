"""Answers that are remembered are the answers that were given, also when memory is short."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.tree import And, Not, Or
from sealcast.filters.vector import asked
from sealcast.filters.vector.bounds import Prepared
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.model.schema import Attribute, Schema, Type

SCHEMA = Schema((Attribute("s", Type.STRING), Attribute("t", Type.STRING)))
STARTS, ENDS, HAS_C, EMPTY, PATH = (
    parse(text, SCHEMA) for text in ("regex:s=^a", "s LIKE '%b'", "regex:t=c", "regex:t=^$", "path:s=a/+")
)
CONDITIONS = [STARTS, Or((ENDS, HAS_C)), Not(STARTS), PATH, And((ENDS, Not(EMPTY)))]
Rows = list[tuple[str | None, str | None]]
texts = st.none() | st.text("abc/", max_size=4)
batches = st.lists(st.lists(st.tuples(texts, texts), min_size=5, max_size=30), max_size=5)


@pytest.mark.parametrize("room", [asked.MAX_ANSWERS, 8])
@given(batches)
def test_batch_after_batch_agrees_with_the_reference(
    room: int, days: list[list[tuple[str | None, str | None]]]
) -> None:
    before, asked.MAX_ANSWERS = asked.MAX_ANSWERS, room  # type: ignore[misc]
    try:
        prepared = Prepared()
        for rows in days:
            columns = pa.record_batch({n: pa.array([r[i] for r in rows], pa.string()) for i, n in enumerate("st")})
            evaluator = Evaluator(columns, SCHEMA, prepared=prepared)
            for condition in CONDITIONS:
                expected = [evaluate(condition, {"s": s, "t": t}) is True for s, t in rows]
                assert evaluator.true(condition).tolist() == expected
    finally:
        asked.MAX_ANSWERS = before  # type: ignore[misc]


def test_a_text_is_asked_once() -> None:
    heard: list[str] = []

    def matches(text: str) -> bool:
        heard.append(text)
        return text == "a"

    lexicon = asked.Lexicon()
    for _ in range(3):
        numbers = lexicon.numbers(["a", "b", "c"])
        said = lexicon.ask(CONDITIONS[0], matches, numbers[np.array([0, 1, 0])])
        assert said.tolist() == [asked.TRUE, asked.FALSE, asked.TRUE]
    assert heard == ["a", "b"]
