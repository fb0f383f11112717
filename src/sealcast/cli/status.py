"""sealcast status: topics, subscriptions, lag, rates, rejections by reason. Public things only, no keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.protections.witness.facts import Facts

app = talk.Commands()

SHOWN: Final = 20


@app.command(epilog="Example: sealcast status --topic quotes")
def status(
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Only this topic.")] = None,
) -> None:
    """Show how every topic stands at each of its brokers: what was published, delivered and refused, and how far behind
    everyone is.

    Backlog counts frames that no batch has handled yet; lag counts events that a subscriber has not acknowledged. Of
    brokers in an overlay it also shows what waits above them, and how many rows their tables have.
    """
    from sealcast.protections.port import witness_side

    here = talk.open_realm()
    state = here.state()
    names = [state.topic(topic).name] if topic is not None else list(state.topics)
    found = [facts for name in names for facts in witness_side(state.topic(name).protection).status(here, name)]
    about = {"realm": here.name, "version": state.version, "entities": len(state.entities)}
    if talk.emitted(about | {"topics": [facts.document for facts in found]}):
        return
    live = sum(not e.revoked for e in state.entities.values())
    talk.pairs(
        [
            ("realm", f"{here.name} ({here.paths.root})"),
            ("version", state.version),
            ("entities", f"{live} enrolled, {len(state.entities) - live} revoked"),
        ]
    )
    if not found:
        talk.note("no topics yet: sealcast topic create NAME --schema FILE")
    for facts in found:
        _show(facts)


def _show(facts: Facts) -> None:
    talk.say("")
    talk.pairs(facts.rows)
    lag = facts.document["lag"]["subscribers"]
    behind = sorted(((n, name) for name, n in lag.items() if n), reverse=True)
    if behind:
        talk.say("")
        talk.table(["subscriber", "lag"], [(name, n) for n, name in behind[:SHOWN]], "")
        if len(behind) > SHOWN:
            talk.note(f"... and {len(behind) - SHOWN:,} more; --json has them all")
