"""What the documents say to type works when it is typed: every fenced block of every document."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.paste import ROOT, RUN, SHOWN, as_said, blocks, documents, paste, to_run
from tests.docs.test_first_steps import README, TUTORIAL

pytestmark = pytest.mark.timeout(600)
PASTED = [page for page in documents() if to_run(page) and page not in (README, TUTORIAL)]

#: What must be among the words that a document's blocks print, beside what its console blocks show themselves.
PRINTS = {
    "docs/spark.md": ["IBM 118.50 nyse", "1 row in the stream"],
    "docs/trust/authority.md": ["Serial Number: 01", '"name": "Sealcast authority 3"'],
    "docs/trust/brokers.md": ['"payload": "to everyone"'] * 3,
    "docs/trust/discovery.md": ['"venue": "NYSE"'],
    "docs/trust/key-center.md": [
        "topic 'orders' registered with 'center': 'owner' decides who may use it",
        "taken by this realm",
        "key-center",
    ],
    "docs/group-keys.md": ["choose ", "keys a subscriber", "different groups"],
}


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", PASTED, ids=name)
def test_every_block_works_when_it_is_pasted(document: Path) -> None:
    pasted = paste(document)
    assert pasted.code == 0, pasted.err
    for command, shown, printed in pasted.said:
        assert as_said(printed) == as_said(shown), command
    wanted = PRINTS.get(name(document), [])
    assert [text for text in wanted if pasted.out.count(text) < wanted.count(text)] == []


@pytest.mark.parametrize("document", documents(), ids=name)
def test_every_block_says_whether_it_is_to_be_typed(document: Path) -> None:
    assert {block.tag for block in blocks(document)} <= {*RUN, *SHOWN}


def test_what_must_be_printed_names_documents_that_exist() -> None:
    assert set(PRINTS) <= {name(document) for document in PASTED}
