"""Is this machine fit to run Sealcast? One function a question; each tries the thing itself rather than guess at it.

`python -m sealcast.pipeline.fitness` is the last of them, in a process of its own: it starts Spark and runs a job, and
who asks can stop waiting.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import platform
import re
import resource
import shutil
import socket
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Final

from sealcast.errors import SealcastError, Unavailable, extras_named
from sealcast.trust.handles import OpenRealm
from sealcast.trust.vault import keyfile, unlock

PYTHON: Final = ((3, 11), (3, 14))
MEMORY_OK, MEMORY_LEAST = 3 << 30, 1 << 30
DISK_OK, DISK_LEAST = 2 << 30, 256 << 20
#: A sync slower than this makes every acknowledgement slow; one faster than this reached no disk.
SLOW_SYNC, IMPOSSIBLE_SYNC = 0.050, 0.000_020
SYNCS: Final = 15
FILES_OK, FILES_LEAST = 1024, 256
#: How long Spark may take to start and run one small job, on a machine that is busy with other things.
SPARK_SECONDS: Final = 180.0
SLOW_SPARK: Final = 60.0
#: No clock that is right shows less: this release is younger.
RELEASED: Final = datetime(2025, 1, 1, tzinfo=UTC)
#: How far back a clock may have gone since the realm was last changed.
MAX_SKEW: Final = timedelta(seconds=60)
#: What has native code in it: installed is not yet loadable.
_NATIVE: Final = ("cryptography", "lxml.etree", "nacl.bindings", "numpy", "pyarrow", "re2")


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer; advice where something should be done."""

    check: str
    level: Level
    found: str
    advice: str | None = None


def examine(
    realm: Path | None, *, spark: bool, client: bool = False, told: Callable[[str], None] = lambda check: None
) -> Iterator[Finding]:
    """Every question, about this machine and the directory a realm is in (or would be in). Of a `client`, which has
    a home and runs no broker, nothing is asked that is about Spark."""
    where = realm if realm is not None else Path.cwd()
    questions: dict[str, Callable[[], Finding]] = {
        "python": python,
        "packages": lambda: packages(spark=not client),
        **({} if client else {"java": java}),
        "cores and memory": memory,
        "disk": lambda: disk(where),
        "syncs": lambda: syncs(where),
        "locks and links": lambda: locks(where),
        "permissions": lambda: permissions(where, realm),
        "unlock key": lambda: unlock_key(realm),
        **({} if realm is None else {"registry": lambda: registry(realm)}),
        "temporary files": temporary,
        "loopback": loopback,
        "open files": open_files,
        "clock": lambda: clock(realm),
        **({"spark": run_spark} if spark and not client else {}),
    }
    for name, ask in questions.items():
        told(name)
        try:
            yield ask()
        except SealcastError as error:
            yield Finding(name, Level.FAIL, error.message, error.hint)
        except OSError as error:
            yield Finding(
                name, Level.FAIL, f"{error.filename or name}: {error.strerror}", "see who owns it, and its mode"
            )


# --- what is installed --------------------------------------------------------------------------------------


def python() -> Finding:
    found = f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}"
    fit = PYTHON[0] <= sys.version_info[:2] < PYTHON[1] and platform.python_implementation() == "CPython"
    return _either("python", fit, found, "use CPython 3.11, 3.12 or 3.13")


def packages(*, spark: bool = True) -> Finding:
    wrong: list[str] = []
    count = 0
    for requirement, _, condition in (text.partition(";") for text in metadata.requires("sealcast") or ()):
        if "extra ==" in condition and not (spark and "'spark'" in condition):
            continue  # what only some need is asked for where it is needed
        name, bounds = _requirement(requirement)
        count += 1
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        if not all(_satisfies(installed, sign, bound) for sign, bound in bounds):
            wrong.append(f"{name} is {installed}, not {requirement.removeprefix(name).strip()}")
    for module in _NATIVE:
        try:
            importlib.import_module(module)
        except ImportError as error:
            wrong.append(f"{module} does not load: {error}")
    among = f"{_shown('pyspark')} and {_shown('cryptography')}" if spark else _shown("cryptography")
    found = "; ".join(wrong) or f"{count} as they should be, among them {among}"
    package = "'sealcast[spark]'" if spark else "sealcast"
    return _either("packages", not wrong, found, f"make setup, or pip install --upgrade {package}")


def _requirement(text: str) -> tuple[str, list[tuple[str, str]]]:
    name = re.match(r"[\w.-]+", text)
    assert name is not None
    return name.group(), re.findall(r"(>=|<=|==|<|>)\s*([\w.]+)", text)


def _satisfies(installed: str, sign: str, bound: str) -> bool:
    mine, theirs = _numbers(installed), _numbers(bound)
    width = max(len(mine), len(theirs))
    mine, theirs = mine + [0] * (width - len(mine)), theirs + [0] * (width - len(theirs))
    return {">=": mine >= theirs, "<=": mine <= theirs, "==": mine == theirs, "<": mine < theirs, ">": mine > theirs}[
        sign
    ]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.split("+")[0])]


