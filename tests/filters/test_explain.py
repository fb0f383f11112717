"""Explanations: the answer of the evaluator, the parts that decided, and lines people can read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.filters.evaluate import evaluate
from sealcast.filters.explain import ExplainedPart, explain
from sealcast.filters.parse import parse
from sealcast.filters.tree import Value
from tests.effort import examples
from tests.filters.trees import rows, selectors

EVENT: dict[str, Value] = {"price": 7, "region": "EU", "open": True}


@pytest.mark.parametrize(
    ("text", "result", "decided"),
    [
        ("price > 10", False, ["price > 10"]),
        ("price > 10 AND region = 'EU' AND open", False, ["price > 10"]),
        ("price > 10 AND region = 'US' AND open", False, ["price > 10", "region = 'US'"]),
        ("price > 5 AND open", True, ["price > 5", "open"]),
        ("price > 10 OR region = 'EU' OR volume > 1", True, ["region = 'EU'"]),
        ("price > 10 OR region = 'US'", False, ["price > 10", "region = 'US'"]),
        ("price > 10 OR volume > 1", None, ["volume > 1"]),
        ("open AND volume > 1", None, ["volume > 1"]),
        ("NOT (price > 10 AND open)", True, ["price > 10"]),
        ("NOT (price > 10 OR NOT open)", True, ["price > 10", "open"]),
        ("tags:region=EU, volume=*", False, ["volume IS NOT NULL"]),
    ],
)
def test_what_decided(text: str, result: bool | None, decided: list[str]) -> None:
    part = explain(parse(text), EVENT)
    assert part.result is result
    assert [d.text for d in part.decisions()] == decided


def test_lines_for_people() -> None:
    part = explain(parse("price > 10 AND (region = 'EU' OR NOT volume < 5)"), EVENT)
    assert part.render() == [
        "* false    price > 10 AND (region = 'EU' OR NOT volume < 5)",
        "├─ * false    price > 10   (price is 7)",
        "└─   true     region = 'EU' OR NOT volume < 5",
        "   ├─   true     region = 'EU'   (region is 'EU')",
        "   └─   unknown  NOT volume < 5",
        "      └─   unknown  volume < 5   (volume is NULL)",
    ]


def test_parts_know_where_they_stand() -> None:
    text = "open AND  price>10"
    part = explain(parse(text), EVENT)
    assert [text[p.at : p.end] for p in part.parts] == ["open", "price>10"]
    assert part.parts[1].values == (("price", 7),)


def test_payloads_are_read_but_not_shown() -> None:
    (line,) = explain(parse("xpath://secret = 'plans'"), {}, b"<secret>plans</secret>").render()
    assert line == "* true     XPATH '//secret = ''plans'''   (payload)"
    (line,) = explain(parse("xpath://a"), {}, b"<secret>plans</secret>").render()
    assert "plans" not in line


def test_long_filters_and_values_are_cut() -> None:
    many = " OR ".join(f"a{i} = '{'x' * 50}'" for i in range(50))
    lines = explain(parse(many), {"a0": "y" * 1_000}).render()
    assert len(lines) == 51 and max(map(len, lines)) < 260


def _leaves(part: ExplainedPart) -> list[ExplainedPart]:
    return [part] if not part.parts else [leaf for inner in part.parts for leaf in _leaves(inner)]


@examples(40, soak=200)
@given(selectors(), rows())
def test_explains_the_answer_that_was_given(text: str, event: dict[str, Value]) -> None:
    condition = parse(text)
    part = explain(condition, event)
    assert part.result is evaluate(condition, event)
    decided = list(part.decisions())
    assert decided and all(leaf in _leaves(part) for leaf in decided)


_SIMPLE = st.recursive(
    st.sampled_from(["b0", "b1", "b2", "b3", "b4"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        inner.map(lambda t: f"NOT ({t})"),
    ),
    max_leaves=6,
)


@examples(60, soak=300)
@given(_SIMPLE, st.lists(st.sampled_from([True, False, None]), min_size=5, max_size=5), st.data())
def test_what_did_not_decide_could_have_been_anything(
    text: str, truths: list[bool | None], data: st.DataObject
) -> None:
    """Change every attribute that only undecisive parts read: the answer stays."""
    event: dict[str, Value] = {f"b{i}": truth for i, truth in enumerate(truths)}
    condition = parse(text)
    part = explain(condition, event)
    decisive = {name for leaf in part.decisions() for name, _ in leaf.values}
    changed = {
        name: value if name in decisive else data.draw(st.sampled_from([True, False, None]))
        for name, value in event.items()
    }
    if part.result is not None:
        assert evaluate(condition, changed) is part.result
