"""Whoever waits for a file hears of a change when it is made, and looks now and then where nobody tells."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.log import frontier, notices
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.notices import Notices

#: More than any machine needs to wake a thread, and much less than a wait that nobody ends.
PATIENCE_SECONDS = 60.0
ENDLESS_SECONDS = 600.0


def ended(wait: Callable[[], None], meanwhile: Callable[[], object]) -> bool:
    """Whether a wait that began before something happened is over after it."""
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    meanwhile()
    thread.join(PATIENCE_SECONDS)
    return not thread.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of changes on Linux")
def test_an_append_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "LOOK_SECONDS", ENDLESS_SECONDS)
    with EmbeddedLog(tmp_path / "log") as log:
        found = Notices(tmp_path / "log" / frontier.NAME)
        found.wait(ENDLESS_SECONDS)  # the first returns at once: what changed before it, nobody tells
        assert ended(lambda: found.wait(ENDLESS_SECONDS), lambda: log.append([b"one"]))
        log.append([b"two"])
        found.wait(ENDLESS_SECONDS)  # what changed between two waits is told to the second
        assert log.end() == 2


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of changes on Linux")
def test_what_nobody_tells_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quiet").write_bytes(b"")
    found = Notices(tmp_path / "quiet")
    found.wait(ENDLESS_SECONDS)
    assert ended(lambda: found.wait(ENDLESS_SECONDS), lambda: None), "it waits so long and no longer"


def test_a_file_that_is_not_there_yet_is_looked_for(tmp_path: Path) -> None:
    found = Notices(tmp_path / "none")
    for _ in range(3):
        found.wait(ENDLESS_SECONDS)
    (tmp_path / "none").write_bytes(b"now")
    found.wait(ENDLESS_SECONDS)


def test_a_system_that_tells_nothing_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_system", lambda: None)
    found = Notices(tmp_path)
    for _ in range(3):
        found.wait(ENDLESS_SECONDS)


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are listed in /proc")
def test_nothing_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    before = len(os.listdir("/proc/self/fd"))
    found = [Notices(tmp_path / "file") for _ in range(5)]
    for each in found:
        each.wait(0.0)
    assert len(os.listdir("/proc/self/fd")) == before + 5
    del found, each
    assert len(os.listdir("/proc/self/fd")) == before
