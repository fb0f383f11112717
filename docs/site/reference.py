"""The pages that are made from the code: commands, the Python interface, errors. Nothing of them is written by hand.

Commands are asked for their own help, as a user would ask. Errors and the Python interface are read from the source
without running it, so that no page needs Spark or another extra.
"""

from __future__ import annotations

import ast
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from sealcast import errors
from sealcast.cli.main import COMMANDS, app

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "sealcast"
_WIDTH: Final = 100
_MADE: Final = "*This page is made from the code by `make docs`.*"


def pages() -> dict[str, str]:
    """By their path in the site, the text of every generated page."""
    return {
        "reference/commands.md": commands_page(),
        "reference/python.md": python_page(),
        "reference/errors.md": errors_page(),
    }


# --- commands ---------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command's help."""
    import typer
    from typer.core import TyperGroup

    root: Any = typer.main.get_command(app)
    lines = ["# Commands", "", _MADE, "", "Every command also takes `--help` (`-h`).", ""]
    for section, table in COMMANDS.items():
        lines += [f"## {section}", ""]
        for name in table:
            command = root.get_command(None, name)
            lines += _command(command, f"sealcast {name}", 3)
            if isinstance(command, TyperGroup):
                for below, sub in command.commands.items():
                    if not sub.hidden:
                        lines += _command(sub, f"sealcast {name} {below}", 4)
    return "\n".join(lines)


def _command(command: Any, path: str, level: int) -> list[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    formatter = context.make_formatter()
    formatter.width = _WIDTH
    command.format_help(context, formatter)
    return [f"{'#' * level} `{path}`", "", "```text", formatter.getvalue().rstrip().replace("```", "'''"), "```", ""]


# --- the Python interface ---------------------------------------------------------------------------


class Defined(NamedTuple):
    """A class or a function, and the module that it stands in."""

    node: ast.ClassDef | ast.FunctionDef
    at: Path


def python_page() -> str:
    """Every public name, with what it takes and what its docstring says."""
    import sealcast

    lines = ["# The Python interface", "", _MADE, "", "Everything below is imported from `sealcast`.", ""]
    for name in sealcast.__all__:
        lines += _documented(_found(SOURCE / Path(*sealcast._NAMES[name].split(".")), name), name)
    return "\n".join(lines)


def _found(at: Path, name: str) -> Defined:
    """The definition of a name of a module; what the module imports is looked for where it comes from."""
    module, dot, inside = name.partition(".")
    tree = ast.parse((at / "__init__.py" if at.is_dir() else at.with_suffix(".py")).read_text())
    for node in tree.body:
        if dot and isinstance(node, ast.ImportFrom) and node.module and any(a.name == module for a in node.names):
            return _found(ROOT / "src" / Path(*node.module.split("."), module), inside)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return Defined(node, at)
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _found(ROOT / "src" / Path(*node.module.split(".")), alias.name)
    raise LookupError(f"{at} has no {name}")


def _methods(defined: Defined) -> dict[str, ast.FunctionDef]:
    """Public methods by name, inherited ones last, and how one is made."""
    found: dict[str, ast.FunctionDef] = {}
    assert isinstance(defined.node, ast.ClassDef)
    for method in defined.node.body:
        if isinstance(method, ast.FunctionDef) and (method.name == "__init__" or not method.name.startswith("_")):
            found.setdefault(method.name, method)
        elif isinstance(method, ast.Assign) and isinstance(method.value, ast.Attribute):
            # A function of another module that serves as a method.
            given = _found(defined.at, ast.unparse(method.value)).node
            if isinstance(given, ast.FunctionDef) and not (name := ast.unparse(method.targets[0])).startswith("_"):
                found.setdefault(name, given)
    for base in defined.node.bases:
        try:
            above = _found(defined.at, ast.unparse(base).partition("[")[0])
        except (LookupError, FileNotFoundError):
            continue  # Python's own
        if isinstance(above.node, ast.ClassDef):
            for name, method in _methods(above).items():
                found.setdefault(name, method)
    return found


def _documented(defined: Defined, name: str) -> list[str]:
    lines = [f"## `{name}`", ""]
    if isinstance(defined.node, ast.FunctionDef):
        return [*lines, *_call(name, defined.node)]
    lines += _docstring(defined.node)
    fields = [n for n in defined.node.body if isinstance(n, ast.AnnAssign)]
    shown = [ast.unparse(field) for field in fields if not ast.unparse(field.target).startswith("_")]
    if shown:
        lines += ["```text", *shown, "```", ""]
    for called, method in _methods(defined).items():
        if called == "__init__":
            lines += _call(name, method, bound=True)
        elif ast.get_docstring(method):
            lines += [f"### `{name}.{called}`", "", *_call(f"{name}.{called}", method, bound=True)]
    return lines


def _call(shown: str, node: ast.FunctionDef, *, bound: bool = False) -> list[str]:
    if any(ast.unparse(d) == "property" for d in node.decorator_list):
        text = f"{shown}: {ast.unparse(node.returns) if node.returns else 'object'}"
    else:
        arguments = ast.unparse(node.args)
        if bound and node.args.args and not any(ast.unparse(d) == "staticmethod" for d in node.decorator_list):
            arguments = arguments.removeprefix(ast.unparse(node.args.args[0])).removeprefix(", ")
        text = f"{shown}({arguments})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")
    wrapped = textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_long_words=False)
    return ["```text", *wrapped, "```", "", *_docstring(node)]


