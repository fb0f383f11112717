"""sealcast lab: the papers' tables and figures again, and group key algorithms on any groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.lab.report import Report

app = talk.Commands("The papers' tables and figures again.", shared=talk.JSON_ONLY)


@app.command("list", epilog="Example: sealcast lab list")
def list_() -> None:
    """List the experiments: one for each table or figure of a paper."""
    from sealcast.lab.experiments import EXPERIMENTS

    rows = [(name, experiment.summary) for name, experiment in EXPERIMENTS.items()]
    document = {"experiments": [{"experiment": name, "summary": summary} for name, summary in rows]}
    talk.answer_table(document, ["experiment", "what it is"], rows, "there are none")


@app.command(epilog="Example: sealcast lab run opyrchal/table1 --quick")
def run(
    experiment: Annotated[str, typer.Argument(metavar="ID", help="An experiment: see `sealcast lab list`.")],
    quick: Annotated[bool, typer.Option("--quick", help="Use smaller numbers: seconds, not minutes.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the rows (Parquet) and the figure (PNG) there.")
    ] = None,
) -> None:
    """Run an experiment on Spark, and show the paper's numbers beside. To disagree with the paper is a result, too."""
    from sealcast.lab.experiments import find

    chosen = find(experiment)
    with talk.points("points") as told:
        report = chosen.run(quick, told)
    written = report.write(out) if out is not None else []
    if not talk.emitted(report.as_json()):
        _show(report)
        for path in written:
            talk.say(f"written: {path}")


def _show(report: Report) -> None:
    columns = list(report.rows[0]) if report.rows else []
    shown = [["-" if (value := row[name]) is None else _word(value) for name in columns] for row in report.rows]
    talk.table(columns, shown, "there is nothing to show")
    talk.say(f"\n{report.experiment}: {'agrees' if report.agrees else 'disagrees in places'}")
    for text in report.notes:
        talk.say(f"- {text}")


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


@app.command(
    epilog="Example: sealcast lab groupkeys --algorithm clustered --groups groups.txt --subscribers 1000 --cache 10000"
)
def groupkeys(
    algorithm: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="naive, simple, build-up, clustered, clustered-popular, key-tree, or ours: mosaic."
        ),
    ],
    groups: Annotated[Path, typer.Option(metavar="FILE", help="A hexadecimal group per line; bit i is subscriber i.")],
    subscribers: Annotated[int, typer.Option(metavar="N", min=1, help="How many subscribers there are.")],
    cache: Annotated[int, typer.Option(metavar="C", min=0, help="How many keys the broker can hold.")],
    clusters: Annotated[
        str | None,
        typer.Option(
            metavar="K|full-tables|tuned",
            help="A number, as many as fill the tables, or tuned on the warm-up [default: the paper's rule].",
        ),
    ] = None,
    clustering: Annotated[
        str, typer.Option(metavar="NAME", help="How subscribers are put together: id, random, or similarity.")
    ] = "id",
    policy: Annotated[
        str, typer.Option(metavar="NAME", help="Which keys a full cache keeps: lru, frequency or tinylfu.")
    ] = "lru",
    warmup: Annotated[int, typer.Option(metavar="W", min=0, help="How many events at the start are not counted.")] = 0,
    arity: Annotated[int, typer.Option(metavar="D", min=2, help="How many children a node of a key tree has.")] = 2,
    trees: Annotated[int, typer.Option(metavar="T", min=1, help="Key trees to choose from, for each group.")] = 1,
) -> None:
    """Count the encryptions that a group key algorithm needs for the groups of a file, one event per line.

    A hit costs one encryption, a miss as many as the group (or the part of it in a cluster) has members.
    """
    from sealcast.groupkeys.catalog import Setting, entry
    from sealcast.groupkeys.policies import policy as checked
    from sealcast.lab.tally import clusters_by, first_groups, read_groups, tally

    chosen = entry(algorithm)
    checked(policy, 0)
    given = {
        "clusters": clusters is not None,
        "clustering": clustering != "id",
        "policy": policy != "lru",
        "arity": arity != 2,
        "trees": trees != 1,
    }
    for option in (name for name, is_given in given.items() if is_given and name not in chosen.options):
        talk.warn(f"--{option} changes nothing for {algorithm}")
    setting = Setting(subscribers, cache, None, policy, arity, trees, clustering)
    past = first_groups(groups, subscribers, warmup) if clusters == "tuned" or clustering == "similarity" else None
    if clusters is not None and "clusters" in chosen.options:
        setting = replace(setting, clusters=clusters_by(clusters, algorithm, setting, past))
    result = tally(chosen.make(setting, past), read_groups(groups, subscribers), warmup)
    said = (
        f"{result.mean:,.3f} encryptions an event: {result.encryptions:,} for {result.events:,} events, "
        f"at most {result.max:,} for one" + (f"; {result.clusters:,} clusters" if result.clusters is not None else "")
    )
    talk.answer(result.as_json(), said)
