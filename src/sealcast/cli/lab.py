"""sealcast lab: the papers' tables and figures again, and group key algorithms on any groups."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk

app = typer.Typer(help="The papers' tables and figures again.", **talk.SETTINGS)


@app.callback()
def _group() -> None:
    """The papers' tables and figures again, and group key algorithms on groups of your own."""


@app.command(
    epilog="Example: sealcast lab groupkeys --algorithm clustered --groups groups.txt --subscribers 1000 --cache 10000"
)
def groupkeys(
    algorithm: Annotated[
        str, typer.Option("--algorithm", metavar="NAME", help="naive, simple, build-up, clustered, ...")
    ],
    groups: Annotated[
        Path, typer.Option("--groups", metavar="FILE", help="A hexadecimal group a line, bit i = subscriber i.")
    ],
    subscribers: Annotated[int, typer.Option("--subscribers", metavar="N", min=1, help="How many there are.")],
    cache: Annotated[int, typer.Option("--cache", metavar="C", min=0, help="Entries at the broker.")],
    clusters: Annotated[
        int | None, typer.Option("--clusters", metavar="K", min=1, help="Clusters [default: the paper's rule].")
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="What a full cache keeps: lru, frequency or tinylfu.")
    ] = "lru",
    warmup: Annotated[int, typer.Option("--warmup", metavar="W", min=0, help="Events that are not counted.")] = 0,
    arity: Annotated[int, typer.Option("--arity", min=2, help="Children a node of a key tree.")] = 2,
    trees: Annotated[int, typer.Option("--trees", min=1, help="Key trees, of which each group uses the best.")] = 1,
    json: talk.JsonOption = False,
) -> None:
    """Count the encryptions that a group key algorithm needs for the groups of a file, one event a line.

    A hit costs one encryption, a miss as many as the group (or the part of it in a cluster) has members.
    """
    from sealcast.groupkeys.catalog import Setting, entry
    from sealcast.groupkeys.policies import policy as checked
    from sealcast.lab.tally import read_groups, tally

    chosen = entry(algorithm)
    checked(policy, 0)
    given = {"clusters": clusters is not None, "policy": policy != "lru", "arity": arity != 2, "trees": trees != 1}
    for option in (name for name, is_given in given.items() if is_given and name not in chosen.options):
        talk.warn(f"--{option} changes nothing for {algorithm}")
    made = chosen.make(Setting(subscribers, cache, clusters, policy, arity, trees))
    result = tally(made, read_groups(groups, subscribers), warmup)
    if json:
        talk.emit(result.as_json())
        return
    talk.say(
        f"{result.mean:,.3f} encryptions an event: {result.encryptions:,} for {result.events:,} events, "
        f"at most {result.max:,} for one" + (f"; {result.clusters:,} clusters" if result.clusters is not None else "")
    )
