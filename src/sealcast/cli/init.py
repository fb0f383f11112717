"""sealcast init: a new realm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk

app = typer.Typer(**talk.SETTINGS)


@app.command(epilog="Example: sealcast init market && cd market")
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.")],
    name: Annotated[str | None, typer.Option(help="What to call it [default: the directory's name].")] = None,
    json: talk.JsonOption = False,
) -> None:
    """Make a new realm: its registry, its broker's secrets, and room for topics.

    Everything lies in DIR. `secrets/` is the trusted broker's and `entities/` holds private keys: both are readable
    by you alone. The rest is public, or sealed.
    """
    from sealcast.trust.deployment import Realm

    realm = Realm.create(directory, name)
    if json:
        talk.emit({"realm": str(realm.paths.root), "name": realm.name, "id": realm.id.hex()})
        return
    talk.say(f"realm {realm.name!r} made in {realm.paths.root}")
    talk.note(f"next: cd {directory} && sealcast topic create NAME --schema FILE")
