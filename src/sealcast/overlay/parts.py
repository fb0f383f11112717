"""A topic at one of its brokers, to be read: its log, its ledger, and which of its frames were admitted.

Offsets of a frame are those of the log that it was published to, its origin's. Every broker's log holds other brokers'
frames with these (`log.forwarded`), so brokers can be compared: how far is each, of everything that was published?
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from sealcast.log.closing import Closing
from sealcast.log.ledger import LedgerReader
from sealcast.log.pieces import checked_name, verified
from sealcast.trust.realm.state import RealmState
from sealcast.trust.site import Site, TakenFrames
from sealcast.wire import sealed

#: A frame that was refused as a whole has no row (`broker.admit`).
_WHOLE_FRAME = -1


class BrokerPart(Closing):
    """One broker's part of a topic, on this machine or behind its gateway."""

    def __init__(self, state: RealmState, site: Site, topic: str, broker: str) -> None:
        """As the site's member sees it: a broker, where the part is on another machine."""
        self.broker, self._topic = broker, topic
        first, each = state.broker_number(broker), state.topic(topic).partitions
        #: The partitions that publishers append to at this broker.
        self.own = range(first * each, (first + 1) * each)
        self._site, self._journal = site, site.journal(topic, broker)
        self.ledger = LedgerReader(self._journal)
        self._forwarded: dict[int, TakenFrames] = {}

    # --- how far it is ------------------------------------------------------------------------------

    def consumed(self, records: int, partition: int) -> int:
        """Records of a partition of its log that the first so many batches took."""
        return self.ledger.at(records - 1).entry.reached(partition) if records else 0

    def first_since(self, version: int, first: int = 0) -> int | None:
        """The first batch, not before number `first`, that was pinned to that version or a later one."""
        end = self.ledger.end()
        found = bisect_left(range(end), version, lo=min(first, end), key=lambda i: self.ledger.at(i).entry.version)
        return found if found < end else None

    def starts(self, version: int) -> tuple[int, ...]:
        """Where, in its own log, the batches of that version and later ones begin."""
        index = self.first_since(version)
        ends = self.ledger.end() if index is None else index
        return tuple(self.consumed(ends, partition) for partition in self.own)

    def through(self, records: int, partition: int) -> int:
        """How far the first so many batches went, in offsets of the partition's origin."""
        taken = self.consumed(records, partition)
        return taken if partition in self.own else self._from_others(partition).through(taken)

    def index_of(self, partition: int, origin: int) -> int:
        """Records of a partition of its log that lie before an offset of the partition's origin."""
        return origin if partition in self.own else self._from_others(partition).index_of(origin)

    def _from_others(self, partition: int) -> TakenFrames:
        if partition not in self._forwarded:
            self._forwarded[partition] = self._site.forwarded(self._topic, self.broker, partition)
        return self._forwarded[partition]

    # --- what it admitted ---------------------------------------------------------------------------

    def batch_of(self, partition: int, offset: int) -> int:
        """The batch that took, or will take, that record of its log."""
        end = self.ledger.end()
        return bisect_right(range(end), offset, key=lambda i: self.ledger.at(i).entry.reached(partition))

    def admitted(self, partition: int, first: int) -> Iterator[int]:
        """The offsets of the frames of one of its own partitions, from `first` on, that were delivered and not refused
        as a whole."""
        for index in range(self.batch_of(partition, first), self.ledger.end()):
            for ref in self.ledger.at(index).entry.own:
                if ref.partition != partition or ref.end <= first:
                    continue
                where = f"{self._journal.shown}/pieces/{checked_name(ref.name)}"
                piece = sealed.parse(verified(self._journal.piece(ref.name), ref.digest, where))
                refused = {r.position.offset for r in piece.rejected if r.position.row == _WHOLE_FRAME}
                yield from (offset for offset in range(max(first, ref.first), ref.end) if offset not in refused)

    def close(self) -> None:
        self.ledger.close()
