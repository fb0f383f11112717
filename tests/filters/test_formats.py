"""Paths, tags, regular expressions and XPath: what they match, and what they refuse to do."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FilterRejected
from sealcast.filters import limits
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.xpath import Document
from tests.effort import examples


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("/Sports/+/Football", "/Sports/UK/Football", True),
        ("/Sports/+/Football", "/Sports/UK/London/Football", False),
        ("/Sports/+/Football", "/Sports//Football", True),
        ("/Sports/#", "/Sports", True),
        ("/Sports/#", "/Sports/", True),
        ("/Sports/#", "/Sports/UK/Football", True),
        ("/Sports/#", "/Sportsmen", False),
        ("/Sports", "/Sports/", False),
        ("/Sports", "Sports", False),
        ("/Sports", "/sports", False),
        ("#", "", True),
        ("+", "a", True),
        ("+", "/a", False),
        ("+/+", "/a", True),
    ],
)
def test_paths(pattern: str, subject: str, expected: bool) -> None:
    assert evaluate(parse(f"path:{pattern}"), {"subject": subject}) is expected
    assert evaluate(parse(f"path:venue={pattern}"), {"venue": subject}) is expected


def test_a_path_of_what_is_no_string_is_unknown() -> None:
    assert evaluate(parse("path:/a"), {"subject": 5}) is None
    assert evaluate(parse("path:/a"), {}) is None


_LEVELS = st.lists(st.sampled_from(["", "a", "b", "ab"]), min_size=1, max_size=5)


@examples(100, soak=500)
@given(st.lists(st.sampled_from(["", "a", "b", "+"]), max_size=4), st.booleans(), _LEVELS)
def test_paths_agree_with_regular_expressions(levels: list[str], open_end: bool, actual: list[str]) -> None:
    wanted = [*levels, "#"] if open_end or not levels else levels
    if wanted == [""]:
        return
    text = "/".join(wanted)
    expression = "/".join("[^/]*" if level == "+" else re.escape(level) for level in levels)
    if wanted[-1] == "#":
        expression = f"{expression}(/.*)?" if levels else ".*"
    subject = "/".join(actual)
    assert evaluate(parse(f"path:{text}"), {"subject": subject}) is (re.fullmatch(expression, subject) is not None)


@pytest.mark.parametrize(
    ("template", "event", "expected"),
    [
        ("Sports=NBA, Team=*", {"Sports": "NBA", "Team": "Lakers"}, True),
        ("Sports=NBA, Team=*", {"Sports": "NBA"}, False),
        ("Sports=NBA, Team=*", {"Sports": "NHL", "Team": "Lakers"}, False),
        ("Sports=NBA", {}, None),
        ("a = x y , b='p, q'", {"a": "x y", "b": "p, q"}, True),
        ('a="*"', {"a": "*"}, True),
        ('a="*"', {"a": "x"}, False),
        ("[a b]=x", {"a b": "x"}, True),
        ("a=x=y", {"a": "x=y"}, True),
    ],
)
def test_tags(template: str, event: dict[str, str], expected: bool | None) -> None:
    assert evaluate(parse(f"tags:{template}"), event) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("^A.*X$", "ABCX", True),
        ("B", "ABCX", True),
        ("^B", "ABCX", False),
        (r"(?i)abc", "ABCX", True),
        (r"^\p{Greek}+$", "αβγ", True),
        (r"^.$", "\N{RABBIT}", True),
        ("(x+x+)+y", "x" * 60_000, False),
    ],
)
def test_regular_expressions(pattern: str, text: str, expected: bool) -> None:
    assert evaluate(parse(f"regex:a={pattern}"), {"a": text}) is expected
    assert evaluate(parse(f"regex:a={pattern}"), {"a": 5}) is None
    assert evaluate(parse(f"regex:a={pattern}"), {}) is None


# --- XPath --------------------------------------------------------------------------------------

ORDER = b"<?xml version='1.0'?><order total='250'><item key='first' n='1'/><item key='second' n='2'>bolt</item></order>"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("order/item", True),
        ("/order/item", True),
        ("item", False),
        ("//item", True),
        ("./order", True),
        (".//item[. = 'bolt']", True),
        ("//nothing", False),
        ("//item = 'bolt'", True),
        ("//item='nut'", False),
        ("order/@total > 100", True),
        ("//item[@n > 2]", False),
        ("//item[@key='second' or @key='third']", True),
        ("not(//item)", False),
        ("not(//nut)", True),
        ("count(order/item)", True),
        ("count(order/nut)", False),
        ("number(//item)", False),
        ("string(//item[2])", True),
        ("string(//item[1])", False),
        ("sum(//@n) = 3", True),
        ("order/item[1]/@n * 2 = 2", True),
        ("order/item | order/nut", True),
        ("*[local-name() = 'order']", True),
        ("contains(., 'bolt')", True),
    ],
)
def test_xpath(expression: str, expected: bool) -> None:
    assert evaluate(parse(f"xpath:{expression}"), {}, ORDER) is expected


def test_xpath_joins_sql() -> None:
    condition = parse("price > 5 AND XPATH '//item[@key=''first'']'")
    assert evaluate(condition, {"price": 7}, ORDER) is True
    assert evaluate(condition, {"price": 7}, b"<order/>") is False
    assert evaluate(condition, {"price": 7}, None) is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"<order>",
        b"<order/><order/>",
        b"\xff\xfe\x00",
        b"<?xml version='1.0' encoding='nonsense'?><order/>",
        b"<!DOCTYPE order [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><order>&e;</order>",
        b"<!DOCTYPE order SYSTEM 'http://127.0.0.1:1/x.dtd'><order/>",
        "<!DOCTYPE order [<!ENTITY e 'x'>]><order>&e;</order>".encode("utf-16"),
        b"<order>" + b"<a>" * 300 + b"</a>" * 300 + b"</order>",
        b"<order>" + b" " * limits.MAX_XML_BYTES + b"</order>",
        b"<order>&undefined;</order>",
    ],
)
def test_what_is_no_plain_xml_is_unknown(payload: bytes) -> None:
    assert Document.parse(payload) is None
    assert evaluate(parse("xpath:/order"), {}, payload) is None
    assert evaluate(parse("NOT XPATH '/nothing'"), {}, payload) is None


def test_entities_are_never_expanded() -> None:
    # Ten levels of ten: a billion laughs for a parser that expands them.
    lines = [b'<!ENTITY l0 "ha">'] + [b'<!ENTITY l%d "%s">' % (i, b"&l%d;" % (i - 1) * 10) for i in range(1, 10)]
    payload = b"<!DOCTYPE x [" + b"".join(lines) + b"]><x>&l9;</x>"
    assert evaluate(parse("xpath:string-length(/x) > 0"), {}, payload) is None
    hidden = payload.decode().encode("utf-16")
    assert evaluate(parse("xpath:string-length(/x) > 0"), {}, hidden) is None


def test_a_dear_xpath_is_unknown_rather_than_slow() -> None:
    many = b"<r>" + b"<a><b/></a>" * 5_000 + b"</r>"
    assert evaluate(parse("xpath://a[b]"), {}, many) is True
    for dear in ("//*[//*[//*]]", "//*[..//*[..//*]]", "//a[b = //b]", "/r[a = a]", "//a[following::a[following::a]]"):
        assert evaluate(parse(f"xpath:{dear}"), {}, many) is None
        assert evaluate(parse(f"xpath:{dear}"), {}, b"<r><a><b/></a><a><b/></a><a/></r>") is not None


_STEPS = ["//a", "/r", "a", "..", ".", "*", "@k", "b[1]", "text()", "a[b]", "count(a)", "'x'", "2", "not(a)"]


def test_every_expression_that_is_taken_runs() -> None:
    for left, sign, right in itertools.product(_STEPS, ("=", "and", "|", "+", "/", "<"), _STEPS):
        try:
            condition = parse(f"xpath:{left} {sign} {right}")
        except FilterRejected as error:
            assert error.kind == "syntax"
        else:
            assert evaluate(condition, {}, b"<r k='1'><a k='2'>x<b/></a><b>2</b></r>") in (True, False, None)
