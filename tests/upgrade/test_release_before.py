"""A realm that the release before made opens here, goes on, and has lost nothing.

`realms-58a888c0.tar.xz` holds a realm of each protection as that commit's `tests.soak.small_realm` made it, and the
unlock key of their key files. The clock is set back to when they were made, so that their tokens count.
"""

from __future__ import annotations

import tarfile
import time
from pathlib import Path

import pytest

from sealcast.model.protection import PROTECTIONS
from tests.cli.shell import sealcast
from tests.soak import small_realm

REALMS = Path(__file__).with_name("realms-58a888c0.tar.xz")
#: Just after the realms were made.
MADE_NS = 1_794_928_800_000_000_000


@pytest.fixture
def realms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(REALMS) as packed:
        packed.extractall(tmp_path, filter="data")
    (tmp_path / "unlock.key").chmod(0o600)
    monkeypatch.setenv("SEALCAST_UNLOCK_KEY", str(tmp_path / "unlock.key"))
    shift, clock = MADE_NS - time.time_ns(), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + shift)
    return tmp_path


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_it_opens_and_goes_on(realms: Path, protection: str) -> None:
    found = small_realm.outcome(realms / protection)
    assert set(found.values()) == {"same"} and found.keys() == small_realm.ACTS.keys(), found


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_upgrade_reads_all_of_it(realms: Path, protection: str) -> None:
    at = ("--json", "--realm", realms / protection)
    planned, done = sealcast("upgrade", "--dry-run", *at), sealcast("upgrade", *at)
    assert (planned.code, done.code) == (0, 0), done.err
    # Five events in two batches; a tree has pieces at every broker on their way, peers have those of each reader.
    assert done.document["read"] == planned.document["read"] and done.document["read"]["pieces"] >= 2
    assert done.document["read"]["frames"] == 2 and done.document["registry"]["was_signed"]
    assert (done.document["topics"], done.document["entities"] >= 7) == (1, True)


def test_upgrade_names_what_is_lost(realms: Path) -> None:
    piece = next((realms / "endpoint" / "topics" / "quotes" / "pieces").glob("*.piece"))
    piece.unlink()
    lost = sealcast("upgrade", "--realm", realms / "endpoint")
    assert lost.code == 1 and piece.name in lost.err
