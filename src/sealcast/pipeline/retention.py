"""Retention: frames are removed once they are committed and old enough. Sealed pieces are the record, frames are not.
Where a topic says so, pieces have an end, too: by their age, or by how many bytes there are (`protections.due`).

    committed --- 3/4 of the time: kept --- by the end of the time: removed

A frame is as old as the ledger's record of it, by the broker's own clock. A log lets whole files go, so a new file is
begun whenever the present one is an eighth of the time old; what a file holds is then at most that far apart. What
still needs frames keeps them (`Retainer.settled`): another broker that has not been sent them, and pieces that cannot
be sealed again without them. What replay detection and filters that come later look back is part of the time
(`Topic.frames_kept_us`).

Pieces do not wait for readers, who are told what they missed. They wait for brokers that are to hand them on
(`OpenStep.awaited`): a broker that missed something could tell nobody what it was. Those below say how far they are
(`OpenStep.tell`), and `sealcast status` says who has not.

Where brokers forget (`KeyParameters.past_keys`), a broker's keys of a past epoch go after the last frames that it has
of that epoch: `first_kept` says which it needs.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Self

from sealcast.errors import SealcastError, Unavailable
from sealcast.log import failing
from sealcast.log.closing import Closing
from sealcast.log.failing import FailureNote
from sealcast.log.ledger import LedgerReader
from sealcast.log.port import SharedLog, TopicLog
from sealcast.log.reseals import Removal
from sealcast.overlay import routing
from sealcast.pipeline.withdrawing import Withdrawn, withdraw
from sealcast.protections.due import records_due
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.port import broker_side
from sealcast.protections.steps import StepName
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.receiving import ReceivingKeys
from sealcast.trust.realm.parameters import NO_LIMIT
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic

#: How often a run looks for frames that are old enough.
EVERY_SECONDS: Final = 60.0
#: Files begin so many times within the time that frames are kept; they go when they are this much younger than it.
_SLICES: Final = 8
_EARLIER: Final = 2
_NOTED_AS: Final = "retention"


class Retainer(Closing):
    """Removes frames and pieces of these steps that are old enough. A thread of its own while it is entered."""

    def __init__(self, realm: BrokerRealm, names: Sequence[StepName]) -> None:
        self._realm = realm
        self._names = list(names)
        #: By step, how many records of the ledger were found to need no frames: pieces are looked at once.
        self._settled: dict[StepName, int] = {}
        #: By step, how many records of the ledger were withdrawn, or are known to have been.
        self._withdrawn: dict[StepName, int] = {}
        #: By step, how many bytes of frames each record of the ledger took, as far as they are kept.
        self._taken: dict[StepName, dict[int, int]] = {}
        self._failed: dict[StepName, FailureNote] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def once(self, now_us: int | None = None) -> dict[StepName, int]:
        """Removes what is due; how many frames of each step. What fails is noted for `sealcast status`."""
        removed = dict[StepName, int]()
        now = time.time_ns() // 1000 if now_us is None else now_us
        for name in self._names:
            try:
                name.open().tell(now)
                self.withdraw(name, now)
                if name.reads_frames:
                    removed[name] = self._drop(name, now)
                    self._forget(name, now)
                self._note(name, None, now)
            except SealcastError as error:
                self._note(name, error, now)
        return removed

    def drained(self, now_us: int | None = None) -> dict[StepName, int]:
        """`once`, where nothing else runs: what these steps tell each other is heard at once."""
        now = time.time_ns() // 1000 if now_us is None else now_us
        for name in self._names:
            with suppress(SealcastError):  # `once` comes to it again, and notes it
                name.open().tell(now)
        by_step = dict[tuple[str, str], list[StepName]]()
        for name in self._names:
            by_step.setdefault((name.topic, name.step), []).append(name)
        for names in by_step.values():
            with suppress(SealcastError):
                names[0].open().turn(names)
        return self.once(now)

    def _drop(self, name: StepName, now_us: int) -> int:
        about = self._realm.state().topic(name.topic)
        kept_us, most = about.frames_kept_us, about.parameters.frames_kept_bytes
        paths = self._realm.paths.topic(name.topic, name.broker)
        unlimited = kept_us is None and most >= NO_LIMIT
        if unlimited or not (paths.frames_root.is_dir() and paths.ledger.is_dir()):
            return 0
        removed, slice_us = 0, (about.least_kept_us if kept_us is None else kept_us) // _SLICES
        ledger = LedgerReader(self._realm.journal(name.topic, name.broker))
        try:
            young = _taken_by(ledger, now_us - slice_us)
            old = {} if kept_us is None else _taken_by(ledger, now_us - (kept_us - _EARLIER * slice_us))
            with self._realm.frames(name.topic, name.broker) as log:
                starts = {p: log.partition(p).start() for p in range(log.partitions)}
                if most < NO_LIMIT:
                    unneeded = _taken_by(ledger, now_us - about.looked_back_us)
                    old = _further(old, _at_most(self._too_many(name, ledger, log, starts, most), unneeded))
                least = self.settled(name, ledger, starts, old) if any(old.values()) else {}
                for partition, start in starts.items():
                    part, before = log.partition(partition), least.get(partition, 0)
                    part.cut(young.get(partition, 0))
                    if before > start:
                        removed += part.drop(before) - start
        finally:
            ledger.close()
        return removed

    def _too_many(
        self, name: StepName, ledger: LedgerReader, log: TopicLog, starts: Mapping[int, int], most: int
    ) -> dict[int, int]:
        """By partition, how far the oldest committed frames go, so that the others have so many bytes at the most. What
        a record of the ledger took is measured once."""
        known, first = self._taken.setdefault(name, {}), _first_with(ledger, starts)
        for gone in [index for index in known if index < first]:
            del known[gone]
        for index in range(first, ledger.end()):
            if index not in known:
                known[index] = sum(_sizes(log, ledger, partition, index, start) for partition, start in starts.items())
        size, index = sum(known.values()), first
        while size > most:
            size -= known[index]
            index += 1
        return _reached(ledger, index) if index > first else {}

    def withdraw(self, name: StepName, now_us: int) -> Withdrawn:
        """Removes sealed events that the topic keeps no longer: the oldest records first (`withdrawing`), as far as no
        broker is to take them."""
        about, step = self._realm.state().topic(name.topic), name.open()
        if not about.parameters.pieces_end or not step.paths.ledger.is_dir():
            return Withdrawn()
        due = records_due(about, step.ledger, now_us, self._withdrawn.get(name, 0))
        if (awaited := step.awaited(due)) is not None:
            due = range(due.start, awaited.record)
        self._withdrawn[name] = due.stop
        return (
            withdraw(step, due, "kept no longer, by the topic's retention", Removal.RETENTION) if due else Withdrawn()
        )

    def _forget(self, name: StepName, now_us: int) -> list[int]:
        """Removes what opens this broker's keys of past epochs that nobody needs, where the topic says so."""
        state = self._realm.state()
        about, path = state.topic(name.topic), self._realm.paths.broker_key_of(name.broker)
        paths = self._realm.paths.topic(name.topic, name.broker)
        keys = ReceivingKeys(path, name.broker)
        # The newest is kept in any case, and the one before it until an epoch has come by the newest and gone.
        if not about.parameters.forgets or len(keys.numbers(about)) < 2 or not paths.ledger.is_dir():
            return []
        journal = self._realm.journal(name.topic, name.broker)
        with LedgerReader(journal) as ledger, self._realm.frames(name.topic, name.broker) as log:
            starts = {p: log.partition(p).start() for p in range(log.partitions)}
            return keys.forget(state, name.topic, before=first_kept(about, ledger, starts, now_us))

    def settled(
        self, name: StepName, ledger: LedgerReader, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> dict[int, int]:
        """How far, up to `ends`, each partition's frames are needed by nobody: whatever the ledger made of them lies in
        pieces that can do without, and whoever is to be sent them was."""
        alone = _done_alone(name, ledger, starts, ends, self._settled)
        for link, since in routing.links(self._realm.state(), name.broker, [name.topic]).items():
            for partition, first in routing.needed(self._realm, link, since).items():
                alone[partition] = min(alone.get(partition, 0), first)
        return alone

    # --- beside a run -------------------------------------------------------------------------------

    def _note(self, name: StepName, error: SealcastError | None, now_us: int) -> None:
        root, before = self._realm.paths.topic(name.topic, name.broker).root, self._failed.pop(name, None)
        with suppress(Unavailable):
            if error is not None:
                since, times = (now_us, 0) if before is None else (before.since_us, before.attempts)
                note = FailureNote(_NOTED_AS, since, now_us, times + 1, error.message, error.hint or "")
                self._failed[name] = note
                failing.write(root, note)
            elif before is not None:
                failing.clear(root, _NOTED_AS)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            self.once()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="sealcast retention", daemon=True)
        self._thread.start()
        return self


