"""How commands talk: data to stdout (a table, or one JSON document), everything else to stderr.

Much of it is others' text: names in frames that nobody signed, details of refusals, payloads. All of it passes `safe`
or `as_json` here, so that none of it is an order to the terminal. No other module of commands prints.

Also the options that every command shares, so that they read the same everywhere.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO, TypeVar

import typer
from typer.core import TyperGroup
from typer.models import CommandFunctionType, ParameterInfo

from sealcast.cli import completing, homes
from sealcast.errors import HINT, FilterRejected, Misuse, NotFound, SealcastError, Unavailable
from sealcast.model.dataclass import dataclass
from sealcast.model.shown import safe as safe
from sealcast.telemetry.logs import JsonLog

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from sealcast.trust.certificates.roles import Role
    from sealcast.trust.deployment import Realm
    from sealcast.trust.handles import BrokerRealm, EntityRealm, OpenRealm

_Opened = TypeVar("_Opened", bound="OpenRealm")
AsOption = Annotated[
    str,
    typer.Option("--as", metavar="ENTITY", envvar="SEALCAST_AS", help="The enrolled entity that does this."),
]

KeyFileOption = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help="The entity's key file [default: entities/NAME.key of the realm]."),
]

#: What `typer.Typer` and its commands are made with, everywhere.
SETTINGS: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "no_args_is_help": True,
    "add_completion": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
_WIDEST: Final = 100_000
#: Between two columns of a table.
_BETWEEN: Final = 3


# --- what all commands share --------------------------------------------------------------------------


def _option(name: str, kind: object, default: object, option: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


_REALM: Final = typer.Option(
    "--realm",
    metavar="DIR|ADDRESS",
    help="The realm's directory, or sealcast://HOST:PORT [default: SEALCAST_REALM, the one around you, your context].",
)
#: The options of a command that works on no realm, and of all others.
JSON_ONLY: Final = (_option("json", bool, False, typer.Option("--json", help="Print one JSON document on stdout.")),)
REALM_AND_JSON: Final = (_option("realm", str | None, None, _REALM), *JSON_ONLY)
#: Of a command that runs for good.
_LOG_JSON: Final = _option(
    "log_json",
    bool,
    False,
    typer.Option("--log-json", envvar="SEALCAST_LOG_JSON", help="Write the log to stderr as one JSON document a line."),
)


@dataclass
class GivenOptions:
    """What the shared options of the command that runs were given as."""

    #: The command itself, as one types it.
    command: str = "sealcast"
    #: What stood behind its own arguments, of a command that says itself what is wrong with that.
    extra: Sequence[str] = ()
    realm: str | None = None
    json: bool = False
    #: Key files of entities that are not where the realm has them.
    keys: Mapping[str, Path] = field(default_factory=dict)
    #: Where notes go instead of to a person.
    log: JsonLog | None = None
    #: Whether the command runs for good: what it says without a terminal is a log, whose lines have their time.
    daemon: bool = False


given: Final = GivenOptions()


class _Group(TyperGroup):
    """Commands under one name. Whoever names none of them is told which there are."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            ctx.fail(f"no command {args[0]!r} here. There are {', '.join(self.commands)}.")
        return super().resolve_command(ctx, args)


