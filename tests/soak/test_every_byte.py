"""A byte flipped anywhere in a small realm is named by whoever reads it, or does not matter.

Named: an error of ours, of a class that the error tree has for it, or a problem that `sealcast check` finds. Not
mattering: everybody reads what they did before, goes on where they were, and gets what is published then. Anything else
is a finding: another exception, an event that is missing, doubled or wrong, a process that dies.

`make test` tries some of them under every protection, `make soak` every byte under one of them.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from sealcast.model.protection import PROTECTIONS
from tests.soak.every_byte import Trial, files, judged, made, tried


@pytest.mark.timeout(900)
@pytest.mark.parametrize("sample", [12, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_some_flipped_bytes_are_named_or_harmless(tmp_path: Path, protection: str, sample: int) -> None:
    """Of each file about as many as of every other, whatever their sizes."""
    root, dice = made(tmp_path, protection), Random(f"flips of {protection}")
    paths = files(root)
    chosen = [path for _ in range(sample // len(paths) + 1) for path in dice.sample(paths, len(paths))][:sample]
    flips = [
        (str(path.relative_to(root)), dice.randrange(path.stat().st_size), 1, dice.randrange(1, 256)) for path in chosen
    ]
    found = judged(tried(root, protection, flips))
    assert not found.findings, "\n".join(found.findings[:20])
    assert found.named > sample // 6, "hardly anything was noticed: were the right files flipped?"


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_every_byte_of_a_small_realm_is_named_or_harmless(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.go_on()
    found = trial.found()
    print(f"{trial.bytes} bytes: {found.named} named, {found.harmless} harmless")
    assert not found.findings, "\n".join(found.findings[:20])
    assert found.named + found.harmless == trial.bytes and found.named > 10_000


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_every_byte_of_sparks_checkpoint_is_named_or_harmless(tmp_path: Path) -> None:
    """Where it is named, the checkpoint is removed as the hint says, and everybody gets what is due."""
    trial = Trial(tmp_path, checkpoint=True)
    trial.go_on()
    found = trial.found()
    print(f"{trial.bytes} bytes: {found.named} named, {found.harmless} harmless")
    assert not found.findings, "\n".join(found.findings[:20])
    assert found.named + found.harmless == trial.bytes and found.named > 1_000
