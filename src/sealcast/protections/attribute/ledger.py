"""What a peer took in, for good: a ledger and pieces of its own, journalled with a key that only it has.

    a subscriber's inbox      the events that it opened, as they came, and what it refused
    a publisher's account     which frames of its own log went out, and which were refused

A record and its pieces are durable before anybody hears of them. The ledger is chained and its tags are the peer's: who
can write its files can destroy them, and not rewrite them unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from sealcast.broker.deliver import rejected_by_reason
from sealcast.log.annals import JournalKey
from sealcast.log.closing import Closing
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import Pieces
from sealcast.model.rejection import Rejection
from sealcast.primitives import kdf
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.keys.identity import Identity
from sealcast.trust.layout import TopicPaths
from sealcast.wire import peer_pieces
from sealcast.wire.carried import CarriedEvent

#: What stands in a record where brokers name their query.
QUERY: Final = "peer"


def journal_key(identity: Identity, topic_id: bytes) -> JournalKey:
    """Authenticates what a peer says it took in."""
    return JournalKey(kdf.derive(identity.signer.seed, b"peer journal", topic_id), identity.signer, topic_id)


class PeerLedger(Closing, Unpicklable):
    """One peer's records on one topic. Close it."""

    def __init__(self, paths: TopicPaths, identity: Identity, topic_id: bytes) -> None:
        self.paths, self.name, self._topic_id = paths, identity.name, topic_id
        self.ledger = Ledger(paths.ledger, journal_key(identity, topic_id))
        self.pieces = Pieces(paths.pieces)

    def alone(self) -> AbstractContextManager[str]:
        """While one process runs the peer; Locked when another one does."""
        return self.ledger.exclusive()

    @property
    def reached(self) -> PinnedOffset:
        """How far it took things in."""
        last = self.ledger.last_span()
        return PinnedOffset.initial(1) if last is None else last.end

    @property
    def taken(self) -> int:
        """How many arrivals, or frames."""
        return self.reached.partitions[0]

    def add(
        self,
        count: int,
        pinned: tuple[int, int, int],
        events: Sequence[CarriedEvent] = (),
        rejected: Sequence[Rejection] = (),
        counts: Mapping[str, int] | None = None,
    ) -> Mapping[str, int]:
        """A record of so many more, durable on return; what it counts. `pinned`: the registry's version, the time, and
        the time by which everything before was settled."""
        start = self.reached
        version, time_us, settled_us = pinned
        end = PinnedOffset(
            (start.partitions[0] + count,),
            max(version, start.version),
            max(time_us, start.time_us),
            max(settled_us, start.settled_us),
        )
        sums = {**(counts or {}), **rejected_by_reason(tuple(rejected))}
        span = range(start.partitions[0], end.partitions[0])
        piece = peer_pieces.made(self._topic_id, self.name, end.version, span, events, rejected, sums)
        staged = self.pieces.stage(0, span.start, span.stop, peer_pieces.encode(piece))
        ref = PieceRef(
            staged.name, staged.digest, staged.size, 0, span.start, span.stop, len(events), len(events), 0, None
        )
        self.ledger.commit(Entry(QUERY, self.ledger.end(), start, end, (ref,), sums))
        return sums

    def close(self) -> None:
        self.ledger.close()
