"""Is the spacing of messages preserved on their way, as paper 004 concludes of its scheme (section 8)?

A publisher publishes one message at a time, unevenly. A subscriber gets them from one broker and reads them as they
come; another one reads through a jitter buffer (`clients.jitter`). The broker either takes every message as it comes,
as the paper's does, or micro-batches of a given length, as ours does on Spark.

Every step is really done, and its CPU time taken. The clock by which steps begin and end is the experiment's: a party
begins when what it needs is there and it has done with what was before. So queues, batches and messages that take
longer than others are in the result; a network, and whoever else uses the machine, is not.

The error of a gap is how much longer or shorter it is at the subscriber than it was at the publisher. Spacing counts as
preserved where 95 of 100 gaps are off by at most a tenth of the mean gap: what "preserved" is, the paper does not say.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, cycle, islice, pairwise
from typing import Final, TypeVar

from sealcast.clients.jitter import JitterBuffer
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.lab.pallickara.broker import LabBroker
from sealcast.lab.pallickara.end_to_end import FILTER, SCHEMA
from sealcast.lab.report import Curve, Panel, Report, Row, Told
from sealcast.model.event import Event
from sealcast.trust.deployment import Realm

NAME: Final = "pallickara/spacing"
TOPIC: Final = "stream"
#: Gaps between messages, in mean gaps, over and over.
PATTERN: Final = (0.5, 1.0, 1.5, 0.3, 1.7, 0.8, 1.2)
#: (milliseconds of a micro-batch, 0 for every message as it comes; mean gap in milliseconds)
CASES: Final = (*((0, gap) for gap in (10, 20, 50, 100, 200)), (100, 50), (500, 50))
QUICK_CASES: Final = ((0, 20), (0, 50), (100, 50))
MESSAGES: Final = 400
QUICK_MESSAGES: Final = 60
#: Of the mean gap, by how much 95 of 100 gaps may be off where spacing is preserved.
PRESERVED: Final = 0.1
#: A buffer holds messages for the length of a batch, and for what else the way may take.
MARGIN_MS: Final = 100
READERS: Final = ("direct", "jitter buffer")
_WARM: Final = 5
#: Where a curve of errors is drawn.
_PERCENT: Final = tuple(range(5, 100, 5))
_ROOM: Final = 128 << 20

T = TypeVar("T")
Case = tuple[int, int]


@dataclass(slots=True)
class Heard:
    """When messages were published and when a subscriber got them, in milliseconds."""

    published: list[float] = field(default_factory=list)
    received: list[float] = field(default_factory=list)

    def hear(self, published: float, received: float) -> None:
        self.published.append(published)
        self.received.append(received)

    def errors(self) -> list[float]:
        """By how much each gap was longer or shorter."""
        gaps = zip(pairwise(self.published), pairwise(self.received), strict=True)
        return [abs((there - here) - (after - before)) for (before, after), (here, there) in gaps]


class TimedParty:
    """One who does one thing after the other; its clock is the experiment's, its time the CPU's."""

    def __init__(self) -> None:
        self.free = 0.0

    def does(self, work: Callable[[], T], from_ms: float) -> T:
        """Does it as soon as it is time and it is free."""
        began = time.process_time()
        done = work()
        self.free = max(from_ms, self.free) + 1e3 * (time.process_time() - began)
        return done


# --- one stream -----------------------------------------------------------------------------------------


class SpacedStream:
    """A publisher, a broker and a subscriber of one topic, and the messages that they pass on."""

    def __init__(self, publisher: Publisher, broker: LabBroker, subscriber: Subscriber) -> None:
        self._publisher, self._broker, self._subscriber = publisher, broker, subscriber
        self._publishes, self._serves, self._reads = TimedParty(), TimedParty(), TimedParty()
        self._number = 0

    def publish(self, due: float) -> tuple[float, float]:
        """When a message was published, and when the log had it."""
        event = Event({"number": self._number}, b"sample")
        self._number += 1
        began = max(due, self._publishes.free)
        self._publishes.does(lambda: self._publisher.publish_one(event), due)
        return began, self._publishes.free

    def deliver(self, from_ms: float, expected: int) -> Iterator[float]:
        """When the subscriber has each message that is in the log, all of one batch."""
        self._serves.does(self._broker.turn, from_ms)
        for _ in range(expected):
            if not self._reads.does(lambda: self._subscriber.poll(1), self._serves.free):
                raise Bug("a message of the lab's stream did not come")
            yield self._reads.free


def stream(case: Case, messages: int) -> dict[str, Heard]:
    """What both subscribers heard of one stream."""
    batch, gap = case
    heard = {name: Heard() for name in READERS}
    due = [gap * at for at in accumulate(islice(cycle(PATTERN), messages))]
    with scratch.realm(_ROOM) as realm:
        _populate(realm)
        with (
            Publisher(realm, TOPIC, "publisher") as publisher,
            LabBroker(realm, TOPIC) as broker,
            Subscriber(realm, TOPIC, "subscriber") as subscriber,
        ):
            for _ in range(_WARM):  # whatever is loaded once is not jitter
                warm = SpacedStream(publisher, broker, subscriber)
                list(warm.deliver(warm.publish(0.0)[1], 1))
            arrivals = _run(SpacedStream(publisher, broker, subscriber), due, batch)
    for published, received in arrivals:
        heard["direct"].hear(published, received)
    _buffered(heard["jitter buffer"], arrivals, batch + MARGIN_MS)
    return heard


def _populate(realm: Realm) -> None:
    realm.enrol_many(["publisher", "subscriber"])
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.subscribe(TOPIC, "subscriber", FILTER)


def _run(on: SpacedStream, due: list[float], batch: int) -> list[tuple[float, float]]:
    """(published, received) of every message."""
    found, waiting = list[tuple[float, float]](), list[float]()
    ends = float(batch)
    for at in due:
        if batch and at > ends and waiting:
            found += zip(waiting, on.deliver(ends, len(waiting)), strict=True)
            waiting = []
        while at > ends and batch:
            ends += batch
        published, logged = on.publish(at)
        if batch:
            waiting.append(published)
        else:
            found += zip([published], on.deliver(logged, 1), strict=True)
    if waiting:
        found += zip(waiting, on.deliver(ends, len(waiting)), strict=True)
    return found


def _buffered(heard: Heard, arrivals: list[tuple[float, float]], delay_ms: int) -> None:
    """The same arrivals through a buffer whose reader looks exactly when something is due."""
    buffer = JitterBuffer[float](1_000 * delay_ms)
    waiting = [(round(1e3 * received), published) for published, received in arrivals]
    while waiting or len(buffer):
        due = buffer.next_due()
        if waiting and (due is None or waiting[0][0] <= due):
            now, published = waiting.pop(0)
            buffer.push("publisher", round(1e3 * published), published, now)
        elif due is not None:
            for published in buffer.pop(due):
                heard.hear(published, due / 1e3)


# --- the report -----------------------------------------------------------------------------------------


def run(quick: bool, told: Told) -> Report:
    cases, messages = (QUICK_CASES, QUICK_MESSAGES) if quick else (CASES, MESSAGES)
    found: dict[Case, dict[str, Heard]] = {}
    for case in cases:
        found[case] = stream(case, messages)
        told(len(found), len(cases))
    return report(found)


def report(found: Mapping[Case, Mapping[str, Heard]]) -> Report:
    rows = [_row(case, reader, each) for case, heard in found.items() for reader, each in heard.items()]
    notes = [
        "milliseconds; the paper claims that spacing is preserved and prints no number: printed stands for no error",
        f"preserved, and agrees: 95 of 100 gaps are off by at most {PRESERVED:.0%} of the mean gap",
        *map(_note, rows),
    ]
    panels = [_against_gaps(rows), *(_errors(case, heard) for case, heard in found.items() if case[0])]
    return Report(NAME, rows, all(row["agrees"] for row in rows), notes, panels)


def _row(case: Case, reader: str, heard: Heard) -> Row:
    batch, gap = case
    errors = heard.errors()
    worst = statistics.quantiles(errors, n=20)[-1]
    delays = [there - here for here, there in zip(heard.published, heard.received, strict=True)]
    return {
        "cell": _broker(batch),
        "reader": reader,
        "mean_gap": gap,
        "messages": len(heard.received),
        "printed": 0.0,
        "measured": round(statistics.fmean(errors), 3),
        "of_95": round(worst, 3),
        "most": round(max(errors), 3),
        "mean_delay": round(statistics.fmean(delays), 3),
        "agrees": worst <= PRESERVED * gap,
    }


def _broker(batch: int) -> str:
    return f"micro-batches of {batch} ms" if batch else "every message as it comes"


def _note(row: Row) -> str:
    return (
        f"{row['cell']}, {row['mean_gap']} ms apart, {row['reader']}: spacing is {'' if row['agrees'] else 'not '}"
        f"preserved (95 of 100 gaps within {row['of_95']} ms), at a mean delay of {row['mean_delay']} ms"
    )


def _against_gaps(rows: list[Row]) -> Panel:
    lines = []
    for reader in READERS:
        mine = [r for r in rows if r["reader"] == reader and r["cell"] == _broker(0)]
        gaps = [float(str(row["mean_gap"])) for row in mine]
        worst = [100 * float(str(row["of_95"])) / gap for row, gap in zip(mine, gaps, strict=True)]
        lines.append(Curve(reader, gaps, worst))
    return Panel(_broker(0), "mean gap, milliseconds", "95 of 100 gaps are within, % of it", lines, log_x=True)


def _errors(case: Case, heard: Mapping[str, Heard]) -> Panel:
    lines = []
    for reader, each in heard.items():
        errors = statistics.quantiles(each.errors(), n=len(_PERCENT) + 1)
        lines.append(Curve(reader, errors, _PERCENT))
    title = f"{_broker(case[0])}, {case[1]} ms apart"
    return Panel(title, "a gap's error, milliseconds", "gaps that are off by at most that, %", lines)
