"""What time it is elsewhere, and how sure we are: a clock with a bound on its error, or none at all.

Tokens begin and end, frames are fresh or stale, and spacing is measured: all of it between machines whose clocks
differ. A party that is asked for the time (a broker, say, over a control topic) answers with when it got the question
and when it replied, as in NTP:

    ours    sent t1                        back t4
                 \\                        /
    theirs        received t2 - replied t3

The difference between the two clocks lies, whatever the way there and the way back took, within half of what the
exchange spent on the way:

    offset = ((t2 - t1) + (t3 - t4)) / 2        error = ((t4 - t1) - (t3 - t2)) / 2

Nothing more is assumed, so that whoever delays a message can only widen the bound: it cannot move the true difference
out of it. Several exchanges bound it each; all bounds hold, so that their intersection does (Marzullo). Between
exchanges a bound widens by what two clocks may drift apart. Once it exceeds the limit, the clock refuses to tell the
time, because a time of unknown error admits what is expired.

A party that lies about its own clock is believed: ask one whose word counts, in an envelope that it signed. If two
exchanges contradict each other, one of them was answered by a clock that jumped; the newer one then counts alone.

Bounds and estimates are functions of the times that are passed in; only the clocks at the ends read a machine's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from sealcast.errors import Misuse, Rejected, Unavailable

#: How far two ordinary quartz clocks drift apart, in parts per million: 100 each.
DRIFT_PPM: Final = 200
#: The widest error that is worth having: far below how long tokens are valid, far above what a local network needs.
LIMIT_US: Final = 500_000
_PPM: Final = 1_000_000


class Clock(Protocol):
    """The port: what time it is, in microseconds since 1970, and at most how wrong that is."""

    def now_us(self) -> int: ...

    def error_us(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's own clock, which something else keeps right (NTP, PTP), to within what its operator vouches for."""

    vouched_us: int = 0

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def error_us(self) -> int:
        return self.vouched_us


def steady_us() -> int:
    """The machine's clock that never jumps: what exchanges are timed with. Its zero is arbitrary."""
    return time.monotonic_ns() // 1000


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer: sent and back by our clock, received and replied by theirs, in microseconds."""

    sent: int
    received: int
    replied: int
    back: int

    def __post_init__(self) -> None:
        if self.back < self.sent:
            raise Misuse(f"an answer comes after its question: back at {self.back}, sent at {self.sent}")
        if self.replied < self.received:
            raise Rejected("an answer about the time that was replied before the question was received")
        if self.replied - self.received > self.back - self.sent:
            raise Rejected("an answer about the time that took them longer than we waited for it", hint="ask again")


@dataclass(frozen=True, slots=True)
class Bound:
    """At our time `at`, theirs less ours lies between `low` and `high`, and drifts off slowly from then on."""

    at: int
    low: int
    high: int

    @classmethod
    def of(cls, exchange: Exchange, drift_ppm: int = 0) -> Bound:
        """Their clock showed t2 after we sent at t1, and t3 before we had the answer at t4; it drifted meanwhile."""
        seen = cls(exchange.sent, exchange.replied - exchange.back, exchange.received - exchange.sent)
        return seen.after(exchange.back, drift_ppm)

    def after(self, at: int, drift_ppm: int) -> Bound:
        """The same later on: as wide as drift may have made it, rounded up."""
        drift = -(-max(0, at - self.at) * drift_ppm // _PPM)
        return Bound(at, self.low - drift, self.high + drift)

    def meet(self, other: Bound) -> Bound | None:
        """What both say, as of the later one; None if they contradict each other."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Bound(max(self.at, other.at), low, high) if low <= high else None

    @property
    def offset(self) -> int:
        return (self.low + self.high) // 2

    @property
    def error(self) -> int:
        return self.high - self.offset


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a number of exchanges have shown. Immutable: observing another makes the next one."""

    bound: Bound | None = None
    drift_ppm: int = DRIFT_PPM
    #: How often an exchange contradicted those before it.
    jumps: int = 0

    def observe(self, exchange: Exchange) -> Estimate:
        """With one more exchange taken into account."""
        seen = Bound.of(exchange, self.drift_ppm)
        if self.bound is None:
            return Estimate(seen, self.drift_ppm, self.jumps)
        if seen.at < self.bound.at:
            raise Misuse("exchanges are observed in the order in which they came back")
        both = self.bound.after(seen.at, self.drift_ppm).meet(seen)
        if both is None:
            return Estimate(seen, self.drift_ppm, self.jumps + 1)
        return Estimate(both, self.drift_ppm, self.jumps)

    def at(self, now: int) -> Bound | None:
        """The bound as it is at our time `now`."""
        return None if self.bound is None else self.bound.after(now, self.drift_ppm)


class SkewBoundedClock:
    """Their time by our steady clock, while its error is known to be small. It is a `Clock`."""

    def __init__(
        self, limit_us: int = LIMIT_US, *, drift_ppm: int = DRIFT_PPM, steady: Callable[[], int] = steady_us
    ) -> None:
        if limit_us < 1 or drift_ppm < 0:
            raise Misuse(f"a clock has an error above 0 and a drift of 0 or more: {limit_us} us, {drift_ppm} ppm")
        self._limit = limit_us
        self._steady = steady
        self._told = 0
        self.estimate = Estimate(drift_ppm=drift_ppm)

    def ask(self, party: Callable[[], tuple[int, int]]) -> None:
        """One exchange: `party` puts the question and returns when it was received and replied, by their clock."""
        sent = self._steady()
        received, replied = party()
        self.observe(Exchange(sent, received, replied, self._steady()))

    def observe(self, exchange: Exchange) -> None:
        """An exchange that was timed with the steady clock."""
        before = self.estimate.jumps
        self.estimate = self.estimate.observe(exchange)
        if self.estimate.jumps != before:
            self._told = 0  # their time itself went elsewhere, and we follow

    def now_us(self) -> int:
        """Their time. It does not go backwards when a better estimate puts it a little earlier: it waits."""
        self._told, _ = self._read()
        return self._told

    def error_us(self) -> int:
        """At most how far `now_us` is off."""
        return self._read()[1]

    def _read(self) -> tuple[int, int]:
        now = self._steady()
        bound = self.estimate.at(now)
        if bound is None:
            raise Unavailable("nobody was asked for the time yet", hint="ask a broker or a key center for it first")
        told = max(self._told, now + bound.offset)
        error = max(told - (now + bound.low), now + bound.high - told)
        if error > self._limit:
            raise Unavailable(
                f"the time is known to {error / 1e6:.3f} s only, where {self._limit / 1e6:.3f} s are allowed",
                hint="ask for the time again, over a quicker way or more often",
            )
        return told, error


def system_party(clock: Clock) -> Callable[[], tuple[int, int]]:
    """The answering side: its clock when the question came, and when the answer goes."""

    def answer() -> tuple[int, int]:
        received = clock.now_us()
        return received, clock.now_us()

    return answer
