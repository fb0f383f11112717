"""The processes that tests start: none of them can hold up a run, and each says what went wrong with it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.children import Hung, forked, run, start

LOCK = threading.Lock()
TESTS = Path(__file__).parent
#: These fork in programs of their own.
ELSEWHERE = {TESTS / "pipeline" / "test_reseal.py", TESTS / "log" / "test_carrier_forks.py"}


def waits_for_a_lock() -> None:
    LOCK.acquire()


def waits_twice() -> None:
    LOCK.acquire()
    waits_for_a_lock()


def fails() -> None:
    raise ValueError("what went wrong")


def writes(path: Path, told: int) -> None:
    path.write_text(os.environ["SEALCAST_TEST_WORD"])
    os.write(told, b"written")
    signal.pause()


def test_a_child_has_the_environment_and_the_files_and_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEALCAST_TEST_WORD", "word")
    told, tell = os.pipe()
    child = start(writes, tmp_path / "file", hand_over=[tell])
    os.close(tell)
    assert os.read(told, 10) == b"written"
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert os.read(told, 10) == b"", "nobody else holds what was handed over"
    os.close(told)
    assert (tmp_path / "file").read_text() == "word"


def test_what_goes_wrong_in_a_child_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="what went wrong"):
        run(fails)
    with pytest.raises(AssertionError, match="what went wrong"):
        forked(fails)


def test_no_test_forks_by_itself() -> None:
    """Or it may wait for ever, some day, for a lock that a thread of another test held."""
    forks = ("os." + "fork()", 'get_context("' + 'fork")')
    found = {path for path in TESTS.rglob("test_*.py") if any(fork in path.read_text() for fork in forks)}
    assert found == ELSEWHERE


def test_a_child_that_hangs_ends_and_says_where() -> None:
    with pytest.raises(Hung, match="in waits_for_a_lock"):
        start(waits_twice, patience_s=0.3).wait()


def test_a_lock_of_another_thread_hangs_a_fork_and_no_child_of_the_process_without_threads() -> None:
    with LOCK:
        with pytest.raises(Hung, match="in waits_for_a_lock"):
            forked(waits_for_a_lock, patience_s=0.3)
        assert run(waits_for_a_lock) == 0
