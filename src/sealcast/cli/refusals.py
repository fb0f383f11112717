"""What pieces say was refused, as `rejected list` shows it, whatever protects the topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sealcast.log.entry import PieceRef
    from sealcast.log.ledger import Committed, LedgerReader
    from sealcast.model.rejection import Rejection


class Piece(Protocol):
    @property
    def rejected(self) -> Sequence[Rejection]: ...


class Reader(Protocol):
    """`log.piece_reader.PieceReader` is one."""

    @property
    def ledger(self) -> LedgerReader: ...
    def record(self, index: int) -> Committed: ...
    def piece(self, ref: PieceRef) -> Piece: ...


def newest_first(reader: Reader, topic: str, broker: str) -> Iterator[dict[str, Any]]:
    """Pieces are read only where the ledger counted refusals."""
    from sealcast.cli.status import REJECTED, moment

    for index in range(reader.ledger.end() - 1, -1, -1):
        committed = reader.record(index)
        if not any(name.startswith(REJECTED) and count for name, count in committed.entry.counts.items()):
            continue
        for ref in reversed(committed.entry.pieces):
            for rejection in reversed(reader.piece(ref).rejected):
                position = rejection.position
                yield {
                    "at": moment(committed.time_us),
                    "topic": topic,
                    "broker": broker,
                    "partition": position.partition,
                    "offset": position.offset,
                    "row": position.row if position.row >= 0 else None,
                    "reason": str(rejection.reason),
                    "events": rejection.events,
                    "detail": rejection.detail,
                }
