"""The room's README executes: its Python runs, and every case in it has the answer it states."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import sealcast.filters
from sealcast.errors import FilterRejected
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


#: The rows that say where the standards differ: filter, event, our answer, what others say.
DIFFERENCES = re.findall(r"^\| `(.+?)` \| `(\{.*?\})` \| (\w+) \| (.+) \|$", README, re.MULTILINE)


@pytest.mark.parametrize(("text", "event", "answer", "elsewhere"), DIFFERENCES, ids=[row[0] for row in DIFFERENCES])
def test_difference(text: str, event: str, answer: str, elsewhere: str) -> None:
    if answer == "refused":
        with pytest.raises(FilterRejected):
            parse(text)
        return
    tree, attributes = parse(text), json.loads(event)
    expected = {"true": True, "false": False, "unknown": None}[answer]
    assert evaluate(tree, attributes) is expected
    assert elsewhere


def test_the_differences_name_every_system() -> None:
    told = " ".join(row[3] for row in DIFFERENCES)
    assert len(DIFFERENCES) > 40 and all(name in told for name in ("RabbitMQ", "ActiveMQ", "Artemis", "Qpid", "CESQL"))
    section = README.partition("## Where the standards differ")[2].partition("\n## ")[0]
    assert section.count("\n| ") - 1 == len(DIFFERENCES), "a row that is no test"


def test_python() -> None:
    source = "\n".join(blocks("python"))
    exec(compile(source, "README.md", "exec"), {})  # noqa: S102


def test_there_is_something_to_run() -> None:
    assert len(CASES) > 30
