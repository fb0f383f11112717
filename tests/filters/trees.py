"""Random filters: as trees that `parse` could have made, and as SQL text that SQLite reads in the same way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from sealcast.filters.functions import KINDS
from sealcast.filters.tree import (
    And,
    Arithmetic,
    ArithmeticOp,
    Between,
    Call,
    Compare,
    Comparison,
    Condition,
    Function,
    In,
    InSplit,
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

# --- trees --------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(["a", "b", "price", "JMSType", "$x", "p.to", "x:y", "And", "null", "TIMESTAMP", "été", "path:z"]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    st.integers(-(2**50), 2**51).map(lambda micros: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)),
)


@st.composite
def operands(draw: st.DrawFn, depth: int = 2) -> Operand:
    shape = draw(st.integers(0, 7 if depth else 2))
    if shape == 0:
        return Literal(draw(VALUES))
    if shape == 1:
        return Name(draw(NAMES))
    if shape == 2:
        return Now()
    if shape == 3:
        return Negate(draw(operands(depth - 1)))
    if shape == 4:
        return Plus(draw(operands(depth - 1)))
    if shape == 5:
        return Arithmetic(draw(st.sampled_from(ArithmeticOp)), draw(operands(depth - 1)), draw(operands(depth - 1)))
    if shape == 6:
        return draw(_calls(depth - 1))
    return Predicate(draw(conditions(depth - 1).filter(lambda c: not isinstance(c, Truth))))


@st.composite
def _calls(draw: st.DrawFn, depth: int) -> Call:
    function = draw(st.sampled_from(Function))
    if function is Function.REPLACE:
        old = draw(TEXTS.filter(bool))
        return Call(function, (draw(operands(depth)), Literal(old), Literal(draw(TEXTS))))
    signature = KINDS[function]
    count = draw(st.integers(signature.least, signature.most or 4))
    if function is Function.ROUND and count == 2:
        return Call(function, (draw(operands(depth)), Literal(draw(st.integers(-18, 18)))))
    return Call(function, tuple(draw(operands(depth)) for _ in range(count)))


@st.composite
def _likes(draw: st.DrawFn, depth: int) -> Like:
    pattern = draw(st.text("ab%_!\\'", max_size=6))
    escape = draw(st.none() | st.sampled_from("!\\%_z"))
    if escape is not None and escape not in "%_":
        # A pattern may not end in an escape that escapes nothing.
        pattern = pattern.replace(escape, escape * 2)
    return Like(draw(operands(depth)), pattern, escape, draw(st.booleans()))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> Condition:
    """Every tree in the normal form of the parser: junctions flat, no condition wrapped for nothing."""
    shape = draw(st.integers(0, 12 if depth else 9))
    value, negated = operands(min(depth, 2)), draw(st.booleans())
    if shape == 0:
        return Compare(draw(st.sampled_from(Comparison)), draw(value), draw(value))
    if shape == 1:
        return Between(draw(value), draw(value), draw(value), negated)
    if shape == 2:
        return In(draw(value), tuple(draw(st.lists(value, min_size=1, max_size=3))), negated)
    if shape == 3:
        return draw(_likes(min(depth, 2)))
    if shape == 4:
        return IsNull(draw(value), negated)
    if shape == 5:
        return Truth(draw(value.filter(lambda o: not isinstance(o, Arithmetic | Call | Predicate))))
    if shape == 6:
        return PathMatch(draw(NAMES), draw(st.sampled_from([("", "a", "+"), ("#",), ("a", "b'c")])))
    if shape == 7:
        return Regex(draw(NAMES), draw(st.sampled_from(["^a+$", "it's", "[x]"])))
    if shape == 8:
        return XPath(draw(st.sampled_from(["//a[@b='c']", "count(a) > 1"])))
    if shape == 9:
        return InSplit(draw(value), draw(st.sampled_from([",", "a", "'"])), draw(value))
    if shape == 10:
        return Not(draw(conditions(depth - 1)))
    kind: type[And] | type[Or] = And if shape == 11 else Or
    other = conditions(depth - 1).filter(lambda c: not isinstance(c, kind))
    return kind(tuple(draw(st.lists(other, min_size=2, max_size=3))))


# --- SQL that SQLite understands alike ----------------------------------------------------------

COLUMNS = {
    "i1": "INTEGER",
    "i2": "INTEGER",
    "f1": "REAL",
    "f2": "REAL",
    "s1": "TEXT",
    "s2": "TEXT",
    "b1": "BOOLEAN",
    "b2": "BOOLEAN",
}
_WORDS = st.text("aAbB%_é\U0001f407 ", max_size=4)


def rows() -> st.SearchStrategy[dict[str, object]]:
    """Values small enough that no arithmetic overflows in SQLite's 64 bits."""
    return st.fixed_dictionaries(
        {
            "i1": st.none() | st.integers(-4, 4),
            "i2": st.none() | st.integers(-4, 4) | st.sampled_from([2**53, 2**53 + 1]),
            "f1": st.none() | st.sampled_from([0.0, 0.5, -1.5, 2.0, 4.0]),
            "f2": st.none() | st.sampled_from([0.0, 1.0, 2.5, float(2**53)]),
            "s1": st.none() | _WORDS,
            "s2": st.none() | _WORDS,
            "b1": st.none() | st.booleans(),
            "b2": st.none() | st.booleans(),
        }
    )


