"""The documentation site's own parts: generated pages say everything, tables and pictures are up to date.

`make docs` builds the site itself, where every dead link is an error; `make soak` runs it.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from types import ModuleType

import pytest

from sealcast.cli.main import COMMANDS
from tests.docs.paste import ROOT


def module(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "docs" / "site" / f"{name}.py")
    assert found is not None and found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return dict(module("reference").pages())


def test_every_command_is_on_its_page_with_an_example(pages: dict[str, str]) -> None:
    page = pages["reference/commands.md"]
    for name in (name for table in COMMANDS.values() for name in table):
        assert f"### `sealcast {name}`\n" in page
    helps = re.findall(r"^#{3,4} `(sealcast [^`]+)`\n\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(helps) > 80
    groups = {path.rpartition(" ")[0] for path, _ in helps if path.count(" ") > 1}
    assert [path for path, text in helps if path not in groups and "Example:" not in text] == []


def test_every_public_name_is_on_its_page(pages: dict[str, str]) -> None:
    import sealcast

    page = pages["reference/python.md"]
    assert [name for name in sealcast.__all__ if f"## `{name}`\n" not in page] == []
    assert "### `Publisher.publish`" in page and "### `Realm.create_topic`" in page and "### `Subscriber.poll`" in page


def test_every_error_is_on_its_page_with_remedies(pages: dict[str, str]) -> None:
    from sealcast import errors

    page = pages["reference/errors.md"]
    kinds = [n for n, k in vars(errors).items() if isinstance(k, type) and issubclass(k, errors.SealcastError)]
    assert [name for name in kinds if f"## `{name}`\n" not in page] == []
    assert "sealcast grant" in page and page.count("\n| ") > 300


def test_the_table_of_variables_is_the_codes() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    told = set(re.findall(r"^\| `(SEALCAST_\w+)` \|", page, re.MULTILINE))
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert told == set(re.findall(r"\"(SEALCAST_[A-Z0-9_]+)\"", source))


def test_pictures_are_as_they_are_drawn() -> None:
    from sealcast.model.protection import PROTECTIONS

    pictures = module("pictures")
    assert set(pictures.PICTURES) == set(PROTECTIONS)
    for name, picture in pictures.PICTURES.items():
        kept = ROOT / "docs" / "protections" / f"{name}.svg"
        assert kept.read_text() == pictures.draw(picture), "run python docs/site/pictures.py"
        assert f"({name}.svg)" in kept.with_suffix(".md").read_text()


@pytest.mark.soak
def test_the_site_builds_and_no_link_is_dead() -> None:
    built = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert built.returncode == 0, built.stdout + built.stderr
    assert (ROOT / "build" / "docs" / "site" / "reference" / "commands.html").exists()
