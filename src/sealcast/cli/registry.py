"""sealcast registry: where a realm's registry is, whether it is to be believed, and how it is brought up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.trust.deployment import Realm

app = talk.Commands("Show the realm's registry, compare its history with another's, and bring it up to date.")


@app.command(epilog="Example: sealcast registry show")
def show() -> None:
    """Say where the registry is, which schema it has, and whether it is whole.

    This reads every change and checks that it is chained to the one before, obeys the rules, and was signed by somebody
    who may state it.
    """
    registry = talk.open_realm(afar=True).registry
    found = {"registry": str(registry.address), "schema": registry.revision(), "version": registry.state().version}
    if not talk.emitted({**found, "whole": True}):
        whole = "yes: every change is chained to the one before, obeys the rules, and is signed by who may state it"
        talk.pairs([*found.items(), ("whole", whole)])


@app.command(epilog="Example: sealcast registry head --as alice")
def head(
    as_: Annotated[
        str | None, typer.Option("--as", metavar="ENTITY", help="Who signs it [default: the administrator].")
    ] = None,
) -> None:
    """Print the version that is seen here, and the chain up to it, signed.

    Send the line to somebody else who uses the realm, over any other way: `sealcast registry compare` tells there
    whether you both see one history.
    """
    from sealcast.errors import NotFound
    from sealcast.trust.comparing import signed_head
    from sealcast.trust.realm.authors import ADMINISTRATOR

    here = talk.open_realm(afar=True)
    author = here.author(ADMINISTRATOR) if as_ is None else here.identity(as_).author
    if author is None:
        raise NotFound("the administrator's key is not here", hint="sign as somebody whose key is: --as ENTITY")
    made = signed_head(here, author)
    document = {"version": made.head.version, "chain": made.head.chain.hex(), "by": made.author, "head": str(made)}
    if not talk.emitted(document):
        talk.pairs(list(document.items()))


@app.command(epilog="Example: sealcast registry compare sealcast-head-1.hVC...")
def compare(
    head: Annotated[str, typer.Argument(metavar="HEAD", help="What `sealcast registry head` printed elsewhere.")],
) -> None:
    """Say whether somebody else sees the history that is seen here: the same, a part of it, more of it, or another one.

    Exits with 1 if the history was forked: then somebody shows different registries to different clients.
    """
    from sealcast.trust.comparing import Histories
    from sealcast.trust.comparing import compare as compared
    from sealcast.trust.heads import SignedHead

    found = compared(talk.open_realm(afar=True), SignedHead.parse(head))
    ours, theirs, by = found.ours.version, found.theirs.version, found.author
    said = {
        Histories.SAME: f"the same history: version {ours}, as {by} saw it",
        Histories.EXTENDS: f"one history: it goes on from version {theirs}, which {by} saw, to version {ours}",
        Histories.BEHIND: f"{by} saw version {theirs}, and here is version {ours}: hold ours against it there",
        Histories.FORK: f"a fork: version {theirs}, as {by} saw it, is not the one that is here",
    }[found.verdict]
    talk.answer({"verdict": found.verdict, "ours": ours, "theirs": theirs, "by": by}, said)
    if found.verdict is Histories.FORK:
        raise typer.Exit(1)


@app.command(epilog="Example: sealcast registry migrate")
def migrate() -> None:
    """Bring an older registry to what this release reads, in one transaction: its schema, then its signatures.

    A registry in a file gets its schema when it is opened. A registry on a server waits for this command, because
    machines that run an older release cannot read it afterwards: update them first. This needs the rights of the
    tables' owner. It also makes the tables of consumer groups and of requests there, if they are missing: then start
    services and gateways again.

    Changes that an older release wrote are signed by nobody. The administrator signs them once, as they stand there:
    look at them first (`sealcast audit`). This needs the root's key.
    """
    here = talk.open_realm()
    registry = here.registry
    before, after, was_signed = brought_up(here)
    said = f"is at {after} already" if before == after else f"went from {before} to {after}"
    said += "" if was_signed else ", and the administrator has signed it"
    document = {"registry": str(registry.address), "from": before, "to": after, "signed": not was_signed}
    talk.answer(document, f"{registry.address} {said}")


def brought_up(here: Realm) -> tuple[str, str, bool]:
    """Brings the registry to what this release reads: its schema before and after, and whether it was signed."""
    registry = here.registry
    before, after, was_signed = registry.migrate(), registry.revision(), registry.is_signed()
    if not was_signed:
        version = here.adopt_registry().version
        talk.warn(f"nobody had signed the {version - 1} changes that stood there: they were believed as they are")
    return before, after, was_signed
