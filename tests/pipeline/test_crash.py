"""Killed at any moment, everything goes on: nothing lost, nothing delivered twice, each publisher's order kept.

Two independent judges: the product's own checker, and a comparison of what subscribers open with what the reference
evaluator says they should (field.py).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sealcast.errors import Locked
from sealcast.log.ledger import Ledger, LedgerReader
from sealcast.pipeline.run import run
from sealcast.pipeline.settings import THREADLESS
from sealcast.pipeline.sinks import StreamPieces
from sealcast.protections.steps import StepName
from tests.clients.pump import pump
from tests.pipeline import steps
from tests.pipeline.drivers import ROOT, Driver, batches
from tests.pipeline.field import TOPIC, Field, by_publisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Kills at random moments are for the long tests. Every day, death comes where it hurts most: before every step, and
#: around the commit.
KILLS = [(protection, 20) for protection in ("endpoint", "searchable")]
#: How long a driver may take to its first batch on a machine that is busy with other things.
PATIENCE = 240.0
#: Frames that publishers are ahead of the pipeline, at most: there is always something to do, and never too much.
AHEAD = 60
KILLER = Path(__file__).parent / "killer"


@pytest.fixture
def field(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Field]:
    field = Field(tmp_path / "realm", protection=getattr(request, "param", "endpoint"))
    yield field
    field.close()


# --- every step, without Spark ------------------------------------------------------------------


class Lives:
    """Runs of a driver that dies when it is told to (steps.py)."""

    def __init__(self, realm: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.steps", str(realm), TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **THREADLESS},
        )

    def live(self, death_at: int = 0) -> int:
        """Its exit code: 0 when it was done before death came."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(death_at, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0


@pytest.fixture
def lives(field: Field) -> Iterator[Lives]:
    lives = Lives(field.realm.paths.root)
    yield lives
    lives.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("field", ["endpoint", pytest.param("searchable", marks=pytest.mark.soak)], indirect=True)
@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_dying_before_every_step_of_a_run_loses_nothing_and_doubles_nothing(
    field: Field, lives: Lives, stride: int
) -> None:
    """A run that dies at its first step, one that dies at its second, and so on, until one lives to its end. Every day,
    it is every seventh step: a run has several batches, and their steps repeat."""
    step, committed = 1 - stride, list[int]()
    while True:
        step += stride
        for _ in range(2):
            field.publish_round(largest=3)
        before = batches(field.paths.ledger)
        ended = lives.live(death_at=step)
        committed.append(batches(field.paths.ledger) - before)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
    assert committed[:2] == [0] * 2 and max(committed) > 2, "deaths came before, between and after commits"
    assert step > 30
    _compare(field)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("field", ["searchable"], indirect=True)
def test_dying_before_every_step_of_a_late_delivery_loses_nothing_and_doubles_nothing(
    field: Field, lives: Lives
) -> None:
    """Who subscribes between two deaths gets everything that was published before, once, and in order."""
    texts, step = list(field.filters.values()), 0
    for _ in range(4):
        field.publish_round(largest=2)
    assert lives.live() == 0
    while True:
        step += 1
        field.join(f"late-{step}", texts[step % len(texts)])
        if step % 12 == 6:
            field.publish_round(largest=1)
        ended = lives.live(death_at=step)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
    assert step > 20
    with LedgerReader(field.paths.ledger) as ledger:
        entries = [each.entry for each in ledger.entries()]
    late = [ref for entry in entries for ref in entry.pieces[: entry.late]]
    assert sum(ref.deliveries for ref in late) > 50 and any(entry.late and not entry.own for entry in entries)
    _compare(field)


