"""The jitter buffer: spacing is restored where it can be, and what cannot be is bounded, counted and in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.clients import jitter
from sealcast.clients.jitter import LATE_RUN, JitterBuffer, LateEvents, SpacedReader
from sealcast.clients.publisher import Publisher
from sealcast.errors import Misuse
from sealcast.model import Event as RealEvent
from sealcast.model import Schema
from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast
from tests.clients.pump import pump

DELAY = 1_000
#: Of each event: how long after the one before it it was published, and how long it took.
trips = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 5_000)), min_size=1, max_size=40)


@dataclass(frozen=True)
class Sent:
    publisher: int
    number: int
    published: int
    arrived: int


def sent(publisher: int, ways: list[tuple[int, int]], skew: int = 0) -> list[Sent]:
    """Events of one publisher: they arrive in order, each after it was published, by clocks that differ by `skew`."""
    found, published, arrived = [], 0, 0
    for number, (gap, way) in enumerate(ways):
        published += gap
        arrived = max(arrived, published + way)
        found.append(Sent(publisher, number, published + skew, arrived))
    return found


def played(buffer: JitterBuffer[Sent], events: list[Sent]) -> list[tuple[Sent, int]]:
    """Every event as it arrives, and everything at the very time at which it is due."""
    out: list[tuple[Sent, int]] = []
    for event in sorted(events, key=lambda e: e.arrived):
        out += popped(buffer, event.arrived - 1)
        buffer.push(event.publisher, event.published, event, event.arrived)
        out += [(each, event.arrived) for each in buffer.pop(event.arrived)]
    return [*out, *popped(buffer, None)]


def popped(buffer: JitterBuffer[Sent], until: int | None) -> Iterator[tuple[Sent, int]]:
    while (due := buffer.next_due()) is not None and (until is None or due <= until):
        yield from ((each, due) for each in buffer.pop(due))


@given(st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, DELAY)), min_size=1, max_size=40), st.integers())
def test_jitter_up_to_the_delay_is_gone(ways: list[tuple[int, int]], skew: int) -> None:
    """Whatever the publisher's clock shows: only differences count."""
    events = sent(0, [(ways[0][0], 0), *ways[1:]], skew)
    buffer: JitterBuffer[Sent] = JitterBuffer(DELAY, longest_us=10**9)
    out = played(buffer, events)
    assert [event for event, _ in out] == events
    assert all(b[1] - a[1] == b[0].published - a[0].published for a, b in pairwise(out))
    assert buffer.counts == jitter.Counts(in_time=len(events))


@given(st.lists(trips, min_size=1, max_size=3), st.sampled_from(LateEvents), st.integers(1, 50))
def test_whatever_comes_is_bounded_in_order_and_accounted_for(
    streams: list[list[tuple[int, int]]], late: LateEvents, capacity: int
) -> None:
    events = [event for publisher, ways in enumerate(streams) for event in sent(publisher, ways)]
    buffer: JitterBuffer[Sent] = JitterBuffer(DELAY, late=late, capacity=capacity)
    out = played(buffer, events)
    counts = buffer.counts
    assert len(out) == len(events) - counts.dropped == counts.in_time + counts.late + counts.early
    assert late is LateEvents.DROP or counts.dropped == 0
    assert late is LateEvents.HAND_OUT or counts.late == 0
    for publisher in range(len(streams)):
        numbers = [event.number for event, _ in out if event.publisher == publisher]
        assert numbers == sorted(set(numbers))
    assert all(event.arrived <= at <= event.arrived + 3 * DELAY for event, at in out)
    assert len(buffer) == 0


def test_a_late_event_is_handed_out_at_once_or_dropped() -> None:
    events = sent(0, [(0, 0), (100, 5_000), (5_000, 0)])
    at = {event.number: when for event, when in played(JitterBuffer(DELAY), events)}
    assert at == {0: 1_000, 1: 5_100, 2: 6_100}  # the last one has its place, as if nothing had been late
    assert [e.number for e, _ in played(JitterBuffer(DELAY, late=LateEvents.DROP), events)] == [0, 2]


def test_a_way_that_became_slower_is_got_used_to() -> None:
    slower = [(0, 0), *[(500, 4_000)] * 20]
    buffer: JitterBuffer[Sent] = JitterBuffer(DELAY, late=LateEvents.DROP)
    out = played(buffer, sent(0, slower))
    assert buffer.counts.dropped == LATE_RUN - 1 and buffer.counts.shifted == 1
    assert all(b[1] - a[1] == 500 for a, b in pairwise(out[1:]))


def test_a_publisher_whose_clock_jumps_stops_nothing() -> None:
    buffer: JitterBuffer[str] = JitterBuffer(DELAY)
    for published, now in ((0, 0), (3_600_000_000, 10), (20, 20)):
        assert buffer.push("p", published, str(now), now)
    assert buffer.pop(999) == [] and buffer.pop(1_020) == ["0", "10", "20"] and buffer.counts.shifted == 2


