"""Pastes the fenced blocks of a document into a fresh shell, from where a reader of that document stands.

    ```sh         commands, pasted as they are; each must succeed
    ```console    `$ command`, and what it prints: the words are compared, numbers and directories may differ
    ```python     Python; blocks that follow each other without another kind between are one program

All blocks of a document run one after another in one shell. The shell starts in an empty directory with `sealcast` on
its path, unless the document says otherwise, in words that its readers see too:

    In a clone of this repository ...       starts in a clone, with nothing on the path but what the system has
    Continued from [another](FILE.md) ...   the blocks of that document come first

Whatever is an illustration and not to be typed has another tag.
"""

from __future__ import annotations

import atexit
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BIN: Final = Path(sys.executable).parent
#: Many times what a page takes on a quiet machine: on a busy one it may take many times as long.
SECONDS: Final = 540
RUN: Final = ("sh", "console", "python")
#: Tags of blocks that are read, not typed. `cases`, `schema` and `example` are run by the tests of their own rooms.
SHOWN: Final = ("text", "cases", "schema", "example")

_FENCE: Final = re.compile(r"^( *)```(\S*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SAID: Final = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
#: A start of a publisher, which is random.
_BOOT: Final = re.compile(r'(?<="boot": ")[0-9a-f]{32}(?=")')
_IN_A_CLONE: Final = re.compile(r"^In a clone of this repository\b", re.MULTILINE)
_CONTINUED: Final = re.compile(r"^Continued from \[[^]]*\]\(([^)#]+)\)", re.MULTILINE)
#: A page that listens says on which port. Several suites on one machine read the same pages at the same time.
_LISTENS: Final = re.compile(r"--listen \S+:[1-9]")
#: What a fresh shell inherits. Everything else, and above all what the tests set for themselves, stays outside.
#: The servers that a document needs come from whoever pastes it.
_SERVERS: Final = ("POSTGRES_URL", "PGPASSWORD", "KAFKA_ADDRESS")
_INHERITED: Final = ("LANG", "LC_ALL", "TERM", "TMPDIR", "JAVA_HOME", "USER", "LOGNAME", "SHELL", *_SERVERS)
#: And how this machine reaches package registries: certificates, proxies, indexes.
_REGISTRIES: Final = re.compile(r"(UV|PIP|SSL)_\w+|\w+_CA_BUNDLE|(https?|no|all)_proxy", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """One fenced block: its tag and its text."""

    tag: str
    text: str


@dataclass(frozen=True)
class Pasted:
    """What came out of a document's blocks."""

    place: Path
    code: int
    out: str
    err: str
    #: Each command of a console block, with what the document shows and what was printed.
    said: tuple[tuple[str, str, str], ...]


def blocks(document: Path) -> list[Block]:
    """All fenced blocks of a document, whatever their tag."""
    return [Block(tag, text) for _, tag, text in _FENCE.findall(document.read_text())]


def commands_of(block: Block) -> list[str]:
    """What is typed of a block for the shell; the text of a console block without its answers."""
    texts = [command for command, _ in _SAID.findall(block.text)] if block.tag == "console" else [block.text]
    return [text for text in texts if text]


def documents() -> list[Path]:
    """Every document that a reader may paste from."""
    rooms = (ROOT / "docs", ROOT / "examples", ROOT / "src")
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(page for room in rooms for page in sorted(room.rglob("*.md"))),
    ]


def to_run(document: Path) -> list[Block]:
    """The blocks that are typed, those of the document that it continues first."""
    before = _CONTINUED.search(document.read_text())
    earlier = to_run((document.parent / before[1]).resolve()) if before else []
    return earlier + [block for block in blocks(document) if block.tag in RUN]


def in_a_clone(document: Path) -> bool:
    text = document.read_text()
    before = _CONTINUED.search(text)
    return in_a_clone((document.parent / before[1]).resolve()) if before else _IN_A_CLONE.search(text) is not None


@cache
def paste(document: Path, demo: str = "") -> Pasted:
    """Runs the document's blocks. Once for each process: several tests may look at what came out. `demo` are options
    for `make demo`, which are not in the document."""
    home = Path(mkdtemp(prefix="sealcast-docs-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)  # not earlier: tests look at what is there afterwards
    place = home / "here"
    place.mkdir()
    path = os.environ["PATH"].split(os.pathsep)
    if in_a_clone(document):
        _stand_in_for_a_clone(place)
        path = [entry for entry in path if Path(entry) != BIN]
    else:
        path = [str(BIN), *path]
    mark = secrets.token_hex(8)  # separates what the blocks print; no document can contain it
    script = home / "pasted.sh"
    script.write_text("\n".join(_script(to_run(document), mark)))
    # Packages that were fetched before are not fetched again: that would take longer than everything else.
    caches = {"UV_CACHE_DIR": str(Path.home() / ".cache" / "uv"), "PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip")}
    inherited = {n: value for n, value in os.environ.items() if n in _INHERITED or _REGISTRIES.fullmatch(n)}
    shell = subprocess.Popen(
        [*(own_loopback() if _listens(document) else ()), "bash", "--noprofile", "--norc", "-euo", "pipefail", script],
        cwd=place,
        env={**caches, **inherited, "HOME": str(home), "DEMO": demo, "PATH": os.pathsep.join(path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = shell.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        out, err = shell.communicate()
        err += f"\nthe blocks did not end within {SECONDS} s"
    return Pasted(place, shell.returncode, out.replace(mark, ""), err, tuple(_answers(to_run(document), out, mark)))


def _listens(document: Path) -> bool:
    return any(_LISTENS.search(block.text) for block in to_run(document))


@cache
def own_loopback() -> tuple[str, ...]:
    """What gives a command a network with nothing but a loopback; nothing where this machine does not let us. Then the
    page's ports are the machine's own."""
    for unshare in (("unshare", "--net"), ("unshare", "--user", "--map-root-user", "--net")):
        command = (*unshare, "sh", "-ec", 'ip link set lo up; exec "$@"', "sh")
        if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    return ()


def _stand_in_for_a_clone(place: Path) -> None:
    """A clone as `git clone` and `make setup` leave it, and what a reader makes in it does not land in ours."""
    for entry in ROOT.iterdir():
        (place / entry.name).symlink_to(entry)


def _script(typed: list[Block], mark: str) -> Iterator[str]:
    for tag, same in groupby(typed, key=lambda block: block.tag):
        texts = [block.text for block in same]
        if tag == "sh":
            yield from texts
        elif tag == "python":
            yield f"python - <<'{mark}'\n{''.join(texts)}{mark}"
        else:
            for command, _ in (found for text in texts for found in _SAID.findall(text)):
                yield f"echo {mark}\n{command}\necho {mark}"


def _answers(typed: list[Block], out: str, mark: str) -> Iterator[tuple[str, str, str]]:
    commands = [found for block in typed if block.tag == "console" for found in _SAID.findall(block.text)]
    # Before each command and after it there is a mark: every second piece is what one printed.
    printed = out.split(f"{mark}\n")[1::2]
    for (command, shown), answer in zip(commands, printed, strict=False):
        yield command, shown, answer


def as_said(output: str) -> list[str]:
    """What a command says, whenever and wherever it was said."""
    named = _BOOT.sub("0", output)
    return [re.sub(r"\d+", "0", re.sub(r"\S*/market/|─+", "", line)).rstrip() for line in named.splitlines()]
