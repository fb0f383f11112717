"""A byte flipped anywhere in a small realm is named by whoever reads it, or does not matter.

Named: an error of ours, of a class that the error tree has for it, or a problem that `sealcast check` finds. Not
mattering: everybody reads what they did before, goes on where they were, and gets what is published then. Anything else
is a finding: another exception, an event that is missing, doubled or wrong, a process that dies.

`make test` tries some of them under every protection, `make soak` every byte under one of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from sealcast.model.protection import PROTECTIONS
from sealcast.pipeline.session import THREADLESS
from tests.pipeline.drivers import ROOT

#: Bytes that are flipped together at first. If nobody notices all of them, nobody notices one of them: most of a
#: database's page, and of a frontier's slot, is padding.
BLOCK: Final = 32
#: Of each protection, in `make test`.
SAMPLE: Final = 40
#: Locks are empty or say who held them last. The registry's journals are gone when nobody has it open.
NOT_READ: Final = (".lock", "-wal", "-shm")
ACCEPTED: Final = {"Corrupt", "Found", "Misuse", "NotFound", "CannotOpen", "KeyMissing", "Unavailable"}

Flip = tuple[str, int, int, int]
Answer = tuple[Flip, dict[str, Any]]


def made(directory: Path, protection: str) -> Path:
    root = directory / protection
    _run("make", root, protection)
    return root


def _run(what: str, root: Path, protection: str, given: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak.small_realm", what, str(root), protection],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **THREADLESS},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def files(root: Path) -> list[Path]:
    return sorted(p for p in root.rglob("*") if p.is_file() and p.stat().st_size and not p.name.endswith(NOT_READ))


def tried(root: Path, protection: str, flips: Iterable[Flip]) -> Iterator[Answer]:
    given = "".join(f"{name} {first} {count} {mask}\n" for name, first, count, mask in flips)
    for line in _run("flip", root, protection, given).splitlines() if given else ():
        name, first, count, mask, said = json.loads(line)
        yield (name, first, count, mask), said


def harmless(said: dict[str, Any]) -> bool:
    return set(map(str, said.values())) <= {"same", "late"}


def finding(name: str, said: dict[str, Any]) -> str | None:
    """What must not be, if anything is."""
    for act, outcome in said.items():
        # A log's frontier has two places in turn. If the newer one is damaged, readers go by the older one, as after a
        # write that was cut off, until the next writer looks at the log itself.
        if outcome == "late" and act == "read" and name.endswith("/frontier"):
            continue
        if outcome != "same" and (isinstance(outcome, str) or outcome[0] not in ACCEPTED):
            return f"{act}: {outcome}"
    return None


def _judged(answers: Iterable[Answer]) -> tuple[int, int]:
    """How many were named and how many were harmless; the others fail the test."""
    found, named, unnoticed = dict[Flip, str](), 0, 0
    for flip, said in answers:
        trouble = finding(flip[0], said)
        if trouble is not None:
            found[flip] = trouble
        elif harmless(said):
            unnoticed += 1
        else:
            named += 1
    told = "\n".join(f"{flip}: {text}" for flip, text in list(found.items())[:20])
    assert not found, f"{len(found)} flips are neither named nor harmless:\n{told}"
    return named, unnoticed


@pytest.mark.timeout(900)
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_some_flipped_bytes_are_named_or_harmless(tmp_path: Path, protection: str) -> None:
    """Of each file about as many as of every other, whatever their sizes."""
    root, dice = made(tmp_path, protection), Random(f"flips of {protection}")
    paths = files(root)
    chosen = [path for _ in range(SAMPLE // len(paths) + 1) for path in dice.sample(paths, len(paths))][:SAMPLE]
    flips = [
        (str(path.relative_to(root)), dice.randrange(path.stat().st_size), 1, dice.randrange(1, 256)) for path in chosen
    ]
    named, _ = _judged(tried(root, protection, flips))
    assert named > SAMPLE // 6, "hardly anything was noticed: were the right files flipped?"


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_every_byte_of_a_small_realm_is_named_or_harmless(tmp_path: Path) -> None:
    root = made(tmp_path, "endpoint")
    paths = {str(path.relative_to(root)): path.stat().st_size for path in files(root)}
    blocks = [(name, at, min(BLOCK, size - at), 0x01) for name, size in paths.items() for at in range(0, size, BLOCK)]
    total = [0, 0]
    for named, unnoticed in _in_two(root, _shares(root, blocks)):
        total[0] += named
        total[1] += unnoticed
    print(f"{sum(paths.values())} bytes: {total[0]} named, {total[1]} harmless")
    assert sum(total) == sum(paths.values()) and total[0] > 10_000


def _shares(root: Path, blocks: list[Flip]) -> list[list[Flip]]:
    size = 200
    return [blocks[at : at + size] for at in range(0, len(blocks), size)]


def _in_two(root: Path, shares: list[list[Flip]]) -> Iterator[tuple[int, int]]:
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda share: _every_byte(root, share), shares)


def _every_byte(root: Path, blocks: list[Flip]) -> tuple[int, int]:
    """Blocks that somebody notices are tried byte by byte, the others count as harmless."""
    singles, unnoticed = list[Flip](), 0
    for (name, first, count, mask), said in tried(root, "endpoint", blocks):
        if harmless(said):
            unnoticed += count
        else:
            singles += [(name, at, 1, mask) for at in range(first, first + count)]
    named, more = _judged(tried(root, "endpoint", singles))
    return named, unnoticed + more
