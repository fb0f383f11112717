"""The bounded clock: whatever the network does, the true difference stays within the bound; without one, no time."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse, Rejected, SealcastError, Unavailable
from sealcast.trust.clock import Bound, Clock, Estimate, Exchange, SkewBoundedClock, SystemClock, system_party

SECOND = 1_000_000
delays = st.integers(0, 2 * SECOND)


class World:
    """Two machines: ours, steady, and theirs, off by so much and running too fast by so many parts per million."""

    def __init__(self, offset: int, drift_ppm: int = 0) -> None:
        self.now = 10 * SECOND
        self.offset = offset
        self.drift_ppm = drift_ppm

    def difference(self) -> int:
        return self.offset + self.now * self.drift_ppm // 1_000_000

    def theirs(self) -> int:
        return self.now + self.difference()

    def exchange(self, there: int, inside: int, back: int) -> Exchange:
        sent = self.now
        self.now += there
        received = self.theirs()
        self.now += inside
        replied = self.theirs()
        self.now += back
        return Exchange(sent, received, replied, self.now)


def test_the_formulas_are_ntps() -> None:
    """RFC 5905, section 8: offset ((t2-t1)+(t3-t4))/2, delay (t4-t1)-(t3-t2)."""
    bound = Bound.of(Exchange(sent=100, received=1_160, replied=1_170, back=150))
    assert bound.offset == ((1_160 - 100) + (1_170 - 150)) // 2 == 1_040
    assert bound.error == ((150 - 100) - (1_170 - 1_160)) // 2 == 20


@given(
    st.integers(-(10**12), 10**12),
    st.integers(-150, 150),
    st.lists(st.tuples(delays, delays, delays, st.integers(0, 600 * SECOND)), min_size=1, max_size=8),
)
def test_the_true_difference_is_within_the_bound_whatever_the_ways_take(
    offset: int, drift: int, exchanges: list[tuple[int, int, int, int]]
) -> None:
    world, estimate = World(offset, drift), Estimate(drift_ppm=200)
    for there, inside, back, later in exchanges:
        estimate = estimate.observe(world.exchange(there, inside, back))
        for _ in range(2):
            bound = estimate.at(world.now)
            # Reading the world in whole microseconds costs one at either end.
            assert bound is not None and bound.low - 1 <= world.difference() <= bound.high + 1
            assert abs(bound.offset - world.difference()) <= bound.error + 1
            world.now += later
    assert estimate.jumps == 0


@given(st.lists(st.tuples(delays, delays), min_size=1, max_size=8))
def test_more_exchanges_never_make_it_worse_and_the_quickest_bounds_it(ways: list[tuple[int, int]]) -> None:
    world, estimate, errors = World(123_456), Estimate(drift_ppm=0), []
    for there, back in ways:
        estimate = estimate.observe(world.exchange(there, 0, back))
        assert estimate.bound is not None
        errors.append(estimate.bound.error)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] <= min(there + back for there, back in ways) // 2 + 1


@pytest.mark.parametrize(
    ("times", "error", "words"),
    [
        ((100, 0, 0, 99), Misuse, "comes after its question"),
        ((100, 60, 50, 200), Rejected, "replied before the question was received"),
        ((100, 1_000, 1_200, 200), Rejected, "longer than we waited"),
    ],
)
def test_answers_that_cannot_be_are_refused(
    times: tuple[int, int, int, int], error: type[SealcastError], words: str
) -> None:
    with pytest.raises(error, match=words):
        Exchange(*times)


def test_an_attacker_who_delays_messages_gains_a_refusal_and_no_other_time() -> None:
    world = World(0)
    clock = SkewBoundedClock(SECOND // 2, steady=lambda: world.now)
    clock.observe(world.exchange(there=5 * SECOND, inside=0, back=0))
    with pytest.raises(Unavailable, match="known to 2.501 s only, where 0.500 s are allowed"):
        clock.now_us()
    clock.observe(world.exchange(1_000, 0, 3_000))
    assert abs(clock.now_us() - world.theirs()) <= clock.error_us() <= 4_002


def test_a_clock_that_was_never_set_tells_no_time() -> None:
    with pytest.raises(Unavailable, match="nobody was asked"):
        SkewBoundedClock().now_us()
    with pytest.raises(Unavailable):
        SkewBoundedClock().error_us()


def test_a_bound_grows_old() -> None:
    world = World(50)
    clock = SkewBoundedClock(10_000, drift_ppm=100, steady=lambda: world.now)
    clock.observe(world.exchange(500, 0, 500))
    world.now += 90 * SECOND
    assert abs(clock.now_us() - world.theirs()) <= 10_000
    world.now += 10 * SECOND
    with pytest.raises(Unavailable, match="ask for the time again|known to"):
        clock.now_us()


@given(st.lists(st.tuples(delays, delays, st.integers(0, SECOND)), min_size=1, max_size=10))
def test_time_does_not_go_backwards_and_stays_within_its_error(ways: list[tuple[int, int, int]]) -> None:
    world, told = World(777), []
    clock = SkewBoundedClock(4 * SECOND, drift_ppm=10, steady=lambda: world.now)
    for there, back, later in ways:
        clock.observe(world.exchange(there, 0, back))
        for _ in range(2):
            told.append(clock.now_us())
            assert abs(told[-1] - world.theirs()) <= clock.error_us()
            world.now += later
    assert told == sorted(told)


def test_time_that_went_elsewhere_is_followed_even_backwards() -> None:
    world = World(3_600 * SECOND)
    clock = SkewBoundedClock(steady=lambda: world.now)
    clock.observe(world.exchange(10, 0, 10))
    before = clock.now_us()
    world.offset = 0
    clock.observe(world.exchange(10, 0, 10))
    assert clock.now_us() < before and abs(clock.now_us() - world.theirs()) <= clock.error_us()


def test_a_clock_of_theirs_that_jumped_is_believed_anew_and_counted() -> None:
    world, estimate = World(0), Estimate()
    estimate = estimate.observe(world.exchange(100, 0, 100))
    world.offset = 3_600 * SECOND
    estimate = estimate.observe(world.exchange(100, 0, 100))
    assert estimate.jumps == 1 and estimate.bound is not None
    assert abs(estimate.bound.offset - 3_600 * SECOND) <= 100
    with pytest.raises(Misuse, match="in the order"):
        estimate.observe(Exchange(0, 0, 0, 1))


def test_the_ports() -> None:
    """The machine's own clock, and one that is set by asking it."""
    system: Clock = SystemClock(vouched_us=250)
    assert system.error_us() == 250 and system.now_us() > 1_700_000_000 * SECOND
    bounded = SkewBoundedClock()
    for _ in range(3):
        bounded.ask(system_party(system))
    port: Clock = bounded
    assert abs(port.now_us() - system.now_us()) < SECOND and port.error_us() < SECOND


def test_what_makes_no_sense_is_refused() -> None:
    for limit, drift in itertools.product((0, 1), (-1, 0)):
        if (limit, drift) != (1, 0):
            with pytest.raises(Misuse):
                SkewBoundedClock(limit, drift_ppm=drift)
