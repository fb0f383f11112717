"""LIKE against the definition written out as a table of prefixes (quadratic, obviously right)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.filters.like import compile_like
from tests.effort import examples


def by_the_book(pattern: str, text: str) -> bool:
    """reached[j]: the pattern so far matches the first j characters."""
    reached = [True] + [False] * len(text)
    for char in pattern:
        if char == "%":
            first = next((j for j, is_reached in enumerate(reached) if is_reached), len(reached))
            reached = [j >= first for j in range(len(reached))]
        else:
            reached = [False] + [reached[j] and char in ("_", text[j]) for j in range(len(text))]
    return reached[-1]


# Few letters, so that segments overlap and nearly match.
_PATTERNS = st.text("ab%_", max_size=10) | st.text("a%_\N{CARROT}\n", max_size=12)
_SUBJECTS = st.text("ab", max_size=10) | st.text("a\N{CARROT}\n", max_size=12)


@examples(200, soak=1_000)
@given(_PATTERNS, _SUBJECTS)
def test_agrees_with_the_definition(pattern: str, text: str) -> None:
    compiled = compile_like(pattern, None)
    assert compiled.matches(text) is by_the_book(pattern, text)


@examples(60, soak=300)
@given(_PATTERNS, _SUBJECTS)
def test_what_tries_and_hashes_rely_on(pattern: str, text: str) -> None:
    compiled = compile_like(pattern, None)
    if compiled.matches(text):
        assert text.startswith(compiled.prefix) and text.endswith(compiled.suffix)
    if compiled.exact:
        assert compiled.matches(text) is (text == compiled.prefix)
    if compiled.only_prefix:
        assert compiled.matches(text) is text.startswith(compiled.prefix)


@examples(60, soak=300)
@given(st.text("ab%_!", max_size=8))
def test_everything_escaped_is_itself(text: str) -> None:
    escaped = "".join("!" + char if char in "%_!" else char for char in text)
    compiled = compile_like(escaped, "!")
    assert compiled.exact and compiled.prefix == text


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "expected"),
    [
        ("%a%a%", None, "a", False),  # no character serves two segments
        ("a%a", None, "a", False),
        ("%ab%b", None, "ab", False),
        ("z_%", "z", "_foo", True),
        ("z_%", "z", "foo", False),
        ("za", "z", "a", True),  # an escape makes any character itself
        ("zz", "z", "z", True),
        ("\N{SHORTCAKE}@%\N{CARROT}", "@", "\N{SHORTCAKE}%\N{CARROT}", True),
        ("ABC\N{CARROT}_123", "\N{CARROT}", "ABC_123", True),
        # ActiveMQ: % and _ as escapes stay wildcards where they escape nothing
        ("%_%", "%", "_foo", True),
        ("_D7xlJIQn__", "_", "XD7xlJIQn_", True),
        ("%D7xlJIQn%_", "%", "XD7xlJIQn_", True),
        ("%D7xlJIQn%", "%", "XD7xlJIQn_", True),
        ("%D7xlJIQn%%", "%", "XD7xlJIQn_", False),
        # regular expressions' own signs mean nothing here
        ("_#.\\|()[]{} ^$*+?%", None, "##.\\|()[]{} ^$*+???", True),
    ],
)
def test_escapes(pattern: str, escape: str | None, text: str, expected: bool) -> None:
    assert compile_like(pattern, escape).matches(text) is expected


def test_no_pattern_is_dear() -> None:
    # A backtracking matcher would need longer than the universe has; the test's timeout would say so.
    long = "a" * 65_535
    for pattern in ("%a_" * 341, "%_a" * 341 + "b", "_%" * 512, "%" + "a_" * 511 + "b", "%a%" * 341 + "b"):
        compile_like(pattern, None).matches(long)
        compile_like(pattern, None).matches(long[:-1] + "b")
