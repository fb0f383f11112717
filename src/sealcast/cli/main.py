"""The entry point: the table of all commands, and the one place where errors become words and exit codes.

    0    done
    1    refused: the reason is on stderr (with --json, in a document on stdout)
    2    the command line itself makes no sense
    130  interrupted

A command's module is imported when the command runs, and Spark by the few commands that need it: `sealcast --help`
answers at once. To add a command, write `cli/NAME.py` with `talk.Commands` in it and a line in the table here.
"""

from __future__ import annotations

import difflib
import gc
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from sealcast.cli import contexts, talk
from sealcast.cli.plain_values import spare_pydantic
from sealcast.errors import SealcastError, extras_named


class Command(NamedTuple):
    """Where a command is (`module:attribute`) and what it does, in one line."""

    at: str
    summary: str


COMMANDS: Final[dict[str, dict[str, Command]]] = {
    "Start here": {
        "demo": Command("demo:app", "run the main job end to end, in under a minute"),
        "doctor": Command("doctor:app", "check that this machine is fit, and say what to do if it is not"),
    },
    "A realm and who is in it": {
        "init": Command("init:app", "make a new realm"),
        "topic": Command("topic:app", "create, alter, delete, list, show, find and rotate topics"),
        "entity": Command("entity:app", "enrol, list, renew and revoke entities"),
        "context": Command("context:app", "name the realms that you work with, and choose one"),
        "join": Command("join:app", "join a realm on another machine, with an invitation's code"),
        "broker": Command("broker:app", "add, list and show end-point brokers"),
        "carrier": Command("carrier:app", "name the Kafka clusters and NATS servers that keep frames"),
        "overlay": Command("overlay:app", "build and show the tree of brokers of a layered topic"),
        "grant": Command("rights:grant_app", "give an entity rights on a topic"),
        "revoke": Command("rights:revoke_app", "take an entity's rights on a topic away"),
        "maintain": Command("maintain:app", "renew certificates and tokens and rotate keys that are due"),
        "authority": Command("authority:app", "show and replace authorities, and export revocation lists"),
        "compromise": Command("compromise:app", "revoke stolen keys, give everybody else new ones, and prove it"),
        "forget": Command("forget:app", "make events unreadable for good by destroying keys, and prove it"),
        "token": Command("token:app", "ask for a token, or check whether this realm accepts one"),
        "relock": Command("relock:app", "seal private keys under another lock, to hand them over"),
        "unlock-key": Command("unlock_key:app", "show where your unlock key is; have a token or key service wrap it"),
        "registry": Command("registry:app", "show where the registry is, and bring its schema up to date"),
        "backup": Command("backup:app", "write one moment of the realm into one sealed file"),
        "restore": Command("backup:restore_app", "make a realm of a backup, and verify all of it"),
        "upgrade": Command("upgrade:app", "bring a realm of an earlier release to this one, and read it"),
        "subscription": Command("subscription:app", "add, list, move and remove subscriptions"),
    },
    "Events": {
        "pub": Command("pub:app", "publish events from stdin, one JSON object per line"),
        "sub": Command("sub:app", "open the events that a subscriber gets, one JSON object per line"),
        "group": Command("group:app", "show and remove groups that share a subscriber's events"),
        "dead-letters": Command("dead_letters:app", "list and replay events that a reader put aside"),
        "mqtt": Command("mqtt:app", "carry sealed topics over MQTT: bridge, broker, mosquitto"),
        "replay": Command("replay:app", "replay a span of the past for a reader, under its present rights"),
        "peer": Command("peer:app", "run and show the peers of topics without brokers"),
        "run": Command("run:app", "run the pipeline on Spark: admit, match, group, seal, deliver"),
        "pack": Command("pack:app", "pack Sealcast for the executors of a Spark cluster"),
        "worker-home": Command("worker_home:app", "write what executors need of a realm on a Spark worker"),
        "gateway": Command("gateway:app", "let publishers and subscribers on other machines in, over HTTPS"),
        "serve": Command("serve:app", "answer requests to key centers, brokers and discovery nodes"),
    },
    "What happened, and why": {
        "status": Command("status:app", "show topics, subscriptions, lag and rejections"),
        "rejected": Command("rejected:app", "list what was refused at admission"),
        "check": Command("check:app", "prove from the ledger that nothing was lost, doubled or reordered"),
        "confirm": Command("confirm:app", "ask brokers whether acknowledged frames are in their ledgers"),
        "audit": Command("audit:app", "show who could read and publish what, when and why"),
        "why": Command("why:app", "explain why an event did or did not reach a subscriber"),
        "explain": Command("explain:app", "show who can learn what under a topic's protection"),
        "console": Command("console:app", "show the realm in a browser on this machine"),
        "inspect": Command("inspect:app", "say what a file of a realm is, and what it reveals"),
    },
    "Workbench": {
        "filter": Command("filter:app", "try filters on cases"),
        "match": Command("match:app", "match events against subscriptions, sealed and opened, in a batch"),
        "plan": Command("plan:app", "find the group key algorithm that suits your workload"),
        "lab": Command("lab:app", "make the papers' tables and figures again; try group keys"),
        "bench": Command("bench:app", "measure the hot paths, each side by side with a reference"),
    },
}
#: What people type who know other tools.
_MEANT: Final = {
    "completion": "--install-completion",
    "consume": "sub",
    "help": "--help",
    "produce": "pub",
    "publish": "pub",
    "start": "run",
    "subscribe": "sub",
    "version": "--version",
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
            near = _MEANT.get(args[0]) or next(iter(difflib.get_close_matches(args[0], _TABLE, n=1)), None)
            ctx.fail(f"no command {args[0]!r}." + (f" Did you mean {near!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, _TABLE))
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), command.summary) for name, command in commands.items()])


spare_pydantic()
app = typer.Typer(cls=LazyCommands, **{**talk.SETTINGS, "add_completion": True})


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"sealcast {version('sealcast')}")
        raise typer.Exit


@app.callback(epilog="Try: sealcast demo")
def _root(
    ctx: typer.Context,
    realm: Annotated[str | None, typer.Option(metavar="DIR|ADDRESS", help="The realm, for any command.")] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="The realm, by the name that `sealcast context add` gave it.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Sealed events, cast to exactly those who asked for their content.

    Every command takes --help, which shows an example, and --json, which prints one JSON document on stdout.
    A realm is found by --realm DIR, by SEALCAST_REALM, around the working directory, or by the context in use. Where it
    is on other machines, --realm and SEALCAST_REALM take the address of its gateway: sealcast://HOST:PORT.
    """
    if ctx.invoked_subcommand != "context":
        contexts.apply(context, ctx.obj or ())
    if realm is not None:
        os.environ["SEALCAST_REALM"] = realm


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # What a command imports stays, and Python's collector would look through all of it once for every 700 objects.
    gc.set_threshold(20_000, 10, 10)
    # numpy would start a thread for every other core, for products of matrices. They are awake for a while before they
    # find that there is nothing to do: a fifth of a short command.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Libraries that find no handler write to the terminal, which is the user's: what matters, commands say themselves.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        with extras_named():
            app(given, prog_name="sealcast", obj=given)
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
