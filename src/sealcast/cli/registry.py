"""sealcast registry: where a realm's registry is, and how its schema is brought up to date."""

from __future__ import annotations

from sealcast.cli import talk

app = talk.Commands("Show the realm's registry, and bring its schema up to date.")


@app.command(epilog="Example: sealcast registry show")
def show() -> None:
    """Say where the registry is, which schema it has, and whether it is whole.

    This reads every change and checks that it is chained to the one before and obeys the rules.
    """
    registry = talk.open_realm().registry
    found = {"registry": str(registry.address), "schema": registry.revision(), "version": registry.state().version}
    if not talk.emitted({**found, "whole": True}):
        whole = "yes: every change is chained to the one before, and obeys the rules"
        talk.pairs([*found.items(), ("whole", whole)])


@app.command(epilog="Example: sealcast registry migrate")
def migrate() -> None:
    """Bring an older registry's schema to that of this release, in one transaction.

    A registry in a file is brought up to date when it is opened. A registry on a server waits for this command, because
    machines that run an older release cannot read it afterwards: update them first. This needs the rights of the
    tables' owner.
    """
    registry = talk.open_realm().registry
    before, after = registry.migrate(), registry.revision()
    said = f"is at {after} already" if before == after else f"went from {before} to {after}"
    document = {"registry": str(registry.address), "from": before, "to": after}
    talk.answer(document, f"{registry.address} {said}")
