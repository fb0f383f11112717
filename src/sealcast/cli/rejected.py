"""sealcast rejected: what was refused at admission. It is kept in the pieces and never silently dropped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sealcast.cli import layered_nodes, talk
from sealcast.cli.refusals import newest_first
from sealcast.model.rejection import Reason

if TYPE_CHECKING:
    from sealcast.trust.deployment import Realm

app = typer.Typer(help="What was refused at admission.", **talk.SETTINGS)


@app.callback()
def _group() -> None:
    """What was refused at admission, and why."""


@app.command("list", epilog="Example: sealcast rejected list --topic quotes --reason signature")
def list_(
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic's.")] = None,
    reason: Annotated[Reason | None, typer.Option("--reason", help="Only for this reason.")] = None,
    limit: Annotated[int, typer.Option("--max", metavar="N", min=1, help="At most so many, the newest.")] = 100,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """List refusals, newest first: where, why, and how many events.

    A refusal of a whole frame has no row; of one event it has. Brokers of layered topics also refuse filter posts.
    """
    here = talk.open_realm(realm)
    state = here.state()
    names = [state.topic(topic).name] if topic is not None else list(state.topics)
    found: list[dict[str, Any]] = []
    for name in names:
        layered = not state.topic(name).protection.brokers_read
        for broker in state.overlay(name).downwards() if layered else state.serving(name):
            refusals = layered_nodes.refusals if layered else _of_broker
            asked = (each for each in refusals(here, name, broker) if reason is None or each["reason"] == reason)
            found += islice(asked, limit)
    found = sorted(found, key=lambda each: each["at"] or "", reverse=True)[:limit]
    if json:
        talk.emit({"rejected": found})
        return
    rows = [(f["at"] or "", f["topic"], _place(f), f["reason"], f["events"], f["detail"]) for f in found]
    talk.table(["at", "topic", "place", "reason", "events", "detail"], rows, "nothing was refused")


def _of_broker(here: Realm, topic: str, broker: str) -> Iterator[dict[str, Any]]:
    from sealcast.log.piece_reader import sealed_reader

    reader = sealed_reader(here.paths.topic(topic, broker).root)
    try:
        yield from newest_first(reader, topic, broker)
    finally:
        reader.close()


def _place(found: dict[str, Any]) -> str:
    if found["partition"] is None:
        return f"{found['broker']}: post {found['offset']}"
    whole = f"{found['partition']}/{found['offset']}"
    return whole if found["row"] is None else f"{whole}/{found['row']}"
