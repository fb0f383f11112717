"""Whose clock decides: strangers' stamps, ahead and behind, against a broker that looks at its log by its own clock."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from sealcast.broker.frames import HeldFrames
from sealcast.broker.gate import RULING
from sealcast.broker.looks import MAX_LOOKS, Looks
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import rule_frames
from sealcast.errors import Corrupt, Misuse
from sealcast.lab.attacks import Insider
from sealcast.log.embedded import EmbeddedLog, FrameLog
from sealcast.log.entry import Entry
from sealcast.log.ledger import LedgerReader
from sealcast.log.offsets import Arrival, PinnedOffset
from sealcast.model import Reason, Schema
from sealcast.protections.endpoint.audit import EndpointAudit
from sealcast.protections.endpoint.broker import EndpointStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right
from sealcast.wire import sealed
from tests.clients.pump import pump

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})
MINUTE, HOUR, DAY = 60 * 1_000_000, 3600 * 1_000_000, 86_400 * 1_000_000


class World:
    """A topic with two publishers, and everybody's clock in the test's hands."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.now = time.time_ns() // 1000
        patch.setattr(time, "time_ns", lambda: self.now * 1000)
        self.realm = Realm.create(root / "realm")
        self.realm.create_topic(TOPIC, SCHEMA)
        self.realm.enrol_many(["ann", "mallory"])
        self.realm.grant(TOPIC, "ann")
        self.realm.grant(TOPIC, "mallory", [Right.PUBLISH], until_us=self.now + HOUR)
        self.topic = self.realm.state().topic(TOPIC)
        self.frames = self.realm.paths.topic(TOPIC).frames(0)
        self._sealers = {name: Insider.of(self.realm, TOPIC, name).sealer(self.topic) for name in ("ann", "mallory")}
        self.step = EndpointStep(StepName(str(self.realm.paths.root), TOPIC))
        self.step.begin()
        self.reached, self.windows = self.step.initial, Windows(self.step.gate(self.realm.registry.version()).bounds)
        self.batches: list[tuple[PinnedOffset, PinnedOffset]] = []

    @contextmanager
    def clock(self, off_us: int) -> Iterator[None]:
        """Somebody whose clock is off."""
        self.now += off_us
        try:
            yield
        finally:
            self.now -= off_us

    def publish(self, name: str) -> None:
        values = [SCHEMA.parse({"price": 1})]
        self.append(self._sealers[name].seal(values, [b""], ["text/plain"], self.now))

    def append(self, data: bytes) -> None:
        with FrameLog(self.frames) as log:
            log.append([data])

    def take(self) -> list[str]:
        """The next batch: what became of each of its frames."""
        start, now = self.reached, self.now
        self.reached = self.step.pinned(start, self.step.available(), now)
        self.batches.append((start, self.reached))
        return judged(self.step, start, self.reached, self.windows)


def judged(step: EndpointStep, start: PinnedOffset, end: PinnedOffset, windows: Windows) -> list[str]:
    """Through both halves of admission, as the pipeline puts them together: the second words what the first refused."""
    gate = step.gate(end.version)
    codes = rule_frames(windows, step.frames, start.ranges(end), gate, start.arrival(end), end.settled_us)
    rulings = [(p, first + i, code) for p, first, _ in start.ranges(end) for i, code in enumerate(codes[p].tolist())]
    found = {offset: "admitted" for _, offset, _ in rulings}
    for batch in step.make(end.pinned, np.array(rulings, RULING), HeldFrames(step.frames)):
        for row in batch.to_pylist():
            found |= {r.position.offset: str(r.reason) for r in sealed.parse(row["piece"]).rejected}
    return [found[offset] for offset in sorted(found)]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


@pytest.fixture
def stamps_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was: the stamp of whoever appends counts, and moves everybody's after it."""
    monkeypatch.setattr(Arrival, "at", lambda self, stamp_us: stamp_us)
    monkeypatch.setattr(FrameLog, "ordered", True)


# --- ahead ------------------------------------------------------------------------------------------------


def ahead(world: World) -> list[str]:
    with world.clock(2 * DAY):
        world.publish("mallory")
    world.now += MINUTE
    world.publish("ann")
    return world.take()


def test_a_publisher_whose_clock_is_ahead_locks_nobody_out(world: World) -> None:
    assert ahead(world) == [Reason.TIME, "admitted"]


def test_it_did_where_stamps_are_believed(world: World, stamps_believed: None) -> None:
    assert ahead(world)[1] != "admitted"


def junk(world: World) -> list[str]:
    with world.clock(3650 * DAY):
        world.append(b"junk")
    world.publish("ann")
    return world.take()


def test_a_junk_record_of_ten_years_ahead_stops_nothing(world: World) -> None:
    assert junk(world) == [Reason.FRAME, "admitted"]
    world.now += MINUTE
    world.publish("ann")
    assert world.take() == ["admitted"]


def test_it_stopped_everything_where_stamps_are_believed(world: World, stamps_believed: None) -> None:
    assert junk(world)[1] == Reason.CENTER, "in ten years no certificate counts any more"


def test_a_junk_record_does_not_age_what_waits_for_a_broker_that_is_down(world: World) -> None:
    """Its neighbours keep their own stamps: judged when the broker comes back, ann's token would have ended."""
    with world.clock(3650 * DAY):
        world.append(b"junk")
    world.publish("ann")
    world.now += 26 * HOUR
    assert world.take() == [Reason.FRAME, "admitted"]