def _shown(package: str) -> str:
    with suppress(metadata.PackageNotFoundError):
        return f"{package} {metadata.version(package)}"
    return f"no {package}"


def java() -> Finding:
    from sealcast.pipeline import java

    found = java.find()
    return Finding("java", Level.OK, f"Java {found.version} from {found.found}: {found.executable}")


# --- what the machine has -----------------------------------------------------------------------------------


def memory() -> Finding:
    cores, free = len(os.sched_getaffinity(0)), _free_memory()
    found = f"{cores} core{'s' if cores > 1 else ''}, {_size(free)} of memory free"
    advice = "Spark and its workers take about 2 GiB: free some, or give the container more"
    return _graded("cores and memory", free, MEMORY_OK, MEMORY_LEAST, found, advice)


def _free_memory() -> int:
    """What is available, or what the container leaves, whichever is less."""
    told = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    free = int(told.group(1)) << 10 if told else 0
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        free = min(free, max(0, limit - used))
    return free


def disk(where: Path) -> Finding:
    temporary = Path(tempfile.gettempdir())
    places = (where,) if os.stat(where).st_dev == os.stat(temporary).st_dev else (where, temporary)
    free = {path: shutil.disk_usage(path).free for path in places}
    least = min(free.values())
    found = ", ".join(f"{_size(size)} free in {path}" for path, size in free.items())
    return _graded("disk", least, DISK_OK, DISK_LEAST, found, "free some space: a full disk stops the pipeline")


def syncs(where: Path) -> Finding:
    taken: list[float] = []
    with tempfile.TemporaryFile(dir=where) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    median = statistics.median(taken)
    found = f"{median * 1e3:.2f} ms each in {where}"
    if median > SLOW_SYNC:
        return Finding("syncs", Level.WARN, found, "publishing waits for syncs: batch events, or use a faster disk")
    if median < IMPOSSIBLE_SYNC:
        return Finding(
            "syncs", Level.WARN, found, "too fast for a disk: what is acknowledged may not survive a power cut"
        )
    return Finding("syncs", Level.OK, found)


def locks(where: Path) -> Finding:
    """Two handles of one file must exclude each other, and a file must be able to have two names."""
    with tempfile.TemporaryDirectory(dir=where, prefix=".sealcast-doctor-") as directory:
        path = Path(directory) / "lock"
        with path.open("w") as one, path.open("w") as other:
            fcntl.flock(one, fcntl.LOCK_EX)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.link(path, Path(directory) / "linked")
                return Finding("locks and links", Level.OK, f"work in {where}")
    return Finding(
        "locks and links", Level.FAIL, f"locks exclude nobody in {where}", "keep realms on a local file system"
    )


def permissions(where: Path, realm: Path | None) -> Finding:
    """Whether a private file stays private here, and whether those of the realm are."""
    with tempfile.NamedTemporaryFile(dir=where, prefix=".sealcast-doctor-") as file:
        os.chmod(file.name, 0o600)
        if stat.S_IMODE(os.stat(file.name).st_mode) != 0o600:
            advice = "keys here could be read by others: keep realms on a file system with Unix modes"
            return Finding("permissions", Level.FAIL, f"{where} keeps no file modes", advice)
    keys = (
        []
        if realm is None
        else [realm / "secrets", realm / "entities", *realm.glob("secrets/**/*"), *realm.glob("entities/*")]
    )
    open_to_others = [path for path in keys if path.exists() and path.stat().st_mode & 0o077]
    if open_to_others:
        found = f"{len(open_to_others)} can be read by others, {open_to_others[0]} among them"
        advice = f"if their keys are still secret: chmod -R go-rwx {realm}/secrets {realm}/entities"
        return Finding("permissions", Level.FAIL, found, advice)
    return Finding("permissions", Level.OK, f"modes are kept in {where}" + (f", {len(keys)} private" if keys else ""))


def unlock_key(realm: Path | None) -> Finding:
    """Whether what unlocks private keys is there, is private, fits the realm's, and is not copied with them."""
    keys = [] if realm is None else [*realm.glob("secrets/**/*.key"), *realm.glob("entities/*.key")]
    locks = {keyfile.look(path).lock: path for path in keys}
    for lock, path in locks.items():
        unlock.for_reading(lock, path)
    where = unlock.key_path()
    around = next((p for p in where.parents if (p / "realm.json").exists()), None)
    if around is not None and where.exists():
        advice = f"move it out, and set {unlock.KEY_VARIABLE}: it goes wherever the realm is copied to"
        return Finding("unlock key", Level.WARN, f"{where} lies in the realm {around}", advice)
    used = {"the passphrase" if lock.by == "passphrase" else str(where) for lock in locks}
    if used:
        return Finding("unlock key", Level.OK, f"{' and '.join(sorted(used))}: opens {len(keys)} key files")
    return Finding("unlock key", Level.OK, f"{where}" + ("" if where.exists() else ", made when it is needed"))