def test_a_backlog_is_not_slowed_down_to_its_old_pace() -> None:
    buffer: JitterBuffer[int] = JitterBuffer(DELAY)
    for hour in range(5):
        buffer.push("p", hour * 3_600_000_000, hour, now_us=7)
    assert buffer.pop(DELAY + 7) == [0, 1, 2, 3, 4]


def test_a_full_buffer_hands_out_what_is_due_first() -> None:
    buffer: JitterBuffer[int] = JitterBuffer(DELAY, capacity=2)
    for number in range(4):
        buffer.push("p", number, number, now_us=number)
    assert buffer.pop(4) == [0, 1] and len(buffer) == 2
    assert buffer.counts.early == 2 and buffer.counts.in_time == 2


@pytest.mark.parametrize("wrong", [{"delay_us": 0}, {"longest_us": DELAY - 1}, {"capacity": 0}])
def test_a_buffer_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(Misuse, match="a jitter buffer has a delay"):
        JitterBuffer(**({"delay_us": DELAY} | wrong))  # type: ignore[arg-type]


# --- at a subscriber ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    publisher: str
    published_at: datetime
    name: str


class Mail:
    """A subscriber whose events arrive at given times, on a clock that sleeping moves."""

    def __init__(self, *polls: tuple[int, list[Event]]) -> None:
        self.now = 0
        self.polls = list(polls)
        self.handed_out: int | None = None
        self.acknowledged: int | None = None
        self._polled = 0

    def poll(self, max_events: int) -> list[Event]:
        if not self.polls or self.polls[0][0] > self.now:
            return []
        self._polled += 1
        self.handed_out = self._polled
        return self.polls.pop(0)[1]

    def ack(self, upto: int) -> None:
        assert self.acknowledged is None or upto > self.acknowledged
        self.acknowledged = upto

    def sleep(self, seconds: float) -> None:
        self.now += max(1, round(seconds * 1e6))


def event(milliseconds: int, publisher: str = "p") -> Event:
    at = datetime(2026, 3, 2, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return Event(publisher, at, f"{publisher}{milliseconds}")


def read(mail: Any, delay_us: int) -> Iterator[tuple[int, str, int | None]]:
    reader = SpacedReader(mail, JitterBuffer(delay_us), clock=lambda: mail.now, sleep=mail.sleep)
    for events in reader.follow(stop=lambda: mail.now > 2_000_000):
        # Read before it is acknowledged, as a careful reader does.
        yield from ((mail.now, each.name, mail.acknowledged) for each in events)  # type: ignore[attr-defined]
        reader.ack()


def test_a_batch_comes_out_as_it_was_published() -> None:
    mail = Mail((0, [event(0), event(30), event(110)]), (250_000, [event(200), event(240)]))
    out = list(read(mail, 200_000))
    assert [(at, name) for at, name, _ in out] == [
        *((200_000, "p0"), (230_000, "p30"), (310_000, "p110"), (400_000, "p200"), (440_000, "p240")),
    ]
    assert mail.acknowledged == 2


def test_nothing_is_acknowledged_before_it_was_handed_out() -> None:
    """The second poll's event comes out before the first poll is through: what it leaves behind must not be lost."""
    mail = Mail((0, [event(0), event(150)]), (10_000, [event(0, "q")]))
    out = list(read(mail, 100_000))
    assert [(name, acknowledged) for _, name, acknowledged in out] == [("p0", None), ("q0", None), ("p150", None)]
    assert mail.acknowledged == 2


def test_a_real_mailbox_is_followed_with_spacing(tmp_path: Path) -> None:
    """Three frames, published a while apart, delivered in one batch; the command prints and acknowledges them."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic("ticks", Schema.from_json({"attributes": [{"name": "n", "type": "int"}]}), access="members")
    realm.enrol_many(["nyse", "alice"])
    realm.subscribe("ticks", "alice", "n >= 0")
    with Publisher(realm, "ticks", as_="nyse") as publisher:
        for n in range(3):
            publisher.publish([RealEvent({"n": n})])
    pump(realm, "ticks")
    common = ("sub", "ticks", "--as", "alice", "--realm", realm.paths.root)
    followed = sealcast(*common, "--follow", "--spacing", "30ms", "--max", 2)
    assert followed.code == 0 and [line["attributes"]["n"] for line in followed.lines] == [0, 1]
    again = sealcast(*common, "--follow", "--spacing", "30ms", "--max", 1)
    assert [line["attributes"]["n"] for line in again.lines] == [2]
    assert sealcast(*common).lines == []


@pytest.mark.parametrize("delay", ["fast", "0ms", "90s", "-1s", "10"])
def test_delays_that_are_none_are_refused(delay: str) -> None:
    result = sealcast("sub", "ticks", "--as", "alice", "--follow", "--spacing", delay)
    assert result.code == 2 and "a delay is a number of ms or s" in result.err


def test_spacing_is_for_following() -> None:
    result = sealcast("sub", "ticks", "--as", "alice", "--spacing", "200ms")
    assert result.code == 2 and "add --follow" in result.err
