"""sealcast init: a new realm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk

app = talk.Commands(shared=talk.JSON_ONLY)


@app.command(epilog="Example: sealcast init market && cd market")
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.")],
    name: Annotated[str | None, typer.Option(help="The realm's name [default: the directory's name].")] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Keep the registry on PostgreSQL: postgresql://USER@HOST/DATABASE."),
    ] = None,
    served: Annotated[
        bool, typer.Option("--served", help="Let no client use the keys of key centers and brokers on its machine.")
    ] = False,
) -> None:
    """Make a new realm: its registry, its authority, a key center, a broker and two discovery nodes.

    Everything lies in DIR. `secrets/` and `entities/` hold private keys: only you can read them, and they are sealed
    under an unlock key that is kept elsewhere (`sealcast doctor` says where). Everything else is public or sealed. The
    root's key, secrets/authority/root.key, is needed only to make the next authority: take it offline.

    On one machine clients take the turns of the key center and of the broker's desk themselves, with the keys that lie
    here. With --served they never unlock those keys: `sealcast serve` must run, and answers them. `at_hand` in
    realm.json says which.

    A registry that several machines share is a PostgreSQL database. Its URL is written into the realm without a
    password: that comes from PGPASSFILE, from PGPASSWORD, or with a whole URL in SEALCAST_REGISTRY_URL.
    """
    from sealcast.trust.deployment import Realm

    realm = Realm.create(directory, name, registry=registry, at_hand=not served)
    document = {"realm": str(realm.paths.root), "name": realm.name, "id": realm.id.hex()}
    document |= {"root": realm.trust().root.fingerprint.hex(), "registry": str(realm.registry.address)}
    talk.answer(document, f"realm {realm.name!r} made in {realm.paths.root}")
    if not talk.given.json:
        talk.note(f"next: cd {directory} && sealcast topic create NAME --schema FILE")
