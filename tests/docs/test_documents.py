"""What the documents say to type works when it is typed: every fenced block of every document."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import OTHERS, PASTED, PRINTS, PROTECTIONS, TRUST, check_pasted, name
from tests.docs.paste import RUN, SHOWN, blocks, documents

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("document", OTHERS, ids=name)
def test_every_block_works_when_it_is_pasted(document: Path) -> None:
    check_pasted(document)


def test_every_document_is_pasted_once() -> None:
    assert sorted([*PROTECTIONS, *TRUST, *OTHERS]) == sorted(PASTED)
    assert PROTECTIONS and TRUST and OTHERS


@pytest.mark.parametrize("document", documents(), ids=name)
def test_every_block_says_whether_it_is_to_be_typed(document: Path) -> None:
    assert {block.tag for block in blocks(document)} <= {*RUN, *SHOWN}


def test_what_must_be_printed_names_documents_that_exist() -> None:
    assert set(PRINTS) <= {name(document) for document in PASTED}
