"""What the documents state about the code is so: links, files, tables of checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.paste import ROOT, documents

LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
PAGES = [*documents(), ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]


def anchors(document: Path) -> set[str]:
    """The headings of a document as GitHub makes anchors of them."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", PAGES, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in LINK.findall(document.read_text()):
        if "://" in target:
            continue
        found = document.parent / target if target else document
        assert found.exists(), f"{document.name} links to {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{document.name} links to {target}#{anchor}"


def test_the_index_names_every_page() -> None:
    for index in ("docs/README.md", "docs/adr/README.md", "docs/trust/README.md"):
        page = ROOT / index
        linked = {(page.parent / target).resolve() for target, _ in LINK.findall(page.read_text()) if target}
        beside = set(page.parent.glob("*.md")) - {page}
        assert beside <= linked, f"{index} does not name {sorted(p.name for p in beside - linked)}"


def test_the_admission_table_of_the_documents_is_the_one_of_the_code() -> None:
    from sealcast.model import Reason

    text = (ROOT / "docs" / "path.md").read_text()
    told = re.findall(r"^\| (\d+) \| `([a-z-]+)` \|", text, re.MULTILINE)
    assert told == [(str(number), str(reason)) for number, reason in enumerate(Reason, start=1)]


def test_files_that_the_documents_name_exist() -> None:
    for name in ("path.md", "threat-model.md"):
        for path in re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", (ROOT / "docs" / name).read_text()):
            if path.startswith("tests/"):
                assert (ROOT / path).exists(), f"{name} names {path}"
            elif not path.startswith(("secrets/", "entities/")):
                assert (ROOT / "src" / "sealcast" / path).exists(), f"{name} names {path}"


@pytest.mark.parametrize("document", PAGES, ids=lambda d: str(d.relative_to(ROOT)))
def test_tests_that_any_page_names_exist(document: Path) -> None:
    for path in re.findall(r"\btests/[\w/]+\.py\b", document.read_text()):
        assert (ROOT / path).is_file(), f"{document.name} names {path}"


def test_every_threat_names_the_test_that_mounts_it() -> None:
    """By its file: a whole directory says nothing."""
    text = (ROOT / "docs" / "threat-model.md").read_text()
    tables = [re.split(r"(?<!\\)\|", line.strip("|")) for line in text.splitlines() if line.startswith("| ")]
    threats, within = [], False
    for cells in tables:
        if cells[0].strip() == "threat" or (len(cells) == 3 and cells[0].strip() in ("who", "threat")):
            within = cells[0].strip() == "threat"
        elif within and not set(cells[0].strip()) <= {"-"}:
            threats.append((cells[0].strip(), cells[-1]))
    assert len(threats) > 100
    for threat, tested in threats:
        named = re.findall(r"`(tests/[^`]*)`", tested)
        assert named, f"nothing is named for: {threat}"
        assert all((ROOT / path.split("::")[0]).is_file() for path in named), f"{named} of: {threat}"


def test_the_glossary_has_every_word_once_and_in_its_place() -> None:
    words = re.findall(r"^\| ([a-z][a-z ]*) \| ", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    meant = [word for word in words if word != "word"]
    assert len(meant) == len(set(meant)), "one word, one meaning"
    design = "realm entity topic schema event filter subscription token protection label group mailbox epoch node"
    assert {*design.split(), "sealed event"} <= set(meant)
