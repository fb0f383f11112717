"""What the documents say to type is at least well-formed, for every page and in seconds: each command exists and takes
these options, and each Python block imports what is there. `make soak` pastes all of them into a shell."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from sealcast.cli.main import app
from tests.docs.pages import name
from tests.docs.paste import Block, commands_of, documents, to_run

TYPED = [page for page in documents() if to_run(page)]


def calls(block: Block) -> Iterator[list[str]]:
    """The arguments of each `sealcast` that is a command of a block, and not a word in another's arguments."""
    for line in (line for text in commands_of(block) for line in text.replace("\\\n", " ").splitlines()):
        if "sealcast " not in line:
            continue
        words = shlex.shlex(re.sub(r"\s[12]>", " >", line), posix=True, punctuation_chars=True)
        words.whitespace_split = True
        call, first = list[str](), True
        for word in words:
            if set(word) <= set("();<>|&"):
                yield from [call[1:]] if call else []
                call, first = [], True
            elif call or (first and word == "sealcast"):
                call.append(word)
            else:
                first = word in ("do", "then")
        yield from [call[1:]] if call else []


def parse(words: list[str]) -> str:
    """Reads a command line as `sealcast` does, and does not do what it says; the name of the command."""
    command = typer.main.get_command(app)
    context = command.make_context("sealcast", words)
    while isinstance(command, TyperGroup):
        found, below, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None and below is not None
        command, context = below, below.make_context(found, rest, parent=context)
    return context.command_path


def imported(block: Block) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("document", TYPED, ids=name)
def test_what_is_typed_is_well_formed(document: Path) -> None:
    for block in to_run(document):
        if block.tag == "python":
            for module, thing in imported(block):
                assert hasattr(import_module(module), thing), f"{document.name} imports {thing} from {module}"
        else:
            for words in calls(block):
                with suppress(typer.Exit):  # --help
                    assert parse(words).startswith("sealcast "), words


def test_the_calls_are_found() -> None:
    """Most lines of the pages are calls: a reader of shell that finds none would find every page well-formed."""
    found = [words for page in TYPED for block in to_run(page) if block.tag != "python" for words in calls(block)]
    assert len(found) > 250
    assert ["init", "market"] in found and ["run", "--once"] in found


@pytest.mark.parametrize(
    "line", ["sealcast runn", "sealcast run --onze", "a | sealcast sub --as alice", "sealcast init x y"]
)
def test_what_is_not_well_formed_is_found(line: str) -> None:
    (words,) = calls(Block("sh", f"{line}\n"))
    with pytest.raises(Exception, match=r"(?i)no such|missing|runn|unexpected"):
        parse(words)
