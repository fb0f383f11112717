"""sealcast join: become an entity of a realm on other machines, with an invitation's code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.trust.certificates.roles import Role

if TYPE_CHECKING:
    from sealcast.trust.invitations import InvitationCode

app = talk.Commands(shared=talk.JSON_ONLY)


@app.command(epilog="Example: sealcast join sealcast://gateway.example:7443 --code sealcast-invite-1.hFAk...")
def join(
    gateway: Annotated[str, typer.Argument(metavar="ADDRESS", help="The realm's gateway: sealcast://HOST:PORT.")],
    code: Annotated[
        str, typer.Option(metavar="CODE", help="What `sealcast entity invite` printed; - reads it from stdin.")
    ],
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Your home [default: SEALCAST_HOME, or one below ~/.local/share/sealcast]."),
    ] = None,
) -> None:
    """Join a realm: make keys on this machine, and have them certified for the name that you are invited by.

    The code says which root the realm has. Whoever answers at the address must lead to it, or nothing is sent. Private
    keys never leave this machine. If it is cut short, run it again with the same code.
    """
    from sealcast.transports.address import GatewayAddress, home_of
    from sealcast.trust import joining
    from sealcast.trust.invitations import InvitationCode
    from sealcast.trust.registry import now_us

    address = GatewayAddress.parse(gateway.rstrip("/").lower())
    given = InvitationCode.parse(sys.stdin.readline() if code == "-" else code)
    default = home_of(address)
    paths = joining.join(address, given, default if home is None else home, now_us)
    named = str(address) if paths.root == default.absolute() else str(paths.root)
    document = {
        "entity": given.name,
        "role": str(given.role),
        "home": str(paths.root),
        "gateway": str(address),
        "realm": named,
    }
    talk.answer(document, f"{given.name!r} has joined; keys and certificate are in {paths.root}")
    for step in _next(given, named):
        talk.note(step)


def _next(given: InvitationCode, realm: str) -> list[str]:
    """What a newcomer of its role does then."""
    return {
        Role.ENTITY: [
            f"next: sealcast topic list --realm {realm}",
            f"then publish or subscribe: sealcast pub TOPIC --as {given.name} --realm {realm}",
        ],
        Role.GATEWAY: [f"next: sealcast gateway --listen HOST:PORT --name {given.name} --realm {realm}"],
        Role.BROKER: [
            "next: let a gateway join this home, too, and start it",
            f"then: sealcast broker reach {given.name} sealcast://HOST:PORT --realm {realm}",
        ],
    }.get(given.role, [f"next: sealcast serve {given.name} --realm {realm}"])
