"""What a subscriber has had: exact while it remembers, bounded whatever comes, and nobody is forgotten for others."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.log import had as module
from sealcast.log.had import MAX_PUBLISHERS, MAX_RUNS, MAX_RUNS_EACH, EventId, Had, HadVerdict

FRESH, REPEATED, TOO_OLD = HadVerdict.FRESH, HadVerdict.REPEATED, HadVerdict.TOO_OLD


def event(number: int, boot: int = 0, publisher: str = "nyse", time_us: int | None = None) -> EventId:
    return EventId(publisher, boot.to_bytes(16, "big"), number, number if time_us is None else time_us)


def again(had: Had) -> Had:
    """As a file keeps it."""
    return Had.from_json(json.loads(json.dumps(had.to_json())))


@given(numbers=st.lists(st.integers(0, 40), max_size=60), asked=st.integers(0, 45))
def test_it_is_a_set_while_there_is_room(numbers: list[int], asked: int) -> None:
    had = Had()
    for number in numbers:
        had.add(event(number))
    for each in (had, again(had)):
        assert each.judge(event(asked)) is (REPEATED if asked in numbers else FRESH)
        assert each.judge(event(asked, boot=1)) is FRESH and each.judge(event(asked, publisher="lse")) is FRESH


@given(st.lists(st.integers(0, 60), max_size=40), st.lists(st.integers(0, 60), max_size=40))
def test_two_of_them_together_remember_what_either_does(ones: list[int], others: list[int]) -> None:
    one, other = Had(), Had()
    for had, numbers in ((one, ones), (other, others)):
        for number in numbers:
            had.add(event(number, boot=number % 3))
    one.take(other)
    assert all(one.judge(event(n, boot=n % 3)) is (REPEATED if n in {*ones, *others} else FRESH) for n in range(61))


def test_events_in_order_take_one_run_however_many() -> None:
    had = Had()
    for number in range(20_000):
        assert had.judge(event(number)) is FRESH
        had.add(event(number))
    assert len(json.dumps(had.to_json())) < 200
    assert had.judge(event(0)) is REPEATED and had.judge(event(20_000)) is FRESH


def test_what_nobody_remembers_is_too_old_and_never_fresh() -> None:
    """A reader whose filter takes every second event: each is a run of its own."""
    had = Had()
    for number in range(0, 6 * MAX_RUNS_EACH, 2):
        had.add(event(number))
    for each in (had, again(had)):
        assert each.judge(event(0)) is TOO_OLD and each.judge(event(1)) is TOO_OLD
        assert each.judge(event(6 * MAX_RUNS_EACH - 2)) is REPEATED
        assert each.judge(event(6 * MAX_RUNS_EACH - 3)) is FRESH, "one that comes a little late is taken"


def test_who_begins_boot_after_boot_is_forgotten_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RUNS", 256)
    had = Had()
    for number in range(0, 100, 2):
        had.add(event(number, publisher="quiet"))
    for boot in range(1, 3_000):
        had.add(event(0, boot=boot, publisher="restless", time_us=boot))
    assert all(had.judge(event(number, publisher="quiet")) is REPEATED for number in range(0, 100, 2))
    assert all(had.judge(event(0, boot=b, publisher="restless", time_us=b)) is not FRESH for b in range(1, 3_000))
    assert had.judge(event(0, boot=3_000, publisher="restless", time_us=3_000)) is FRESH


def test_memory_is_bounded_whoever_publishes() -> None:
    random, had = Random(7), Had()
    for n in range(3 * MAX_RUNS):
        had.add(
            event(2 * random.randrange(10_000), boot=random.randrange(40), publisher=f"p{n % (MAX_PUBLISHERS + 9)}")
        )
    body = had.to_json()
    assert len(body) <= MAX_PUBLISHERS
    assert sum(len(boot[3]) // 2 for _, _, boots in body for boot in boots) <= MAX_RUNS
    assert len(json.dumps(body)) < 2 << 20, "what a cursor file may have"


@pytest.mark.parametrize("bad", [[["nyse", 0, [["00", 0, 0, [1, 0]]]]], [["nyse", 0, [["00", 0, 0, [1]]]]], [1], "x"])
def test_what_is_none_is_refused(bad: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        Had.from_json(bad)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.booleans(), st.booleans())),
    st.booleans(),
)
def test_a_batch_is_judged_as_its_events_one_by_one(batches: list[tuple[list[int], bool, bool]], roomy: bool) -> None:
    """With room for few runs, so that forgetting is part of it."""
    with pytest.MonkeyPatch.context() as patch:
        if not roomy:
            patch.setattr(module, "MAX_RUNS_EACH", 3)
            patch.setattr(module, "MAX_RUNS", 4)
        at_once, one_by_one = Had(), Had()
        for time_us, (given_, ordered, late) in enumerate(batches):
            numbers = sorted({*given_}) if ordered else given_
            boot = time_us % 2
            expected = list[bool]()
            for number in numbers:
                asked = event(number, boot, time_us=time_us)
                verdict = one_by_one.judge(asked)
                expected.append(verdict is FRESH or (verdict is TOO_OLD and late))
                if expected[-1]:
                    one_by_one.add(asked)
            assert at_once.admit(event(0, boot, time_us=time_us), numbers, late=late) == expected
            assert at_once.to_json() == one_by_one.to_json()
