"""The entry point: the table of all commands, and the one place where errors become words and exit codes.

    0    done
    1    refused: the reason is on stderr (with --json, in a document on stdout)
    2    the command line itself makes no sense
    130  interrupted

A command's module is imported when the command runs, and Spark by the few commands that need it: `sealcast --help`
answers at once. To add a command, write `cli/NAME.py` with a `typer.Typer` in it and a line in the table here.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from sealcast.cli import talk
from sealcast.errors import SealcastError, extras_named


class Command(NamedTuple):
    """Where a command is (`module:attribute`) and what it does, in one line."""

    at: str
    summary: str


COMMANDS: Final[dict[str, dict[str, Command]]] = {
    "Start here": {
        "demo": Command("demo:app", "the main job end to end, in under a minute"),
        "doctor": Command("doctor:app", "is this machine fit, and what to do if not"),
    },
    "A realm and who is in it": {
        "init": Command("init:app", "make a new realm"),
        "topic": Command("topic:app", "create, list, show, find and rotate topics"),
        "entity": Command("entity:app", "enrol, list, renew and revoke entities"),
        "broker": Command("broker:app", "add, list and show end-point brokers"),
        "overlay": Command("overlay:app", "the tree of brokers of a layered topic, as text and as a picture"),
        "grant": Command("rights:grant_app", "give an entity rights on a topic"),
        "revoke": Command("rights:revoke_app", "take an entity's rights on a topic away"),
        "maintain": Command("maintain:app", "renew certificates and tokens, rotate keys: what is due"),
        "authority": Command("authority:app", "the root, its authorities, and revocation lists for other tools"),
        "compromise": Command("compromise:app", "somebody's keys are known: revoke, new keys for all others, proof"),
        "token": Command("token:app", "ask for a token; what one says, and whether this realm takes it"),
        "relock": Command("relock:app", "seal private keys under another lock, to hand them over"),
        "registry": Command("registry:app", "where the registry is; bring its schema up to date"),
        "subscription": Command("subscription:app", "add, list, move and remove subscriptions"),
    },
    "Events": {
        "pub": Command("pub:app", "publish events, one JSON object a line, from stdin"),
        "sub": Command("sub:app", "open the events a subscriber gets, one JSON object a line"),
        "replay": Command("replay:app", "a span of the past for a reader, by its rights of now"),
        "run": Command("run:app", "run the pipeline on Spark: admit, match, group, seal, deliver"),
        "serve": Command("serve:app", "answer for key centers, brokers and discovery nodes"),
    },
    "What happened, and why": {
        "status": Command("status:app", "topics, subscriptions, lag, rejections"),
        "rejected": Command("rejected:app", "what was refused at admission"),
        "check": Command("check:app", "prove from the ledger: nothing lost, doubled, out of order"),
        "audit": Command("audit:app", "who could read and publish what, when and why"),
        "why": Command("why:app", "why an event did or did not reach a subscriber"),
        "explain": Command("explain:app", "who can learn what under a topic's protection"),
        "inspect": Command("inspect:app", "what any file of ours is and what it reveals"),
    },
    "Workbench": {
        "filter": Command("filter:app", "try filters on cases"),
        "match": Command("match:app", "match events against subscriptions, sealed and opened, in a batch"),
        "plan": Command("plan:app", "which group key algorithm suits your events and subscriptions"),
        "lab": Command("lab:app", "the papers' tables and figures again; group keys on your groups"),
        "bench": Command("bench:app", "measurements, side by side with a reference"),
    },
}
_TABLE: Final = {name: command for section in COMMANDS.values() for name, command in section.items()}


class LazyCommands(TyperGroup):
    """Knows all commands by the table and imports one when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_TABLE)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = _TABLE.get(cmd_name)
        if entry is None:
            return None
        module, attribute = entry.at.split(":")
        app: typer.Typer = getattr(import_module(f"sealcast.cli.{module}"), attribute)
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in _TABLE and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], _TABLE, n=1)
            ctx.fail(f"no command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, _TABLE))
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), command.summary) for name, command in commands.items()])


app = typer.Typer(cls=LazyCommands, **{**talk.SETTINGS, "add_completion": True})


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"sealcast {version('sealcast')}")
        raise typer.Exit


@app.callback(epilog="Try: sealcast demo")
def _root(
    realm: Annotated[Path | None, typer.Option(metavar="DIR", help="The realm, for any command.")] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Sealed events, cast to exactly those who asked for their content.

    Every command takes --help, which shows an example, and --json, which prints one JSON document on stdout.
    A realm is found by --realm DIR, by SEALCAST_REALM, or around the working directory.
    """
    if realm is not None:
        os.environ["SEALCAST_REALM"] = str(realm)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Libraries that find no handler write to the terminal, which is the user's: what matters, commands say themselves.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        with extras_named():
            app(given, prog_name="sealcast")
    except SealcastError as error:
        talk.refuse(error, as_json="--json" in given)
        sys.exit(1)
    except BrokenPipeError:
        _close_quietly()
        sys.exit(1)
    except OSError as error:
        talk.refuse(talk.from_os_error(error), as_json="--json" in given)
        sys.exit(1)


def _close_quietly() -> None:
    # Whoever read us has gone; without this, Python complains when it flushes stdout at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
