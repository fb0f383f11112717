"""A layered topic's brokers without Spark: the pipeline's own kernels, keepers and ledgers, until nothing moves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from sealcast.broker.columns import COUNTED, REFERRED, counts_in
from sealcast.broker.gate import bounds_of
from sealcast.broker.history import History
from sealcast.broker.replay import SETTLING_US
from sealcast.broker.rulings import received_of, rule_frames
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import Pieces
from sealcast.model.stages import Ruled
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.layered.admit import admit
from sealcast.protections.layered.node import HOPS, HopStep
from sealcast.protections.steps import Span, StepName, Task
from sealcast.trust.deployment import Realm
from sealcast.wire import hops
from sealcast.wire.hops import HopPiece

Tamper = Callable[[HopPiece], HopPiece]


def pump(realm: Realm, topic: str, tamper: Tamper = lambda piece: piece, *, keepers: bool = True) -> Counter[str]:
    """Everything that waits, through the whole tree; what came of it. `tamper` plays a bad broker, which alters what it
    hands on."""
    overlay = realm.state().overlay(topic)
    names = [StepName(str(realm.paths.root), topic, node, HOPS) for node in overlay.downwards()]
    totals: Counter[str] = Counter()
    for name in names:
        HopStep.of(name).look_up()
    while keepers and HopStep.turn(names):
        pass
    for node in overlay.parents:
        # Also one that was a root, and has taken frames in: what is in its log goes on its way.
        if realm.paths.topic(topic, node).frames_root.is_dir():
            totals += admit_all(realm, topic, node)
    for name in names:
        totals += hop_all(name, tamper)
    return totals


def admit_all(realm: Realm, topic: str, root: str) -> Counter[str]:
    """What is in a root's log and was not handled yet, as one batch."""
    about, paths, version = realm.state().topic(topic), realm.paths.topic(topic, root), realm.registry.version()
    ledger = Ledger(paths.ledger, realm.broker(root).journal_key(about.id))
    last, log, now = ledger.last(), realm.frames(topic, root), time.time_ns() // 1000
    start = last.entry.end if last else PinnedOffset.initial(log.partitions)
    ends = tuple(log.partition(p).end() for p in range(log.partitions))
    end = PinnedOffset(ends, version, max(now, start.time_us), max(now - SETTLING_US, start.settled_us))
    gate = FramesStep.of(StepName(str(realm.paths.root), topic, root)).gate(version)
    windows = History(ledger, Pieces(paths.pieces), log, bounds_of(about), hops.parse).windows(ledger.end())
    codes = rule_frames(windows, log, start.ranges(end), gate, start.arrival(end), end.settled_us)
    refs, totals = [], Counter[str]()
    for partition, first, stop in start.ranges(end):
        records = list(log.partition(partition).read(first, stop))
        piece = admit(
            Ruled(received_of(partition, records, start.arrival(end)), codes[partition]),
            gate,
            root,
        )
        staged = Pieces(paths.pieces).stage(partition, first, stop, hops.encode(piece))
        refs.append(PieceRef(staged.name, staged.digest, staged.size, partition, first, stop, len(piece), 0, 0))
        totals += Counter(piece.counts)
    if refs:
        chain, batch = realm.registry.chain_at(version), last.entry.batch + 1 if last else 0
        ledger.commit(Entry("test", batch, start, end, tuple(refs), dict(totals), chain=chain))
    ledger.close()
    log.close()
    return totals


def hop_all(name: StepName, tamper: Tamper) -> Counter[str]:
    """What is above a broker and was not taken yet, as one batch."""
    node = HopStep.of(name)
    begin, available = node.committed(), node.available()
    refs, totals = [], Counter[str]()
    pinned = PinnedOffset(available, node.keeper.version(), max(time.time_ns() // 1000, begin.time_us))
    for partition, last in enumerate(available):
        first = begin.partitions[partition] if partition < len(begin.partitions) else 0
        if first == last:
            continue
        (made,) = node.read(Task((Span(name, partition, first, last, pinned),)))
        row = _row(made)
        piece = tamper(hops.parse(row["piece"]))
        staged = node.pieces.stage(partition, first, last, hops.encode(piece))
        counts = counts_in(row[COUNTED])
        about = (partition, first, last, *map(counts.__getitem__, REFERRED))
        refs.append(PieceRef(staged.name, staged.digest, staged.size, *about))
        totals += counts
    if refs:
        before = node.ledger.last()
        entry = Entry("test", before.entry.batch + 1 if before else 0, begin, pinned, tuple(refs), dict(totals))
        node.ledger.commit(entry)
    return totals


def _row(batch: pa.RecordBatch) -> dict[str, Any]:
    (row,) = batch.to_pylist()
    return dict(row)
