"""What filters say of events: the language as a specification, one rule a table.

The rules are those on which Jakarta Messaging, RabbitMQ, ActiveMQ and Qpid agree, and the union where they do not.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.tree import Value

ORDER: dict[str, Value] = {
    "country": "UK",
    "city": "London",
    "note": "This is a test",
    "code": "ABC_123",
    "quote": "'In God We Trust'",
    "empty": "",
    "weight": 5,
    "price": 10.5,
    "quantity": 100,
    "cold": -5,
    "zero": 0,
    "tiny": 3.5e-4,
    "vast": 6.02e23,
    "percent": 75,
    "active": True,
    "retired": False,
    "missing": None,
    "exact": Decimal("0.1"),
    "when": datetime(2024, 5, 1, 12, tzinfo=UTC),
}


def table(rows: str) -> list[tuple[str, bool | None]]:
    """`answer | filter` a line."""
    words = {"true": True, "false": False, "unknown": None}
    found = [line.strip().split("|", 1) for line in rows.strip().splitlines() if line.strip()]
    return [(text.strip(), words[answer.strip()]) for answer, text in found]


def check(text: str, expected: bool | None) -> None:
    assert evaluate(parse(text), ORDER, now=1_700_000_000_000) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    table("""
    true    | active
    false   | retired
    unknown | missing
    unknown | absent
    true    | TRUE
    false   | FALSE
    true    | NOT retired
    unknown | NOT absent
    true    | active AND active
    false   | active AND retired
    unknown | active AND absent
    false   | retired AND absent
    false   | absent AND retired
    unknown | absent AND absent
    true    | active OR absent
    true    | absent OR active
    unknown | retired OR absent
    false   | retired OR retired
    unknown | absent OR absent
    true    | NOT (NOT (absent IN ('v') OR active))
    true    | NOT (absent IN ('v') AND retired)
    unknown | NOT (absent LIKE 'v' OR retired)
    true    | percent OR active
    unknown | percent
    unknown | NOT percent
    unknown | 'text' AND active
    unknown | -354
    unknown | +weight
    unknown | +city
    true    | True or True and False
    false   | (True or True) and False
    true    | NOT country = 'US' OR country = 'France' AND weight > 9
    """),
)
def test_three_truths(text: str, expected: bool | None) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    table("""
    true    | country = 'UK'
    true    | 'UK' = country
    true    | country = "UK"
    false   | country = 'uk'
    true    | country <> 'US'
    true    | country != 'US'
    false   | country <> 'UK'
    true    | weight > 3 AND weight >= 5 AND weight < 6 AND weight <= 5
    true    | weight = 5.0
    true    | 5.0 = weight
    true    | price >= 10
    false   | price <= 10
    false   | weight >= 5.01
    true    | 9007199254740993 > 9007199254740992.0
    false   | 9007199254740993 = 9007199254740992.0
    false   | exact = 0.1
    true    | exact < 0.1
    true    | 0 = 0.0
    true    | country > 'DE'
    true    | 'Zurich' > city
    true    | country < "US"
    true    | 'Z' < 'a'
    true    | '' < 'a'
    true    | '\U0000ffff' < '\U0001f407'
    true    | active = TRUE
    true    | active <> FALSE
    true    | when > TIMESTAMP '2024-05-01T11:59:59Z'
    true    | when = TIMESTAMP '2024-05-01T14:00:00+02:00'
    true    | TIMESTAMP '2024-05-01T12:00:00.000001Z' > when
    true    | (weight = 5) = (price > 1)
    false   | (weight = 5) = FALSE
    """),
)
def test_comparison_of_like_kinds(text: str, expected: bool | None) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{left} {op} {right}", False)
        for left, right in [
            ("weight", "'5'"),
            ("country", "5"),
            ("active", "1"),
            ("active", "'TRUE'"),
            ("TRUE", "1"),
            ("when", "1714564800000"),
            ("when", "'2024-05-01T12:00:00Z'"),
        ]
        for op in ("=", "<>", "<", "<=", ">", ">=")
    ]
    + table("""
    false   | active > FALSE
    false   | active >= active
    false   | TRUE > FALSE
    true    | NOT (weight = 'x')
    true    | NOT (weight <> 'x')
    """),
)
def test_unlike_kinds_compare_to_false(text: str, expected: bool | None) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{a} {op} {b}", None)
        for op in ("=", "<>", "<", "<=", ">", ">=")
        for a, b in [("absent", "0"), ("'x'", "missing")]
    ]
    + table("""
    unknown | absent = absent
    unknown | absent = 'x' AND weight = 5
    unknown | absent LIKE '%'
    unknown | absent NOT LIKE '%'
    unknown | absent IN ('UK')
    unknown | absent NOT IN ('UK')
    unknown | absent BETWEEN 1 AND 2
    unknown | absent NOT BETWEEN 1 AND 2
    unknown | absent + 4 = 5
    unknown | -absent = 0
    unknown | +absent = 0
    true    | missing IS NULL
    true    | absent IS NULL
    false   | country IS NULL
    true    | country IS NOT NULL
    false   | absent IS NOT NULL
    true    | (absent > 1) IS NULL
    true    | (1 / 0) IS NULL
    true    | 13 IS NOT NULL
    false   | 'boo' IS NULL
    """),
)
def test_null(text: str, expected: bool | None) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    table("""
    true    | weight + 5 = 10
    true    | price - 0.5 = 10
    true    | quantity * price * 0.25 = 262.5
    true    | weight / 2 = 2.5
    true    | 17 / 4 = 4.25
    true    | quantity / 10 = 10
    true    | 1 + 1 / 10 = 1.1
    true    | weight % 2 = 1
    true    | 7 % cold = 2
    true    | -7 % 5 = -2
    true    | 5.5 % 2 = 1.5
    true    | -5.5 % 2 = -1.5
    true    | 101 % percent % weight = 1
    true    | 101 % (percent % 30) = 11
    true    | weight + 2 * 3 = 11
    true    | (weight + 2) * 3 = 21
    true    | weight + weight * quantity - -cold / 2 = 502.5
    true    | 6 - -weight = 11
    true    | -(-weight) = 5
    true    | +(-weight) = -5
    true    | exact + 1 = exact * 11
    true    | 9007199254740993 + 0 = 9007199254740993
    true    | 9223372036854775807 + 1 > 9223372036854775807
    true    | vast + vast > vast
    true    | 1.0E0 = 1
    true    | tiny * 1.0E+6 = 350
    unknown | weight / 0 > 0
    unknown | weight / 0.0 > 0
    unknown | weight % zero = 0
    unknown | 0 / 0 = 0
    unknown | country + weight = 'UK5'
    unknown | country + '!' = 'UK!'
    unknown | -city = 'London'
    unknown | +city = 'London'
    unknown | active + retired = 1
    unknown | -(weight = 5) = 1
    unknown | when + 1 > 0
    unknown | 1e308 * 10 > 0
    unknown | -1e308 * 10 < 0
    unknown | 1e308 * 10 <> 0
    """),
)
def test_arithmetic(text: str, expected: bool | None) -> None:
    check(text, expected)


def test_whole_numbers_do_not_grow_without_end() -> None:
    factors = " * ".join(["x"] * 100)
    assert evaluate(parse(f"{factors} > 0"), {"x": 10**12}) is True
    assert evaluate(parse(f"{factors} > 0"), {"x": 10**18}) is None
    assert evaluate(parse("x * 1.5 > 0"), {"x": 10**400}) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    table("""
    true    | weight BETWEEN 5 AND 5
    true    | weight BETWEEN -17 AND 98.5
    false   | weight BETWEEN 6 AND 7
    true    | weight NOT BETWEEN 6 AND 7
    true    | 14 NOT BETWEEN 11 AND 9
    true    | city BETWEEN 'K' AND 'M'
    unknown | weight BETWEEN 1 AND absent
    false   | weight BETWEEN 9 AND absent
    true    | weight NOT BETWEEN 9 AND absent
    unknown | weight NOT BETWEEN absent AND 9
    false   | 'hello kitty' BETWEEN 30 AND 40
    true    | 'hello kitty' NOT BETWEEN 30 AND 40
    false   | TRUE BETWEEN 'aardvark' AND 'zebra'
    true    | country IN ('US', 'UK')
    true    | 'London' IN (city, country)
    false   | country IN ('US', 'France')
    true    | country NOT IN ('US', 'France')
    false   | country NOT IN ('US', 'UK')
    true    | weight IN (1, zero + 5)
    true    | 10.0 IN (TRUE, quantity / 10)
    true    | TRUE IN ('hello', 1, true)
    false   | 1 IN ('hello', true)
    unknown | 1 IN ('hello', absent, true)
    true    | 1 IN (absent, 1)
    unknown | weight NOT IN ('hello', absent, true)
    false   | weight NOT IN (absent, 5)
    false   | 1 NOT IN ('hello', 'there')
    false   | 10.0 NOT IN (TRUE, quantity / 10)
    """),
)
def test_between_and_in(text: str, expected: bool | None) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    table("""
    true    | note LIKE '%test%'
    true    | note LIKE 'This is a %'
    true    | country LIKE 'U_'
    false   | country LIKE '_UK'
    false   | country LIKE 'uk'
    true    | country NOT LIKE 'US'
    true    | empty LIKE ''
    true    | empty LIKE '%%'
    false   | empty LIKE '_'
    true    | quote LIKE '''In G_d%'''
    true    | code LIKE 'ABC\\_%' ESCAPE '\\'
    false   | code LIKE 'ABC\\%' ESCAPE '\\'
    true    | code LIKE "ABCz_123" ESCAPE "z"
    true    | '12%' LIKE '__!%' ESCAPE '!'
    unknown | weight LIKE '5'
    unknown | weight NOT LIKE '5'
    unknown | active LIKE '%'
    """),
)
def test_like(text: str, expected: bool | None) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    table("""
    true    | UTC() = 1700000000000
    true    | UTC () - 30000 < UTC( )
    true    | weight = 5 AND UTC() > 0
    """),
)
def test_utc(text: str, expected: bool | None) -> None:
    check(text, expected)


def test_utc_is_the_clock_unless_told() -> None:
    assert evaluate(parse("UTC() > 1700000000000 AND UTC() < 9999999999999"), {}) is True


def test_the_deepest_tree_that_parses_is_evaluated_deep_in_a_stack() -> None:
    deepest = [
        "NOT " * 64 + "a = 1",
        "(" * 64 + "a = 1" + ")" * 64,
        "a" + " + a" * 126 + " = 1",
        "a OR b AND c = d + e * (" * 15 + "1" + ")" * 15,
    ]

    def below(frames: int, text: str) -> bool | None:
        return below(frames - 1, text) if frames else evaluate(parse(text), {"a": 1})

    for text in deepest:
        below(300, text)
