"""Functions: what they are worth, where an index and labels can find them, and that none of them grows without end."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FilterRejected
from sealcast.filters import tree
from sealcast.filters.check import check
from sealcast.filters.evaluate import evaluate
from sealcast.filters.functions import call
from sealcast.filters.index.normal import normalise
from sealcast.filters.labels import Labeller, label_filter
from sealcast.filters.limits import MAX_COMPUTED_TEXT
from sealcast.filters.parse import parse
from sealcast.filters.tree import Function, Value
from sealcast.filters.work import Work
from sealcast.model.schema import Schema

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 8},
            {"name": "change", "type": "decimal", "min": -100, "max": 100, "step": "0.01"},
            {"name": "ratio", "type": "float"},
            {"name": "open", "type": "bool"},
        ]
    }
)


@pytest.mark.parametrize(
    ("written", "worth"),
    [
        # As CloudEvents SQL has them; where it reports an error, there is NULL.
        ("LENGTH('abc')", 3),
        ("LENGTH('')", 0),
        ("LENGTH('\U0001f407é')", 2),
        ("LENGTH(TRUE)", None),
        ("CONCAT('a', 'b', 'c')", "abc"),
        ("CONCAT('a', missing)", None),
        ("CONCAT_WS(',', 'a', 'b')", "a,b"),
        ("CONCAT_WS(',', 'a')", "a"),
        ("LOWER('AbÇ')", "abç"),
        ("UPPER('straße')", "STRASSE"),
        ("TRIM('\u3000 a b\t\n')", "a b"),
        ("TRIM('\x1ca')", "\x1ca"),
        ("LEFT('abc', 2)", "ab"),
        ("LEFT('abc', 10)", "abc"),
        ("LEFT('abc', -2)", None),
        ("LEFT('abc', 1.5)", None),
        ("RIGHT('abc', 2)", "bc"),
        ("RIGHT('abc', 0)", ""),
        ("RIGHT('abc', 10)", "abc"),
        ("RIGHT('abc', -2)", None),
        ("SUBSTRING('Quadratically', 5)", "ratically"),
        ("SUBSTRING('Sakila', -3)", "ila"),
        ("SUBSTRING('Sakila', -5, 3)", "aki"),
        ("SUBSTRING('abcdef', 2, 4)", "bcde"),
        ("SUBSTRING('abcdef', 2, 99)", "bcdef"),
        ("SUBSTRING('abcdef', 0, 1)", ""),
        ("SUBSTRING('abcdef', 7)", None),
        ("SUBSTRING('abcdef', -7)", None),
        ("SUBSTRING('abcdef', 2, -1)", None),
        ("REPLACE('aXbX', 'X', '--')", "a--b--"),
        ("REPLACE('a.b', '.', '')", "ab"),
        ("ABS(-3)", 3),
        ("ABS(-2.5)", 2.5),
        ("ABS('-3')", None),
        ("ROUND(2.5)", 3.0),
        ("ROUND(-2.5)", -3.0),
        ("ROUND(2.675, 2)", 2.67),
        ("ROUND(1250, -2)", 1300),
        ("ROUND(1e300, 2)", 1e300),
    ],
)
def test_each_function_is_worth_what_the_reference_says(written: str, worth: Value) -> None:
    compared = parse(f"{written} = 0")
    assert isinstance(compared, tree.Compare) and isinstance(compared.left, tree.Call)
    found = call(compared.left.function, [_literal(argument) for argument in compared.left.arguments])
    assert (found, type(found)) == (worth, type(worth))


def _literal(argument: tree.Operand) -> Value:
    return argument.value if isinstance(argument, tree.Literal) else None


def test_a_decimal_is_rounded_exactly_and_stays_one() -> None:
    assert call(Function.ROUND, [Decimal("2.675"), 2]) == Decimal("2.68")
    assert evaluate(check(parse("ROUND(change, 1) = 0.3"), SCHEMA).condition, {"change": Decimal("0.25")})


@pytest.mark.parametrize(
    ("written", "event", "expected"),
    [
        ("EXISTS symbol", {"symbol": ""}, True),
        ("EXISTS(symbol)", {}, False),
        ("NOT EXISTS symbol AND TRUE", {}, True),
        ("INLIST(SPLIT(symbol, ','), 'b')", {"symbol": "a,b"}, True),
        ("INLIST(SPLIT(symbol, ','), 'a,b')", {"symbol": "a,b"}, False),
        ("INLIST(SPLIT(symbol, '.'), '')", {"symbol": "a."}, True),
        ("INLIST(SPLIT(symbol, ','), 'b')", {}, None),
        ("NOT INLIST(SPLIT(symbol, ','), 'b')", {"symbol": "c"}, True),
        ("INLIST(MAKELIST('a', 'b'), symbol)", {"symbol": "b"}, True),
        ("UPPER(symbol) LIKE 'AC%'", {"symbol": "acme"}, True),
        ("LEFT(symbol, 2) IN ('AC', 'DC')", {"symbol": "ACME"}, True),
        ("LENGTH(symbol) BETWEEN 3 AND 4", {"symbol": "ACME"}, True),
        ("length = 3", {"length": 3}, True),
    ],
)
def test_conditions_with_functions(written: str, event: dict[str, Value], expected: bool | None) -> None:
    assert evaluate(parse(written), event) is expected


@pytest.mark.parametrize(
    ("written", "kind", "said", "hint"),
    [
        ("UPER(x) = 'A'", "syntax", "there is no function UPER", "did you mean UPPER?"),
        ("ZZZ(x) = 1", "syntax", "there is no function ZZZ", "there are ABS,"),
        ("SPLIT(x, ',') = 'a'", "syntax", "SPLIT makes a list, which only INLIST takes", "INLIST(SPLIT("),
        ("INLIST(x, 'a')", "syntax", "SPLIT or MAKELIST should follow", "INLIST(SPLIT("),
        ("INLIST(SPLIT(x, y), 'a')", "type", "SPLIT takes a string here that is written out", "every event"),
        ("INLIST(SPLIT(x, ''), 'a')", "type", "its separator has at least one character", ""),
        ("INLIST(SPLIT(x, ',', 2), 'a')", "syntax", "SPLIT takes a text and a separator, not 3 values", ""),
        ("LEFT(x) = 'a'", "syntax", "LEFT takes 2 values, not 1", ""),
        ("ROUND(x, 1, 2) = 1", "syntax", "ROUND takes 1 to 2 values, not 3", ""),
        ("CONCAT_WS(x) = 'a'", "syntax", "CONCAT_WS takes 2 values or more, not 1", ""),
        ("REPLACE(x, 'a', y) = 'b'", "type", "REPLACE takes a string here that is written out", "every event"),
        ("REPLACE(x, '', 'y') = 'b'", "type", "what it replaces has at least one character", ""),
        ("ROUND(x, 19) = 1", "type", "from -18 to 18", ""),
        ("UPPER(x)", "type", "UPPER gives a value, not a condition", "compare it"),
        ("UPPER(x = 'a'", "syntax", "should follow", ""),
        ("EXISTS 5", "syntax", "should follow", ""),
        ("UPPER(" * 65 + "x" + ")" * 65 + " = 'a'", "limit", "nest at most 64 deep", ""),
    ],
)
def test_what_is_no_call_is_refused_with_what_would_be_one(written: str, kind: str, said: str, hint: str) -> None:
    with pytest.raises(FilterRejected) as refused:
        parse(written)
    assert refused.value.kind == kind
    assert said in refused.value.message
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("UPPER(change) = 'A'", "UPPER takes a string; change (a number) is none"),
        ("ABS(symbol) > 1", "ABS takes a number; symbol (a string) is none"),
        ("LENGTH(symbol) = 'a'", "a number does not compare with the string 'a'"),
        ("LEFT(symbol, open) = 'a'", "LEFT takes a number; open (a boolean) is none"),
        ("INLIST(SPLIT(symbol, ','), 5)", "INLIST takes a string; the number 5 is none"),
    ],
)
def test_a_schema_refuses_values_of_the_wrong_kind(written: str, said: str) -> None:
    with pytest.raises(FilterRejected) as refused:
        check(parse(written), SCHEMA)
    assert (refused.value.kind, refused.value.message) == ("type", said)


@pytest.mark.parametrize(
    ("called", "plain"),
    [
        ("ABS(change) <= 2.5", "change BETWEEN -2.5 AND 2.5"),
        ("ABS(change) > 2.5", "change < -2.5 OR change > 2.5"),
        ("2.5 > ABS(change)", "change > -2.5 AND change < 2.5"),
        ("LEFT(symbol, 2) = 'AC'", "symbol LIKE 'AC%'"),
        ("LEFT(symbol, 9) = 'AC'", "symbol = 'AC'"),
        ("LEFT(symbol, 2) IN ('AC', 'DC')", "symbol LIKE 'AC%' OR symbol LIKE 'DC%'"),
        ("LEFT(symbol, 1) <> 'A'", "NOT symbol LIKE 'A%'"),
        ("symbol = CONCAT(UPPER('ac'), 'ME')", "symbol = 'ACME'"),
    ],
)
def test_where_bounds_can_say_it_the_index_and_labels_find_it(called: str, plain: str) -> None:
    with_function, without = (check(parse(text), SCHEMA).condition for text in (called, plain))
    assert normalise(with_function, SCHEMA) == normalise(without, SCHEMA)
    assert label_filter(with_function, SCHEMA).cost == label_filter(without, SCHEMA).cost
    event = SCHEMA.parse({"symbol": "ACME", "change": "2.5"})
    labels = set(Labeller(SCHEMA).labels(event))
    assert label_filter(with_function, SCHEMA).matches(labels) is evaluate(without, event)


def test_what_labels_cannot_say_is_refused() -> None:
    with pytest.raises(FilterRejected) as refused:
        label_filter(check(parse("UPPER(symbol) = 'ACME'"), SCHEMA).condition, SCHEMA)
    assert refused.value.kind == "inexpressible"


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        "REPLACE(REPLACE(REPLACE(x, 'a', 'aaaaaaaaaaaaaaaa'), 'a', 'aaaaaaaaaaaaaaaa'), 'a', 'aaaaaaaaaaaaaaaa')",
        "CONCAT(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x)",
        "CONCAT_WS(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x)",
    ],
)
def test_a_text_that_would_be_too_long_is_null_and_is_not_made(written: str) -> None:
    text = "a" * (MAX_COMPUTED_TEXT // 16)
    assert evaluate(parse(f"{written} IS NULL"), {"x": text}) is True
    assert evaluate(parse(f"{written} IS NULL"), {"x": "a"}) is False


@given(st.text(max_size=40), st.text(min_size=1, max_size=3), st.text(max_size=3))
def test_the_bound_on_work_covers_what_is_made(text: str, old: str, new: str) -> None:
    """What a budget charges for is never less than the characters that there are to copy."""
    quoted = [part.replace("'", "''") for part in (old, new)]
    written = f"LENGTH(REPLACE(UPPER(symbol), '{quoted[0]}', '{quoted[1]}')) > 0"
    work = Work.of(parse(written), SCHEMA)
    made = call(Function.REPLACE, [text.upper(), old, new])
    assert isinstance(made, str)
    assert len(made) <= work.each_event + work.each_character["symbol"] * len(text)