def registry(realm: Path) -> Finding:
    """Whether it can be reached and read, is whole, and keeps what it acknowledges."""
    handle = OpenRealm(realm).registry
    runs_on, advice = handle.remarks()
    found = f"{handle.address}, version {handle.state().version:,}, {runs_on}"
    return Finding("registry", Level.OK if advice is None else Level.WARN, found, advice)


def temporary() -> Finding:
    """Java loads native libraries from where temporary files go: they must be allowed to run."""
    with tempfile.TemporaryDirectory(prefix="sealcast-doctor-") as directory:
        script = Path(directory) / "script"
        script.write_text("#!/bin/sh\nexit 0\n")
        script.chmod(0o700)
        try:
            ran = subprocess.run([script], check=False, timeout=30).returncode == 0
        except (PermissionError, subprocess.TimeoutExpired):
            ran = False
    where = tempfile.gettempdir()
    found = f"{where} can be written to and run from" if ran else f"nothing may be run from {where}"
    return _either("temporary files", ran, found, "set TMPDIR to a directory that is not mounted noexec")


def loopback() -> Finding:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=5), server.accept()[0]:
            return Finding("loopback", Level.OK, "127.0.0.1 answers")


def open_files() -> Finding:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = limit == resource.RLIM_INFINITY
    found = "no limit" if unlimited else f"at most {limit:,} at once"
    return _graded(
        "open files", 1 << 30 if unlimited else limit, FILES_OK, FILES_LEAST, found, "raise it: ulimit -n 4096"
    )


def clock(realm: Path | None = None) -> Finding:
    now = datetime.now(UTC)
    found = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    advice = "set the clock: frames from the future are refused, and time is what `--from` searches by"
    if not RELEASED < now < datetime(2100, 1, 1, tzinfo=UTC):
        return Finding("clock", Level.FAIL, found, advice)
    last = _last_change(realm) if realm is not None else None
    if last is not None and last > now + MAX_SKEW:
        return Finding("clock", Level.WARN, f"{found}, but the realm was changed at {last.isoformat()}", advice)
    return Finding("clock", Level.OK, found)


def _last_change(realm: Path) -> datetime | None:
    registry = OpenRealm(realm).registry
    newest = [at_us for _, at_us, _ in registry.changes(start=max(1, registry.version()))]
    return datetime.fromtimestamp(newest[-1] / 1e6, UTC) if newest else None


# --- Spark --------------------------------------------------------------------------------------------------


def run_spark(seconds: float = SPARK_SECONDS) -> Finding:
    """Start it and run a job with a Python worker, in a process that can be given up on."""
    try:
        run = subprocess.run(
            [sys.executable, "-m", "sealcast.pipeline.fitness"],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"no job was done after {seconds:.0f} s", hint="is the machine busy, or out of memory?"
        ) from None
    try:
        told = json.loads(run.stdout)
    except ValueError:
        lines = run.stderr.strip().splitlines() or [f"it ended with {run.returncode}"]
        raise Unavailable(f"Spark did not run: {lines[-1][:300]}") from None
    if "error" in told:
        raise Unavailable(str(told["message"]), hint=told.get("hint"))
    total = told["start"] + told["job"]
    found = f"Spark {told['version']} started in {told['start']:.1f} s, a first job took {told['job']:.1f} s"
    slow = "that is slow: look at memory and at what else runs here"
    return Finding("spark", Level.WARN if total > SLOW_SPARK else Level.OK, found, slow if total > SLOW_SPARK else None)


def _small_job() -> dict[str, object]:
    from sealcast.pipeline.session import session

    began = time.monotonic()
    spark = session("local[1]", app_name="sealcast doctor", short_lived=True)
    started = time.monotonic()
    total = spark.range(1000).mapInArrow(lambda batches: batches, "id BIGINT").groupBy().sum("id").collect()[0][0]
    if total != 499_500:
        raise Unavailable(f"Spark adds up a thousand numbers to {total}")
    return {"version": spark.version, "start": started - began, "job": time.monotonic() - started}


# --- odds and ends ------------------------------------------------------------------------------------------


def _either(check: str, fit: bool, found: str, advice: str) -> Finding:
    return Finding(check, Level.OK, found) if fit else Finding(check, Level.FAIL, found, advice)


def _graded(check: str, has: int, enough: int, least: int, found: str, advice: str) -> Finding:
    level = Level.OK if has >= enough else Level.WARN if has >= least else Level.FAIL
    return Finding(check, level, found, None if level is Level.OK else advice)


def _size(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


if __name__ == "__main__":
    try:
        with extras_named():
            answer = _small_job()
    except SealcastError as error:
        answer = error.as_json()
    sys.stdout.write(json.dumps(answer))
