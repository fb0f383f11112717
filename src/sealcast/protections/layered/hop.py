"""One hop: what is addressed to a broker -> what it sends on. The scheme's rules, batch-wise, with bodies once.

    rows of the pieces above --parse--> Notification --RoutingNode.on_notification--> entries by child --> a hop piece

A message that is none, or has an element of no group, is refused and counted; the others go on. An event of a tree in
which nobody below ever asked for anything goes nowhere; one whose epoch or generation has ended here, with the tables
that it was for, is refused and counted, so that nothing is lost unseen. Entries are sorted: a batch that
is run again, in a process whose sets have another order, makes the same bytes, and their order tells nobody which row
was hit.

What brokers above removed before it was taken is counted, and so is what they counted of that themselves: those who
read below are told that something may be missing, wherever on its way it was removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from sealcast.broker.deliver import rejected_by_reason
from sealcast.broker.opening import shortened
from sealcast.errors import Misuse, Rejected
from sealcast.log.entry import REMOVED_ABOVE
from sealcast.model import Reason, Rejection
from sealcast.protections.layered.filters.kept import Kept
from sealcast.protections.layered.messages import Notification
from sealcast.protections.layered.piece import PieceBuilder
from sealcast.protections.layered.tree import TreeId
from sealcast.wire import frame
from sealcast.wire.hops import HopPiece
from sealcast.wire.limits import MAX_PIECE_REJECTIONS
from sealcast.wire.notifications import encode_entries, parse_entries

if TYPE_CHECKING:
    from sealcast.protections.layered.route import RoutingNode

_EVERYTHING: Final = Kept()


def hop(
    pieces: Iterable[HopPiece],
    node: str,
    brokers: Mapping[TreeId, RoutingNode],
    kept: Kept = _EVERYTHING,
    *,
    topic: bytes,
    version: int,
    partition: int,
    first: int,
    end: int,
    removed: int = 0,
) -> HopPiece:
    """What the records [first, end) above have for this broker, routed by its tables at one version. `removed` events
    are not there any more that were addressed to it."""
    routed = _Routed(node, brokers, kept)
    routed.removed = removed
    for piece in pieces:
        routed.take(piece)
    return routed.built.piece(
        topic=topic,
        node=node,
        version=version,
        partition=partition,
        first=first,
        end=end,
        rejected=routed.rejected[:MAX_PIECE_REJECTIONS],
        counts={
            "frames": 0,
            "matched": len(routed.built),
            "deliveries": routed.deliveries,
            "encryptions": routed.encryptions,
            **rejected_by_reason(tuple(routed.rejected)),
            **({REMOVED_ABOVE: routed.removed} if routed.removed else {}),
        },
    )


class _Routed:
    def __init__(self, node: str, brokers: Mapping[TreeId, RoutingNode], kept: Kept) -> None:
        self.built = PieceBuilder()
        self.rejected: list[Rejection] = []
        #: Final entries: events times the subscribers of this broker that get them.
        self.deliveries = 0
        #: Entries made: each is a payload key under another layer.
        self.encryptions = 0
        #: Events that were removed before this broker, or one above it, took them.
        self.removed = 0
        self._node = node
        self._brokers = brokers
        self._kept = kept

    def take(self, piece: HopPiece) -> None:
        """What one piece has for this broker."""
        self.removed += piece.counts.get(REMOVED_ABOVE, 0)
        trees: dict[tuple[int, int], tuple[TreeId, RoutingNode | None]] = {}
        for row in piece.rows_for(self._node):
            event = piece.event_of(row)
            frame_index, _, generation = piece.place(event)
            at = frame_index, generation
            if at not in trees:
                header = frame.parse_signed(piece.frames[frame_index].signed).header
                tree = TreeId(header.publisher, header.epoch, generation)
                trees[at] = tree, self._brokers.get(tree)
            tree, broker = trees[at]
            if broker is None:
                if not self._kept.has(tree.epoch, tree.generation):
                    late = f"epoch {tree.epoch}, generation {tree.generation}: its filters and keys are gone"
                    self.rejected.append(Rejection(piece.position(event), Reason.EPOCH, late, 1))
                continue
            try:
                self._route(piece, event, broker, piece.entries_of(row))
            except (Rejected, Misuse) as error:
                self.rejected.append(Rejection(piece.position(event), Reason.EVENT, shortened(error.message), 1))

    def _route(self, piece: HopPiece, event: int, broker: RoutingNode, raw: bytes) -> None:
        event_id, body = piece.event_id(event), piece.body(event)
        onwards = broker.on_notification(Notification(event_id, parse_entries(raw), body))
        if not onwards:
            return
        # All of them before anything is taken: an event goes on to everybody it should, or is refused.
        sent = [(child, encode_entries(sorted(message.entries))) for child, message in onwards.items()]
        _, row, generation = piece.place(event)
        at = self.built.event(piece.frame(event), row, generation, event_id, body, piece.path(event))
        for child, encoded in sent:
            self.built.send(child, at, encoded)
        for message in onwards.values():
            self.encryptions += len(message.entries)
            self.deliveries += sum([entry.final for entry in message.entries])
