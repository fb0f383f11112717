"""`sealcast bench`: measurements, each beside its reference, as ratios of one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.errors import NotFound

if TYPE_CHECKING:
    from sealcast.bench.report import BenchRow

app = talk.Commands(no_args_is_help=False, shared=talk.JSON_ONLY)


@app.command(epilog="Example: sealcast bench kernels --json")
def bench(
    suite: Annotated[
        str | None,
        typer.Argument(
            help="kernels, pipeline, groupkeys, admit, layered, attribute, network, searchable, ease, end-to-end, "
            "scale, cluster; all of them unless one is named."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, where a row knows some.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A directory for a figure of where the time goes, for suites that say so.")
    ] = None,
) -> None:
    """What the hot paths cost beside the physical limit, the naive way, or themselves at another size.

    Both sides of every ratio are measured in the same run, in CPU time: compare ratios, never times.
    """
    from sealcast.bench.suites import SUITES, rows

    if suite is not None and suite not in SUITES:
        raise NotFound(f"there is no suite {suite!r}", hint=f"the suites are {', '.join(SUITES)}")
    measured = []
    for name in [suite] if suite is not None else SUITES:
        talk.note(f"measuring {name} ...")
        for row in rows(name, quick=quick):
            talk.note(f"  {row.name}: {row.ratio:.3g}")
            measured.append((name, row))
    documents = [
        {"suite": name, "rows": [row.as_json() for of, row in measured if of == name]}
        for name in dict.fromkeys(of for of, _ in measured)
    ]
    if out is not None:
        _draw(measured, out)
    shown = [
        (of, row.name, f"{row.ratio:.3g}", f"{row.ours:.4g}", f"{row.reference:.4g}", row.unit, row.reference_name)
        for of, row in measured
    ]
    columns = ["suite", "row", "ratio", "ours", "reference", "unit", "reference is"]
    document = documents[0] if suite is not None else documents
    talk.answer_table(document, columns, shown, "nothing was measured")


def _draw(measured: list[tuple[str, BenchRow]], out: Path) -> None:
    from sealcast.bench.figure import draw

    out.mkdir(parents=True, exist_ok=True)
    for suite in dict.fromkeys(of for of, _ in measured):
        path = out / f"{suite}.png"
        if draw([row for of, row in measured if of == suite], path):
            talk.note(f"wrote {path}")
