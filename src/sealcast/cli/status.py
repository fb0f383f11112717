"""sealcast status: topics, subscriptions, lag, rates, rejections by reason. Public things only, no keys."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk
from sealcast.cli.asked_topics import AlsoTopics, Topics, asked
from sealcast.trust.certificates.roles import Role

if TYPE_CHECKING:
    from sealcast.protections.witness.facts import Facts
    from sealcast.trust.deployment import Realm

app = talk.Commands()

SHOWN: Final = 20
WATCH_SECONDS: Final = 2.0


@app.command(epilog="Example: sealcast status quotes; or, until Ctrl-C: sealcast status --watch --every 5")
def status(
    topics: Topics = None,
    topic: AlsoTopics = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Draw a table again and again, until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, max=3600, help="With --watch: how often.")
    ] = WATCH_SECONDS,
) -> None:
    """Show how every topic stands at each of its brokers: what was published, delivered and refused, and how far behind
    everyone is.

    Backlog counts frames that no batch has handled yet; lag counts events that a subscriber has not acknowledged. Of
    brokers in an overlay it also shows what waits above them, and how many rows their tables have. Through a gateway, a
    client sees the topics and its own lag.
    """
    if watch and talk.given.json:
        raise typer.BadParameter("one document cannot change: give --watch or --json")
    here = talk.open_realm(afar=not watch)
    if watch:
        from sealcast.cli.watching import watch as draw

        draw(lambda: [facts.document for facts in _found(here, topics, topic)], every)
        return
    state = here.state()
    elsewhere = not here.site.here
    if elsewhere and not talk.has_joined(here, Role.BROKER):
        _show_own(here, topics, topic)
        return
    found = _found(here, topics, topic)
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
    for broker, at in {} if elsewhere else state.gateways.items():
        talk.note(f"broker {broker!r} is on a machine of its own (sealcast://{at.host}:{at.port}): ask there")
    if not found:
        talk.note("no topics yet: sealcast topic create NAME --schema FILE")
    for facts in found:
        _show(facts)


def _found(here: Realm, topics: list[str] | None, also: list[str] | None) -> list[Facts]:
    """How every topic, or each of these, stands by now at each of its brokers."""
    from sealcast.protections.port import witness_side

    state = here.state()
    names = asked(state, topics, also)
    return [facts for name in names for facts in witness_side(state.topic(name).protection).status(here, name)]


def _show_own(here: Realm, asked_for: list[str] | None, also: list[str] | None) -> None:
    """What a client may see from afar: the topics, and how far those are whose keys are in its home."""
    state = here.state()
    names = asked(state, asked_for, also)
    lag = {name: _own_lag(here, name) for name in names}
    about: dict[str, object] = {"realm": here.name, "version": state.version, "gateway": here.site.shown}
    topics = [{"topic": n, "protection": state.topic(n).protection.name, "lag": lag[n]} for n in names]
    if talk.emitted(about | {"topics": topics}):
        return
    talk.pairs(
        [("realm", f"{here.name} ({here.paths.root})"), ("gateway", here.site.shown), ("version", state.version)]
    )
    rows = [
        (n, state.topic(n).protection.name, ", ".join(f"{who} {count:,}" for who, count in lag[n].items()) or "-")
        for n in names
    ]
    talk.table(["topic", "protection", "own lag"], rows, "no topics yet")


def _own_lag(here: Realm, topic: str) -> dict[str, int]:
    from sealcast.clients.realm import side_of
    from sealcast.errors import NotFound
    from sealcast.trust.homes import joined

    found = dict[str, int]()
    for who in joined(here.paths):
        with suppress(NotFound), side_of(here, topic).mail(here, topic, who) as mail:
            found[who] = mail.lag()
    return found


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
