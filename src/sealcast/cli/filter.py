"""sealcast filter: try filters on cases."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk

app = talk.group("Try filters on cases.", shared=())


@app.command("eval", epilog="Example: sealcast filter eval --cases cases.jsonl")
def eval_(
    cases: Annotated[str, typer.Option(metavar="FILE", help='A case per line: {"filter", "attributes"}; - is stdin.')],
    json: Annotated[bool, typer.Option("--json", help="Changes nothing: the output is always JSON Lines.")] = False,
) -> None:
    """Evaluate filters, one case per line, and print a line for each: {"result": true|false|null} or {"error": {...}}.

    A result of null is SQL's unknown. There is no schema: types come from the values, and an absent attribute is NULL.
    """
    from sealcast.filters.cases import evaluate_cases

    with sys.stdin.buffer if cases == "-" else Path(cases).open("rb") as raw:
        # A line that is not UTF-8 gets its answer like any other, and does not end the run.
        lines = TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape", newline="\n")
        for answer in evaluate_cases(lines):
            sys.stdout.write(dumps(answer) + "\n")  # ASCII: nothing in it is an order to a terminal
    sys.stdout.flush()
