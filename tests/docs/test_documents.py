"""What the documents say to type works when it is typed: every code block of README and docs runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)\)")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.md"))]


def blocks(document: Path, language: str) -> list[str]:
    found = [text for kind, text in BLOCK.findall(document.read_text()) if kind == language]
    assert found, f"{document} has no {language} block"
    return found


def test_the_readmes_ten_lines(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (lines,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in lines.splitlines() if line and not line.startswith("from")]) <= 10
    exec(compile(lines, "README.md", "exec"), {})  # noqa: S102  (our own README)
    assert capsys.readouterr().out == "nyse 118.00\n"


def test_the_readmes_shell_session(tmp_path: Path) -> None:
    commands, session = blocks(ROOT / "README.md", "sh")
    assert [line.split("#")[0].strip() for line in commands.splitlines()] == ["make demo", "make test"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    environment.pop("SEALCAST_REALM", None)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", session],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"payload": "hello"' in done.stdout
    assert '"price": "118.50"' in done.stdout
    (said,) = blocks(ROOT / "README.md", "console")
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", said, re.MULTILINE):
        got = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path / "market",
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert as_said(got.stdout) == as_said(shown), command


def as_said(output: str) -> list[str]:
    """What a command says, whenever and wherever it was said."""
    return [re.sub(r"\d+", "0", re.sub(r"\S*/market/|─+", "", line)).rstrip() for line in output.splitlines()]


def test_the_spark_guide(spark: SparkSession, tmp_path: Path) -> None:
    from sealcast import Realm, Schema

    realm = Realm.create(tmp_path / "realm")
    attributes = [{"name": "symbol", "type": "string"}, {"name": "price", "type": "decimal", "step": "0.01"}]
    realm.create_topic("ticks", Schema.from_json({"attributes": attributes}))
    realm.enrol_many(["nyse", "alice"])
    realm.subscribe("ticks", "alice", "symbol = 'IBM' AND price < 120")
    known: dict[str, object] = {"realm": str(realm.paths.root), "checkpoint": str(tmp_path / "checkpoint")}
    for block in blocks(ROOT / "docs" / "spark.md", "python"):
        exec(compile(block, "docs/spark.md", "exec"), known)  # noqa: S102  (our own guide)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


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
