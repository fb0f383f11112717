"""Three-valued logic, arithmetic, precedence and patterns against an independent oracle: SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.unparse import unparse
from tests.effort import examples
from tests.filters.trees import COLUMNS, rows, selectors


@pytest.fixture(scope="module")
def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    connection.execute(f"CREATE TABLE events ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})")
    return connection


def ask(database: sqlite3.Connection, events: Sequence[dict[str, object]], selector: str) -> list[bool | None]:
    database.execute("DELETE FROM events")
    marks = ", ".join("?" * len(COLUMNS))
    database.executemany(f"INSERT INTO events VALUES ({marks})", [[event[c] for c in COLUMNS] for event in events])
    answers = database.execute(f"SELECT {selector} FROM events ORDER BY rowid").fetchall()
    return [None if answer is None else bool(answer) for (answer,) in answers]


@examples(100, soak=500)
@given(selector=selectors(), events=st.lists(rows(), min_size=3, max_size=3))
def test_agrees_with_sqlite(database: sqlite3.Connection, selector: str, events: list[dict[str, object]]) -> None:
    condition = parse(selector)
    expected = ask(database, events, selector)
    assert [evaluate(condition, event) for event in events] == expected  # type: ignore[arg-type]
    # What is printed back means the same to both.
    again = unparse(condition)
    assert [evaluate(parse(again), event) for event in events] == expected  # type: ignore[arg-type]
    assert ask(database, events, again) == expected


@pytest.mark.parametrize(
    ("selector", "event", "expected"),
    [
        ("i1 = 1 OR i2 = 1", {"i1": None, "i2": 1}, True),
        ("i1 = 1 AND i2 = 1", {"i1": None, "i2": 2}, False),
        ("NOT (i1 = 1)", {"i1": None}, None),
        ("i1 NOT IN (1, i2)", {"i1": 3, "i2": None}, None),
        ("i1 NOT IN (1, i2)", {"i1": 1, "i2": None}, False),
        ("i1 BETWEEN i2 AND 3", {"i1": 5, "i2": None}, False),
        ("(i1 BETWEEN i2 AND 3) IS NULL", {"i1": 2, "i2": None}, True),
        ("i2 = f2", {"i2": 2**53 + 1, "f2": float(2**53)}, False),
        ("i2 > f2", {"i2": 2**53 + 1, "f2": float(2**53)}, True),
        ("-7 % 3 = -1", {}, True),
        ("7 % -3 = 1", {}, True),
        ("f1 / 0.0 IS NULL", {"f1": 1.0}, True),
    ],
)
def test_the_cases_that_two_valued_logic_gets_wrong(
    database: sqlite3.Connection, selector: str, event: dict[str, object], expected: bool | None
) -> None:
    whole = dict.fromkeys(COLUMNS) | event
    assert evaluate(parse(selector), whole) is expected  # type: ignore[arg-type]
    assert ask(database, [whole], selector) == [expected]
