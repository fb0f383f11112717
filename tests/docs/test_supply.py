"""What set-up fetches has hashes, and advisories are looked up for all of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests import advisories

ROOT = Path(__file__).parents[2]


def test_everything_in_the_lock_file_has_hashes() -> None:
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]:
        if "registry" in package.get("source", {}):
            files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
            assert files and all(file["hash"].startswith("sha256:") for file in files), package["name"]
    assert len(advisories.locked()) > 50


def test_uv_itself_is_fetched_by_hash() -> None:
    wanted = (ROOT / "uv.requirements.txt").read_text()
    assert re.search(r"^uv==[\d.]+ ", wanted, re.M) and len(re.findall(r"--hash=sha256:[0-9a-f]{64}", wanted)) > 10
    makefile = (ROOT / "Makefile").read_text()
    fetched = [line for line in makefile.splitlines() if "pip install" in line]
    assert fetched and all("--require-hashes" in line for line in fetched)


def test_what_builds_packages_has_fixed_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pinned = project["tool"]["uv"]["build-constraint-dependencies"]
    assert all("==" in each for each in pinned)
    names = {re.split(r"[<>=\[]", each)[0] for each in project["build-system"]["requires"]}
    assert names <= {each.partition("==")[0] for each in pinned}


def lock(tmp_path: Path, *names: str) -> Path:
    path = tmp_path / "uv.lock"
    packages = [f'[[package]]\nname = "{n}"\nversion = "1"\nsource = {{ registry = "x" }}\n' for n in names]
    path.write_text("\n".join([*packages, '[[package]]\nname = "ours"\nversion = "1"\nsource = { editable = "." }\n']))
    return path


def test_advisories_are_named_and_silence_is_no_clean_bill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ask(name: str, version: str) -> Any:
        if name == "gone":
            raise OSError("no route")
        bad = {"id": "PYSEC-1", "summary": "it leaks", "fixed_in": ["2"], "withdrawn": None}
        return {"vulnerabilities": {"bad": [bad], "withdrawn": [bad | {"withdrawn": "2026-01-01"}]}.get(name, [])}

    assert advisories.main(lock(tmp_path, "fine", "withdrawn"), ask) == 0
    assert "2 packages, 0 advisories, 0 packages of which" in capsys.readouterr().out
    assert advisories.main(lock(tmp_path, "fine", "bad"), ask) == 1
    assert "bad 1: PYSEC-1: it leaks; fixed in 2" in capsys.readouterr().out
    assert advisories.main(lock(tmp_path, "fine", "gone"), ask) == 2
    assert "gone 1: nothing is known" in capsys.readouterr().err
    assert advisories.main(lock(tmp_path, "bad", "gone"), ask) == 1
