"""Markup: text of others is text, whatever it is; and nothing that runs can be made."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.console.html import document, element, join
from sealcast.errors import Bug
from tests.console.world import HOSTILE


class Read(HTMLParser):
    """What a parser that is not ours finds."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags, self.values, self.words = list[str](), list[str | None](), ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [value for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words += data


@given(st.text(st.characters(exclude_categories=("C", "Z"))), st.text())
def test_text_is_text(shown: str, other: str) -> None:
    found = Read(element("td", shown, title=shown, data_other=other))
    assert found.tags == ["td"] and found.words == shown and found.values[0] == shown


def test_hostile_text_is_text() -> None:
    markup = join(element("p", HOSTILE), HOSTILE, element("a", "x", title=HOSTILE))
    assert Read(markup).tags == ["p", "a"]


def test_what_turns_the_direction_of_writing_is_shown_as_what_it_is() -> None:
    assert "\u202e" not in element("p", "abc\u202edef") and "u202e" in element("p", "abc\u202edef")


@pytest.mark.parametrize("name", ["onclick", "onload", "style", "srcdoc", "on_error"])
def test_nothing_that_runs_can_be_made(name: str) -> None:
    with pytest.raises(Bug):
        element("p", **{name: "alert(1)"})


@pytest.mark.parametrize("to", ["javascript:alert(1)", "https://evil.example/", "//evil.example", "/\\evil", ""])
def test_no_link_leads_away(to: str) -> None:
    with pytest.raises(Bug):
        element("a", "x", href=to)


@pytest.mark.parametrize("to", ["/", "/topics/x", "#main", "?topic=x"])
def test_links_of_ours_do_not(to: str) -> None:
    assert Read(element("a", "x", href=to)).values == [to]


def test_a_page_has_nothing_inline_and_nothing_from_elsewhere() -> None:
    page = document("A page", element("main", "x"))
    assert "<style" not in page and "http:" not in page and "https:" not in page and "<script>" not in page
