"""`filter eval --cases`: every line gets an answer, whatever stands in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.filters.cases import evaluate_case, evaluate_cases
from tests.effort import examples


def answer(text: str, **attributes: Any) -> Any:
    return evaluate_case(json.dumps({"filter": text, "attributes": attributes}))


@pytest.mark.parametrize(
    ("text", "attributes", "result"),
    [
        ("price > 5", {"price": 7}, True),
        ("price > 5", {"price": 3}, False),
        ("price > 5", {}, None),
        ("price > 5", {"price": None}, None),
        ("x + 0.2 = 0.30000000000000004", {"x": 0.1}, True),  # doubles, as everywhere in the union
        ("x + 0.2 = 0.3", {"x": 0.1}, False),
        ("x = 9007199254740993", {"x": 9007199254740993}, True),
        ("x = 9007199254740992.0", {"x": 9007199254740993}, False),
        ("x > 9223372036854775807", {"x": 10**30}, True),
        ("x = 'a' AND y", {"x": "a", "y": True}, True),
        ("x = 1", {"x": True}, False),
        ("x = 1.0", {"x": 1}, True),
        ("application_properties.k = 1 AND a.k = 1 AND p.k = 1", {"k": 1}, True),
        ("a.k = 2", {"k": 1, "a.k": 2}, True),
        ("path:/a/#", {"subject": "/a/b"}, True),
        ("tags:a=x", {"a": "x"}, True),
        ("[é \N{RABBIT}] = '\N{RABBIT}'", {"é \N{RABBIT}": "\N{RABBIT}"}, True),
        ("UTC() > 1000000000000", {}, True),
    ],
)
def test_results(text: str, attributes: dict[str, Any], result: bool | None) -> None:
    assert answer(text, **attributes) == {"result": result}


def test_errors_have_kind_place_and_message() -> None:
    assert answer("price >") == {
        "error": {"kind": "syntax", "at": 7, "message": "the filter ends where a value or a condition should follow"}
    }
    assert answer("a = 1 AMD b = 2")["error"]["message"].endswith("(did you mean AND?)")
    assert answer("3+5")["error"]["kind"] == "type"
    assert answer("(" * 100 + "a" + ")" * 100)["error"]["kind"] == "limit"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("{", "case"),
        ("[]", "case"),
        ("null", "case"),
        ("5", "case"),
        ('"x"', "case"),
        ("{}", "case"),
        ('{"filter": 5}', "case"),
        ('{"filter": null, "attributes": {}}', "case"),
        ('{"filter": "TRUE", "attributes": []}', "case"),
        ('{"filter": "TRUE", "attributes": null}', "case"),
        ('{"filter": "TRUE", "payload": 5}', "case"),
        ('{"filter": "x > 1", "attributes": {"x": NaN}}', "case"),
        ('{"filter": "x > 1", "attributes": {"x": -Infinity}}', "case"),
        ('{"filter": "x > 1", "attributes": {"x": 1e999}}', "case"),
        ('{"filter": "x > 1", "attributes": {"x": [1]}}', "case"),
        ('{"filter": "x > 1", "attributes": {"x": {"y": 1}}}', "case"),
        ('{"filter": "x = 1", "attributes": {"x": "\\ud800"}}', "case"),
        ('{"filter": "x = \'\\ud800\'", "attributes": {}}', "syntax"),
        ('{"filter": "x > 1", "attributes": {"x": ' + "9" * 401 + "}}", "limit"),
        ('{"filter": "x > 1", "attributes": {"x": ' + "9" * 100_000 + "}}", "limit"),
        ("[" * 200_000, "limit"),
        ('{"a":' * 200_000, "limit"),
        ('{"filter": "' + " " * (1 << 20) + 'TRUE"}', "limit"),
        ('{"filter": "\u0000"}', "case"),
    ],
)
def test_bad_lines_are_answered_not_raised(line: str, kind: str) -> None:
    error = evaluate_case(line)["error"]
    assert error["kind"] == kind
    assert set(error) == {"kind", "at", "message"} and error["message"]


def test_lines_in_order_blank_ones_left_out() -> None:
    lines = ['{"filter": "TRUE"}\n', "\n", "nonsense\n", '{"filter": "FALSE", "id": 7, "expected": false}', "  "]
    answers = list(evaluate_cases(lines))
    assert [next(iter(a)) for a in answers] == ["result", "error", "result"]
    assert json.loads(json.dumps(answers)) == answers


def test_a_payload_may_come_along() -> None:
    case = {"filter": "xpath://a", "attributes": {}, "payload": "<a/>"}
    assert evaluate_case(json.dumps(case)) == {"result": True}
    assert evaluate_case(json.dumps(case | {"payload": "no XML"})) == {"result": None}


@examples(60, soak=300)
@given(
    st.one_of(
        st.text(),
        st.binary().map(lambda b: b.decode("latin-1")),
        st.fixed_dictionaries(
            {
                "filter": st.text() | st.sampled_from(["a = b", "a + b > 0", "a LIKE '%'", "a IN (b, 1)", "NOT a"]),
                "attributes": st.dictionaries(
                    st.sampled_from("abc"),
                    st.recursive(
                        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                        lambda inner: st.lists(inner, max_size=2),
                        max_leaves=3,
                    ),
                ),
            }
        ).map(json.dumps),
    )
)
def test_no_line_raises(line: str) -> None:
    for given_answer in evaluate_cases([line]):
        assert set(given_answer) in ({"result"}, {"error"})
