"""Builds the documentation site: `make docs`.

    1  stage     a copy of the tree, and the generated pages beside it
    2  Sphinx    every warning is an error: a dead link, a heading that is gone, a page that nothing leads to
    3  look      no page asks for anything from another host

The tree's pages are not changed, so that what the tests run is what the site shows. Generated pages
(`docs/site/reference.py`) are made anew each time, from the code that is installed.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Final

from sphinx.cmd.build import main as sphinx

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import reference  # noqa: E402 - beside this file

#: Whatever a page of the tree may link to.
LINKED: Final = (
    "docs", "examples", "src", "tests", "mqtt-plugin", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md",
    "LICENSE", "pyproject.toml", "Makefile",
)  # fmt: skip
_FETCHES: Final = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"(https?:)?//[^\"]*\"", re.IGNORECASE)


def stage(at: Path) -> None:
    """An empty directory with what pages are made of and may link to, and with the pages that are generated."""
    shutil.rmtree(at, ignore_errors=True)
    at.mkdir(parents=True)
    for name in LINKED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, at / name, ignore=shutil.ignore_patterns("__pycache__", "build"))
        else:
            shutil.copy(ROOT / name, at / name)
    shutil.copy(ROOT / "docs" / "site" / "front-page.txt", at / "index.md")
    for name, text in reference.pages().items():
        (at / name).parent.mkdir(exist_ok=True)
        (at / name).write_text(text)


def fetched(site: Path) -> list[str]:
    """What pages ask other hosts for."""
    return [
        f"{page.relative_to(site)}: {found[0]}"
        for page in site.rglob("*.html")
        for found in _FETCHES.finditer(page.read_text())
    ]


def main(target: Path) -> int:
    source, site = target / "source", target / "site"
    stage(source)
    for old in (site, target / "trees"):
        shutil.rmtree(old, ignore_errors=True)
    strict = ("-W", "--keep-going", "-q")
    places = ("-c", str(ROOT / "docs" / "site"), "-d", str(target / "trees"))
    code: int = sphinx(["-b", "html", *strict, *places, str(source), str(site)])
    if code:
        return code
    if strangers := fetched(site):
        print("\n".join(["pages ask other hosts for something:", *strangers]), file=sys.stderr)
        return 1
    print(f"{site / 'index.html'}: {len(list(site.rglob('*.html')))} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "docs").absolute()))
