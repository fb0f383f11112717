"""Replay windows against an oracle that remembers every number by itself, and the clock that lets them forget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.broker import replay
from sealcast.broker.quota import Quota
from sealcast.broker.replay import CLAIM, Claims, ReplayBounds, ReplayVerdict, Windows, identify
from sealcast.broker.rulings import Publishers, decide_part
from sealcast.errors import Corrupt, Misuse
from sealcast.log.forwarded import partition_of

PERIOD = 1_000
WIDE = Quota(10**9, 10**9, 86_400)
BOUNDS = ReplayBounds(200, PERIOD - 200, WIDE)
ANN, BEN = "ann", "ben"


@dataclass(frozen=True)
class Said:
    """A frame, as the tests write it."""

    sequence: int
    count: int = 1
    time: int = 0
    publisher: str = ANN
    boot: int = 0
    partition: int = 0
    size: int = 100


def claims(said: Sequence[Said], first_offset: int = 0) -> Claims:
    rows = np.zeros(len(said), CLAIM)
    for at, one in enumerate(said):
        known = identify(one.publisher, one.boot.to_bytes(16, "big"))
        rows[at] = (one.partition, first_offset + at, one.time, *known, one.sequence, one.count, one.size, 0)
    return rows


def decided(windows: Windows, *said: Said) -> list[ReplayVerdict]:
    return [ReplayVerdict(v) for v in windows.decide(claims(said))]


# --- what is what -----------------------------------------------------------------------------------


def test_a_frame_is_fresh_once() -> None:
    windows = Windows(BOUNDS)
    assert decided(windows, Said(0, 10), Said(10, 5)) == [ReplayVerdict.FRESH] * 2
    assert decided(windows, Said(0, 10), Said(15, 5), Said(10, 5)) == [
        ReplayVerdict.DUPLICATE,
        ReplayVerdict.FRESH,
        ReplayVerdict.DUPLICATE,
    ]
    assert len(windows) == 1, "a publisher in order is one run, however much it says"


def test_one_number_seen_is_enough_and_the_rest_of_the_frame_is_not_taken() -> None:
    windows = Windows(BOUNDS)
    decided(windows, Said(10, 10))
    assert decided(windows, Said(5, 6), Said(19, 9), Said(12, 2)) == [ReplayVerdict.DUPLICATE] * 3
    assert decided(windows, Said(5, 5), Said(20, 9)) == [ReplayVerdict.FRESH] * 2


def test_out_of_order_is_fresh_and_of_equals_the_first_in_the_log_counts() -> None:
    windows = Windows(BOUNDS)
    assert decided(windows, Said(50, 10), Said(0, 10), Said(30, 10), Said(50, 10)) == [
        *[ReplayVerdict.FRESH] * 3,
        ReplayVerdict.DUPLICATE,
    ]
    late, early = Said(70, 1, time=9, partition=0), Said(70, 1, time=3, partition=1)
    assert decided(windows, late, early) == [ReplayVerdict.DUPLICATE, ReplayVerdict.FRESH]


def test_boots_and_publishers_have_numbers_of_their_own() -> None:
    windows = Windows(BOUNDS)
    everyone = [Said(0, 10, publisher=who, boot=boot) for who in (ANN, BEN) for boot in (1, 2)]
    assert decided(windows, *everyone) == [ReplayVerdict.FRESH] * 4
    assert decided(windows, *everyone) == [ReplayVerdict.DUPLICATE] * 4


def test_what_overlaps_in_part_within_a_batch_is_decided_in_order() -> None:
    assert decided(Windows(BOUNDS), Said(0, 10), Said(5, 10), Said(12, 10)) == [
        ReplayVerdict.FRESH,
        ReplayVerdict.DUPLICATE,
        ReplayVerdict.FRESH,
    ]


def test_what_is_far_behind_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "WINDOW_EVENTS", 100)
    windows = Windows(BOUNDS)
    decided(windows, Said(1_000, 10))
    assert decided(windows, Said(909, 1), Said(910, 1)) == [ReplayVerdict.TOO_OLD, ReplayVerdict.FRESH]


def test_a_boot_with_too_many_gaps_loses_the_lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_RUNS", 3)
    windows = Windows(BOUNDS)
    decided(windows, *(Said(10 * n, 1) for n in range(5)))
    assert len(windows) == 3
    assert decided(windows, Said(15), Said(25)) == [ReplayVerdict.TOO_OLD, ReplayVerdict.FRESH]


def test_a_publisher_may_begin_so_often_and_no_oftener(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_BOOTS", 3)
    windows = Windows(BOUNDS)
    assert decided(windows, *(Said(0, boot=n) for n in range(4))) == [*[ReplayVerdict.FRESH] * 3, ReplayVerdict.BOOTS]
    assert decided(windows, Said(1, boot=2), Said(0, boot=9), Said(0, boot=9, publisher=BEN)) == [
        ReplayVerdict.FRESH,
        ReplayVerdict.BOOTS,
        ReplayVerdict.FRESH,
    ]
    assert len(windows) == 4, "what is refused is not remembered"


def test_generations_are_dropped_when_no_copy_can_come_any_more() -> None:
    windows = Windows(BOUNDS)
    decided(windows, Said(0, time=0), Said(1, time=PERIOD), Said(2, time=2 * PERIOD))
    windows.forget(2 * PERIOD - 1)
    assert len(windows) == 3
    windows.forget(2 * PERIOD)
    assert len(windows) == 2
    assert decided(windows, Said(1, time=2 * PERIOD)) == [ReplayVerdict.DUPLICATE]
    windows.forget(9 * PERIOD)
    assert len(windows) == 0


def test_two_copies_that_pass_the_clock_are_never_further_apart_than_what_is_kept() -> None:
    """The first as early, and the second as late, as a frame of time 5,000 can come."""
    time = 5_000
    first, second = time - BOUNDS.max_skew_us, time + BOUNDS.stale_after_us
    windows = Windows(BOUNDS)
    assert decided(windows, Said(7, time=first)) == [ReplayVerdict.FRESH]
    windows.forget(second)  # nothing older than the copy is still to come
    assert decided(windows, Said(7, time=second)) == [ReplayVerdict.DUPLICATE]


# --- the oracle -------------------------------------------------------------------------------------


@dataclass
class Oracle:
    """Every number of every boot, one by one, in plain sets."""

    seen: dict[int, dict[tuple[str, int], set[int]]] = field(default_factory=dict)
    floors: dict[int, dict[tuple[str, int], int]] = field(default_factory=dict)

    def decide(self, said: Sequence[Said]) -> list[ReplayVerdict]:
        order = sorted(range(len(said)), key=lambda i: (said[i].time, said[i].partition, i))
        verdicts = [ReplayVerdict.FRESH] * len(said)
        for generation in sorted({one.time // PERIOD for one in said}):
            mine = [i for i in order if said[i].time // PERIOD == generation]
            now: dict[tuple[str, int], set[int]] = {}
            for i in mine:
                one, boot = said[i], (said[i].publisher, said[i].boot)
                numbers = set(range(one.sequence, one.sequence + one.count))
                if any(one.sequence < floors.get(boot, 0) for floors in self.floors.values()):
                    verdicts[i] = ReplayVerdict.TOO_OLD
                elif any(numbers & seen.get(boot, set()) for seen in (now, *self.seen.values())):
                    verdicts[i] = ReplayVerdict.DUPLICATE
                else:
                    now.setdefault(boot, set()).update(numbers)
            for boot, numbers in now.items():
                self._remember(generation, boot, numbers)
        return verdicts

    def _remember(self, generation: int, boot: tuple[str, int], numbers: set[int]) -> None:
        seen = self.seen.setdefault(generation, {})
        floors = self.floors.setdefault(generation, {})
        seen[boot] = seen.get(boot, set()) | numbers
        starts = sorted(n for n in seen[boot] if n - 1 not in seen[boot])
        floor = max(floors.get(boot, 0), max(seen[boot]) + 1 - replay.WINDOW_EVENTS)
        if len(starts) > replay.MAX_RUNS:
            floor = max(floor, starts[-replay.MAX_RUNS])
        floors[boot] = floor
        seen[boot] = {n for n in seen[boot] if n >= floor}

    def forget(self, settled: int) -> None:
        for table in (self.seen, self.floors):
            for generation in [g for g in table if g < settled // PERIOD - 1]:
                del table[generation]


frames = st.builds(
    Said,
    sequence=st.integers(0, 60),
    count=st.integers(1, 8),
    time=st.integers(0, 4 * PERIOD),
    publisher=st.sampled_from([ANN, BEN]),
    boot=st.integers(0, 1),
    partition=st.integers(0, 1),
)


@given(st.lists(st.tuples(st.lists(frames, max_size=12), st.integers(0, 4 * PERIOD)), max_size=8))
def test_batches_are_decided_as_the_oracle_does(batches: list[tuple[list[Said], int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "WINDOW_EVENTS", 30)
        patch.setattr(replay, "MAX_RUNS", 3)
        windows, oracle, settled = Windows(BOUNDS), Oracle(), 0
        for said, step in batches:
            assert decided(windows, *said) == oracle.decide(said)
            settled = max(settled, step)
            windows.forget(settled)
            oracle.forget(settled)
            windows = Windows.unpack(windows.pack(), BOUNDS)


@given(st.lists(st.lists(frames, max_size=12), max_size=6))
def test_what_was_decided_can_be_taken_again_from_the_frames_that_were_accepted(batches: list[list[Said]]) -> None:
    """A new checkpoint has the verdicts from the ledger, and must come to the same state, byte for byte."""
    tight = ReplayBounds(200, PERIOD - 200, Quota(10**6, 10**6, 1))
    went, again = Windows(tight), Windows(tight)
    for said in batches:
        asked = claims(said)
        verdicts = went.decide(asked)
        spent = (
            (verdicts == ReplayVerdict.FRESH) | (verdicts == ReplayVerdict.EVENTS) | (verdicts == ReplayVerdict.BYTES)
        )
        again.take(asked[spent], verdicts[spent] == ReplayVerdict.FRESH)
    assert again.pack() == went.pack()


#: Frames that are in each other's way more often than not.
close = st.builds(
    Said,
    sequence=st.integers(0, 9),
    count=st.integers(1, 3),
    time=st.integers(0, 3) | st.integers(0, 2 * PERIOD),
    publisher=st.sampled_from([ANN, BEN]),
    boot=st.integers(0, 3).map(lambda n: max(0, n - 2)),
    partition=st.integers(0, 1),
)


@given(
    st.lists(st.lists(close, max_size=4), max_size=2),
    st.lists(st.tuples(close, st.booleans(), st.integers(0, 2)), min_size=4, max_size=16),
    st.sampled_from([WIDE, Quota(3, 10**6, 1), Quota(10**6, 300, 1)]),
)
def test_a_task_decides_about_its_part_as_whoever_has_all_does(
    before: list[list[Said]], batch: list[tuple[Said, bool, int]], quota: Quota
) -> None:
    """Each frame of a batch may be signed or forged, and is one of three tasks'. A task knows which of its own are
    signed, and of the others what they say."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("WINDOW_EVENTS", 30), ("MAX_RUNS", 3), ("MAX_BOOTS", 2)):
            patch.setattr(replay, name, value)
        windows = Windows(ReplayBounds(200, PERIOD - 200, quota))
        for said in before:
            windows.decide(claims(said))
        packed = windows.pack()
        asked = claims([one for one, _, _ in batch])
        signed, task = (np.array([row[at] for row in batch], kind) for at, kind in ((1, np.bool_), (2, np.int64)))
        wanted = windows.copy().decide(asked[signed])
        for number in range(3):
            mine = task == number

            def of(publishers: Publishers, others: Claims = asked[signed & ~mine]) -> Claims:
                return others[np.isin(others["publisher"], publishers)]

            got = decide_part(windows, asked[signed & mine], asked[~mine], of)
            assert got.tolist() == wanted[mine[signed]].tolist()
        assert windows.pack() == packed, "nobody else's windows are changed"


