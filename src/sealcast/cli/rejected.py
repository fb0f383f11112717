"""sealcast rejected: what was refused at admission. It is kept in the pieces and never silently dropped."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from sealcast.cli import talk
from sealcast.cli.asked_topics import AlsoTopics, Topics, asked
from sealcast.model.rejection import Reason

app = talk.group("What was refused at admission.")


@app.command("list", epilog="Example: sealcast rejected list quotes --reason signature")
def list_(
    topics: Topics = None,
    topic: AlsoTopics = None,
    reason: Annotated[Reason | None, typer.Option(help="Only for this reason.")] = None,
    limit: Annotated[int, typer.Option("--max", metavar="N", min=1, help="At most so many, the newest.")] = 100,
) -> None:
    """List refusals, newest first: where, why, and how many events.

    A refusal of a whole frame has no row; of one event it has. Brokers that get filters by post also refuse posts.
    """
    from sealcast.protections.port import witness_side

    here = talk.open_realm()
    state = here.state()
    found: list[dict[str, Any]] = []
    for name in asked(state, topics, topic):
        for refusals in witness_side(state.topic(name).protection).refusals(here, name):
            found += islice((each for each in refusals if reason is None or each["reason"] == reason), limit)
    found = sorted(found, key=lambda each: each["at"] or "", reverse=True)[:limit]
    rows = [(f["at"] or "", f["topic"], _place(f), f["reason"], f["events"], f["detail"]) for f in found]
    columns = ["at", "topic", "place", "reason", "events", "detail"]
    talk.answer_table({"rejected": found}, columns, rows, "nothing was refused")


def _place(found: dict[str, Any]) -> str:
    if found["partition"] is None:
        return f"{found['broker']}: post {found['offset']}"
    whole = f"{found['partition']}/{found['offset']}"
    return whole if found["row"] is None else f"{whole}/{found['row']}"
