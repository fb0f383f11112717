"""Spark's classes, kept in an archive: Java's own judgement of one that does not fit, and drafts that nobody finished.

That starts are cheaper with it is measured, not tested: `make test` makes the archive first (Makefile).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sealcast.pipeline import class_archive, java
from sealcast.pipeline.class_archive import archive_for


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(class_archive, "_DIRECTORY", tmp_path / "var" / "cache")
    return tmp_path / "var" / "cache"


def test_nothing_is_written_unless_somebody_asks_for_it(directory: Path) -> None:
    archive = archive_for(java.find())
    assert archive.options == [] and not directory.exists()


def test_a_draft_becomes_the_archive_when_java_has_ended(directory: Path) -> None:
    first = archive_for(java.find(), keep=True)
    assert first.draft is not None and f"-XX:ArchiveClassesAtExit={first.draft}" in first.options
    first.finish()
    assert not first.path.exists(), "Java wrote none: it was killed, or cannot"
    first.draft.write_bytes(b"classes")
    first.finish()
    second = archive_for(java.find(), keep=True)
    assert second.draft is None and f"-XX:SharedArchiveFile={first.path}" in second.options


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(directory: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine = archive_for(java.find(), keep=True)
    assert mine.draft is not None
    left = mine.path.with_suffix(f".{ended.pid}.draft")
    for draft in (left, mine.draft):
        draft.write_bytes(b"half")
    archive_for(java.find(), keep=True)
    assert not left.exists() and mine.draft.exists()


def test_where_we_cannot_write_nothing_is_kept(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = java.find()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert archive_for(found, keep=True).options == []


def test_java_does_without_an_archive_that_is_none(directory: Path) -> None:
    archive = archive_for(java.find())
    directory.mkdir(parents=True)
    archive.path.write_bytes(os.urandom(4096))
    done = subprocess.run(
        [java.find().executable, *archive.options, "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and "warning" not in done.stdout + done.stderr, done.stdout + done.stderr
