"""A topic that fails stops no other one: it is shown, tried again with growing delays, and works once it can."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row

from sealcast.broker.columns import counted
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Corrupt, NotFound, SealcastError, Unavailable
from sealcast.log import failing
from sealcast.log.failing import FailureNote
from sealcast.model import Event, Schema
from sealcast.pipeline import attempts, run
from sealcast.pipeline.attempts import Attempts
from sealcast.pipeline.failures import explain
from sealcast.pipeline.metrics import OBSERVED, Metrics, finished
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.port import witness_side
from sealcast.protections.steps import StepName
from sealcast.transports.problems import GatewayUnreachable
from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD, BAD = "harbour", "lighthouse"
SCHEMA = Schema.from_json({"attributes": [{"name": "level", "type": "int"}]})


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["gauge", "keeper"])
    for topic in (GOOD, BAD):
        realm.create_topic(topic, SCHEMA, access="members")
        realm.subscribe(topic, "keeper", "level >= 0")
    return realm


def publish(realm: Realm, topic: str, *levels: int) -> None:
    with Publisher(realm, topic, "gauge") as publisher:
        publisher.publish(Event({"level": level}, b"%d" % level) for level in levels)


def opened(realm: Realm, topic: str) -> list[int]:
    with Subscriber(realm, topic, "keeper", from_=0) as subscriber:
        return [int(event.payload) for event in subscriber]


def eventually(holds: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.05)


def flip(realm: Realm, topic: str) -> None:
    """Flips a bit of the newest frame; twice, and it is as it was."""
    (segment,) = realm.paths.topic(topic).frames(0).glob("*.seg")
    raw = bytearray(segment.read_bytes())
    raw[-20] ^= 1
    segment.write_bytes(raw)


def noted(realm: Realm, topic: str) -> list[FailureNote]:
    return list(failing.notes(realm.paths.topic(topic).root))


def test_a_machine_that_is_away_is_known_by_sparks_report() -> None:
    """Workers read from other brokers' machines. What they raise comes back as text."""
    said = (
        "an exception was thrown\nsealcast.transports.problems.GatewayUnreachable: nobody is there\nhint: try again\n"
    )
    found = explain(PySparkException(said))
    assert type(found) is GatewayUnreachable
    assert (found.message, found.hint) == ("nobody is there", "try again")
    assert type(explain(PySparkException("sealcast.errors.Corrupt: it is damaged\n"))) is Corrupt
    assert type(explain(PySparkException("sealcast.nowhere.Strange: what?\n"))) is Unavailable


# --- on Spark -------------------------------------------------------------------------------------------


