"""The room's README executes: its Python runs, and every case in it has the answer it states."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import sealcast.filters
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse

README = (Path(sealcast.filters.__file__).parent / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


CASES = [line for block in blocks("cases") for line in block.splitlines()]


@pytest.mark.parametrize("case", CASES)
def test_case(case: str) -> None:
    answer, rest = case.split(maxsplit=1)
    text, event = re.fullmatch(r"(.*?)\s+(\{.*\})", rest).groups()  # type: ignore[union-attr]
    attributes = json.loads(event)
    payload = attributes.pop("payload", None)
    result = evaluate(parse(text), attributes, None if payload is None else payload.encode())
    assert result is {"true": True, "false": False, "unknown": None}[answer]


def test_python() -> None:
    source = "\n".join(blocks("python"))
    exec(compile(source, "README.md", "exec"), {})  # noqa: S102


def test_there_is_something_to_run() -> None:
    assert len(CASES) > 30
