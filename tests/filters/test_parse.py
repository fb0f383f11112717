"""Text -> tree: precedence, notations, positions of errors, limits, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FilterRejected
from sealcast.filters import limits
from sealcast.filters.evaluate import evaluate
from sealcast.filters.formats import FORMATS
from sealcast.filters.lexer import KEYWORDS
from sealcast.filters.parse import parse
from sealcast.filters.tree import (
    And,
    Arithmetic,
    ArithmeticOp,
    Between,
    Compare,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Negate,
    Not,
    Now,
    Operand,
    Or,
    PathMatch,
    Plus,
    Predicate,
    Regex,
    Truth,
    XPath,
)
from sealcast.filters.unparse import unparse
from tests.effort import examples
from tests.filters.trees import conditions

A, B, C = Name("a"), Name("b"), Name("c")
ONE = Literal(1)
IS_A, IS_B, IS_C = Truth(A), Truth(B), Truth(C)


def of(sign: str, left: Operand, right: Operand) -> Arithmetic:
    return Arithmetic(ArithmeticOp(sign), left, right)


def refused(text: str) -> FilterRejected:
    with pytest.raises(FilterRejected) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        # NOT binds tighter than AND, AND than OR; junctions are flat
        ("a OR b AND c", Or((IS_A, And((IS_B, IS_C))))),
        ("NOT a AND b", And((Not(IS_A), IS_B))),
        ("NOT a = 1", Not(Compare(Comparison.EQ, A, ONE))),
        ("(a AND b) AND c", And((IS_A, IS_B, IS_C))),
        ("a AND (b AND c)", And((IS_A, IS_B, IS_C))),
        ("(a OR b) AND c", And((Or((IS_A, IS_B)), IS_C))),
        ("not not a", Not(Not(IS_A))),
        # arithmetic
        ("a + b * c = 1", Compare(Comparison.EQ, of("+", A, of("*", B, C)), ONE)),
        ("a - b - c = 1", Compare(Comparison.EQ, of("-", of("-", A, B), C), ONE)),
        ("a % b / c = 1", Compare(Comparison.EQ, of("/", of("%", A, B), C), ONE)),
        ("a -1 = b", Compare(Comparison.EQ, of("-", A, ONE), B)),
        ("a = -1", Compare(Comparison.EQ, A, Literal(-1))),
        ("a = - 1", Compare(Comparison.EQ, A, Literal(-1))),
        ("a = -(1)", Compare(Comparison.EQ, A, Negate(ONE))),
        ("a = +b", Compare(Comparison.EQ, A, Plus(B))),
        ("a = 6--5", Compare(Comparison.EQ, A, of("-", Literal(6), Literal(-5)))),
        # comparisons
        ("a != 1", Compare(Comparison.NE, A, ONE)),
        ("a <> 1", Compare(Comparison.NE, A, ONE)),
        ("1 < a", Compare(Comparison.LT, ONE, A)),
        ("a BETWEEN 1 AND b AND c", And((Between(A, ONE, B), IS_C))),
        ("a not between b and c", Between(A, B, C, True)),
        ("a IN (1, b, 1 + c)", In(A, (ONE, B, of("+", ONE, C)))),
        ("a NOT IN ('x')", In(A, (Literal("x"),), True)),
        ("a LIKE 'x%'", Like(A, "x%")),
        ("a NOT LIKE 'x!%' ESCAPE '!'", Like(A, "x!%", "!", True)),
        ("a IS NULL", IsNull(A)),
        ("1 IS NOT NULL", IsNull(ONE, True)),
        ("NOT a IS NOT NULL", Not(IsNull(A, True))),
        # conditions as values, values as conditions
        ("(a = 1) IS NULL", IsNull(Predicate(Compare(Comparison.EQ, A, ONE)))),
        ("(a = 1) = (b = 1)", Compare(
            Comparison.EQ, Predicate(Compare(Comparison.EQ, A, ONE)), Predicate(Compare(Comparison.EQ, B, ONE)))),
        ("-(a or b)", Truth(Negate(Predicate(Or((IS_A, IS_B)))))),
        ("((a))", IS_A),
        ("'x' AND 1", And((Truth(Literal("x")), Truth(ONE)))),
        # words that are only sometimes special
        ("UTC() > 1", Compare(Comparison.GT, Now(), ONE)),
        ("utc > 1", Compare(Comparison.GT, Name("utc"), ONE)),
        ("timestamp > 1", Compare(Comparison.GT, Name("timestamp"), ONE)),
        ("regex('^a', b)", Regex("b", "^a")),
        ("PATH('/a/+', [b c])", PathMatch("b c", ("", "a", "+"))),
        ("XPATH '//a' AND a", And((XPath("//a"), IS_A))),
        # formats behind their prefix, and a path without
        ("sql: a", IS_A),
        ("path:/Sports/+/Football", PathMatch("subject", ("", "Sports", "+", "Football"))),
        ("/Sports/#", PathMatch("subject", ("", "Sports", "#"))),
        ("path:venue = /EU/#", PathMatch("venue", ("", "EU", "#"))),
        ("regex:a=^b=c$", Regex("a", "^b=c$")),
        ("xpath://a[@b='c']", XPath("//a[@b='c']")),
        ("tags:a=x y, b=*", And((Compare(Comparison.EQ, A, Literal("x y")), IsNull(B, True)))),
        ("tags: [c]='it''s, *'", Compare(Comparison.EQ, C, Literal("it's, *"))),
        # blanks and comments
        (" a\t\r\n\f= /* one */ 1 -- and only one\n", Compare(Comparison.EQ, A, ONE)),
        ("a=1AND b", And((Compare(Comparison.EQ, A, ONE), IS_B))),
    ],
)  # fmt: skip
def test_reads(text: str, tree: object) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("57", 57), ("57L", 57), ("1_000", 1000),
        ("9223372036854775808", 2**63), ("-9223372036854775808", -(2**63)),
        ("0x1F", 31), ("0Xffl", 255), ("0x1000_0000", 2**28), ("0x8000_0000_0000_0001", -(2**63) + 1),
        ("017", 15), ("077L", 63), ("0b101", 5), ("0b111_111", 63),
        ("7.", 7.0), (".5", 0.5), ("5.5E10", 5.5e10), ("1e3", 1000.0), ("5.E1", 50.0), (".5e-1", 0.05), ("4E+10", 4e10),
        ("7f", 7.0), ("0.4d", 0.4), ("1_000.5f", 1000.5), ("0x1p3", 8.0), ("0x800p-3", 256.0),
        ("4.9E-324", 5e-324), ("1.7976931348623157E308", 1.7976931348623157e308),
        ("TRUE", True), ("fAlSe", False),
        ("'it''s'", "it's"), ('"say ""no"""', 'say "no"'), ("''", ""), ("'a\\n'", "a\\n"),
        ("'\N{RABBIT}'", "\N{RABBIT}"),
    ],
)  # fmt: skip
def test_constants(text: str, value: object) -> None:
    assert parse(f"x = {text}") == Compare(Comparison.EQ, Name("x"), Literal(value))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("price", "price"), ("JMSXGroupID", "JMSXGroupID"), ("_max", "_max"), ("prop$3", "prop$3"), ("$", "$"),
        ("p.to", "p.to"), ("x:y", "x:y"), ("null_123", "null_123"), ("oR_and", "oR_and"), ("été", "été"),
        ("ニンジン", "ニンジン"),
        ("[with  spaces]", "with  spaces"), ("[]", ""), ("[NOT]", "NOT"), ("[[[ key ]]]", "[ key ]"), ("[]]]", "]"),
        ("[]][[]", "]["), ("[!@#$%^&*()'\"]", "!@#$%^&*()'\""),
    ],
)  # fmt: skip
def test_names(text: str, name: str) -> None:
    assert parse(text) == Truth(Name(name))


