"""sealcast console: the realm as a web page, on this machine."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk
from sealcast.cli.times import moment

app = talk.Commands(no_args_is_help=False)


@app.command(epilog="Example: sealcast console --as alice")
def console(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen, on loopback; port 0 takes a free one.")
    ] = "127.0.0.1:0",
    as_: Annotated[
        str | None,
        typer.Option("--as", metavar="ENTITY", help="Whose events to show: a reader whose keys are here."),
    ] = None,
    numeric: Annotated[
        bool, typer.Option("--numeric", help="Name the address in links, for browsers that lack *.localhost names.")
    ] = False,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where figures of the lab are kept [default: for this run only].")
    ] = None,
) -> None:
    """Show the realm in a browser on this machine, until Ctrl-C.

    It prints a link that works once, for ten minutes, and lets one browser in. Press Enter for another one. Nobody
    else can open the console, and nothing on its pages comes from elsewhere.

    An administrator sees how topics stand, who may read what, and why events went where they did. Events themselves
    are shown to a reader, with its own keys: give --as. For a browser on another machine, give a port and
    forward it: ssh -L 7790:127.0.0.1:7790 HOST.
    """
    from sealcast.clients.realm import Realm
    from sealcast.console.serving import ConsoleService
    from sealcast.console.viewer import Viewer

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65_536:
        raise typer.BadParameter(f"{listen!r} is no address: write HOST:PORT", param_hint="--listen")
    here = Realm(talk.open_realm().paths.root)
    if as_ is not None:
        here.identity(as_)
    made = ConsoleService(here, Viewer(as_), host.strip("[]"), int(port), numeric=numeric, figures=figures, tell=_told)
    if sys.stdin.isatty():
        threading.Thread(target=_links, args=(made.link,), daemon=True).start()
        talk.note("press Enter for another link; Ctrl-C ends the console")
    link = made.link()
    talk.answer({"link": link, "port": made.port}, f"open {link}")
    asyncio.run(made.run())


def _told(words: str) -> None:
    """What is changed from a page is said here, too, with its time; the registry has it signed."""
    from sealcast.trust.registry import now_us

    talk.note(f"{moment(now_us())} {words}")


def _links(link: object) -> None:
    """A fresh link for every Enter."""
    assert callable(link)
    for _ in sys.stdin:
        talk.note(f"open {link()}")
