"""All brokers of a topic, a turn at a time and without Spark: every step of its protection, by the pipeline's kernels.

What Spark does between source and sink is done here in a loop, for one small batch: read, rule, make, stage, commit.
It is for events that one looks at, a few at a time. `sealcast run` is for streams.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from sealcast.broker.columns import COUNTED, REFERRED, counts_in
from sealcast.broker.frames import HeldFrames
from sealcast.broker.gate import RULING, Rulings
from sealcast.broker.rulings import rule_frames
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.offsets import PinnedOffset
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.port import broker_side
from sealcast.protections.steps import OpenStep, Span, StepName, Task
from sealcast.trust.deployment import Realm

QUERY: Final = "turn"


def turn(realm: Realm, topic: str) -> Counter[str]:
    """Handles all that waits, until nothing moves; what was counted. Nobody else may run the topic meanwhile."""
    counts, moved = Counter[str](), True
    while moved:
        moved = False
        for name in _steps(realm, topic):
            found = _batch(name.open())
            if found is not None:
                counts, moved = counts + found, True
    return counts


def _steps(realm: Realm, topic: str) -> Iterator[StepName]:
    """Every step of every broker that is here, in the order in which an event passes them."""
    state = realm.state()
    here = [name for name in state.brokers() if realm.paths.broker_key_of(name).exists()]
    for kind in broker_side(state.topic(topic).protection).steps:
        brokers = kind.brokers(realm, state, topic, here)
        names = [StepName(str(realm.paths.root), topic, broker, kind.step) for broker in brokers]
        kind.look(names)
        while kind.turn(names):
            pass
        yield from names


def _batch(step: OpenStep) -> Counter[str] | None:
    """All that waits for a step, as one batch; None when nothing does."""
    start, now, available = step.committed(), time.time_ns() // 1000, step.available()
    if not step.awaits(start, available):
        return None
    step.begin()
    end = step.pinned(start, available, now)
    rows = list(_made(step, start, end))
    refs = sorted((_staged(step, row) for row in rows), key=lambda ref: (ref.partition, ref.first))
    counts = +sum((counts_in(row[COUNTED]) for row in rows), Counter[str]())
    entry = Entry(QUERY, step.ledger.end(), start, end, tuple(refs), dict(counts), chain=step.chain(end.version))
    step.ledger.commit(entry)
    return counts


def _made(step: OpenStep, start: PinnedOffset, end: PinnedOffset) -> Iterator[dict[str, Any]]:
    """The pieces of a batch, as rows of PIECES."""
    waiting = start.ranges(end)
    if isinstance(step, FramesStep):
        batches = step.make(end.pinned, _rulings(step, start, end, waiting), HeldFrames(step.frames))
    else:
        batches = step.read(Task(tuple(Span(step.name, p, first, stop, end) for p, first, stop in waiting)))
    for batch in batches:
        yield from batch.to_pylist()


def _rulings(
    step: FramesStep, start: PinnedOffset, end: PinnedOffset, waiting: Sequence[tuple[int, int, int]]
) -> Rulings:
    windows = step.history().windows(step.ledger.end())
    codes = rule_frames(windows, step.frames, waiting, step.gate(end.version), start.arrival(end), end.settled_us)
    found = [(p, first + at, code) for p, first, _ in waiting for at, code in enumerate(codes[p].tolist())]
    return np.array(found, RULING)


def _staged(step: OpenStep, row: dict[str, Any]) -> PieceRef:
    span = row["partition"], row["first_offset"], row["end_offset"]
    file = step.pieces.stage(*span, row["piece"])
    about = [*map(counts_in(row[COUNTED]).__getitem__, REFERRED), row["slots"]]
    return PieceRef(file.name, file.digest, file.size, *span, *about)
