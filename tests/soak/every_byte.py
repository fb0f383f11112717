"""Every byte of a small realm, flipped one after the other: what is needed to try them, all at once or in parts.

    python -m tests.soak.every_byte --at DIR --minutes 15     goes on where the last call left off
    python -m tests.soak.every_byte --at DIR --sum            says what was found so far, and does nothing else
    python -m tests.soak.every_byte --at DIR --checkpoint     the bytes of Spark's checkpoint instead, with Spark

Bytes are tried in blocks first, and one by one in each block that somebody noticed. The realm and the answers stay in
DIR, so that a long trial can be had in parts. In Spark's checkpoint, blocks are enough: Hadoop keeps a CRC-32 for each
file, which finds every single wrong byte. Only these checksums, and what we read of a checkpoint ourselves, are tried
byte by byte. Exit code 0 says that every byte was tried, and that all is well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sealcast.pipeline.settings import THREADLESS
from tests.pipeline.drivers import ROOT

#: Bytes that are flipped together at first. If nobody notices all of them, nobody notices one of them: most of a
#: database's page, and of a frontier's slot, is padding.
BLOCK: Final = 32
#: Blocks that one process tries before its answers are written down. With Spark, one takes ten seconds.
SHARE: Final = 60
CHECKPOINT_SHARE: Final = 20
#: Locks are empty or say who held them last. The registry's journals are gone when nobody has it open.
NOT_READ: Final = (".lock", "-wal", "-shm")
ACCEPTED: Final = {"Corrupt", "Found", "Misuse", "NotFound", "CannotOpen", "KeyMissing", "Unavailable"}

#: Who makes a realm and tries flips in it.
SMALL: Final = "tests.soak.small_realm"
CHECKPOINTED: Final = "tests.soak.checkpointed"

Flip = tuple[str, int, int, int]
Answer = tuple[Flip, dict[str, Any]]


def made(directory: Path, protection: str, world: str = SMALL) -> Path:
    root = directory / protection
    _run("make", root, protection, world=world)
    return root


def _run(what: str, root: Path, protection: str, given: str = "", world: str = SMALL) -> str:
    done = subprocess.run(
        [sys.executable, "-m", world, what, str(root), protection],
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


def tried(root: Path, protection: str, flips: Iterable[Flip], world: str = SMALL) -> Iterator[Answer]:
    given = "".join(f"{name} {first} {count} {mask}\n" for name, first, count, mask in flips)
    for line in _run("flip", root, protection, given, world).splitlines() if given else ():
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


@dataclass
class Judged:
    """How many bytes were named by somebody, how many were harmless, and what must not be."""

    named: int = 0
    harmless: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, other: Judged) -> None:
        self.named += other.named
        self.harmless += other.harmless
        self.findings += other.findings


def judged(answers: Iterable[Answer]) -> Judged:
    found = Judged()
    for flip, said in answers:
        trouble = finding(flip[0], said)
        if trouble is not None:
            found.findings.append(f"{flip}: {trouble}")
        elif harmless(said):
            found.harmless += flip[2]
        else:
            found.named += flip[2]
    return found


def blocks_of(root: Path) -> list[Flip]:
    sizes = {str(path.relative_to(root)): path.stat().st_size for path in files(root)}
    return [(name, at, min(BLOCK, size - at), 0x01) for name, size in sizes.items() for at in range(0, size, BLOCK)]


def blocks_of_checkpoint(root: Path) -> list[Flip]:
    found = list[Flip]()
    for path in files(root):
        if "checkpoint" in path.parts:
            name, size = str(path.relative_to(root)), path.stat().st_size
            step = 1 if name.endswith((".crc", "/metadata")) else BLOCK
            found += [(name, at, min(step, size - at), 0x01) for at in range(0, size, step)]
    return found


def every_byte(root: Path, protection: str, blocks: list[Flip]) -> Judged:
    """Blocks that somebody notices are tried byte by byte, the others count as harmless."""
    singles, found = list[Flip](), Judged()
    for (name, first, count, mask), said in tried(root, protection, blocks):
        if harmless(said):
            found.harmless += count
        else:
            singles += [(name, at, 1, mask) for at in range(first, first + count)]
    found.add(judged(tried(root, protection, singles)))
    return found


# --- in parts ---------------------------------------------------------------------------------------------


class Trial:
    """A realm in a directory, and what was found in it so far, a line for each share of its blocks."""

    def __init__(self, directory: Path, protection: str = "endpoint", *, checkpoint: bool = False) -> None:
        self._protection, self._notes, self._checkpoint = protection, directory / "answers.jsonl", checkpoint
        self.root = directory / protection
        if not self.root.exists():
            made(directory, protection, CHECKPOINTED if checkpoint else SMALL)
        # Before anything is tried: what is made beside the realm meanwhile is no part of it.
        listed = directory / "blocks.json"
        if not listed.exists():
            listed.write_text(json.dumps((blocks_of_checkpoint if checkpoint else blocks_of)(self.root)))
        blocks = [(str(n), int(f), int(c), int(m)) for n, f, c, m in json.loads(listed.read_text())]
        share = CHECKPOINT_SHARE if checkpoint else SHARE
        self._shares = [blocks[at : at + share] for at in range(0, len(blocks), share)]

    @property
    def bytes(self) -> int:
        return sum(count for share in self._shares for _, _, count, _ in share)

    def go_on(self, seconds: float = float("inf")) -> None:
        """Tries shares that were not tried yet, two at a time; none is begun after so long."""
        deadline, done = time.monotonic() + seconds, self._done()
        waiting = [number for number in range(len(self._shares)) if number not in done]

        def one(number: int) -> None:
            if time.monotonic() < deadline:
                found = self._try(self._shares[number])
                line = json.dumps([number, found.named, found.harmless, found.findings]) + "\n"
                with self._notes.open("a") as notes:
                    notes.write(line)

        with ThreadPoolExecutor(1 if self._checkpoint else 2) as pool:
            list(pool.map(one, waiting))

    def _try(self, share: list[Flip]) -> Judged:
        if self._checkpoint:
            return judged(tried(self.root, self._protection, share, CHECKPOINTED))
        return every_byte(self.root, self._protection, share)

    def _done(self) -> dict[int, Judged]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return {number: Judged(*found) for number, *found in map(json.loads, lines)}

    def found(self) -> Judged:
        total = Judged()
        for share in self._done().values():
            total.add(share)
        return total


def main() -> None:
    told = argparse.ArgumentParser(prog="python -m tests.soak.every_byte", description="Flip every byte of a realm.")
    told.add_argument("--at", type=Path, required=True, help="where the realm and the answers are, or are to be")
    told.add_argument("--protection", default="endpoint")
    told.add_argument("--minutes", type=float, default=600.0, help="nothing is begun after so long")
    told.add_argument("--checkpoint", action="store_true", help="the bytes of Spark's checkpoint, with Spark")
    told.add_argument("--sum", action="store_true", help="say what was found so far, and do nothing else")
    given = told.parse_args()
    given.at.mkdir(exist_ok=True)
    trial = Trial(given.at, given.protection, checkpoint=given.checkpoint)
    if not given.sum:
        trial.go_on(given.minutes * 60)
    found = trial.found()
    print(json.dumps({"bytes": trial.bytes, **vars(found)}, indent=1))
    sys.exit(0 if found.named + found.harmless == trial.bytes and not found.findings else 1)


if __name__ == "__main__":
    main()
