"""Retention: frames are removed once they are committed and old enough. Sealed pieces are the record, frames are not.
Where a topic says so, pieces have an end, too: by their age, or by how many bytes there are (`protections.due`).

How old a frame is, `protections.kept_frames` says. What still needs frames keeps them (`Retainer.settled`): another
broker that has not been sent them, and pieces that cannot be sealed again without them. What replay detection and
filters that come later look back is part of the time (`Topic.frames_kept_us`).

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
from contextlib import closing, suppress
from functools import partial
from typing import Final, Self

from sealcast.errors import SealcastError, Unavailable
from sealcast.log import failing
from sealcast.log.closing import Closing
from sealcast.log.failing import FailureNote
from sealcast.log.ledger import LedgerReader
from sealcast.log.reseals import Removal
from sealcast.overlay import routing
from sealcast.protections import kept_frames
from sealcast.protections.due import records_due
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.kept_frames import end_of, first_with
from sealcast.protections.kept_frames import reached as frames_reached
from sealcast.protections.port import broker_side
from sealcast.protections.steps import StepName
from sealcast.protections.withdrawing import Withdrawn, withdraw
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.receiving import ReceivingKeys
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic

#: How often a run looks for frames that are old enough.
EVERY_SECONDS: Final = 60.0
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
        paths = self._realm.paths.topic(name.topic, name.broker)
        if not (kept_frames.have_an_end(about) and paths.frames_root.is_dir() and paths.ledger.is_dir()):
            return 0
        ledger = LedgerReader(self._realm.journal(name.topic, name.broker))
        with closing(ledger), self._realm.frames(name.topic, name.broker) as log:
            known = self._taken.setdefault(name, {})
            return kept_frames.drop(about, ledger, log, now_us, known, partial(self.settled, name, ledger))

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
    return first < ledger.end() and all(end_of(ledger, p, first) <= start for p, start in starts.items())


def _done_alone(
    name: StepName, ledger: LedgerReader, starts: Mapping[int, int], ends: Mapping[int, int], known: dict[StepName, int]
) -> dict[int, int]:
    """How far pieces can do without their frames, of those that were taken up to `ends`."""
    step = FramesStep.of(name)
    index = max(known.get(name, 0), first_with(ledger, starts))
    reached = frames_reached(ledger, index)
    while index < ledger.end() and not _covers(reached, ends):
        pieces = map(step.parse, (step.pieces.read(ref.name, ref.digest) for ref in ledger.at(index).entry.pieces))
        if not all(map(step.stands_alone, pieces)):
            break
        index += 1
        reached = frames_reached(ledger, index)
    known[name] = index
    return {partition: min(end, reached.get(partition, 0)) for partition, end in ends.items()}


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
