"""A run that was taken over from commits nothing any more, also when it hung at the very commit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.pipeline.drivers import Driver, batches
from tests.pipeline.field import TOPIC, Field
from tests.pipeline.standalone import PATIENCE, sealcast

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_500)]
PAUSER = Path(__file__).parent / "pauser"


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


def _hung(driver: Driver) -> list[psutil.Process]:
    """Those of its processes that stopped."""
    found = list[psutil.Process]()
    for process in driver.everyone():
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                found.append(process)
    return found
