"""Filters against schemas: names, types, exact constants, and warnings that are never wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FilterRejected
from sealcast.filters.check import check
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.satisfy import impossible
from sealcast.filters.tree import Compare, Comparison, Literal, Name, Or
from sealcast.model import Schema
from tests.effort import examples

TRADES = Schema.from_json(
    json.loads(
        """{"attributes": [
            {"name": "symbol", "type": "string", "max_length": 8},
            {"name": "price", "type": "decimal", "min": 0, "max": 1000, "step": "0.01"},
            {"name": "volume", "type": "int", "min": 0, "max": 1000000},
            {"name": "ratio", "type": "float", "min": 0, "max": 1},
            {"name": "open", "type": "bool"},
            {"name": "at", "type": "timestamp"},
            {"name": "best bid", "type": "decimal"}
        ]}""",
        parse_float=Decimal,
    )
)


def refused(text: str) -> FilterRejected:
    with pytest.raises(FilterRejected) as caught:
        parse(text, TRADES)
    return caught.value


@pytest.mark.parametrize(
    ("text", "at", "hint"),
    [
        ("prise > 3", 0, "did you mean price?"),
        ("open AND Volume > 3", 9, "did you mean volume?"),
        ("symbol = symbl", 9, "did you mean symbol?"),
        ("volume IN (1, volumes)", 14, "did you mean volume?"),
        ("xyzzy IS NULL", 0, "there are symbol, price, volume, ratio, open, at, best bid"),
        ("path:/a/b", 5, "a path may name its attribute: path:ATTRIBUTE=/a/b"),
        ("regex:symbo=x", 6, "did you mean symbol?"),
        ("tags:Symbol=x", 5, "did you mean symbol?"),
        ("(volume > 1 AND vol = 2) = open", 16, "did you mean volume?"),
    ],
)
def test_unknown_names(text: str, at: int, hint: str) -> None:
    error = refused(text)
    assert (error.kind, error.at, error.hint) == ("name", at, hint)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("price > 'high'", 8),
        ("symbol = 5", 9),
        ("symbol > volume", 9),
        ("open = 1", 7),
        ("open = 'TRUE'", 7),
        ("open > FALSE", 0),
        ("open BETWEEN FALSE AND TRUE", 0),
        ("volume BETWEEN 1 AND 'x'", 21),
        ("symbol IN ('a', 5)", 16),
        ("symbol + 1 > 2", 0),
        ("volume * symbol > 2", 9),
        ("-symbol = 2", 1),
        ("at + 1 > 2", 0),
        ("volume LIKE '5'", 0),
        ("volume", 0),
        ("NOT symbol", 4),
        ("'x' AND open", 0),
        ("at > 'yesterday'", 5),
        ("at > TRUE", 5),
        ("at = volume", 5),
        ("1 = 'x'", 4),
        ("regex:volume=5", 6),
        ("path:volume=/a", 5),
        ("tags:volume=many", 12),
        ("tags:open=perhaps", 10),
        ("tags:at=then", 8),
        ("tags:price=nan", 11),
    ],
)
def test_type_clashes(text: str, at: int) -> None:
    error = refused(text)
    assert (error.kind, error.at) == ("type", at), error.message


@pytest.mark.parametrize(
    "text",
    ["price = 1e-999999999", "price + 1 > 1e-999999999", "tags:price=1e-999999999", "tags:price=1e999999999"],
)
def test_no_exponent_is_written_out(text: str) -> None:
    """Twelve characters that would take a gigabyte to compare with a column."""
    assert refused(text).kind == "limit"


@pytest.mark.parametrize("text", ["tags:at=²", "tags:volume=²", "tags:price=²"])
def test_what_looks_like_a_digit_is_none(text: str) -> None:
    assert refused(text).kind == "type"


def test_utc_cannot_be_subscribed_to() -> None:
    assert refused("at > UTC()").kind == "inexpressible"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("price = 0.10", Decimal("0.10")),
        ("price = 1e-2", Decimal("0.01")),
        ("0.30000000000000000001 = price", Decimal("0.30000000000000000001")),
        ("price = -1_000.5f", Decimal("-1000.5")),
        ("price = 7", 7),
        ("volume = 7.5", 7.5),
        ("ratio = 0.1", 0.1),
        ("at = '2024-01-01T00:00:00Z'", datetime(2024, 1, 1, tzinfo=UTC)),
        ("at = '2024-01-01T01:00:00.000001+01:00'", datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        ("at = 1704067200000", datetime(2024, 1, 1, tzinfo=UTC)),
        ("at = 1704067200000.5", datetime(2024, 1, 1, 0, 0, 0, 500, tzinfo=UTC)),
        ("at = TIMESTAMP '2024-01-01T00:00:00Z'", datetime(2024, 1, 1, tzinfo=UTC)),
        ("tags:symbol=7", "7"),
        ("tags:volume=7", 7),
        ("tags:price=0.10", Decimal("0.10")),
        ("tags:open=True", True),
        ("tags:at=2024-01-01T00:00:00Z", datetime(2024, 1, 1, tzinfo=UTC)),
        ("tags:at=1704067200000", datetime(2024, 1, 1, tzinfo=UTC)),
        ("tags:ratio=.5", 0.5),
    ],
)
def test_constants_take_the_type_they_meet(text: str, value: object) -> None:
    condition = parse(text, TRADES)
    assert isinstance(condition, Compare)
    literal = condition.left if isinstance(condition.left, Literal) else condition.right
    assert literal == Literal(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "price", "expected"),
    [
        ("price = 0.1", "0.1", True),
        ("price + 0.2 = 0.3", "0.1", True),
        ("price * 3 = 0.3", "0.1", True),
        ("0.3 - price = 0.2", "0.1", True),
        ("price / 3 * 3 < price + 0.01", "0.1", True),
        ("price IN (0.05, 0.10)", "0.1", True),
        ("price BETWEEN 0.1 AND 0.1", "0.1", True),
        ("-price = -0.1", "0.1", True),
        ("price > 0.09999999999999999999", "0.1", True),
        ("price = [best bid] - 0.1", "0.1", True),
    ],
)
def test_decimals_stay_exact(text: str, price: str, expected: bool) -> None:
    event = {"price": Decimal(price), "best bid": Decimal("0.2")}
    assert evaluate(parse(text, TRADES), event) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1 IN (ratio, price)", True),
        ("0.1 IN (price, ratio)", True),
        ("0.1 NOT IN (ratio, price)", False),
        ("0.2 NOT IN (ratio, price)", True),
        ("0.1 BETWEEN ratio AND price", True),
        ("0.1 BETWEEN price AND ratio", True),
        ("0.1 NOT BETWEEN ratio AND price", False),
        ("'2024-01-01T00:00:00Z' IN (symbol, at)", True),
        ("price + 0 BETWEEN 0.1 AND ratio + 1", True),
    ],
)
def test_one_constant_may_meet_two_types(text: str, expected: bool) -> None:
    event = {"price": Decimal("0.1"), "ratio": 0.1, "at": datetime(2024, 1, 1, tzinfo=UTC), "symbol": "x"}
    assert evaluate(parse(text, TRADES), event) is expected


def test_what_fits_already_is_left_as_it_is() -> None:
    condition = parse("symbol LIKE 'a%' AND (volume > 5 OR NOT open) AND volume IN (1, 2) AND volume + 1 > 2")
    assert check(condition, TRADES).condition is condition


def test_amqp_sections_are_left_out_where_nothing_has_the_name_itself() -> None:
    for text in (
        "application_properties.price > 1",
        "a.price > 1",
        "p.price > 1",
        "properties.price > 1",
        "h.price > 1",
    ):
        assert parse(text, TRADES) == parse("price > 1", TRADES)
    own = Schema.from_json({"attributes": [{"name": "a.price", "type": "int"}, {"name": "price", "type": "int"}]})
    assert parse("a.price > 1", own) == Compare(Comparison.GT, Name("a.price"), Literal(1))


def test_checking_again_changes_nothing() -> None:
    for text in ("price * 1.1 > 3 AND at > 5", "tags:volume=7, open=*", "(price > 1) = open", "symbol NOT LIKE 'a%'"):
        once = parse(text, TRADES)
        assert parse(text) != once or "1.1" not in text
        assert check(once, TRADES).condition == once


# --- warnings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "price < 0",
        "price > 1000",
        "1000 < price",
        "NOT price <= 1000",
        "price = 0.001",
        "price = -1",
        "volume > 3 AND volume < 4",
        "volume = 1 AND volume = 2",
        "volume = 1.5",
        "volume IN (1, 2) AND volume > 2",
        "volume IN (-1, 1000001)",
        "volume BETWEEN 5 AND 4",
        "volume = 5 AND volume <> 5",
        "symbol = 'much too long'",
        "symbol > 'b' AND symbol < 'a'",
        "open AND NOT open",
        "open = TRUE AND open = FALSE",
        "symbol IS NULL AND symbol = 'a'",
        "symbol IS NULL AND symbol LIKE 'a%'",
        "NOT (symbol IS NULL) AND symbol IS NULL",
        "price < 0 OR volume < 0",
        "open AND (price < 0 OR volume < 0)",
        "NOT (price >= 0 OR volume >= 0)",
        "NOT (price >= 0 AND volume >= 0)",
        "FALSE",
        "open AND 1 = 2",
        "at > '2024-01-02T00:00:00Z' AND at < '2024-01-01T00:00:00Z'",
        "tags:volume=1, volume=2",
    ],
)
def test_filters_that_no_event_can_match_are_legal_and_earn_a_warning(text: str) -> None:
    checked = check(parse(text), TRADES)
    assert len(checked.warnings) == 1
    assert checked.warnings[0].message.startswith("no event can match this filter: ")


@pytest.mark.parametrize(
    "text",
    [
        "price >= 0",
        "price <= 0",
        "volume > 3 AND volume < 5",
        "volume >= 3 AND volume <= 3",
        "ratio > 0.1 AND ratio < 0.2",
        "symbol IS NULL",
        "symbol IS NULL OR symbol = 'a'",
        "open OR NOT open",
        "volume NOT IN (1, 2)",
        "volume NOT BETWEEN 5 AND 4",
        "volume = price",
        "xpath://a",
        "NOT FALSE",
        "NOT XPATH '//a'",
        "price = 0.10 AND NOT volume = 3",
        "NOT price < 1000",
        "NOT price > 0",
        "NOT 1000 > price",
        "NOT 0 < price",
        "NOT volume <> 5",
    ],
)
def test_filters_that_an_event_can_match_earn_none(text: str) -> None:
    assert check(parse(text), TRADES).warnings == ()


def test_the_dead_part_of_an_or_is_pointed_at() -> None:
    (warning,) = check(parse("volume > 3 OR price < 0"), TRADES).warnings
    assert warning.at == 14 and "price" in warning.message


_SMALL = Schema.from_json(
    {
        "attributes": [
            {"name": "i", "type": "int", "min": 0, "max": 3},
            {"name": "b", "type": "bool"},
            {"name": "s", "type": "string", "max_length": 1},
        ]
    }
)
_TEXTS = (None, "", "a", "b", "\U0001f407")
_EVENTS = [{"i": i, "b": b, "s": s} for i in (None, 0, 1, 2, 3) for b in (None, True, False) for s in _TEXTS]
_SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_ATOMS = st.one_of(
    st.tuples(st.just("i"), _SIGNS, st.sampled_from(["-1", "0", "1", "1.5", "3", "4"])).map(" ".join),
    st.tuples(st.just("s"), st.sampled_from(["=", "<>", "<", ">"]), st.sampled_from(["''", "'a'", "'ab'"])).map(
        " ".join
    ),
    st.sampled_from(
        ["b", "NOT b", "b = FALSE", "b IS NULL", "i IS NULL", "i IS NOT NULL", "s LIKE 'a%'", "TRUE", "FALSE"]
    ),
    st.sampled_from(
        ["i IN (1, 7)", "i NOT IN (1, 2)", "i BETWEEN 1 AND 2", "i NOT BETWEEN 0 AND 3", "2 > i", "s IN ('a')"]
    ),
)
_FILTERS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" AND ", " OR "]), inner).map(lambda t: f"({t[0]}){t[1]}({t[2]})"),
        inner.map(lambda t: f"NOT ({t})"),
    ),
    max_leaves=6,
)


@examples(100, soak=500)
@given(_FILTERS)
def test_no_filter_is_called_impossible_that_matches_something(text: str) -> None:
    condition = parse(text, _SMALL)
    matched = any(evaluate(condition, event) for event in _EVENTS)  # type: ignore[arg-type]
    if impossible(condition, _SMALL) is not None:
        assert not matched
    if isinstance(condition, Or) and matched:
        assert all("this part" in warned.message for warned in check(condition, _SMALL).warnings)
