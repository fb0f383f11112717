"""A broker's part of the path as one function on batches (decision 3): admit, match, group, seal, deliver.

    rulings, frames --> Ruled --> Admitted --> Matched --> Grouped --> GroupSealed --> a sealed piece

Nothing of it forces a shuffle, so nothing leaves the worker. How a group's events
are sealed is the protection's (`Context.sealing`); the rest is the same wherever brokers see what they match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sealcast.broker.admit import admit
from sealcast.broker.context import Context
from sealcast.broker.deliver import deliver
from sealcast.broker.group import group
from sealcast.broker.match import match
from sealcast.broker.tables import SubscriptionTable
from sealcast.broker.traced import Watch
from sealcast.filters import bits
from sealcast.model.stages import Grouped, Received, Ruled
from sealcast.wire.sealed import SealedPiece

#: Frames handled at once: enough to amortise, little enough to bound a worker's memory.
MAX_BYTES_PER_PIECE: Final = 16 << 20
#: Bit vectors at once, a bit an event and subscriber: what bounds it when subscribers are many.
MAX_BITS_PER_PIECE: Final = 1 << 31
#: What an event takes in a frame, at the least.
SMALLEST_EVENT_BYTES: Final = 64
#: Deliveries in one piece, 60 bytes each with naive group keys. More, and the frames are handled in two halves; one
#: frame alone is never divided.
MAX_DELIVERIES_PER_PIECE: Final = 4_000_000


def handle(ruled: Ruled, at: Context) -> SealedPiece:
    """One batch of one partition, from frames to a sealed piece."""
    return _finish(_begin(ruled, at, Watch()), at)


def handle_bounded(ruled: Ruled, at: Context) -> Iterator[tuple[SealedPiece, Sequence[int], str | None]]:
    """`handle`, in as many pieces as it takes to keep each of them small; with the subscriptions that were suspended
    for each, and how long its traced frames took (`traced`)."""
    watch = Watch()
    grouped = _begin(ruled, at, watch)
    deliveries = int(bits.count(grouped.groups)[grouped.group_of].sum())
    if deliveries > MAX_DELIVERIES_PER_PIECE and ruled.codes.size > 1:
        # Admitted twice, which costs little beside what sealing so many deliveries does.
        for half in _halves(ruled):
            yield from handle_bounded(half, at)
    else:
        piece = _finish(grouped, at)
        watch.passed("seal")
        yield piece, grouped.suspended, watch.note(grouped.admitted.traces)


def _begin(ruled: Ruled, at: Context, watch: Watch) -> Grouped:
    admitted = admit(ruled, at.gate)
    watch.passed("admit")
    grouped = group(match(admitted, at.table), at.table, at.gate.state.slots_of(at.topic.name))
    watch.passed("match")
    return grouped


def _finish(grouped: Grouped, at: Context) -> SealedPiece:
    return deliver(at.sealing.seal(grouped), at.topic.id, at.topic.epoch, at.version)


def _halves(ruled: Ruled) -> tuple[Ruled, Ruled]:
    received, middle = ruled.received, ruled.codes.size // 2
    first, second = (
        Ruled(
            Received(received.partition, received.offsets[part], received.times[part], received.frames[part]),
            ruled.codes[part],
        )
        for part in (slice(middle), slice(middle, None))
    )
    return first, second


def room(table: SubscriptionTable) -> int:
    """Bytes of frames whose events' bit vectors fit, however small the events are."""
    events = MAX_BITS_PER_PIECE // max(1, len(table.ids), table.n_slots)
    return min(MAX_BYTES_PER_PIECE, events * SMALLEST_EVENT_BYTES)