@st.composite
def _number(draw: st.DrawFn, depth: int, whole: bool) -> str:
    """Whole numbers where SQLite would divide or take remainders as whole numbers."""
    shape = draw(st.integers(0, 9 if depth else 2))
    if shape <= 1:
        return draw(st.sampled_from(["i1", "i2"] if whole else ["i1", "f1", "f2"]))
    if shape == 2:
        return (
            str(draw(st.integers(-4, 4))) if whole else draw(st.sampled_from(["0.5", "2.0", "-1.5", ".5", "1e0", "4."]))
        )
    left = draw(_number(depth - 1, whole))
    if shape == 3:
        return f"-({left})"
    if shape == 8:
        return f"ABS({left})"
    if shape == 9:
        return f"LENGTH({draw(_text())})" if whole else f"ROUND({left})"
    if shape == 7:
        right = draw(_number(depth - 1, True)) if whole else draw(st.sampled_from(["f1", "f2", "0.5", "0.0"]))
        return f"({left}) {'%' if whole else '/'} ({right})"
    op = draw(st.sampled_from(["+", "-"])) if shape < 6 else "*"
    right = draw(_number(depth - 1, whole))
    return f"({left}) {op} ({right})" if op == "*" else f"{left} {op} ({right})"


@st.composite
def _quoted(draw: st.DrawFn) -> str:
    return "'" + draw(_WORDS).replace("'", "''") + "'"


@st.composite
def _text(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(["s1", "s2"]))
    function = draw(st.sampled_from(["{}", "{}", "TRIM({})", "REPLACE({}, 'a', 'bb')", "REPLACE({}, 'aA', '')"]))
    return function.format(name)


@st.composite
def selectors(draw: st.DrawFn, depth: int = 3) -> str:
    """A condition in the region where Jakarta Messaging and SQLite agree: like kinds only, no whole division."""
    shape = draw(st.integers(0, 9 if depth else 5))
    maybe_not = draw(st.sampled_from(["", " NOT"]))
    whole = draw(st.booleans())
    number, text = _number(2, whole), _text() | _quoted()
    operand = draw(st.sampled_from([number, text]))
    if shape == 0:
        return f"{draw(operand)} {draw(st.sampled_from(['=', '<>', '!=', '<', '<=', '>', '>=']))} {draw(operand)}"
    if shape == 1:
        return f"{draw(operand)}{maybe_not} BETWEEN {draw(operand)} AND {draw(operand)}"
    if shape == 2:
        return f"{draw(operand)}{maybe_not} IN ({', '.join(draw(st.lists(operand, min_size=1, max_size=4)))})"
    if shape == 3:
        escape = draw(st.sampled_from(["", " ESCAPE 'a'"]))
        pattern = draw(_quoted())
        pattern = pattern.replace("a", "aa") if escape else pattern
        return f"{draw(text)}{maybe_not} LIKE {pattern}{escape}"
    if shape == 4:
        return f"{draw(operand)} IS{maybe_not} NULL"
    if shape == 5:
        return draw(st.sampled_from(["b1", "b2", "b1 = b2", "b1 <> TRUE", "TRUE", "FALSE"]))
    inner = draw(selectors(depth - 1))
    if shape == 6:
        return f"NOT {inner}" if draw(st.booleans()) else f"NOT ({inner})"
    if shape == 7:
        return f"({inner}) IS{maybe_not} NULL"
    word = draw(st.sampled_from(["AND", "OR"]))
    other = draw(selectors(depth - 1))
    return f"{inner} {word} {other}" if draw(st.booleans()) else f"({inner}) {word} ({other})"
