"""The walk through a layered topic, as it is written down: every command runs, and says what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sealcast import Realm
from tests.cli.shell import sealcast
from tests.docs.test_documents import BLOCK, ROOT, as_said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "layered-quickstart.md"


def test_the_layered_walk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEALCAST_REALM", raising=False)
    for kind, text in BLOCK.findall(PAGE.read_text()):
        if kind == "sh":
            first, rest = text.split("\n", 1)
            assert sealcast(*shlex.split(first)[1:]).code == 0
            subprocess.run(["bash", "-euo", "pipefail", "-c", rest], cwd=tmp_path, check=True, timeout=60)
            monkeypatch.chdir(tmp_path / "market")
        elif kind == "console":
            for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                got = sealcast(*shlex.split(command)[1:])
                assert got.code == 0, got.err
                assert as_said(got.out) == as_said(shown), command
        elif kind == "python":
            exec(compile(text, PAGE.name, "exec"), {"realm": Realm(tmp_path / "market")})  # noqa: S102  (our own page)
    said = capsys.readouterr().out
    assert " labels\n" in said and "b'an apple' ['bob-1', 'bob-2']" in said and "b'hello' ['bob-1']" in said
    reading = spark.read.format("sealcast").options(realm=str(tmp_path / "market"), topic="quotes", **{"as": "alice"})
    assert [row.payload for row in reading.load().collect()] == [b"hello"]