@pytest.mark.parametrize(
    ("text", "kind", "at"),
    [
        ("", "syntax", 0),
        ("  ", "syntax", 0),
        ("-- nothing\n", "syntax", 0),
        ("sql:", "syntax", 0),
        ("a = 1 AMD  b = 2", "syntax", 6),
        ("prop1 = prop2 foo AND b", "syntax", 14),
        ("hello ^ world", "syntax", 6),
        ("a =", "syntax", 3),
        ("=a 'x'", "syntax", 0),
        ("a = b = c", "syntax", 6),
        ("a IS NULL NOT", "syntax", 10),
        ("a IS 1", "syntax", 5),
        ("a AND NOT", "syntax", 9),
        ("a = 'x", "syntax", 4),
        ('a = "x', "syntax", 4),
        ("a = [x", "syntax", 4),
        ("a /* b", "syntax", 2),
        ("(a = 1", "syntax", 6),
        ("a = 1)", "syntax", 5),
        ("a IN ()", "syntax", 6),
        ("a IN 'x'", "syntax", 5),
        ("a IN ('x' 1)", "syntax", 10),
        ("a LIKE 234", "syntax", 7),
        ("a LIKE b", "syntax", 7),
        ("a LIKE 'x' ESCAPE 'yz'", "syntax", 18),
        ("a LIKE 'x' ESCAPE ''", "syntax", 18),
        ("a LIKE 'x!' ESCAPE '!'", "syntax", 7),
        ("a BETWEEN 1 OR 2", "syntax", 12),
        ("a BETWEEN AND 1", "syntax", 10),
        ("a NOT 1", "syntax", 6),
        ("a = NULL", "syntax", 4),
        ("NULL = 0", "syntax", 0),
        ("1uncorrect IS NULL", "syntax", 1),
        ("%a", "syntax", 0),
        ("a = 019", "syntax", 4),
        ("a = 1.5L", "syntax", 4),
        ("a = 1e", "syntax", 5),
        ("a = 1e400", "limit", 4),
        ("a = 0x1_0000_0000_0000_0000", "limit", 4),
        ("nosuch('a', b)", "syntax", 0),
        ("UTC(1)", "syntax", 4),
        ("REGEX('(', a)", "syntax", 6),
        ("REGEX(a, 'x')", "syntax", 6),
        ("XPATH '//'", "syntax", 6),
        ("3+5", "type", 0),
        ("TRUE AND 3+5", "type", 9),
        ("a > TIMESTAMP 'yesterday'", "type", 14),
        ("[\n]", "syntax", 0),
        ("a = '\ud800'", "syntax", 5),
        ("path:", "syntax", 5),
        ("path:/a/b+", "syntax", 8),
        ("path:/a/#/b", "syntax", 8),
        ("tags:", "syntax", 5),
        ("tags:a", "syntax", 5),
        ("tags:a=", "syntax", 7),
        ("tags:a=x*", "syntax", 7),
        ("tags:a=x,", "syntax", 9),
        ("regex:^a$", "syntax", 6),
        ("regex:a=", "syntax", 8),
        ("regex:a=(?=b)", "syntax", 8),
        ("xpath:", "syntax", 6),
        ("xpath:$a", "inexpressible", 6),
        ("xpath:nosuch(a)", "syntax", 6),
        ("xpath:x:a", "syntax", 6),
    ],
)
def test_refuses_and_says_where(text: str, kind: str, at: int) -> None:
    error = refused(text)
    assert (error.kind, error.at) == (kind, at), error.message