def first_kept(topic: Topic, ledger: LedgerReader, starts: Mapping[int, int], now_us: int) -> int:
    """The first epoch whose keys a broker needs, which has frames from `starts` on.

    An epoch's keys can go when its center may forget them, and when all frames that are left came after a look of the
    broker that was later than the epoch's grace: one of that epoch among them is refused for its time.
    """
    epoch, grace_us = topic.first_needed(now_us), topic.parameters.grace_s * 1_000_000
    while epoch > topic.forgotten_before and not _came_after(
        ledger, starts, topic.epoch_starts[epoch - FIRST_EPOCH] + grace_us
    ):
        epoch -= 1
    return epoch


def _came_after(ledger: LedgerReader, starts: Mapping[int, int], time_us: int) -> bool:
    """Whether every frame from `starts` on came after a time, by the looks that the ledger's records are pinned to."""
    first = bisect_right(range(ledger.end()), time_us, key=lambda index: ledger.at(index).entry.end.settled_us)
    return first < ledger.end() and all(_end_of(ledger, p, first) <= start for p, start in starts.items())


def _taken_by(ledger: LedgerReader, time_us: int) -> dict[int, int]:
    """By partition, how many frames had been committed at a time."""
    end = bisect_right(range(ledger.end()), time_us, key=lambda index: ledger.at(index).entry.end.time_us)
    return dict(enumerate(ledger.at(end - 1).entry.end.partitions)) if end else {}


