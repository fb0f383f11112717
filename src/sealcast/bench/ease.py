"""Suite `ease`: what short commands cost, beside what they would cost if they did nothing but import two libraries.

    status-json   `sealcast status --json` of a realm with a topic, a subscription and a delivery
    topic-list    `sealcast topic list --json`
    pub-one       `sealcast pub` of one event, durable
    sub-one       `sealcast sub` of the one event that was delivered since

The reference is `python -c "import sqlalchemy, cryptography"`. Both sides are processes of their own, and what counts
is the CPU of these processes and their children, user and system.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from sealcast.bench.report import BenchRow
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.lab.pallickara.broker import LabBroker
from sealcast.model import Schema
from sealcast.trust.deployment import Realm

TOPIC: Final = "quotes"
SCHEMA: Final = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1000}]})
ROUNDS: Final = 9
REFERENCE: Final = "import sqlalchemy, cryptography"
COMMAND: Final = "from sealcast.cli.main import main; main()"
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "status-json": ("status", "--json"),
    "topic-list": ("topic", "list", "--json"),
    "pub-one": ("pub", TOPIC, "--as", "nyse", "price=7", "--json"),
    "sub-one": ("sub", TOPIC, "--as", "alice", "--json"),
}


def rows(*, quick: bool = False) -> Iterator[BenchRow]:
    rounds = 1 if quick else ROUNDS
    with scratch.realm(64 << 20) as realm:
        realm.create_topic(TOPIC, SCHEMA, access="members")
        realm.enrol_many(["nyse", "alice"])
        realm.subscribe(TOPIC, "alice", "price > 0")
        with LabBroker(realm, TOPIC) as broker:
            _spent(realm.paths.root, COMMAND, COMMANDS["pub-one"])
            broker.turn()
            for name, arguments in COMMANDS.items():
                yield _row(realm, broker, name, arguments, rounds)


def _row(realm: Realm, broker: LabBroker, name: str, arguments: Sequence[str], rounds: int) -> BenchRow:
    def ours() -> float:
        if name == "sub-one":
            _spent(realm.paths.root, COMMAND, COMMANDS["pub-one"])
            broker.turn()
        return _spent(realm.paths.root, COMMAND, arguments)

    def reference() -> float:
        return _spent(realm.paths.root, REFERENCE, ())

    took, least = _medians(ours, reference, rounds)
    return BenchRow(name, took * 1e3, least * 1e3, f'python -c "{REFERENCE}"', took / least, "CPU ms")


def _medians(ours: Callable[[], float], reference: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Rounds alternate: whatever slows the machine down slows down both. The first of each writes compiled files."""
    ours(), reference()
    spent = [(ours(), reference()) for _ in range(rounds)]
    a, b = (statistics.median(each) for each in zip(*spent, strict=True))
    return a, b


def _spent(realm: Path, code: str, arguments: Sequence[str]) -> float:
    """CPU seconds of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"SEALCAST_REALM": str(realm)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise Bug(f"`sealcast {' '.join(arguments)}` failed: {done.stderr.decode(errors='replace')[-500:]}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
