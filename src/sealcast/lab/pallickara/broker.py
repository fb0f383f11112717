"""A broker that takes one batch at a time, when it is told to: the pipeline's own kernels, without Spark.

Paper 004 measures what becomes of one message on its way. Spark would answer with the length of its micro-batches, the
same for a message that is sealed and for one that is not (`sealcast bench pipeline` measures those). So the lab's
broker does for a batch what the pipeline does, with the same functions and into the same ledger, when it is called.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from sealcast.broker import rulings
from sealcast.broker.gate import bounds_of
from sealcast.broker.history import History
from sealcast.broker.path import handle
from sealcast.broker.replay import SETTLING_US
from sealcast.log.closing import Closing
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import Pieces
from sealcast.model.stages import Ruled
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.wire import sealed

QUERY: Final = "lab"


class Batches(Closing):
    """What a broker of the lab keeps of a log: pieces, a ledger, and how far it got."""

    def __init__(self, log: EmbeddedTopic, ledger: Ledger, pieces: Pieces) -> None:
        self._log, self._ledger, self._pieces = log, ledger, pieces
        last = ledger.last()
        self._batch = 0 if last is None else last.entry.batch + 1
        self._done = PinnedOffset.initial(log.partitions) if last is None else last.entry.end

    def _ends(self) -> tuple[int, ...]:
        return tuple(self._log.partition(p).end() for p in range(self._log.partitions))

    def _commit(self, end: PinnedOffset, refs: Sequence[PieceRef], counts: Mapping[str, int]) -> Entry:
        entry = Entry(QUERY, self._batch, self._done, end, tuple(refs), counts)
        self._ledger.commit(entry)
        self._done, self._batch = end, self._batch + 1
        return entry

    def close(self) -> None:
        self._ledger.close()
        self._log.close()


class LabBroker(Batches):
    """One topic, in this process and for itself. What it knows of replay it keeps in memory."""

    def __init__(self, realm: Realm, topic: str) -> None:
        about, paths = realm.state().topic(topic), realm.paths.topic(topic)
        log = EmbeddedTopic(paths.frames_root, about.partitions)
        super().__init__(log, Ledger(paths.ledger, realm.broker().journal_key(about.id)), Pieces(paths.pieces))
        self._step = MatchingStep.of(StepName(str(realm.paths.root), topic))
        self._step.begin()
        self._windows = History(self._ledger, self._pieces, log, bounds_of(about)).windows(self._ledger.end())

    def turn(self) -> Entry | None:
        """Handles all that waits in the log as one batch, committed on return; None if nothing waits.

        What is in force is the realm's newest version as of the beginning of the turn.
        """
        version, now, start = self._step.version(), time.time_ns() // 1000, self._done
        end = PinnedOffset(self._ends(), version, max(now, start.time_us), max(now - SETTLING_US, start.settled_us))
        waiting = start.ranges(end)
        if not waiting:
            return None
        at = self._step.at(version)
        arrival = start.arrival(end)
        codes = rulings.rule_frames(self._windows, self._log, waiting, at.gate, arrival, end.settled_us)
        refs, counts = [], Counter[str]()
        for partition, first, stop in waiting:
            records = list(self._log.partition(partition).read(first, stop))
            received = rulings.received_of(partition, records, arrival)
            piece = handle(Ruled(received, codes[partition]), at)
            data = sealed.encode(piece)
            at.sealing.made(piece, data)
            refs.append(PieceRef.of(self._pieces.stage(partition, first, stop, data), piece))
            counts.update(piece.counts)
        return self._commit(end, refs, counts)