@pytest.mark.parametrize("word", sorted(KEYWORDS - {"TRUE", "FALSE"}))
def test_keywords_are_no_names(word: str) -> None:
    for spelling in (word, word.lower(), word.title()):
        assert refused(f"{spelling} = 0").kind == "syntax"
        assert parse(f"[{spelling}] = 0") == Compare(Comparison.EQ, Name(spelling), Literal(0))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a = 1 AMD b = 2", "did you mean AND?"),
        ("a = NULL", "NULL is asked for by IS NULL"),
        ("a && b", "write AND"),
        ("a = `b`", "names are quoted by [ ]"),
        ("", "TRUE matches every event"),
        ("a < b < c", "comparisons do not chain; use parentheses"),
    ],
)
def test_hints(text: str, hint: str) -> None:
    assert refused(text).hint == hint


@pytest.mark.parametrize(
    ("text", "part", "found"),
    [
        ("  (a = 1) AND (b > 2)  ", lambda t: t, "(a = 1) AND (b > 2)"),
        ("  (a = 1) AND (b > 2)  ", lambda t: t.items[1], "b > 2"),
        ("x OR NOT (a + 1) * 2 > c", lambda t: t.items[1].operand, "(a + 1) * 2 > c"),
        ("a IN (1, 2) AND b LIKE 'x' ESCAPE '!' OR c", lambda t: t.items[0].items[1], "b LIKE 'x' ESCAPE '!'"),
        ("tags: a=x , b=*", lambda t: t.items[0], " a=x "),
        ("REGEX('x', a) OR b", lambda t: t.items[0], "REGEX('x', a)"),
    ],
)
def test_spans(text: str, part: object, found: str) -> None:
    node = part(parse(text))  # type: ignore[operator]
    assert text[node.at : node.end] == found


# --- limits -------------------------------------------------------------------------------------


def nested(depth: int) -> str:
    return "(" * depth + "a" + ")" * depth


