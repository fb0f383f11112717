"""The broker's part of the path without Spark: the pipeline's own kernels, one batch, committed to the real ledger."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from sealcast.broker.frames import HeldFrames
from sealcast.broker.gate import RULING, bounds_of
from sealcast.broker.history import History
from sealcast.broker.path import handle_bounded
from sealcast.broker.replay import SETTLING_US, Windows
from sealcast.broker.rulings import received_of, rule_frames
from sealcast.log.entry import Entry, PieceRef, slot_bits
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.model.stages import Ruled
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.wire import sealed
from sealcast.wire.sealed import SealedPiece


def pump(
    realm: Realm,
    topic: str,
    tamper: Callable[[SealedPiece], SealedPiece] = lambda piece: piece,
    *,
    forgetful: bool = False,
    broker: str = FIRST_BROKER,
    tamper_late: Callable[[SealedPiece], SealedPiece | None] = lambda piece: piece,
) -> dict[str, int]:
    """All that is in the topic's log and not handled yet, as one batch; its counts. `tamper` and `forgetful` play a bad
    broker, one that alters what it made or remembers nothing it saw; `tamper_late` one that does so to what it delivers
    late, or leaves it out."""
    about, paths = realm.state().topic(topic), realm.paths.topic(topic, broker)
    version = realm.registry.version()
    log = realm.frames(topic, broker)
    kept = realm.journal(topic, broker)
    ledger = Ledger(paths.ledger, realm.broker(broker).journal_key(about.id), kept)
    last = ledger.last()
    start = last.entry.end if last else PinnedOffset.initial(about.partitions)
    now = time.time_ns() // 1000
    ends = tuple(log.partition(p).end() for p in range(log.partitions))
    end = PinnedOffset(ends, version, max(now, start.time_us), max(now - SETTLING_US, start.settled_us))
    step = MatchingStep.of(StepName(str(realm.paths.root), topic, broker))
    at = step.at(version, end.time_us)
    history = History(ledger, kept.pieces, log, bounds_of(about))
    windows = Windows(bounds_of(about)) if forgetful else history.windows(ledger.end())
    codes = rule_frames(windows, log, start.ranges(end), at.gate, start.arrival(end), end.settled_us)
    refs, totals, suspended = [], dict[str, int](), Counter[int]()
    for partition, first, stop in start.ranges(end):
        records = list(log.partition(partition).read(first, stop))
        ruled = Ruled(received_of(partition, records, start.arrival(end)), codes[partition])
        ((piece, over, _),) = handle_bounded(ruled, at)
        suspended.update(over)
        piece = tamper(piece)
        data = sealed.encode(piece)
        at.sealing.made(piece, data)
        staged = kept.pieces.stage(partition, first, stop, data)
        slots, counts = slot_bits(piece.slots.tolist()), piece.counts
        refs.append(
            PieceRef(
                staged.name,
                staged.digest,
                staged.size,
                partition,
                first,
                stop,
                counts["matched"],
                counts["deliveries"],
                counts["encryptions"],
                slots,
            )
        )
        totals = {name: totals.get(name, 0) + counts.get(name, 0) for name in {*totals, *counts}}
    late = list(_late(step, start, end, tamper_late))
    for _, counts in late:
        totals = {name: totals.get(name, 0) + counts.get(name, 0) for name in {*totals, *counts}}
    pieces = (*sorted((ref for ref, _ in late), key=lambda ref: (ref.partition, ref.first)), *refs)
    batch, chain = last.entry.batch + 1 if last else 0, step.chain(end.version)
    entry = Entry("test", batch, start, end, pieces, totals, len(late), chain)
    ledger.commit(entry)
    step.note_suspended(entry, suspended)
    ledger.close()
    log.close()
    return totals


def _late(
    step: MatchingStep, start: PinnedOffset, end: PinnedOffset, tamper: Callable[[SealedPiece], SealedPiece | None]
) -> Iterator[tuple[PieceRef, Mapping[str, int]]]:
    """What the batch delivers of frames that earlier ones took."""
    spans = [span for span, _ in step.beside(start, end)]
    rulings = np.array([(span.partition, span.first, span.retained) for span in spans], RULING)
    for row in step.make(end.pinned, rulings, HeldFrames(step.frames)) if spans else ():
        (found,) = row.to_pylist()
        assert found["late"]
        piece = tamper(sealed.parse(found["piece"]))
        if piece is not None:
            staged = step.pieces.stage(piece.partition, piece.first_offset, piece.end_offset, sealed.encode(piece))
            yield PieceRef.of(staged, piece), piece.counts
