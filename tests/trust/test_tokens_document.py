"""docs/trust/tokens.md executes: its cases have the answers it states, its Python runs, its tables are the code's."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import pytest

from sealcast.trust.realm.parameters import BOUNDS, KeyParameters
from sealcast.trust.realm.templates import Template
from sealcast.trust.tokens.token import TokenReason

DOCUMENT = (Path(__file__).parents[2] / "docs" / "trust" / "tokens.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)


CASES = blocks("cases")[0].splitlines()


@pytest.mark.parametrize("case", CASES)
def test_case(case: str) -> None:
    found = re.fullmatch(r"(yes|no) +(.*?) {2,}(\S+) +(\{.*\})", case)
    assert found is not None
    answer, text, topic, event = found.groups()
    template = Template.parse(text)
    admitted = template.admits_topic(topic) and template.admits(json.loads(event, parse_float=Decimal))
    assert admitted == (answer == "yes")


def test_python() -> None:
    (source,) = blocks("python")
    exec(compile(source, "tokens.md", "exec"), {})  # noqa: S102


def test_the_parameters_are_those_of_the_code() -> None:
    table = {name: (usual, may) for name, usual, may in re.findall(r"^\| `(\w+)` \| (\S+) \| (.*) \|$", DOCUMENT, re.M)}
    usual = KeyParameters()
    assert list(table) == [f.name for f in fields(KeyParameters)]
    assert {name: value for name, (value, _) in table.items()} == {n: str(v) for n, v in usual.to_json().items()}
    assert {n: may for n, (_, may) in table.items() if n in BOUNDS} == {
        n: f"{a} to {b}" for n, (a, b, _) in BOUNDS.items()
    }


def test_the_reasons_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| ((?:`[a-z-]+` ?)+) \|$", DOCUMENT, re.MULTILINE)
    told = [(reason, step) for step, reasons in rows for reason in re.findall(r"`([a-z-]+)`", reasons)]
    assert told == [(str(reason), reason.step) for reason in TokenReason]
    assert f"makes {len(TokenReason)} checks" in DOCUMENT
