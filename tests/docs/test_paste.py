"""The harness finds what it is there for: a block that fails, says something else, or does not end."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.docs import paste as harness
from tests.docs.paste import as_said, own_loopback, paste


def page(directory: Path, text: str, name: str = "page.md") -> Path:
    path = directory / name
    path.write_text(re.sub("^~~~", "```", text, flags=re.MULTILINE))
    return path


@pytest.mark.parametrize(
    "text",
    [
        "~~~sh\nfalse\n~~~\n",
        "~~~sh\nfalse | cat\n~~~\n",
        "~~~sh\nno-such-command\n~~~\n",
        "~~~python\nassert False\n~~~\n",
        "~~~python\nthere = 1\n~~~\n~~~sh\ntrue\n~~~\n~~~python\nprint(there)\n~~~\n",
        "~~~console\n$ false\n~~~\n",
    ],
)
def test_a_block_that_fails_is_found(tmp_path: Path, text: str) -> None:
    assert paste(page(tmp_path, text)).code != 0


def test_blocks_share_one_shell_and_neighbours_one_program(tmp_path: Path) -> None:
    text = "~~~sh\nmkdir a && cd a\nx=1\n~~~\n~~~console\n$ basename $PWD; echo $x\na\n1\n~~~\n"
    text += "~~~python\nthere = 2\n~~~\nwords\n~~~python\nprint(there)\n~~~\n~~~text\nfalse\n~~~\n"
    pasted = paste(page(tmp_path, text))
    assert (pasted.code, pasted.out) == (0, "\na\n1\n\n2\n"), pasted.err
    ((command, shown, printed),) = pasted.said
    assert command == "basename $PWD; echo $x" and shown == printed == "a\n1\n"


def test_words_are_compared_and_numbers_and_places_are_not() -> None:
    assert as_said("3 of 4 in /x/market/a\n") == as_said("10 of 9 in /tmp/y/market/a\n")
    assert as_said("3 admitted\n") != as_said("3 refused\n")


def test_a_block_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "SECONDS", 1)
    pasted = paste(page(tmp_path, "~~~sh\nsleep 60\n~~~\n"))
    assert pasted.code != 0 and "did not end within 1 s" in pasted.err


def test_a_document_says_where_it_starts(tmp_path: Path) -> None:
    first = page(
        tmp_path, "In a clone of this repository:\n~~~sh\nls Makefile\n! command -v sealcast\n~~~\n", "first.md"
    )
    assert paste(first).code == 0, paste(first).err
    second = page(tmp_path, "Continued from [the first](first.md).\n~~~sh\necho second\n~~~\n", "second.md")
    assert paste(second).out == "Makefile\nsecond\n"
    assert paste(page(tmp_path, "~~~sh\nls\ncommand -v sealcast\n~~~\n")).out == f"{harness.BIN / 'sealcast'}\n"


@pytest.mark.skipif(not own_loopback(), reason="this machine lets nobody make a network of its own (unshare --net)")
def test_a_page_that_listens_has_ports_of_its_own(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listen = f"python -c \"import socket; socket.create_server(('127.0.0.1', {port}))\""
        assert paste(page(tmp_path, f"~~~sh\n{listen}\n~~~\n", "shared.md")).code != 0
        pasted = paste(page(tmp_path, f"~~~sh\n{listen}  # --listen 127.0.0.1:{port}\n~~~\n", "own.md"))
        assert pasted.code == 0, pasted.err
