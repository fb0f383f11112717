"""sealcast context: names for the realms that one works with."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from sealcast.cli import completing, contexts, talk
from sealcast.cli.contexts import RealmContext

app = talk.group("Name the realms that you work with, and choose one of them.", shared=talk.JSON_ONLY)

ContextName = Annotated[str, typer.Argument(metavar="NAME", autocompletion=completing.contexts_known)]


@app.command(epilog="Example: sealcast context add work --realm sealcast://gateway.example.org:7443 --as alice")
def add(
    name: ContextName,
    realm: Annotated[str, typer.Option("--realm", metavar="DIR|ADDRESS", help="Where the realm is.")],
    as_: Annotated[
        str | None, typer.Option("--as", metavar="ENTITY", help="As whom commands act there [default: each says].")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
) -> None:
    """Give a realm a name. An existing context of that name is replaced.

    The realm has to be there: a directory, or a gateway that somebody has joined from this machine.
    """
    from sealcast.transports.address import is_address
    from sealcast.trust.layout import find

    find(realm)
    context = RealmContext(realm if is_address(realm) else os.path.abspath(realm), as_)
    known = contexts.read().with_context(name, context)
    contexts.write(known.using(name) if use else known)
    talk.answer({"context": name, **_shown(context), "in_use": use}, f"context {name}: {context.realm}")
    if not use:
        talk.note(f"use it: sealcast context use {name}, or once: sealcast --context {name} status")


@app.command(epilog="Example: sealcast context use work")
def use(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", autocompletion=completing.contexts_known)] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context.")] = False,
) -> None:
    """Work with this realm, wherever no other is named and the working directory is not in one."""
    if (name is None) is not none:
        raise typer.BadParameter("give the NAME of a context, or --none")
    contexts.write(contexts.read().using(name))
    talk.answer({"context": name}, "no context is in use" if name is None else f"context {name} is in use")


@app.command("list", epilog="Example: sealcast context list")
def list_() -> None:
    """List the contexts; the one in use has a star."""
    known = contexts.read()
    found = [
        {"context": name, **_shown(context), "in_use": name == known.current} for name, context in known.named.items()
    ]
    rows = [("*" if one["in_use"] else "", one["context"], one["realm"], one["as"] or "-") for one in found]
    talk.answer_table(
        found, ["", "context", "realm", "as"], rows, "no contexts yet: sealcast context add NAME --realm DIR"
    )


@app.command(epilog="Example: sealcast context remove work")
def remove(name: ContextName) -> None:
    """Forget a context. The realm stays as it is."""
    contexts.write(contexts.read().without(name))
    talk.answer({"context": name, "removed": True}, f"context {name} is forgotten; its realm is as it was")


def _shown(context: RealmContext) -> dict[str, str | None]:
    return {"realm": context.realm, "as": context.entity}
