"""One query of a pipeline: begun, watched, and begun again after a failure.

A query that fails stops no other one. Why it failed is written down beside its ledger, where `sealcast status` finds
it, and its topic is let go. After a while, which doubles from failure to failure, it is begun again as a new run would
begin it: with a new term, and from where the ledger ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from sealcast.broker.columns import REJECTED
from sealcast.errors import Locked, SealcastError, Unavailable
from sealcast.log import failing
from sealcast.log.failing import FailureNote
from sealcast.model.rejection import Reason
from sealcast.overlay.relay import AWAY
from sealcast.pipeline.failures import explain, explained
from sealcast.pipeline.metrics import FinishedBatch, Metrics, finished
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import OpenStep, StepName
from sealcast.trust.layout import Layout

#: How long the first attempt after a failure is waited for, and the longest that any is.
FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 300.0
#: And the longest where another machine could not be reached: it may be back at any moment.
LONGEST_AWAY: Final = 15.0
#: How long a stop waits for the micro-batch at hand. What it interrupts is done again at the next start.
STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
#: What Spark says of a query that has nothing left to do.
_IDLE: Final = "Waiting for"

#: Begins a query, under the terms of the brokers that run its steps.
Begin = Callable[[OpenStep, Mapping[str, str]], StreamingQuery]


class Attempts:
    """The attempts to run one query, of which one runs at a time."""

    def __init__(self, names: Sequence[StepName], begin: Begin, metrics: Metrics) -> None:
        self.names = tuple(names)
        #: Why it does not run, or did not work when it was last tried.
        self.failure: SealcastError | None = None
        self._begin, self._metrics = begin, metrics
        self._held = ExitStack()
        self._terms: dict[str, str] = {}
        self._query: StreamingQuery | None = None
        #: The last batch that was reported of this attempt, and the last report that was looked at.
        self._reported, self._seen = -1, (-1, "")
        #: Failures in a row, the time of the first, and when it is begun again.
        self._failures, self._since_us, self._due = 0, 0, 0.0
        #: Whether it may have failed since it last worked: in this run, or in one before.
        self._doubtful = True

    @property
    def active(self) -> bool:
        """Whether an attempt runs, or has ended and nobody looked at it since."""
        return self._query is not None

    # --- an attempt -------------------------------------------------------------------------------

    def hold(self) -> bool:
        """Takes the steps, which nobody else may run meanwhile, and repairs what crashes left; False if it fails."""
        try:
            steps = [name.open() for name in self.names]
            self._terms = {step.name.broker: self._held.enter_context(step.ledger.exclusive()) for step in steps}
            for step in steps:
                step.prepare()
            # All the way up: what was asked for before now counts for what is there now. A post may wait for another's
            # key.
            for _ in steps:
                if not steps[0].turn(self.names):
                    break
        except SealcastError as error:
            self._fail(error)
            return False
        return True

    def waits(self) -> bool:
        """Whether its steps, which are held, have anything to take. If not, the query works: it would end at once."""
        try:
            steps = [name.open() for name in self.names]
            steps[0].look(self.names)
            if any(step.awaits(step.committed(), step.available()) for step in steps):
                return True
        except SealcastError as error:
            self._fail(error)
            return False
        self._works()
        return False

    def begin(self) -> None:
        """Begins the query; its steps are held."""
        try:
            with explained():
                self._query = self._begin(self.names[0].open(), self._terms)
        except SealcastError as error:
            self._fail(error)
            return
        self._reported, self._seen = -1, (-1, "")
        self._metrics.started(self.names[0].topic)

    def look(self) -> list[FinishedBatch]:
        """Batches that have finished since the last look. Notices when the query has failed, and when it works
        again."""
        query = self._query
        if query is None:
            return []
        ended = not query.isActive
        batches = self._batches(query)
        if any(batch.counts.get(REJECTED[Reason.REPLAY]) for batch in batches):
            self._note_equivocations()
        error = query.exception() if ended else None
        if error is not None:
            self._fail(explain(error))
        elif self._doubtful and (batches or ended or query.status["message"].startswith(_IDLE)):
            self._works()
        if ended:  # last: whoever sees that nothing runs any more finds out why
            self._let_go(failed=error is not None)
        return batches

    def due(self) -> bool:
        """Whether it failed, and the time has come to try again."""
        return self._query is None and self.failure is not None and time.monotonic() >= self._due

    def stop(self) -> list[FinishedBatch]:
        """Lets the micro-batch at hand finish, if it does so soon, and ends the query; the batches that nobody looked
        at yet."""
        query = self._query
        if query is None:
            return []
        _let_finish(query)
        with explained():
            query.stop()
        batches = self._batches(query)
        self._let_go(failed=query.exception() is not None)
        return batches

    def release(self) -> None:
        """Others may run the steps."""
        self._held.close()

    @property
    def delay(self) -> float:
        """How long after its last failure it is begun again."""
        longest = LONGEST_AWAY if self.is_away else LONGEST_DELAY
        return float(min(longest, FIRST_DELAY * 2 ** min(self._failures - 1, 30)))

    @property
    def is_away(self) -> bool:
        """Whether it failed because another machine cannot be reached now."""
        return isinstance(self.failure, AWAY)

    # --- inside -----------------------------------------------------------------------------------

    def _batches(self, query: StreamingQuery) -> list[FinishedBatch]:
        last = query.lastProgress
        if last is None or (last.batchId, last.timestamp) == self._seen:
            return []
        self._seen = (last.batchId, last.timestamp)
        # While nothing comes, Spark reports now and then, under the number of the batch that is yet to come.
        ran = [each for each in query.recentProgress if each.batchId > self._reported and "addBatch" in each.durationMs]
        self._reported = max((each.batchId for each in ran), default=self._reported)
        brokers = [name.broker for name in self.names]
        return [batch for report in ran if (batch := finished(report, self.names[0].topic, brokers)) is not None]

    def _note_equivocations(self) -> None:
        step = self.names[0].open()
        if isinstance(step, FramesStep):
            # What cannot be read now is looked at again when the step is held next, and named then.
            with suppress(Unavailable):
                step.note_equivocations()

    def _let_go(self, failed: bool) -> None:
        if self._query is not None:
            self._metrics.ended(self.names[0].topic, failed)
            self._query = None

    def _fail(self, error: SealcastError) -> None:
        now_us = time.time_ns() // 1000
        self._failures, self.failure, self._doubtful = self._failures + 1, error, True
        self._since_us = self._since_us or now_us
        self._due = time.monotonic() + self.delay
        for name in self.names if not isinstance(error, Locked) else ():  # what another pipeline runs does run
            note = FailureNote(name.step, self._since_us, now_us, self._failures, error.message, error.hint or "")
            # Who runs this is told in any case. A disk that is full, say, keeps no note of it.
            with suppress(Unavailable):
                failing.write(_directory(name), note)
        self.release()

    def _works(self) -> None:
        self.failure, self._failures, self._since_us, self._doubtful = None, 0, 0, False
        for name in self.names:
            with suppress(Unavailable):  # a note that stays is read with its time
                failing.clear(_directory(name), name.step)


def _directory(name: StepName) -> Path:
    """Where the notes on a step lie; found without opening anything, because that may be what fails."""
    return Layout(Path(name.realm)).topic(name.topic, name.broker).root


def _let_finish(query: StreamingQuery) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    before = _batch_of(query)
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        if _batch_of(query) != before:
            return  # the next one has hardly begun: stopping it costs nothing
        time.sleep(_POLL_SECONDS)


def _batch_of(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    return progress.batchId if progress is not None else None
