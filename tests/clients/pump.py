"""The broker's part of the path without Spark: the pipeline's own kernels, one batch, committed to the real ledger."""

from __future__ import annotations

from collections.abc import Callable

from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.entry import Entry, PieceRef, slot_bits
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import Pieces
from sealcast.model.stages import Received
from sealcast.pipeline.context import context
from sealcast.pipeline.fused import handle
from sealcast.trust.deployment import Realm
from sealcast.wire import sealed
from sealcast.wire.sealed import SealedPiece


def pump(
    realm: Realm, topic: str, tamper: Callable[[SealedPiece], SealedPiece] = lambda piece: piece
) -> dict[str, int]:
    """All that is in the topic's log and not handled yet, as one batch; its counts. `tamper` plays a bad broker."""
    about, paths = realm.state().topic(topic), realm.paths.topic(topic)
    version = realm.registry.version()
    log = EmbeddedTopic(paths.frames_root, about.partitions)
    ledger = Ledger(paths.ledger, realm.broker().journal_key(about.id))
    last = ledger.last()
    start = last.entry.end if last else PinnedOffset.initial(about.partitions)
    end = PinnedOffset(tuple(log.partition(p).end() for p in range(about.partitions)), version)
    refs, totals = [], dict[str, int]()
    for partition, first, stop in start.ranges(end):
        records = list(log.partition(partition).read(first, stop))
        received = Received(
            partition, [r.offset for r in records], [r.time_us for r in records], [r.data for r in records]
        )
        piece = tamper(handle(received, context(str(realm.paths.root), topic, version)))
        staged = Pieces(paths.pieces).stage(partition, first, stop, sealed.encode(piece))
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
    ledger.commit(Entry("test", last.entry.batch + 1 if last else 0, start, end, tuple(refs), totals))
    ledger.close()
    log.close()
    return totals
