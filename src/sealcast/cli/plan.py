"""sealcast plan: what to choose for a workload of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.cli.match import EventsFile, SchemaFile, SubscriptionsFile

if TYPE_CHECKING:
    from sealcast.lab.plan import Advice

app = talk.group("What to choose for a workload of your own.", shared=talk.JSON_ONLY)


@app.command(
    epilog="Example: sealcast plan keys --schema schema.json --subscriptions subscriptions.jsonl --events events.jsonl "
    "--memory 2MB"
)
def keys(
    schema: SchemaFile,
    subscriptions: SubscriptionsFile,
    events: EventsFile,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="How much memory the broker may use: bytes, or 500kB, 2MB, 1.5MiB.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Try fewer events and settings: seconds instead of minutes.")
    ] = False,
) -> None:
    """Choose a group key algorithm and its parameters by trying them on your events and subscriptions.

    Every subscription counts as a subscriber of its own. Events are matched as the pipeline matches them, and every
    setting that fits into the memory is tried in a task on Spark. Nothing is sealed and nothing is written.
    """
    from sealcast.lab.match_input import read
    from sealcast.lab.plan import advise, parse_memory, workload

    allowed = parse_memory(memory)
    inputs = read(schema, subscriptions, events)
    for text in inputs.warnings[:20]:
        talk.warn(text)
    work = workload(inputs, quick)
    with talk.points("settings") as told:
        advice = advise(work, allowed, quick, told)
    if not talk.emitted(advice.as_json()):
        _show(advice)


def _show(advice: Advice) -> None:
    rows, measured = advice.rows(), ("encryptions", "max", "handouts", "keys_per_subscriber", "broker_bytes")
    talk.table(
        ["algorithm", "parameters", "encryptions", "max", "handouts", "keys a subscriber", "broker bytes"],
        [(row["algorithm"], _words(row["parameters"]), *(row[name] for name in measured)) for row in rows],
        "there is nothing to choose from",
    )
    best = rows[0]
    talk.say(
        f"\nchoose {best['algorithm']}{_with(_words(best['parameters']))}: {best['encryptions']} encryptions an event, "
        f"in {best['broker_bytes']:,} bytes at the broker"
    )
    for text in advice.notes():
        talk.say(f"- {text}")


def _words(parameters: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in parameters.items()) if isinstance(parameters, dict) else ""


def _with(parameters: str) -> str:
    return f" with {parameters}" if parameters else ""