# --- Spark --------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("field", "kills"), KILLS, indirect=["field"])
def test_kills_of_the_driver_at_random_moments(field: Field, tmp_path: Path, kills: int) -> None:
    dice, log, began, drivers = random.Random(20), tmp_path / "drivers.log", 0.0, list[Driver]()
    with _publishing(field):
        for kill in range(kills):
            before, start = batches(field.paths.ledger), time.monotonic()
            driver = Driver(field.realm.paths.root, log=log)
            drivers.append(driver)
            try:
                if kill % 4 == 3:  # while it starts: at any moment up to what it took the others to their first batch
                    time.sleep(dice.uniform(0, began))
                else:  # while it works
                    driver.wait_until(lambda before=before: batches(field.paths.ledger) > before, PATIENCE)  # type: ignore[misc]
                    began = max(began, time.monotonic() - start)
                    time.sleep(dice.uniform(0, 1.5))
                assert driver.process.poll() is None, f"the driver ended by itself: {driver.told()[-3000:]}"
            finally:
                # Alone, as the kernel's memory killer would, or all at once; either way the next one starts at once.
                driver.kill_driver() if dice.random() < 0.5 else driver.kill_all()
    _drain(field, log)
    assert all(driver.gone() for driver in drivers), "what a driver started ends with it"
    assert batches(field.paths.ledger) > kills
    _compare(field)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("field", ["endpoint", pytest.param("searchable", marks=pytest.mark.soak)], indirect=True)
@pytest.mark.parametrize("windows", [1, pytest.param(4, marks=pytest.mark.soak)])
def test_kills_around_the_commit(field: Field, tmp_path: Path, windows: int) -> None:
    """The windows that matter most, hit for certain: in the ledger and not in Spark, staged and not in the ledger."""
    log = tmp_path / "drivers.log"
    for _ in range(20):
        field.publish_round()
    for point, committed in (("after", 2), ("before", 1), ("written", 1), ("after", 3))[:windows]:
        counter = tmp_path / f"{point}-{batches(field.paths.ledger)}"
        environment = {"PYTHONPATH": str(KILLER), "KILL_AT": f"{point}:2:{counter}"}
        before = batches(field.paths.ledger)
        driver = Driver(field.realm.paths.root, log=log, environment=environment, frames=8)
        try:
            assert driver.wait(PATIENCE) == -signal.SIGKILL, driver.told()[-3000:]
        finally:
            driver.kill_all()
        # A record that was written and whose writer did not live to say so is found by the next, and counts.
        assert batches(field.paths.ledger) - before == committed, f"killed {point} the commit of its second batch"
        field.publish_round()
    _drain(field, log)
    _compare(field)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("victim", "name"), [("pyspark-shell", "JVM"), ("source_runner", "Python processes")])
def test_a_killed_jvm_or_worker_ends_the_command_with_a_word_and_the_next_run_goes_on(
    field: Field, tmp_path: Path, spark: SparkSession, victim: str, name: str
) -> None:
    field.publish_round()
    driver = Driver(field.realm.paths.root, log=tmp_path / "log", command=True)
    try:
        driver.wait_until(lambda: batches(field.paths.ledger) > 0, PATIENCE)
        driver.kill(victim)
        field.publish_round()
        assert driver.wait(PATIENCE) == 1
        refused, hint = driver.told().splitlines()[-2:]
        assert name in refused and refused.endswith("has ended unexpectedly") and "goes on where it was" in hint
        assert "Traceback" not in driver.told() and driver.gone()
    finally:
        driver.kill_all()
    run(field.realm, [TOPIC], once=True, spark=spark)
    _compare(field)


def test_what_a_killed_driver_left_running_commits_and_removes_nothing_more(field: Field) -> None:
    """Its lock is gone with it, its JVM is not: it may commit, or clean up, when the next driver is at work."""
    name, reference = StepName(str(field.realm.paths.root), TOPIC), field.realm.state().topic(TOPIC)
    field.publish_round()
    with Ledger(field.paths.ledger, field.realm.broker().journal_key(reference.id)).exclusive() as first:
        orphan = StreamPieces((name,), steps.terms(name, first))
        staged = steps.stage(name, orphan)
    with name.open().ledger.exclusive() as second:
        name.open().prepare()
        with pytest.raises(Locked, match=f"process {os.getpid()} has taken over .* with term {second} .* {first}"):
            orphan.commit([*staged], 0)
        assert batches(field.paths.ledger) == 0, "its pieces are collected, so it must not name them"
        successor = StreamPieces((name,), steps.terms(name, second))
        staged = steps.stage(name, successor)
        orphan.abort([], 0)  # says nothing, or Spark would not say why the commit was refused
        successor.commit([*staged], 0)
    _compare(field)


# --- clients ------------------------------------------------------------------------------------