@pytest.mark.parametrize(
    ("fits", "breaks"),
    [
        ("a" + " " * (limits.MAX_TEXT_LENGTH - 1), "a" + " " * limits.MAX_TEXT_LENGTH),
        ("a" + " OR a" * 2_047, "a" + " OR a" * 2_048),
        (nested(limits.MAX_NESTING), nested(limits.MAX_NESTING + 1)),
        ("NOT " * limits.MAX_NESTING + "a", "NOT " * (limits.MAX_NESTING + 1) + "a"),
        ("- " * limits.MAX_NESTING + "a > 1", "- " * (limits.MAX_NESTING + 1) + "a > 1"),
        ("a" + "+a" * (limits.MAX_DEPTH - 2) + "=1", "a" + "+a" * (limits.MAX_DEPTH - 1) + "=1"),
        (f"a IN ({','.join('1' * limits.MAX_IN_ITEMS)})", f"a IN ({','.join('1' * (limits.MAX_IN_ITEMS + 1))})"),
        (f"a LIKE '{'x' * limits.MAX_LIKE_LENGTH}'", f"a LIKE '{'x' * (limits.MAX_LIKE_LENGTH + 1)}'"),
        (f"regex:a={'x' * limits.MAX_REGEX_LENGTH}", f"regex:a={'x' * (limits.MAX_REGEX_LENGTH + 1)}"),
        ("regex:a=.{400}", "regex:a=.{600}"),
        ("regex:a=x{1000}", "regex:a=(x{1000}){1000}"),
        (f"a = {'9' * limits.MAX_NUMBER_LENGTH}", f"a = {'9' * (limits.MAX_NUMBER_LENGTH + 1)}"),
        ("a" * 128, "a" * 129),
        (f"[{'a' * 128}]", f"[{'a' * 129}]"),
        ("path:" + "/a" * (limits.MAX_PATH_LEVELS - 1), "path:" + "/a" * limits.MAX_PATH_LEVELS),
        ("tags:" + ",".join(["a=1"] * limits.MAX_TAGS), "tags:" + ",".join(["a=1"] * (limits.MAX_TAGS + 1))),
        ("xpath:" + "a" * limits.MAX_XPATH_LENGTH, "xpath:" + "a" * (limits.MAX_XPATH_LENGTH + 1)),
        ("xpath:" + "a[" * 16 + "1" + "]" * 16, "xpath:" + "a[" * 17 + "1" + "]" * 17),
        (" OR ".join(["XPATH 'a'"] * 31), " OR ".join(["XPATH 'a'"] * 32)),
    ],
)
def test_limits(fits: str, breaks: str) -> None:
    parse(fits)
    assert refused(breaks).kind == "limit"


@pytest.mark.parametrize(
    "hostile",
    [
        "(",
        "NOT ",
        "-",
        "- ",
        "[",
        "'",
        '"',
        "/*",
        "--",
        "a OR b AND c = d + e * (",
        "a IN (",
        "0x",
        "1e",
        "((a)=",
        "/",
        "%",
    ],
)
def test_deep_or_endless_text_is_refused_quickly(hostile: str) -> None:
    # An odd length: an even number of quotes would be a string.
    text = (hostile * limits.MAX_TEXT_LENGTH)[: limits.MAX_TEXT_LENGTH - 1]
    refused(text)
    refused(text + "\n")
    for name in FORMATS:
        prefixed = f"{name}:a=" + text
        with pytest.raises(FilterRejected):
            parse(prefixed[: limits.MAX_TEXT_LENGTH] + "*")


# --- there and back -----------------------------------------------------------------------------


@examples(80, soak=400)
@given(conditions())
def test_what_is_printed_is_read_back(condition: object) -> None:
    text = unparse(condition)  # type: ignore[arg-type]
    assert parse(text) == condition, text
    assert unparse(parse(text)) == text


# fmt: off
_FRAGMENTS = st.sampled_from([
    "a", "b", "[x y]", "'it''s'", '"q"', "1", "-2", ".5", "0x1F", "1e3", "=", "<>", "<", "AND", "OR", "NOT", "(", ")",
    ",", "+", "-", "*", "/", "%", "IN", "LIKE", "BETWEEN", "IS", "NULL", "ESCAPE", "TRUE", "UTC()", "TIMESTAMP",
    "XPATH", "REGEX(", "path:", "tags:", "regex:", "xpath:", "/a/+", "#", "--", "/*", "*/", "\n", "'", '"', "[", "]",
    "$", "!", "\\", "🐇",
])
# fmt: on


@examples(100, soak=500)
@given(
    st.one_of(
        st.lists(_FRAGMENTS, max_size=25).map(" ".join), st.lists(_FRAGMENTS, max_size=12).map("".join), st.text()
    )
)
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        condition = parse(text)
    except FilterRejected as error:
        assert error.kind in ("syntax", "name", "type", "limit", "inexpressible")
        assert error.at is not None and 0 <= error.at <= len(text)
    else:
        event = {"a": 1, "b": "x", "x y": None}
        assert evaluate(condition, event) in (True, False, None)  # type: ignore[arg-type]
        assert parse(unparse(condition)) == condition