class Commands(typer.Typer):
    """Commands that share options: each takes them after its own, and finds them in `given`."""

    def __init__(
        self, help: str | None = None, *, shared: Sequence[Parameter] = REALM_AND_JSON, no_args_is_help: bool = True
    ) -> None:
        super().__init__(help=help, cls=_Group, **(SETTINGS | {"no_args_is_help": no_args_is_help}))
        self._shared = shared

    def command(
        self, name: str | None = None, *, daemon: bool = False, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """A `daemon` runs for good, and can keep a log."""
        register = super().command(name, **settings)
        own_shared = (*self._shared, _LOG_JSON) if daemon else self._shared

        def add(function: CommandFunctionType) -> CommandFunctionType:
            @wraps(function)
            def run(context: typer.Context, **values: Any) -> None:
                given.command, given.extra = context.command_path, list(context.args)
                shared = {option.name: values.pop(option.name) for option in own_shared}
                given.realm, given.json, given.keys = shared.get("realm"), shared.get("json", False), {}
                given.log = JsonLog(sys.stderr) if shared.get("log_json") else None
                given.daemon = daemon and not values.get("once", False)
                function(**values)

            own = signature(function, eval_str=True)
            for parameter in own.parameters.values():
                for about in getattr(parameter.annotation, "__metadata__", ()):
                    if isinstance(about, ParameterInfo):
                        completing.know(about)
            context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
            run.__signature__ = own.replace(parameters=[*own.parameters.values(), *own_shared, context])  # type: ignore[attr-defined]
            register(run)
            return function

        return add


def group(help: str, *, shared: Sequence[Parameter] = REALM_AND_JSON) -> Commands:
    """Commands under one name, which is part of the command line also when there is only one of them."""
    app = Commands(help, shared=shared)
    app.callback()(lambda: None)
    return app


def open_realm(*, afar: bool = False, home_of: Role | None = None) -> Realm:
    """The realm that the command works on. Opening it reads public things only. With `afar`, a realm behind a gateway
    will do; what needs the administrator's keys or the brokers' files needs the realm itself, or the home of somebody
    of that role."""
    from sealcast.trust.deployment import Realm

    here = Realm(given.realm, keys=given.keys)
    return _at_hand(here, afar or (home_of is not None and has_joined(here, home_of)))


def open_broker_realm() -> BrokerRealm:
    """The realm that the command works on as one of its brokers: no other secrets can be read through it. The realm may
    be on another machine than the broker."""
    from sealcast.trust.handles import BrokerRealm

    return BrokerRealm(given.realm)


def has_joined(here: OpenRealm, role: Role) -> bool:
    """Whether a home is that of somebody of this role."""
    from sealcast.trust import homes

    try:
        return bool(homes.joined(here.paths, role))
    except NotFound:
        return False


def _at_hand(here: _Opened, afar: bool) -> _Opened:
    if not afar and not here.site.here:
        raise Misuse(
            f"`{given.command}` needs the realm itself, which is behind {here.site.shown}: {here.paths.root} is a "
            "client's home",
            hint="its administrator does this where the realm is; clients use pub, sub, subscription, token and topic",
        )
    return here


def open_entity_realm(as_: str | None = None, key_file: Path | None = None) -> EntityRealm:
    """The realm that the command works on as its publishers and subscribers see it. With a key file, the keys of the
    entity that does this are there."""
    from sealcast.trust.handles import EntityRealm

    if as_ is not None and key_file is not None:
        if not key_file.is_file():
            raise NotFound(
                f"{key_file} does not exist", hint=f"name the key file of {as_!r}, as `sealcast relock` makes one"
            )
        given.keys = {as_: key_file.absolute()}
    return EntityRealm(given.realm, keys=given.keys)


def realm_around() -> Realm | None:
    """The realm that was named; without a name, the one around the working directory, if there is one."""
    try:
        return open_realm(afar=True)
    except NotFound:
        if given.realm is not None:
            raise
        return None


# --- others' text -------------------------------------------------------------------------------------


def as_json(document: object, **layout: Any) -> str:
    """A document whose text is read back as it was, and which a terminal shows and does not obey."""
    text = json.dumps(document, ensure_ascii=False, **layout)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


# --- data ---------------------------------------------------------------------------------------------


def emitted(document: object) -> bool:
    """Whether the command was asked for a JSON document. It has got it then, and nothing is left to say to people."""
    if given.json:
        emit(document)
    return given.json


def answer(document: object, *lines: str, empty: str | None = None) -> None:
    """What a command has to say: one JSON document for programs, or lines for people. `empty` stands for no lines."""
    if emitted(document):
        return
    for text in lines:
        say(text)
    if not lines and empty is not None:
        note(empty)


def answer_table(document: object, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """What a command has found: one JSON document for programs, or a table for people."""
    if not emitted(document):
        table(columns, rows, empty)


def emit(document: object) -> None:
    """One JSON document."""
    print(as_json(document, indent=2), flush=True)


def say_lines(documents: Iterable[Mapping[str, object]]) -> None:
    """JSON Lines, written when this returns."""
    for document in documents:
        sys.stdout.write(as_json(document, separators=(", ", ": ")) + "\n")
    sys.stdout.flush()


def say(text: str, mark: str = "") -> None:
    """The result, for people; `mark` stands before it and may be coloured."""
    print(mark + safe(text), flush=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Rows for people; `empty` is said instead when there are none."""
    if not rows:
        note(empty)
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    cells = [[_cell(value) for value in row] for row in rows]
    widths = _widths(columns, cells, console().width)
    if widths is None:
        _blocks(columns, cells)
        return
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    numeric = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
    for name, right, width in zip(columns, numeric, widths, strict=True):
        shown.add_column(name, justify="right" if right else "left", overflow="fold", width=width)
    for row in cells:
        shown.add_row(*row)
    console().print(shown)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else safe(str(value))


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]], most: int) -> list[int] | None:
    """How wide each column is, where lines break between words and no word is broken; None if that does not fit."""
    texts = list(zip(columns, *cells, strict=True))
    widths = [max(max(map(len, text.split()), default=0) for text in column) for column in texts]
    left = most - sum(widths) - _BETWEEN * (len(widths) - 1)
    if left < 0:
        return None
    for number, column in enumerate(texts):
        more = min(left, max(len(text) for text in column) - widths[number])
        widths[number], left = widths[number] + more, left - more
    return widths


def _blocks(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """What is too wide for this terminal as a table, a line for each value. Nothing is cut: one can copy it."""
    width = max(map(len, columns)) + 2
    for number, row in enumerate(cells):
        lines = [f"{name.ljust(width)}{value}" for name, value in zip(columns, row, strict=True) if value]
        say("\n".join(["", *lines] if number else lines))


def pairs(items: Sequence[tuple[str, object]]) -> None:
    """Names and what they are, for people."""
    width = max(len(name) for name, _ in items)
    for name, value in items:
        first, *rest = str(value).splitlines() or [""]
        say("\n".join([f"{name.ljust(width)}  {first}", *(" " * (width + 2) + more for more in rest)]))


def counted(number: int, what: str) -> str:
    """A number of things, in words: 1 key, 2 keys."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # A pipe has no width: cutting lines to fit one would cut data.
    return Console(
        file=stream,
        width=None if stream.isatty() else _WIDEST,
        highlight=False,
        markup=False,
        soft_wrap=not stream.isatty(),
    )


# --- talk ---------------------------------------------------------------------------------------------


def note(text: str, mark: str = "") -> None:
    """Something beside the result; `mark` stands before it and may be coloured."""
    if given.log is not None:
        given.log.write("note", message=safe(text))
        return
    if given.daemon and not sys.stderr.isatty():
        mark = f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {mark}"
    print(mark + safe(text), file=sys.stderr, flush=True)


def note_live(text: str) -> None:
    """Something that takes the place of what was noted so before, in front of a person."""
    sys.stderr.write(f"\r\x1b[2K{safe(text)}")
    sys.stderr.flush()


def warn(text: str) -> None:
    if given.log is not None:
        given.log.write("warning", message=safe(text))
        return
    note(f" {text}", coloured("warning:", "33", sys.stderr))


def confirm(*what: str) -> None:
    """Asks before something that cannot be undone; Misuse when nobody says yes. What it is stands on stderr."""
    for line in what:
        note(line)
    if not sys.stdin.isatty():
        raise Misuse("this cannot be undone, and nobody can be asked here", hint="say that you mean it: --yes")
    if not typer.confirm("This cannot be undone. Go on?", err=True):
        raise Misuse("nothing was done")


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Progress | None]:
    """A progress bar on stderr, for long work in front of a person; nothing otherwise. It has one task, number 0."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        bar.add_task(what, total=total)
        yield bar


@contextmanager
def points(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar for work that says by itself how much is done, and of how much."""
    with progress(what, None) as bar:

        def told(done: int, total: int) -> None:
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done, total=total)

        yield told


# --- refusals -----------------------------------------------------------------------------------------


@contextmanager
def about_filter(text: str) -> Iterator[None]:
    """Lets a refusal of this filter show where in its text the trouble is."""
    try:
        yield
    except FilterRejected as error:
        error.add_note(text)
        raise


def refuse(error: SealcastError, *, as_json: bool) -> None:
    """Why it was refused and what to do next. Under --json it is the document; the words still go to stderr."""
    if as_json:
        emit(error.as_json())
    if given.log is not None:
        given.log.write("refused", reason=error.code, message=safe(error.message))
        return
    given.daemon = False  # the last words of the command are for whoever started it, and begin as they always do
    note(f" {error.message}", coloured("refused:" if error.code != "bug" else "bug:", "31;1", sys.stderr))
    if isinstance(error, FilterRejected) and error.at is not None:
        for text in getattr(error, "__notes__", ()):
            if not text.startswith(HINT):
                note(marked(text, error.at))
    if error.hint is not None:
        note(f" {homes.remedy(error.hint, given.realm)}", coloured("hint:", "36", sys.stderr))


def marked(text: str, at: int) -> str:
    """The line of a filter that holds offset `at`, and a caret under that place."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    shown = text[start : len(text) if end < 0 else end]
    column = at - start
    # Long filters: enough around the place to recognise it.
    if len(shown) > 110:
        cut = max(0, column - 50)
        shown, column = ("..." if cut else "") + shown[cut : cut + 100] + "...", column - cut + (3 if cut else 0)
    clean = "".join(c if c.isprintable() else " " for c in shown)
    return f"    {clean}\n    {' ' * column}^"


def named_value(text: str, option: str, what: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE, as an option takes them."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not name or not equals or not value:
        raise Misuse(f"{text!r} is not a {what}", hint=f"write {option} NAME=VALUE")
    return name, value


def json_trouble(error: Exception) -> str:
    """What is wrong with a line that is not JSON, and where in it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def from_os_error(error: OSError) -> Unavailable:
    where = f"{error.filename}: " if error.filename else ""
    return Unavailable(f"{where}{error.strerror or error}", hint=_way_out(error))


def _way_out(error: OSError) -> str | None:
    """What to do about it, where that is known."""
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    match error:
        case FileNotFoundError() if path is not None and not path.parent.is_dir():
            return f"there is no directory {path.parent.absolute()}: make it first, or name another"
        case FileNotFoundError() if path is not None:
            return f"check the name; it was looked for in {path.parent.absolute()}"
        case PermissionError():
            return "let the user that runs this read or write it, or name another file"
        case IsADirectoryError():
            return "name a file: this is a directory"
        case _:
            return None


def coloured(text: str, code: str, stream: TextIO) -> str:
    """A word of ours in a colour, where the stream is a terminal."""
    return f"\x1b[{code}m{text}\x1b[0m" if stream.isatty() else text