def test_what_is_in_another_partition_than_its_publishers_is_a_copy_and_leaves_nothing() -> None:
    windows = Windows(BOUNDS)
    copy = claims([Said(0, 10)])
    copy["elsewhere"] = 1
    assert windows.decide(copy).tolist() == [ReplayVerdict.ELSEWHERE]
    assert len(windows) == 0
    assert decided(windows, Said(0, 10)) == [ReplayVerdict.FRESH]


@given(st.lists(frames, max_size=30), st.integers(1, 4))
def test_windows_of_lanes_are_those_of_their_publishers(said: list[Said], partitions: int) -> None:
    windows = Windows(BOUNDS)
    windows.decide(claims(said))
    for lane in range(partitions):
        mine = [one for one in said if partition_of(one.publisher, partitions) == lane]
        alone = Windows(BOUNDS)
        alone.decide(claims(mine))
        found = windows.of_lanes({lane}, partitions)
        assert len(found) == len(alone)
        assert decided(found, *mine) == decided(alone, *mine)


# --- rates ------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(frames, max_size=12), max_size=5),
    st.integers(1, 10),
    st.integers(1, 1000),
)
def test_rates_are_those_of_a_bucket_that_is_filled_drop_by_drop(
    batches: list[list[Said]], events: int, size: int
) -> None:
    quota = Quota(events, size, 1)
    bounds = ReplayBounds(200, PERIOD - 200, quota)
    windows = Windows(bounds)
    full: dict[tuple[int, str], list[int]] = {}
    number = 0
    for said in batches:
        batch = []
        for one in said:  # every number once: only the rate is in question
            batch.append(Said(number, one.count, one.time, one.publisher, 0, one.partition, one.size))
            number += one.count
        got = decided(windows, *batch)
        order = sorted(range(len(batch)), key=lambda i: (batch[i].time, batch[i].partition, i))
        wanted = [ReplayVerdict.FRESH] * len(batch)
        for i in order:
            one = batch[i]
            levels = full.setdefault((one.time // PERIOD, one.publisher), [0, 0])
            costs = (one.count * quota.event_ns, one.size * quota.byte_ns)
            after = [max(level, one.time * 1000) + cost for level, cost in zip(levels, costs, strict=True)]
            if after[0] - one.time * 1000 > quota.burst_ns:
                wanted[i] = ReplayVerdict.EVENTS
            elif after[1] - one.time * 1000 > quota.burst_ns:
                wanted[i] = ReplayVerdict.BYTES
            else:
                levels[:] = after
        assert got == wanted


def test_what_was_refused_for_its_rate_is_spent_all_the_same() -> None:
    windows = Windows(ReplayBounds(200, PERIOD - 200, Quota(1, 10**9, 1)))
    assert decided(windows, Said(0), Said(1)) == [ReplayVerdict.FRESH, ReplayVerdict.EVENTS]
    assert decided(windows, Said(1)) == [ReplayVerdict.DUPLICATE]


@pytest.mark.parametrize("wrong", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (10**10, 1, 1), (1, 1, 10**6)])
def test_a_quota_that_cannot_be_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(Misuse):
        Quota(*wrong)


# --- packed -----------------------------------------------------------------------------------------


def test_packed_windows_that_are_none_are_refused() -> None:
    windows = Windows(BOUNDS)
    decided(windows, Said(0), Said(5, time=PERIOD))
    packed = windows.pack()
    other = ReplayBounds(200, PERIOD, WIDE)
    for wrong in (b"", packed[:-1], packed + b"x", b"XXXX" + packed[4:], packed[:16]):
        with pytest.raises(Corrupt):
            Windows.unpack(wrong, BOUNDS)
    with pytest.raises(Corrupt):
        Windows.unpack(packed, other)


def test_ten_thousand_publishers_take_little_room() -> None:
    windows = Windows(BOUNDS)
    rows = np.zeros(10_000, CLAIM)
    rows["hi"] = rows["publisher"] = np.arange(10_000)
    rows["count"], rows["size"] = 1_000, 1
    for batch in range(5):
        rows["sequence"] = 1_000 * batch
        assert not windows.decide(rows).any()
    assert len(windows.pack()) < 80 * 10_000
