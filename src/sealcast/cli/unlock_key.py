"""sealcast unlock-key: where the key is that unlocks private keys, and who wraps it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk
from sealcast.errors import Misuse

app = talk.group("Show your unlock key's place, and have it wrapped by a key service.", shared=talk.JSON_ONLY)


@app.command(epilog="Example: sealcast unlock-key show")
def show() -> None:
    """Say where your unlock key is, and whether a key service wraps it. The key itself is not shown."""
    from sealcast.trust.vault import unlock

    path = unlock.key_path()
    if not path.exists():
        talk.answer({"file": str(path), "exists": False}, f"{path} does not exist; it is made when it is needed")
        return
    held = unlock.look(path)
    document: dict[str, object] = {"file": str(path), "exists": True, "service": None if held is None else held.service}
    talk.answer(document, f"{path}: " + ("in clear" if held is None else f"wrapped by {held.service}"))


@app.command(epilog="Example: sealcast unlock-key wrap --service 'pkcs11:token=sealcast;object=unlock-key' --make-key")
def wrap(
    service: Annotated[str, typer.Option(metavar="ADDRESS", help="The key service, such as pkcs11:token=T;object=K.")],
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a new file [default: your unlock key's own].")
    ] = None,
    make_key: Annotated[bool, typer.Option("--make-key", help="Let the service make its key first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. A key in clear does not come back.")] = False,
) -> None:
    """Have your unlock key wrapped by a key service, so that no file holds it in clear.

    The file then opens only with the service: a PKCS#11 token, or one that SEALCAST_KEY_SERVICES names. If the service
    loses its key, everything under this unlock key is lost. To have two ways, wrap it with a second service and --to.
    Copies of the old file still hold the key in clear: remove them, or make a new unlock key and relock the key files.
    """
    from sealcast.trust.vault import unlock
    from sealcast.trust.vault.services import MakesKeys, open_service

    keeper = open_service(service)
    path = unlock.key_path()
    if to is None and path.exists() and unlock.look(path) is None and not yes:
        talk.confirm(f"{path} will hold the unlock key wrapped by {service}, and no longer in clear.")
    if make_key:
        if not isinstance(keeper, MakesKeys):
            raise Misuse(f"{service.partition(':')[0]} does not make keys for us", hint="make one there, and name it")
        keeper.make()
    made = unlock.wrap(service, keeper, to)
    document = {"file": str(to or path), "id": made.id.hex(), "service": service}
    talk.answer(document, f"{to or path} holds unlock key {made.id.hex()}, wrapped by {service}")