def test_a_run_of_one_topic_waits_for_a_machine_that_is_away(
    spark: SparkSession, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_DELAY", 0.2)
    told, left, prepare = list[SealcastError](), [3], FramesStep.prepare

    def away(self: FramesStep) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise GatewayUnreachable("the broker above cannot be reached")
        prepare(self)

    monkeypatch.setattr(FramesStep, "prepare", away)
    publish(realm, GOOD, 1, 2)
    with run.start(realm.paths.root, [GOOD], spark=spark, on_failure=lambda *said: told.append(said[1])) as pipeline:
        eventually(lambda: opened(realm, GOOD) == [1, 2])
        pipeline.wait(lambda: True)
    assert [type(error) for error in told] == [GatewayUnreachable] * 3
    left[0] = 1
    with pytest.raises(GatewayUnreachable), run.start(realm.paths.root, [GOOD], spark=spark, once=True) as pipeline:
        pipeline.wait()


def test_others_go_on_and_the_topic_is_shown_and_tried_again(
    spark: SparkSession, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_DELAY", 0.2)
    told: list[tuple[str, SealcastError, float]] = []
    metrics = Metrics()
    publish(realm, BAD, 1)
    flip(realm, BAD)
    with run.start(realm, spark=spark, metrics=metrics, on_failure=lambda *about: told.append(about)) as pipeline:
        publish(realm, GOOD, 1, 2)
        pipeline.wait(lambda: opened(realm, GOOD) == [1, 2] and len(told) >= 2)
        assert {topic for topic, _, _ in told} == {BAD} and isinstance(told[0][1], Corrupt)
        assert [delay for _, _, delay in told[:2]] == [0.2, 0.4]
        publish(realm, GOOD, 3)
        pipeline.wait(lambda: opened(realm, GOOD) == [1, 2, 3])
        (note,) = noted(realm, BAD)
        assert note.step == "frames" and note.attempts >= 2 and "record 0" in note.message
        assert not noted(realm, GOOD)
        shown = sealcast("status", "--realm", realm.paths.root)
        assert shown.code == 0 and "FAILING" in shown.out and "record 0" in " ".join(shown.out.split())
        flip(realm, BAD)
        pipeline.wait(lambda: opened(realm, BAD) == [1])
        pipeline.wait(lambda: not noted(realm, BAD))
    assert "FAILING" not in sealcast("status", "--realm", realm.paths.root).out
    assert metrics.value("sealcast_failures_total") >= 2 and metrics.value("sealcast_queries_running") == 0
    assert (pipeline.totals["admitted"], pipeline.totals["deliveries"]) == (4, 4)


def test_once_drains_the_others_and_then_says_what_failed(spark: SparkSession, realm: Realm) -> None:
    publish(realm, BAD, 1)
    publish(realm, GOOD, 1)
    flip(realm, BAD)
    with pytest.raises(Corrupt, match="record 0"):
        run.run(realm, once=True, spark=spark)
    assert opened(realm, GOOD) == [1]
    (note,) = noted(realm, BAD)
    assert note.attempts == 1
    flip(realm, BAD)
    assert run.run(realm, once=True, spark=spark)["admitted"] == 1
    assert opened(realm, BAD) == [1] and not noted(realm, BAD)


def test_a_topic_that_cannot_be_begun_keeps_no_other_from_it(spark: SparkSession, realm: Realm) -> None:
    for topic in (GOOD, BAD):
        publish(realm, topic, 1)
    assert run.run(realm, once=True, spark=spark)["admitted"] == 2
    segments = realm.paths.topic(BAD).frames(0)
    for segment in segments.iterdir():  # an older copy of the log is put back
        if segment.is_file():
            segment.unlink()
    publish(realm, GOOD, 2)
    with run.start(realm, spark=spark) as pipeline:
        pipeline.wait(lambda: opened(realm, GOOD) == [1, 2])
    (note,) = noted(realm, BAD)
    assert "the ledger has delivered 1" in note.message
    with pytest.raises(Corrupt, match="the ledger has delivered 1"):
        run.start(realm, [BAD], spark=spark)


# --- attempts, without Spark ----------------------------------------------------------------------------


class FakeQuery:
    """A streaming query whose end a test decides."""

    runId, lastProgress = "run", None

    def __init__(self) -> None:
        self.isActive, self.status = True, {"message": "Initializing sources", "isTriggerActive": False}
        self.error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error

    def fail(self, text: str) -> None:
        self.isActive, self.error = False, _Report(text)

    def stop(self) -> None:
        self.isActive = False


class _Report(Exception):
    pass


def tried(realm: Realm, begin: Callable[..., Any]) -> Attempts:
    return Attempts([StepName(str(realm.paths.root), BAD)], begin, Metrics())


def test_delays_double_up_to_the_longest_and_begin_anew_once_it_works(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(attempts.time, "monotonic", lambda: clock.now)
    queries: list[FakeQuery] = []

    def begin(*about: object) -> FakeQuery:
        queries.append(FakeQuery())
        return queries[-1]

    found, delays = tried(realm, begin), list[float]()
    assert found.hold()
    found.begin()
    for _ in range(12):
        queries[-1].fail("sealcast.errors.Corrupt: it is broken")
        found.look()
        assert found.failure is not None and found.failure.message == "it is broken"
        delays.append(found.delay)
        clock.now += found.delay - 0.01
        assert not found.due()
        clock.now += 0.02
        assert found.due() and found.hold()
        found.begin()
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    (note,) = noted(realm, BAD)
    assert note.attempts == 12
    found.look()
    assert noted(realm, BAD), "that it begins does not say that it works"
    queries[-1].status = {"message": "Waiting for data to arrive", "isTriggerActive": False}
    found.look()
    assert found.failure is None and not noted(realm, BAD)
    queries[-1].fail("sealcast.errors.Corrupt: it is broken")
    found.look()
    assert found.delay == 1


def test_while_it_waits_another_pipeline_may_take_the_topic(realm: Realm) -> None:
    def refuse(*about: object) -> FakeQuery:
        raise NotFound("no such key")

    found, other = tried(realm, refuse), tried(realm, lambda *about: FakeQuery())
    assert found.hold()
    assert not other.hold() and other.failure is not None and other.failure.code == "locked"
    assert not noted(realm, BAD), "a topic that another pipeline runs does run"
    found.begin()
    assert found.failure is not None and noted(realm, BAD)
    assert other.hold()
    other.release()


def test_a_note_that_was_damaged_still_says_that_something_failed(realm: Realm) -> None:
    root = realm.paths.topic(BAD).root
    root.mkdir(parents=True, exist_ok=True)
    for raw in (b"", b"[]", b"{}", b"\xff" * 99, b'{"step": 1}', b"[" * 200_000):
        (root / "failing-frames.json").write_bytes(raw)
        (note,) = noted(realm, BAD)
        assert note.step == "frames" and "cannot be read" in note.message
        facts = list(witness_side(realm.state().topic(BAD).protection).status(realm, BAD))
        assert any(name == "FAILING" for name, _ in facts[0].rows)


def _progress(number: int, second: int, admitted: int | None) -> SimpleNamespace:
    """Spark's report of a batch; with None, that nothing came, which has the number of the batch to come."""
    return SimpleNamespace(
        batchId=number,
        timestamp=f"2026-03-01T12:00:{second:02}.000Z",
        runId="run",
        durationMs={"triggerExecution": 5} | ({} if admitted is None else {"addBatch": 5}),
        observedMetrics={} if admitted is None else {OBSERVED: Row(counted=f'broker {{"admitted":{admitted}}}')},
        sources=[SimpleNamespace(endOffset='{"partitions": [1]}', latestOffset='{"partitions": [1]}')],
    )


def test_a_batch_after_an_idle_while_is_counted_and_none_is_counted_twice(realm: Realm) -> None:
    query: Any = FakeQuery()
    found, query.recentProgress, heard = tried(realm, lambda *about: query), [], list[tuple[int, int]]()
    found.begin()
    for report in (_progress(0, 1, 5), _progress(1, 12, None), _progress(1, 22, None), _progress(1, 23, 7)):
        query.lastProgress = report
        query.recentProgress.append(report)
        for _ in range(2):
            heard += [(batch.number, batch.counts["admitted"]) for batch in found.look()]
    assert heard == [(0, 5), (1, 7)]


def test_what_pieces_count_is_summed_up_by_broker_and_in_all() -> None:
    """Of each piece a line; who made none, and what did not occur, is there as zero."""
    lines = [("north", {"admitted": 2, "rejected_replay": 1}), ("south", {"admitted": 3}), ("north", {"admitted": 5})]
    told, progress = "\n".join(f"{broker} {counted(counts)}" for broker, counts in lines), _progress(0, 1, 0)
    progress.observedMetrics[OBSERVED] = Row(counted=told)
    batch: Any = finished(progress, "quotes", ["north", "south", "west"])  # type: ignore[arg-type]
    found = {broker: (counts["admitted"], counts["rejected_replay"]) for broker, counts in batch.by_broker.items()}
    assert found == {"north": (7, 1), "south": (3, 0), "west": (0, 0)}
    assert {"admitted": 10, "rejected_replay": 1, "frames": 0}.items() <= dict(batch.counts).items()
    for nothing in (None, ""):
        progress.observedMetrics[OBSERVED] = Row(counted=nothing)
        batch = finished(progress, "quotes", ["north"])  # type: ignore[arg-type]
        assert set(batch.counts.values()) == {0} and batch.by_broker == {"north": batch.counts}