#: It takes its time with each event, so that death finds it between the word and the acknowledgement.
_SUBSCRIBER = """
import sys, time
from sealcast.clients.subscriber import Subscriber
subscriber = Subscriber(sys.argv[1], sys.argv[2], "all")
while events := subscriber.poll(7):
    for event in events:
        print(event.position, flush=True)
        time.sleep(0.005)
    subscriber.ack()
    print("acknowledged", flush=True)
"""
_PUBLISHER = """
import sys
from sealcast.clients.publisher import Publisher
from sealcast.model import Event
publisher, number = Publisher(sys.argv[1], sys.argv[2], "ann"), int(sys.argv[3])
while True:
    events = [Event({"number": number + i, "price": 1, "symbol": "ACME"}, b"x") for i in range(1 + number % 5)]
    publisher.publish(events)
    number += len(events)
    print(number, flush=True)
"""


@pytest.mark.parametrize("rounds", [10, pytest.param(40, marks=pytest.mark.soak)])
def test_a_killed_subscriber_gets_again_what_it_did_not_acknowledge_and_loses_nothing(
    field: Field, tmp_path: Path, rounds: int
) -> None:
    dice, out = random.Random(3), tmp_path / "out"
    for _ in range(rounds):
        field.publish_round()
    pump(field.realm, TOPIC)
    handed_out, done, again = list[str](), 0, 0
    for _ in range(100):
        code = _killed(_SUBSCRIBER, field, out, after=dice.randint(0, 60))
        lines = out.read_text().splitlines()
        events = [line for line in lines if line != "acknowledged"]
        if events:
            if handed_out[done:] and events[0] != handed_out[done]:
                done = len(handed_out)  # death came between the deed and the word: those were acknowledged
            again += len(handed_out) - done
            handed_out[done:] = events
        if "acknowledged" in lines:
            last = max(i for i, line in enumerate(lines) if line == "acknowledged")
            done += sum(line != "acknowledged" for line in lines[:last])
        if code == 0:
            break
    assert code == 0 and again, "it came to the end, and something was handed out again"
    assert handed_out == [str(event.position) for event in field.read("all")], "in order, nothing left out"


@pytest.mark.parametrize("lives", [3, pytest.param(8, marks=pytest.mark.soak)])
def test_a_killed_publisher_has_published_all_that_was_acknowledged(field: Field, tmp_path: Path, lives: int) -> None:
    dice, out, number = random.Random(4), tmp_path / "out", 0
    for _ in range(lives):
        _killed(_PUBLISHER, field, out, str(number), after=dice.randint(1, 40))
        acknowledged = int(out.read_text().splitlines()[-1])
        pump(field.realm, TOPIC)
        got = [n for n, _ in by_publisher(field.read("all"))["ann"]]
        assert got == list(range(len(got))), "in order, once"
        assert len(got) >= acknowledged > number
        number = len(got)  # the last frame may have been on disk when its publisher died before the word of it
    assert field.audit().ok


def _killed(script: str, field: Field, out: Path, *arguments: str, after: int) -> int:
    """Runs it and kills it when it has said `after` lines; its exit code."""
    with out.open("wb") as told:
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(field.realm.paths.root), TOPIC, *arguments], stdout=told
        )
    while process.poll() is None and out.read_bytes().count(b"\n") < after:
        time.sleep(0.001)
    process.kill()
    return process.wait()


# --- helpers ------------------------------------------------------------------------------------


@contextmanager
def _publishing(field: Field) -> Iterator[None]:
    """Publishers at work all the while, never far ahead."""
    done, trouble = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            with LedgerReader(field.paths.ledger) as ledger:
                while not done.is_set():
                    last = ledger.last_span()
                    if field.frames() - (sum(last.end.partitions) if last else 0) < AHEAD:
                        field.publish_round()
                    done.wait(0.02)
        except BaseException as error:
            trouble.append(error)
            raise

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not trouble


def _drain(field: Field, log: Path) -> None:
    driver = Driver(field.realm.paths.root, log=log, once=True, frames=1000)
    try:
        assert driver.wait(PATIENCE) == 0, driver.told()[-3000:]
    finally:
        driver.kill_all()


def _compare(field: Field) -> None:
    report = field.audit().as_json()
    wrong = {name: report[name] for name in ("lost", "duplicated", "out_of_order", "unexpected", "waiting_frames")}
    assert (report["ok"], report["problems"], wrong) == (True, [], dict.fromkeys(wrong, 0))
    assert report["events"] == sum(map(len, field.said.values()))
    assert field.check() == report["deliveries"]