# --- behind -----------------------------------------------------------------------------------------------


def back_dated(world: World) -> list[str]:
    world.publish("mallory")
    world.now += MINUTE
    assert world.take() == ["admitted"]
    # Her right ends; nothing comes for a while, and the broker goes on looking.
    world.now += 2 * HOUR
    world.step.available()
    world.now += MINUTE
    with world.clock(-2 * HOUR):
        world.publish("mallory")
    return world.take()


def test_a_back_dated_stamp_does_not_outlive_a_right(world: World) -> None:
    assert back_dated(world) == [Reason.TOKEN_TIME], "her token ends with her right"


def test_it_did_before(world: World, stamps_believed: None) -> None:
    assert back_dated(world) == ["admitted"]


def test_what_came_while_nobody_looked_is_judged_as_stamped_and_no_earlier(world: World) -> None:
    world.publish("mallory")
    world.now += MINUTE
    assert world.take() == ["admitted"]
    with world.clock(20 * MINUTE):
        world.publish("mallory")
    world.now += 3 * HOUR
    with world.clock(-4 * HOUR):
        world.publish("ann")  # before the broker looked last: it came later, whatever it says
    assert world.take() == ["admitted", "admitted"]
    (_, _), (start, end) = world.batches
    assert start.arrival(end).at(world.now - 4 * HOUR) == start.time_us


# --- the same again -----------------------------------------------------------------------------------------


def test_a_batch_that_is_run_again_judges_the_same(world: World) -> None:
    key = world.step.journal_key
    first = [ahead(world), junk(world), back_dated(world)]
    world.now += 30 * DAY
    step, windows = EndpointStep(StepName(str(world.realm.paths.root), TOPIC)), Windows(world.windows._bounds)
    again = list[list[str]]()
    for batch in world.batches:
        start, end = (PinnedOffset.from_json(json.loads(json.dumps(at.to_json(key))), key) for at in batch)
        assert (start, end) == batch
        assert PinnedOffset.from_cbor(end.to_cbor()) == end
        again.append(judged(step, start, end, windows))
    assert [again[0], again[1], again[-1]] == first


def test_the_checker_judges_by_the_ledgers_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    with world.clock(2 * DAY):
        world.publish("mallory")
    world.publish("ann")
    counts = pump(world.realm, TOPIC)
    assert counts["admitted"] == 1 and counts["rejected_time"] == 1
    assert EndpointAudit(world.realm, TOPIC).run().ok
    with LedgerReader(world.realm.paths.topic(TOPIC).ledger) as ledger:
        entry = ledger.at(0).entry
    assert entry.arrival == Arrival(0, world.now)
    monkeypatch.setattr(Entry, "arrival", property(lambda self: Arrival(0, 1 << 52)))
    assert not EndpointAudit(world.realm, TOPIC).run().ok, "by the stamps, ann's event was stale"


# --- what a broker remembers of its looks --------------------------------------------------------------------


def test_every_frame_came_between_the_two_looks_that_its_batch_says() -> None:
    """Random appends, looks, batches that take some of what there is, and clocks that are set back."""
    for seed in range(50):
        rng = random.Random(seed)
        looks, came, reached, now = Looks(), [list[int](), list[int]()], [0, 0], 1_000
        settled = 0
        for _ in range(200):
            now += rng.randrange(5)
            choice = rng.randrange(3)
            if choice == 0:
                came[rng.randrange(2)].append(now)
            elif choice == 1:
                looks.saw([len(part) for part in came], now)
            else:
                ends = [len(part) for part in came]
                looks.saw(ends, now)
                taken = [rng.randint(a, b) for a, b in zip(reached, ends, strict=True)]
                looks.forget(reached)
                since = max(settled, looks.last_before(reached))
                settled = max(settled, looks.last_before(taken))
                for part, a, b in zip(came, reached, taken, strict=True):
                    assert all(since <= at <= now for at in part[a:b])
                    assert all(at >= settled for at in part[b:])
                reached = taken
    assert settled > 1_000


def test_looks_are_bounded_and_never_go_back() -> None:
    looks = Looks()
    looks.saw([0], 100)
    looks.saw([0], 50)
    assert looks.last_before([0]) == 100, "a clock that is set back takes no time back"
    for number in range(2 * MAX_LOOKS):
        looks.saw([number], 101 + number)
    assert len(looks._kept) == MAX_LOOKS and looks.last_before([0]) == 101
    looks.forget([MAX_LOOKS])
    assert len(looks._kept) == 1
    assert looks.last_before([]) == 0


# --- the log ------------------------------------------------------------------------------------------------


def test_a_frame_log_keeps_each_writers_clock_and_answers_no_question_of_time(world: World) -> None:
    stamps = [world.now, world.now + DAY, world.now - DAY]
    for stamp in stamps:
        with world.clock(stamp - world.now):
            world.append(b"x")
    with FrameLog(world.frames) as log:
        assert [record.time_us for record in log.read(0)] == stamps
        for ask in (lambda: log.offset_at(0), lambda: log.retain(max_age_us=1)):
            with pytest.raises(Misuse, match="its writers' clocks"):
                ask()
    with EmbeddedLog(world.frames, read_only=True) as ordered, pytest.raises(Corrupt, match="before that of the last"):
        list(ordered.read(0))
