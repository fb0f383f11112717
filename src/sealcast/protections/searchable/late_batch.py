"""The late part of a batch: its pieces, made of what the ledger says was retained before it.

A piece of it delivers events of frames that an earlier batch took. It counts neither frames nor admissions nor
refusals, because that batch did. It stands in the ledger's record before what the record's own batch took, so that
whoever is new reads everything in the order in which it was published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from sealcast.broker.context import Context, Sealing
from sealcast.broker.deliver import deliver
from sealcast.broker.frames import MAX_FRAMES_PER_PIECE
from sealcast.broker.gate import WHOLE_FRAME, Gate
from sealcast.broker.path import handle_bounded, room
from sealcast.broker.rulings import received_of
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.entry import PieceRef
from sealcast.log.piece_reader import PieceReader
from sealcast.log.port import Record
from sealcast.model.bounded import bounded
from sealcast.model.stages import Admitted, Grouped, Ruled
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.searchable.halves import BrokerHalves, Searched
from sealcast.protections.searchable.late import HadBefore, LateFilters, LateIndex, PieceTags, PubFilters, tags_of
from sealcast.protections.searchable.retained import RetainedPiece
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.machine import Topic
from sealcast.wire.sealed import SealedPiece

#: What a late piece counts.
_COUNTED = ("matched", "deliveries", "encryptions")


class LateBatch(Unpicklable):
    """What one batch delivers late."""

    def __init__(
        self,
        filters: LateFilters,
        retained: Iterable[RetainedPiece],
        *,
        topic: Topic,
        version: int,
        sealing: Sealing,
        secrets: BrokerSecrets,
        gate: Callable[[int], Gate],
        frames: EmbeddedTopic,
        reader: PieceReader[SealedPiece],
        end: int,
        known: PubFilters,
    ) -> None:
        """`reader` reads the ledger as it was before the batch: its first `end` records."""
        self._filters, self._sealing, self._known = filters, sealing, known
        self._topic, self._version, self._secrets, self._gate = topic, version, secrets, gate
        self._frames, self._reader, self._end = frames, reader, end
        self.retained: Mapping[tuple[int, int], RetainedPiece] = {(p.ref.partition, p.ref.first): p for p in retained}

    def order(self, place: tuple[int, int]) -> tuple[int, int, int]:
        """Where a piece, by partition and first frame, stands in the ledger."""
        piece = self.retained.get(place)
        return -1 if piece is None else piece.record, *place

    def pieces(self, piece: RetainedPiece) -> Iterator[SealedPiece]:
        """Late pieces of a retained one, of those of its frames from which anybody gets anything."""
        known = self._known.get(piece.ref.name)
        if known is not None and not self._filters.may_match(known):
            return
        records = kept_frames(piece, self._frames, self._reader)
        if records is None:
            return
        gate, tags = self._gate(piece.version), dict[int, PieceTags]({0: {}})

        def looked(events: Searched) -> None:
            tags[0] = tags_of(events, self._filters.tag_bits, tags[0])

        then = BrokerHalves(gate.state, gate.topic, self._secrets)
        index = LateIndex(self._filters, then, partial(self._had, piece), looked)
        at = Context(gate, replace(self._filters.table, index=index), self._sealing)
        for held in bounded(records, lambda record: len(record.data), room(at.table), MAX_FRAMES_PER_PIECE):
            ruled = Ruled(received_of(piece.ref.partition, held), np.zeros(len(held), np.uint8))
            for made in handle_bounded(ruled, at):
                if made.deliveries:
                    yield self._late(made)
        self._known.put(piece.ref.name, tags[0])

    def nothing(self, ref: PieceRef) -> SealedPiece:
        """A late piece that delivers nothing, so that a batch which took nothing else is a batch."""
        none = np.empty(0, np.int64)
        columns = pa.RecordBatch.from_arrays([], [])
        admitted = Admitted(ref.partition, ref.first, ref.end, (), none, none, none, [], columns, none, ())
        width = self._filters.table.authorised.shape[-1]
        grouped = Grouped(admitted, np.empty((0, width), np.uint64), none, none)
        return self._late(deliver(self._sealing.seal(grouped), self._topic.id, self._topic.epoch, self._version))

    def _late(self, made: SealedPiece) -> SealedPiece:
        return replace(
            made,
            epoch=self._topic.epoch,
            version=self._version,
            rejected=(),
            counts={name: made.counts[name] for name in _COUNTED},
        )

    def _had(self, piece: RetainedPiece) -> HadBefore:
        return had_before(piece, self._late_before, self._reader)

    @cached_property
    def _late_before(self) -> list[tuple[int, PieceRef]]:
        """What earlier batches delivered late of anything that is retained, with their records."""
        first = min((piece.record for piece in self.retained.values()), default=self._end)
        return late_refs(self._reader, first + 1, self._end)


def late_refs(reader: PieceReader[SealedPiece], first: int, end: int) -> list[tuple[int, PieceRef]]:
    """The late pieces of records `first` to before `end`, with their records."""
    entries = ((index, reader.record(index).entry) for index in range(first, end))
    return [(index, ref) for index, entry in entries for ref in entry.pieces[: entry.late]]


def had_before(
    piece: RetainedPiece, late: Iterable[tuple[int, PieceRef]], reader: PieceReader[SealedPiece]
) -> HadBefore:
    """What was delivered of a retained piece's frames: by their own batch, and late by those after it."""
    ref = piece.ref
    over = [(piece.record, ref)] + [
        (index, other)
        for index, other in late
        if index > piece.record and other.partition == ref.partition and other.first < ref.end and ref.first < other.end
    ]
    resealed = [found for index, _ in over if (found := reader.record(index).resealed) is not None]
    withdrawn = [slot for each in resealed for slot, _ in each.withdrawn]
    return HadBefore((reader.piece(other) for _, other in over), withdrawn)


def kept_frames(piece: RetainedPiece, log: EmbeddedTopic, reader: PieceReader[SealedPiece]) -> list[Record] | None:
    """The frames of a retained piece that were not refused as a whole; None when they are no longer kept."""
    ref = piece.ref
    frames = log.partition(ref.partition)
    if frames.start() > ref.first:
        return None
    rejected = reader.piece(ref).rejected
    refused = {each.position.offset for each in rejected if each.position.row == WHOLE_FRAME}
    return [record for record in frames.read(ref.first, ref.end) if record.offset not in refused]
