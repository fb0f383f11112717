"""The first things that a newcomer types work literally: README.md and the tutorial."""

from __future__ import annotations

import pytest

from tests.docs.pages import README, TUTORIAL
from tests.docs.paste import as_said, blocks, paste

pytestmark = pytest.mark.timeout(600)
#: What `make demo` takes a quarter of the time with.
SMALL = "--events 1000 --desks 20"


@pytest.mark.parametrize("demo", [SMALL, pytest.param("", marks=pytest.mark.soak)])
def test_the_readme_works_when_it_is_pasted(demo: str) -> None:
    pasted = paste(README, demo)
    assert pasted.code == 0, pasted.err
    assert pasted.out.splitlines()[-1] == "nyse 118.00"


def test_the_demo_ends_with_the_next_line_to_type() -> None:
    demo, following, *_ = blocks(README)
    assert demo.text == "make demo\n"
    lines = paste(README, SMALL).out.splitlines()
    told = lines[lines.index("Next, in this directory, type:") + 1]
    assert following.text == f"{told}\n"
    assert lines[lines.index(told) + 1].startswith("realm 'market' made in ")


def test_the_readmes_ten_lines() -> None:
    (lines,) = [block.text for block in blocks(README) if block.tag == "python"]
    assert len([line for line in lines.splitlines() if line and not line.startswith("from")]) <= 10


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 100


def test_the_tutorial_works_when_it_is_pasted() -> None:
    pasted = paste(TUTORIAL)
    assert pasted.code == 0, pasted.err
    assert '"payload": "hello"' in pasted.out and '"price": "118.50"' in pasted.out
    assert "too dear" not in pasted.out
    assert pasted.said
    for command, shown, printed in pasted.said:
        assert as_said(printed) == as_said(shown), command
