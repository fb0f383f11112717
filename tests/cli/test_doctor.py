"""sealcast doctor: fit where it is, and each thing that can be missing is noticed, graded and advised on."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from sealcast.errors import Unavailable
from sealcast.pipeline import fitness, java
from sealcast.pipeline.fitness import Finding, Level
from tests.cli.shell import sealcast


def levels(realm: Path | None = None) -> dict[str, Finding]:
    return {finding.check: finding for finding in fitness.examine(realm, spark=False)}


def test_this_machine_is_fit(home: Path) -> None:
    result = sealcast("doctor", "--no-spark")
    assert result.code == 0, result.out
    assert result.out.endswith("this machine is fit\n")
    document = sealcast("doctor", "--no-spark", "--json").document
    assert document["fit"] is True
    assert {c["check"] for c in document["checks"]} >= {
        "python",
        "packages",
        "java",
        "disk",
        "syncs",
        "loopback",
        "clock",
    }
    assert all((c["advice"] is None) is (c["level"] == "ok") for c in document["checks"])


def test_without_a_realm_it_looks_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEALCAST_REALM", raising=False)
    assert str(tmp_path) in sealcast("doctor", "--no-spark").out
    assert sealcast("doctor", "--no-spark", "--realm", tmp_path).code == 1
    assert list(tmp_path.iterdir()) == []


def test_spark_really_runs() -> None:
    finding = fitness.run_spark()
    assert finding.level is not Level.FAIL and "Spark 4" in finding.found


def test_spark_that_does_not_come_up_is_given_up_on() -> None:
    with pytest.raises(Unavailable, match=r"no job was done after 0 s"):
        fitness.run_spark(seconds=0.01)


def test_keys_that_others_can_read_fail_it(home: Path) -> None:
    key = home / "entities" / "alice.key"
    key.chmod(0o644)
    result = sealcast("doctor", "--no-spark")
    assert result.code == 1
    assert f"1 can be read by others, {key} among them" in result.out
    assert f"chmod -R go-rwx {home}/secrets" in result.out


# --- one thing wrong at a time --------------------------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch], None]


def _few(patch: pytest.MonkeyPatch, free: int) -> None:
    usage = shutil.disk_usage("/")._replace(free=free)
    patch.setattr(shutil, "disk_usage", lambda path: usage)


def _raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: object, **options: object) -> Any:
        raise error

    return fail


def _version(patch: pytest.MonkeyPatch, package: str, version: str | None) -> None:
    real = metadata.version

    def told(name: str) -> str:
        if name != package:
            return real(name)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    patch.setattr(metadata, "version", told)


_real_chmod = os.chmod


def _world(path: Any, mode: int, **options: Any) -> None:
    """A file system without modes: everything is everybody's."""
    _real_chmod(path, 0o777)


WRONG: list[tuple[str, Level, str, Break]] = [
    ("packages", Level.FAIL, "lxml is missing", lambda p: _version(p, "lxml", None)),
    ("packages", Level.FAIL, "pyarrow is 9.0, not >=22", lambda p: _version(p, "pyarrow", "9.0")),
    ("packages", Level.FAIL, "pandas is 3.0.1", lambda p: _version(p, "pandas", "3.0.1")),
    ("packages", Level.FAIL, "nosuch does not load", lambda p: p.setattr(fitness, "_NATIVE", ("nosuch",))),
    ("python", Level.FAIL, "3.", lambda p: p.setattr(fitness, "PYTHON", ((3, 8), (3, 9)))),
    ("java", Level.FAIL, "none at all", lambda p: p.setattr(java, "find", _raising(Unavailable("none at all")))),
    ("disk", Level.WARN, "1.0 GiB free", lambda p: _few(p, 1 << 30)),
    ("disk", Level.FAIL, "0.1 GiB free", lambda p: _few(p, 100 << 20)),
    ("cores and memory", Level.FAIL, "0.5 GiB", lambda p: p.setattr(fitness, "_free_memory", lambda: 512 << 20)),
    ("syncs", Level.WARN, "ms each", lambda p: p.setattr(os, "fsync", lambda fd: time.sleep(0.06))),
    ("syncs", Level.WARN, "0.00 ms", lambda p: p.setattr(os, "fsync", lambda fd: None)),
    ("syncs", Level.FAIL, "Input/output", lambda p: p.setattr(os, "fsync", _raising(OSError(5, "Input/output error")))),
    ("locks and links", Level.FAIL, "exclude nobody", lambda p: p.setattr(fcntl, "flock", lambda fd, how: None)),
    ("locks and links", Level.FAIL, "denied", lambda p: p.setattr(os, "link", _raising(PermissionError(1, "denied")))),
    ("permissions", Level.FAIL, "no file modes", lambda p: p.setattr(os, "chmod", _world)),
    (
        "temporary files",
        Level.FAIL,
        "nothing may be run",
        lambda p: p.setattr(subprocess, "run", _raising(PermissionError())),
    ),
    (
        "loopback",
        Level.FAIL,
        "unreachable",
        lambda p: p.setattr(fitness.socket, "create_server", _raising(OSError(101, "unreachable"))),
    ),
    (
        "open files",
        Level.WARN,
        "at most 300",
        lambda p: p.setattr(fitness.resource, "getrlimit", lambda what: (300, 300)),
    ),
    ("clock", Level.FAIL, "Z", lambda p: p.setattr(fitness, "RELEASED", datetime.now(UTC) + timedelta(days=1))),
]


@pytest.mark.parametrize(("check", "level", "words", "damage"), WRONG, ids=[f"{w[0]}: {w[2]}" for w in WRONG])
def test_what_is_wrong_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, level: Level, words: str, damage: Break
) -> None:
    monkeypatch.chdir(tmp_path)
    damage(monkeypatch)
    found = levels()
    assert found[check].level is level and words in found[check].found
    assert {f.check for f in found.values() if f.level is Level.FAIL} <= {check}, "something else is blamed for it"


def test_a_clock_behind_the_realms_own_history(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fitness.clock(home).level is Level.OK
    monkeypatch.setattr(fitness, "MAX_SKEW", timedelta(days=-1))  # as if a day had been taken off the clock
    finding = fitness.clock(home)
    assert finding.level is Level.WARN and "the realm was changed at" in finding.found