def _docstring(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    """A docstring as Markdown: what it indents is a picture or a program."""
    lines: list[str] = []
    for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
        drawn = all(line.startswith("    ") for line in paragraph.splitlines())
        lines += ["```text", textwrap.dedent(paragraph), "```", ""] if drawn and paragraph else [paragraph, ""]
    return lines


# --- errors -----------------------------------------------------------------------------------------


class Refusal(NamedTuple):
    """One place in the source that refuses something and says what to do."""

    error: str
    room: str
    message: str
    hint: str


def errors_page() -> str:
    """The tree of errors, and what to do about each message that says it."""
    tree = (errors.__doc__ or "").partition("\n\n")[2].partition("\n\nAn error has")[0]
    lines = ["# Errors, and what to do about them", "", _MADE, "", "```text", textwrap.dedent(tree), "```", ""]
    lines += [
        "A command exits with 1 and prints the message and the remedy on stderr. With `--json` it prints a document",
        "with `error` (the word below), `message` and `hint` on stdout. Words in braces stand for what it was about.",
        "",
    ]
    by_error: defaultdict[str, list[Refusal]] = defaultdict(list)
    for refusal in refusals():
        by_error[refusal.error].append(refusal)
    for name, kind in kinds().items():
        lines += [f"## `{name}`", "", f"`{kind.code}`: {(kind.__doc__ or '').strip()}", ""]
        found = sorted(set(by_error[name]), key=lambda r: (r.room, r.message))
        if found:
            lines += ["| in | it says | what to do |", "|---|---|---|"]
            lines += [f"| {r.room} | {_cell(r.message)} | {_cell(r.hint)} |" for r in found] + [""]
    return "\n".join(lines)


def kinds() -> dict[str, type[errors.SealcastError]]:
    """Every error of the tree, by name, in the order of the module."""
    found = {n: k for n, k in vars(errors).items() if isinstance(k, type) and issubclass(k, errors.SealcastError)}
    return found


def refusals() -> Iterator[Refusal]:
    """Every refusal in the source that has a remedy, with the words that stand there."""
    names = set(kinds())
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in names:
                continue
            hint = next((k.value for k in node.keywords if k.arg == "hint"), None)
            texts = [text for text in map(_text, node.args) if text is not None]
            remedy = None if hint is None else _text(hint)
            if texts and remedy:
                yield Refusal(node.func.id, path.relative_to(SOURCE).parts[0].removesuffix(".py"), texts[-1], remedy)


def _text(node: ast.expr) -> str | None:
    """A string as it stands in the source, with what is put in named in braces; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else _name(v) for v in node.values)  # type: ignore[misc]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = _text(node.left), _text(node.right)
        return None if None in sides else "".join(sides)  # type: ignore[arg-type]
    return None


def _name(value: ast.expr) -> str:
    """What a place in a message stands for: the last word of the expression that fills it."""
    inner = value.value if isinstance(value, ast.FormattedValue) else value
    while isinstance(inner, ast.Call):
        inner = inner.func if isinstance(inner.func, ast.Attribute) or not inner.args else inner.args[0]
    if isinstance(inner, ast.Attribute):
        return f"{{{inner.attr.strip('_').lower()}}}"
    return f"{{{inner.id.strip('_').lower()}}}" if isinstance(inner, ast.Name) else "{...}"


def _cell(text: str) -> str:
    """A cell of a table: on one line, and nothing in it is Markdown."""
    one_line = " ".join(text.split())
    for sign in "\\|*_<>[]`{}$":
        one_line = one_line.replace(sign, f"\\{sign}")
    return one_line
