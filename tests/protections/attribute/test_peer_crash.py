"""Processes of peers that die before any step on the disk: nothing is lost, nothing comes twice, the logs agree.

Two judges: what subscribers open is what their filters ask for, each once; and `check`, from the peers' signed logs.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from sealcast.protections.attribute.audit import PeersAudit
from tests.protections.attribute.test_peer_processes import TOPIC, WANTED, Field, some


@contextmanager
def lives(realm: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.protections.attribute.lives", str(realm)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        assert process.wait(60) == 0


def live(process: subprocess.Popen[str], death_at: int) -> int:
    """Its exit code: 0 when it was done before death came."""
    assert process.stdin is not None and process.stdout is not None
    print(death_at, file=process.stdin, flush=True)
    return int(process.stdout.readline())


def campaign(directory: Path, steps: Iterable[int], least: int) -> None:
    """A life that dies at the first of these steps, one that dies at the next, until one lives to its end."""
    field, deaths = Field(directory), 0
    try:
        with lives(field.realm.paths.root) as process:
            for step in steps:
                field.publish("pub-1" if deaths % 2 else "pub-2", *some(deaths)[: 1 + deaths % 3])
                ended = live(process, step)
                if ended == 0:
                    break
                assert ended == -signal.SIGKILL, f"a life that was to end at step {step} failed"
                deaths += 1
            assert deaths >= least
            assert live(process, 0) == 0
        for name in WANTED:
            assert field.received(name) == field.expected(name), name
        report = PeersAudit(field.realm, TOPIC).run(lambda done: None)
        assert report.ok and not report.also.get("peers_on_the_way"), report.problems
    finally:
        field.close()


@pytest.mark.timeout(300)
def test_dying_before_some_steps_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """The first, the third, the ninth, and so on: before, between and after all that a life does."""
    campaign(tmp_path, (3**power for power in count()), least=3)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_dying_before_every_step_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    campaign(tmp_path, count(1), least=60)