def _sizes(log: TopicLog, ledger: LedgerReader, partition: int, index: int, start: int) -> int:
    """The bytes of frames that a record took from a partition, and that are still there."""
    begin = max(start, _end_of(ledger, partition, index - 1) if index else 0)
    end, part = _end_of(ledger, partition, index), log.partition(partition)
    assert isinstance(part, SharedLog)
    return sum(part.sizes(begin, end)) if end > begin else 0


def _further(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {partition: max(one.get(partition, 0), other.get(partition, 0)) for partition in {**one, **other}}


def _at_most(ends: Mapping[int, int], limits: Mapping[int, int]) -> dict[int, int]:
    return {partition: min(end, limits.get(partition, 0)) for partition, end in ends.items()}


def _done_alone(
    name: StepName, ledger: LedgerReader, starts: Mapping[int, int], ends: Mapping[int, int], known: dict[StepName, int]
) -> dict[int, int]:
    """How far pieces can do without their frames, of those that were taken up to `ends`."""
    step = FramesStep.of(name)
    index = max(known.get(name, 0), _first_with(ledger, starts))
    reached = _reached(ledger, index)
    while index < ledger.end() and not _covers(reached, ends):
        pieces = map(step.parse, (step.pieces.read(ref.name, ref.digest) for ref in ledger.at(index).entry.pieces))
        if not all(map(step.stands_alone, pieces)):
            break
        index += 1
        reached = _reached(ledger, index)
    known[name] = index
    return {partition: min(end, reached.get(partition, 0)) for partition, end in ends.items()}


def _first_with(ledger: LedgerReader, starts: Mapping[int, int]) -> int:
    """The first record of which a frame is left: the frames of those before it are gone."""

    def first(partition: int) -> int:
        reached = partial(_end_of, ledger, partition)
        return bisect_right(range(ledger.end()), starts[partition], key=reached)

    return min(map(first, starts), default=0)


def _end_of(ledger: LedgerReader, partition: int, index: int) -> int:
    return ledger.at(index).entry.reached(partition)


def _reached(ledger: LedgerReader, records: int) -> dict[int, int]:
    return dict(enumerate(ledger.at(records - 1).entry.end.partitions)) if records else {}


def _covers(reached: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(reached.get(partition, 0) >= end for partition, end in ends.items())


def kept_steps(realm: BrokerRealm, topics: Iterable[str], brokers: Iterable[str]) -> list[StepName]:
    """The steps of these topics at these brokers."""
    state, here = realm.state(), list(brokers)
    return [
        StepName(str(realm.paths.root), topic, broker, kind.step)
        for topic in topics
        for kind in broker_side(state.topic(topic).protection).steps
        for broker in kind.brokers(realm, state, topic, here)
    ]
