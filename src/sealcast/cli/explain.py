"""sealcast explain: who can learn what under a topic's protection, with this topic's own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.protections.port import Explanation, Party

app = talk.Commands()

#: Parties that are told one by one to a reader; a tree may have hundreds of brokers.
_MOST_SHOWN: Final = 24


@app.command(epilog="Example: sealcast explain quotes")
def explain(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
) -> None:
    """Say who can learn what of a topic's events, whom that trusts, and what is left."""
    from sealcast.protections.port import witness_side

    state = talk.open_realm(afar=True).state()
    about = state.topic(topic)
    told = witness_side(about.protection).explain(state, topic)
    if talk.emitted({"topic": topic, "protection": about.protection.name, **_document(told)}):
        return
    talk.say(f"topic {topic!r} is protected by `{about.protection}`, which trusts {told.trusted}.\n")
    _say(told.parties[:_MOST_SHOWN])
    if len(told.parties) > _MOST_SHOWN:
        talk.say(f"and {len(told.parties) - _MOST_SHOWN} more parties: --json names them all\n")
    if told.coalitions:
        talk.say("Coalitions: who pools keys and what it sees\n")
        _say(told.coalitions)
    talk.say("What is left, knowingly")
    for text in told.left:
        talk.say(f"    {text}")


def _document(told: Explanation) -> dict[str, object]:
    parties = [{"who": p.who, "learns": p.learns, "cannot": p.cannot} for p in told.parties]
    found: dict[str, object] = {"trusted": told.trusted, "parties": parties}
    if told.coalitions:
        found["coalitions"] = [p._asdict() for p in told.coalitions]
    return found | {"left": told.left}


def _say(parties: Sequence[Party]) -> None:
    for party in parties:
        talk.say(party.who)
        if party.here:
            talk.say(f"    here     {party.here}")
        for text in party.learns:
            talk.say(f"    learns   {text}")
        for text in party.cannot:
            talk.say(f"    cannot   {text}")
        talk.say("")
