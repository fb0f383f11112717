"""Topic templates: what they admit, by the reference, by the filters' tree, and by the vectorised evaluator."""

from __future__ import annotations

import fnmatch
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FilterRejected
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.tree import And
from sealcast.model.schema import Attribute, Schema, Type, Value
from sealcast.trust.realm.templates import EVERYTHING, MAX_TAGS, Tag, Template
from sealcast.wire.limits import MAX_TEMPLATE_BYTES
from tests.effort import examples
from tests.filters.worlds import columns_of

SCHEMA = Schema(
    (
        Attribute("s", Type.STRING),
        Attribute("i", Type.INT),
        Attribute("d", Type.DECIMAL, step=Decimal("0.01")),
        Attribute("f", Type.FLOAT),
        Attribute("b", Type.BOOL),
        Attribute("t", Type.TIMESTAMP),
        Attribute("odd name", Type.STRING),
    )
)
NYK = {"Sports": "NBA", "Team": "NYK"}


def admits(text: str, event: dict[str, Value]) -> bool:
    """By the reference, after the tree and the vectorised evaluator said the same."""
    template = Template.parse(text)
    found = template.admits(event)
    condition = template.condition(SCHEMA)
    assert (evaluate(condition, event) is True) == found
    assert template.admits_rows(columns_of(SCHEMA, [event]), SCHEMA).tolist() == [found]
    return found


# --- the paper's ----------------------------------------------------------------------------------


def test_the_papers_own_example() -> None:
    template = Template.parse("Sports=NBA, Team=*")
    assert template.admits(dict(NYK))
    assert not template.admits({"Sports": "NFL", "Team": "NYK"})
    assert not template.admits({"Sports": "NBA"}), "a star asks that the tag is there"
    assert not template.admits({"Sports": "NBA", "Team": None})
    assert template.admits_topic("anything")
    assert str(template) == "Sports=NBA, Team=*"


@pytest.mark.parametrize(
    ("text", "topics", "tags"),
    [
        ("*", "*", ()),
        ("  market.*  ", "market.*", ()),
        ("market.*; symbol=IBM", "market.*", (Tag("symbol", "IBM"),)),
        ("market.*;symbol=IBM,venue=*", "market.*", (Tag("symbol", "IBM"), Tag("venue", None))),
        ("quotes", "quotes", ()),
        ("a***b", "a*b", ()),
        ("x='a, b'", "*", (Tag("x", "a, b"),)),
        ("x='it''s'", "*", (Tag("x", "it's"),)),
        ('x="a ""b"" c"', "*", (Tag("x", 'a "b" c'),)),
        ("x='*'", "*", (Tag("x", "*"),)),
        ("x=''", "*", (Tag("x", ""),)),
        ("x=a b", "*", (Tag("x", "a b"),)),
        ("[odd name]=1", "*", (Tag("odd name", "1"),)),
        ("[a[[b]]c]=1", "*", (Tag("a[b]c", "1"),)),
        ("x='a; b'", "*", (Tag("x", "a; b"),)),
        ("été=là", "*", (Tag("été", "là"),)),
    ],
)
def test_reading(text: str, topics: str, tags: tuple[Tag, ...]) -> None:
    found = Template.parse(text)
    assert (found.topics, found.tags) == (topics, tags)
    assert Template.parse(str(found)) == found
    assert str(Template.parse(str(found))) == str(found)


