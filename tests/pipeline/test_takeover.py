"""A run that stands by takes over, within a time that is measured, and the other one commits nothing any more."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.pipeline.drivers import Driver, batches
from tests.pipeline.field import TOPIC, Field
from tests.pipeline.standalone import PATIENCE, apart, on, sealcast

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_500)]
PAUSER = Path(__file__).parent / "pauser"
#: From the kill until what was published afterwards is in the ledger, in times of what the first start of the same run
#: took until its first batch was. docs/cluster.md states what was measured.
TIMES = 1.5


@pytest.mark.parametrize("where", ["local", "cluster"])
def test_the_one_that_stands_by_goes_on_when_the_other_one_is_killed(tmp_path: Path, where: str) -> None:
    field = Field(tmp_path / "realm")
    field.publish_round()
    with _masters(tmp_path, where) as options, _drivers() as begun:
        began = time.monotonic()
        first, second = (_begun(begun, field, tmp_path / name, ["--standby", *options]) for name in ("first", "second"))
        stood = _who_stands_by(first, second)
        ran = first if stood is second else second
        ran.wait_until(lambda: batches(field.paths.ledger) >= 1, PATIENCE)
        first_batch = time.monotonic() - began
        if where == "local":
            stood.wait_until(lambda: any("java" in p.name() for p in stood.everyone()), PATIENCE)
            time.sleep(15)  # until its Spark is up
        ran.kill_all()
        killed, before = time.monotonic(), batches(field.paths.ledger)
        field.publish_round()
        stood.wait_until(lambda: batches(field.paths.ledger) > before, PATIENCE)
        spent = time.monotonic() - killed
        print(f"\ntaken over on {where} within {spent:.1f} s; a first start took {first_batch:.1f} s")
        assert spent < TIMES * first_batch
        stood.process.terminate()
        assert stood.wait(PATIENCE) == 0, stood.told()[-3_000:]
    assert field.check() > 0 and field.audit().ok
    field.close()


#: Takes over, as a run does before it plans its first batch, and holds on.
_SUCCESSOR = """
import sys
from sealcast.protections.steps import StepName
step = StepName(sys.argv[1], sys.argv[2]).open()
with step.ledger.exclusive():
    step.prepare()
    print("ours", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("fenced", [True, False])
def test_a_run_that_hangs_at_a_commit_and_comes_back_commits_nothing(tmp_path: Path, fenced: bool) -> None:
    """Its machine hangs with a batch staged, the file system gives up its lock, another run takes over and removes what
    was staged. Then the machine goes on. Without the comparison of terms it commits a batch whose pieces are gone."""
    field, counter = Field(tmp_path / "realm"), tmp_path / "commits"
    root = str(field.realm.paths.root)
    hangs = {"PYTHONPATH": str(PAUSER), "PAUSE_AT": f"2:{counter}", **({} if fenced else {"UNFENCED": "1"})}
    field.publish_round()
    with _drivers() as begun:
        old = _begun(begun, field, tmp_path / "old", ["--master", "local[2]"], hangs)
        old.wait_until(lambda: batches(field.paths.ledger) == 1, PATIENCE)
        field.publish_round()
        old.wait_until(lambda: counter.stat().st_size == 2 and bool(_hung(old)), PATIENCE)
        (field.paths.ledger / "driver.lock").unlink()  # as a lease that has run out
        new = subprocess.Popen(
            [sys.executable, "-c", _SUCCESSOR, root, TOPIC], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert new.stdout is not None and new.stdout.readline() == "ours\n"
        for process in _hung(old):
            process.resume()
        if fenced:
            assert old.wait(PATIENCE) == 1, old.told()[-3_000:]
            assert f"process {new.pid} has taken over" in old.told() and "Traceback" not in old.told()
        else:
            old.wait_until(lambda: batches(field.paths.ledger) > 1, PATIENCE)
        new.communicate("")
    if fenced:
        assert batches(field.paths.ledger) == 1
        sealcast("run", "--once", "--realm", root, "--master", "local[2]")
        assert field.check() > 0 and field.audit().ok
    else:
        assert batches(field.paths.ledger) > 1 and not field.audit().ok, "and its deliveries are lost"
    field.close()


# --- what the tests share ---------------------------------------------------------------------------


@contextmanager
def _masters(tmp_path: Path, where: str) -> Iterator[list[str]]:
    if where == "local":
        yield ["--master", "local[2]"]
        return
    with apart(tmp_path / "cluster", workers=2) as cluster:
        yield on(cluster)


@contextmanager
def _drivers() -> Iterator[list[Driver]]:
    begun = list[Driver]()
    try:
        yield begun
    finally:
        for driver in begun:
            driver.kill_all()


def _begun(
    begun: list[Driver], field: Field, log: Path, options: list[str], more: dict[str, str] | None = None
) -> Driver:
    driver = Driver(field.realm.paths.root, log=log, command=True, options=options, environment=more)
    begun.append(driver)
    return driver


def _who_stands_by(*drivers: Driver) -> Driver:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for driver in drivers:
            if "standing by" in driver.told():
                return driver
        time.sleep(0.1)
    raise AssertionError(f"nobody stands by: {[driver.told()[-500:] for driver in drivers]}")


def _hung(driver: Driver) -> list[psutil.Process]:
    """Those of its processes that stopped."""
    found = list[psutil.Process]()
    for process in driver.everyone():
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                found.append(process)
    return found
