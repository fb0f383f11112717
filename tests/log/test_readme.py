"""The room's README: its example runs, and its table names the files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sealcast.log.embedded

ROOM = Path(sealcast.log.embedded.__file__).parent
TEXT = (ROOM / "README.md").read_text()


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own text
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["0", "1"]


def test_every_file_is_explained() -> None:
    named = set(re.findall(r"`(\w+\.py)`", TEXT))
    assert named == {path.name for path in ROOM.glob("*.py")} - {"__init__.py"}