REFUSED: list[tuple[str, str, int]] = [
    ("", "syntax", 0),
    ("   ", "syntax", 0),
    ("=", "syntax", 0),
    ("market.*;", "syntax", 9),
    ("; a=1", "syntax", 0),
    ("a=1;", "syntax", 0),
    ("a=1; b=2", "syntax", 0),
    ("a=1,", "syntax", 4),
    ("a=", "syntax", 2),
    ("a=5*", "syntax", 2),
    ("a='x", "syntax", 0),
    ("a=1, a=2", "syntax", 4),
    ("a=1, a=*", "syntax", 4),
    ("market/*", "syntax", 0),
    ("a b", "syntax", 0),
    ("a=\ud800", "syntax", 2),
    ("x" * 65, "limit", 0),
    ("a='" + "x" * MAX_TEMPLATE_BYTES + "'", "limit", 0),
    ("a='" + "é" * (MAX_TEMPLATE_BYTES // 2) + "'", "limit", 0),
    # Doubled quotes: longer in the spelling that travels than in the one given.
    ('a="' + "'" * (MAX_TEMPLATE_BYTES // 2) + '"', "limit", 0),
    (", ".join(f"a{i}=1" for i in range(MAX_TAGS + 1)), "limit", 213),
]


@pytest.mark.parametrize(("text", "kind", "at"), REFUSED, ids=lambda v: repr(v)[:24])
def test_refused_with_the_place(text: str, kind: str, at: int) -> None:
    with pytest.raises(FilterRejected) as refusal:
        Template.parse(text)
    assert (refusal.value.kind, refusal.value.at) == (kind, at), refusal.value.message


# --- topics ---------------------------------------------------------------------------------------

GLOBS = st.text("ab.*-", min_size=1, max_size=8)
NAMES = st.text("ab.-", min_size=1, max_size=10)


@examples(100, soak=500)
@given(GLOBS, NAMES)
def test_globs_match_what_fnmatch_does(glob: str, name: str) -> None:
    assert Template.parse(glob).admits_topic(name) == fnmatch.fnmatchcase(name, glob)


def test_no_glob_takes_long() -> None:
    """Thirty-two stars against a name that almost matches: exponential for whoever tries them all."""
    template = Template.parse("a*" * 31 + "b")
    assert not template.admits_topic("a" * 64)
    assert template.admits_topic("a" * 63 + "b")


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "event", "expected"),
    [
        ("i=5", {"i": 5}, True),
        ("i='5'", {"i": 5}, True),
        ("i=5.0", {"i": 5}, True),
        ("i=5", {"i": 6}, False),
        ("s=5", {"s": "5"}, True),
        ("s=5", {"s": "5.0"}, False),
        ("d=1.5", {"d": Decimal("1.50")}, True),
        ("d=1.505", {"d": Decimal("1.50")}, False),
        ("f=0.1", {"f": 0.1}, True),
        ("f=1e400", {"f": 1.0}, None),
        ("b=true", {"b": True}, True),
        ("b=TRUE", {"b": True}, True),
        ("b=false", {"b": True}, False),
        ("t=2026-01-01T00:00:00Z", {"t": datetime(2026, 1, 1, tzinfo=UTC)}, True),
        ("t=1767225600000", {"t": datetime(2026, 1, 1, tzinfo=UTC)}, True),
        ("[odd name]='x'", {"odd name": "x"}, True),
        ("s=*", {"s": ""}, True),
        ("s=*", {}, False),
        ("s=''", {"s": ""}, True),
        ("s='*'", {"s": "anything"}, False),
        ("s=NBA", {"s": "nba"}, False),
        ("s=NBA", {"s": "NBA "}, False),
        ("i=1, d=2, s=x", {"i": 1, "d": Decimal("2.00"), "s": "x"}, True),
        ("i=1, d=2, s=x", {"i": 1, "d": Decimal("2.00"), "s": "y"}, False),
        ("quotes", {}, True),
    ],
)
def test_values_are_read_in_the_attributes_type(text: str, event: dict[str, Value], expected: bool | None) -> None:
    if expected is None:
        with pytest.raises(FilterRejected):
            Template.parse(text).condition(SCHEMA)
        assert not Template.parse(text).admits(event)
    else:
        assert admits(text, event) is expected


@pytest.mark.parametrize(
    "text", ["x=1", "i=many", "b=perhaps", "d=NaN", "d=inf", "t=then", "i=1.5", "t=²", "d=1e-999999999"]
)
def test_what_does_not_fit_the_schema_is_refused(text: str) -> None:
    with pytest.raises(FilterRejected):
        Template.parse(text).condition(SCHEMA)
    assert not Template.parse(text).admits(
        {"i": 1, "b": True, "d": Decimal("1.00"), "t": datetime(2026, 1, 1, tzinfo=UTC)}
    )


VALUES: dict[str, st.SearchStrategy[Value]] = {
    "s": st.one_of(st.sampled_from(["", "NBA", "5", "true", "a, b", "it's", "*"]), st.text(max_size=5)),
    "i": st.integers(-3, 3),
    "d": st.integers(-300, 300).map(lambda n: Decimal(n).scaleb(-2)),
    "f": st.sampled_from([0.0, 0.1, -2.5, 1e300, 5e-324]),
    "b": st.booleans(),
    "t": st.integers(0, 3).map(lambda n: datetime(2026, 1, 1, 0, 0, n, tzinfo=UTC)),
    "odd name": st.text("xy", max_size=2),
}
EVENTS = st.fixed_dictionaries({}, optional={k: st.one_of(st.none(), v) for k, v in VALUES.items()})


def spelt(value: Value) -> str:
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat()
        case float():
            return repr(value)
        case _:
            return str(value)


TAGS = st.dictionaries(st.sampled_from(sorted(VALUES)), st.none(), min_size=1, max_size=4).flatmap(
    lambda names: st.fixed_dictionaries({n: st.one_of(st.none(), VALUES[n].map(spelt)) for n in names})
)


@examples(40, soak=200)
@given(TAGS, st.lists(EVENTS, min_size=1, max_size=8))
def test_reference_tree_and_vector_agree(tags: dict[str, str | None], events: list[dict[str, Value]]) -> None:
    template = Template("*", tuple(Tag(n, v) for n, v in tags.items()))
    assert Template.parse(str(template)) == template
    expected = [template.admits(e) for e in events]
    condition = template.condition(SCHEMA)
    assert [evaluate(condition, e) is True for e in events] == expected
    assert template.admits_rows(columns_of(SCHEMA, events), SCHEMA).tolist() == expected


@examples(40, soak=200)
@given(TAGS, TAGS, st.lists(EVENTS, max_size=8))
def test_what_meets_admits_what_both_do(
    one: dict[str, str | None], other: dict[str, str | None], events: list[dict[str, Value]]
) -> None:
    first, second = (Template("*", tuple(Tag(n, v) for n, v in t.items())) for t in (one, other))
    both = first.meet(second, SCHEMA)
    for event in events:
        assert (both is not None and both.admits(event)) == (first.admits(event) and second.admits(event))
    if both is not None:
        assert Template.parse(str(both)) == both or not both.tags


def test_a_filter_within_a_template_gets_no_more_than_both() -> None:
    template = Template.parse("s=NBA, i=*")
    wanted = parse("i > 3 OR s <> 'NBA'", SCHEMA)
    joined = template.within(wanted, SCHEMA)
    for event in ({"s": "NBA", "i": 4}, {"s": "NBA", "i": 3}, {"s": "NFL", "i": 4}, {"s": "NBA"}, {}):
        both = template.admits(event) and evaluate(wanted, event) is True
        assert (evaluate(joined, event) is True) == both
    assert EVERYTHING.within(wanted, SCHEMA) is wanted
    flat = template.within(parse("i > 3 AND f > 1", SCHEMA), SCHEMA)
    assert isinstance(flat, And) and len(flat.items) == 4


def test_everything_is_written_out() -> None:
    assert str(EVERYTHING) == "*"
    assert EVERYTHING.every_event and not Template.parse("s=*").every_event
    assert admits("*", {}) and EVERYTHING.condition() == EVERYTHING.condition(SCHEMA)
