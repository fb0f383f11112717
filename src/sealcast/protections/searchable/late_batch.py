"""The late part of a batch: its pieces, made of what the ledger says was retained before it.

A piece of it delivers events of frames that an earlier batch took. It counts neither frames nor admissions nor
refusals, because that batch did. It stands in the ledger's record before what the record's own batch took, so that
whoever is new reads everything in the order in which it was published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa

from sealcast.broker.admit import admit
from sealcast.broker.context import Sealing
from sealcast.broker.deliver import deliver
from sealcast.broker.frames import MAX_FRAMES_PER_PIECE, ReadableFrames
from sealcast.broker.gate import WHOLE_FRAME, Gate
from sealcast.broker.group import group
from sealcast.broker.match import match
from sealcast.broker.path import MAX_BYTES_PER_PIECE, MAX_DELIVERIES_PER_PIECE, room
from sealcast.broker.rulings import admitted_before
from sealcast.broker.tables import SubscriptionTable
from sealcast.filters import bits
from sealcast.log.entry import PieceRef
from sealcast.log.piece_reader import PieceReader
from sealcast.log.port import Record
from sealcast.model.bounded import bounded
from sealcast.model.stages import Admitted, Grouped
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.past import senders
from sealcast.protections.searchable.halves import BrokerHalves, Searched
from sealcast.protections.searchable.late import HadBefore, LateFilters, LateIndex, PieceTags, PubFilters, tags_of
from sealcast.protections.searchable.retained import RetainedPiece
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.machine import Topic
from sealcast.wire.sealed import SealedPiece

#: What a late piece counts.
_COUNTED: Final = ("matched", "deliveries", "encryptions")
#: Nobody looks at what brokers see of events that were matched.
_COLUMNS: Final = pa.RecordBatch.from_arrays([], [])


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
        frames: ReadableFrames,
        reader: PieceReader[SealedPiece],
        end: int,
        known: PubFilters,
    ) -> None:
        """`reader` reads the ledger as it was before the batch: its first `end` records."""
        self._filters, self._sealing, self._known = filters, sealing, known
        self._topic, self._version, self._secrets, self._gate = topic, version, secrets, gate
        self._frames, self._reader, self._end = frames, reader, end
        self.retained: Mapping[tuple[int, int], RetainedPiece] = {(p.ref.partition, p.ref.first): p for p in retained}

    def make(self, places: Iterable[tuple[int, int]]) -> Iterator[SealedPiece]:
        """The late pieces of retained ones, which are named by partition and first frame. Each is over as many of its
        partition as fit: a record names every piece with all who find something in it."""
        # In the order of the ledger, so that versions of the registry are gone through once.
        pieces = [self.retained[place] for place in places if place in self.retained]
        pieces.sort(key=lambda piece: (piece.record, piece.ref.partition, piece.ref.first))
        held: dict[int, _Held] = {}
        for part in (part for piece in pieces for part in self._parts(piece)):
            before = held.get(part.partition)
            if before is not None and not before.fits(part):
                yield self._late(held.pop(part.partition).parts)
            held.setdefault(part.partition, _Held()).add(part)
        for each in held.values():
            yield self._late(each.parts)

    def nothing(self, ref: PieceRef) -> SealedPiece:
        """A late piece that delivers nothing, so that a batch which took nothing else is a batch."""
        none = np.empty(0, np.int64)
        admitted = Admitted(ref.partition, ref.first, ref.end, (), none, none, none, [], _COLUMNS, none, ())
        return self._late([_Part(Grouped(admitted, np.empty((0, 1), np.uint64), none, none), False)])

    def _parts(self, piece: RetainedPiece) -> Iterator[_Part]:
        """What is delivered late of a retained piece."""
        known = self._known.get(piece.ref.name)
        if known is not None and not self._filters.may_match(known):
            return
        records = kept_frames(piece, self._frames, self._reader)
        if records is None:
            return
        gate, tags = self._gate(piece.version), list[PieceTags]()

        def looked(events: Searched) -> None:
            tags.append(tags_of(events, self._filters.tag_bits, *tags[-1:]))

        then = BrokerHalves(gate.state, gate.topic, self._secrets)
        index = LateIndex(self._filters, then, partial(self._had, piece), looked)
        table = replace(self._filters.table, index=index)
        for held in bounded(records, lambda record: len(record.data), room(table), MAX_FRAMES_PER_PIECE):
            yield from self._matched(piece.ref.partition, held, gate, table)
        self._known.put(piece.ref.name, tags[-1] if tags else {})

    def _matched(
        self, partition: int, records: Sequence[Record], gate: Gate, table: SubscriptionTable
    ) -> Iterator[_Part]:
        """Those events of some frames that somebody gets."""
        grouped = group(match(admit(admitted_before(partition, records), gate), table), table, {})
        if _deliveries(grouped) > MAX_DELIVERIES_PER_PIECE and len(records) > 1:
            for half in (records[: len(records) // 2], records[len(records) // 2 :]):
                yield from self._matched(partition, half, gate, table)
        elif grouped.events.size:
            sent = senders(grouped.admitted)
            earlier = any(sent[event].epoch < self._topic.epoch for event in grouped.events.tolist())
            yield _Part(_taken(grouped), earlier)

    def _late(self, parts: Sequence[_Part]) -> SealedPiece:
        whole = joined([part.grouped.admitted for part in parts])
        words = np.concatenate([part.grouped.groups[part.grouped.group_of] for part in parts])
        groups, group_of = bits.unique_rows(words)
        sealed = self._sealing.seal(Grouped(whole, groups, np.arange(group_of.size), group_of))
        made = deliver(sealed, self._topic.id, self._topic.epoch, self._version)
        return replace(made, counts={name: made.counts[name] for name in _COUNTED})

    def _had(self, piece: RetainedPiece) -> HadBefore:
        return had_before(piece, self._late_before, self._reader)

    @cached_property
    def _late_before(self) -> list[tuple[int, PieceRef]]:
        """What earlier batches delivered late of anything that is retained, with their records."""
        first = min((piece.record for piece in self.retained.values()), default=self._end)
        return late_refs(self._reader, first + 1, self._end)


@dataclass(frozen=True, slots=True)
class _Part:
    """Events of one retained piece that somebody gets late; whether any is of an earlier epoch."""

    grouped: Grouped
    earlier: bool

    @property
    def partition(self) -> int:
        return self.grouped.admitted.partition

    @property
    def size(self) -> tuple[int, int, int]:
        """Bytes, frames and deliveries."""
        admitted = self.grouped.admitted
        return sum(map(len, admitted.messages)), len(admitted.frames), _deliveries(self.grouped)


class _Held:
    """Parts that become one late piece."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self._size = (0, 0, 0)

    def fits(self, part: _Part) -> bool:
        """Whether it can have one more. What is sealed for each reader is kept apart from what is not."""
        most = (MAX_BYTES_PER_PIECE, MAX_FRAMES_PER_PIECE, MAX_DELIVERIES_PER_PIECE)
        room = all(a + b <= c for a, b, c in zip(self._size, part.size, most, strict=True))
        return room and self.parts[-1].earlier == part.earlier

    def add(self, part: _Part) -> None:
        bytes_, frames, deliveries = part.size
        self.parts.append(part)
        self._size = self._size[0] + bytes_, self._size[1] + frames, self._size[2] + deliveries


def _deliveries(grouped: Grouped) -> int:
    return int(bits.count(grouped.groups)[grouped.group_of].sum())


def _taken(grouped: Grouped) -> Grouped:
    """Returns the same piece without events that nobody gets."""
    of, events = grouped.admitted, grouped.events
    kept, frame_index = np.unique(of.frame_index[events], return_inverse=True)
    admitted = replace(
        of,
        frames=tuple(of.frames[frame] for frame in kept.tolist()),
        frame_index=frame_index,
        offset=of.offset[events],
        row=of.row[events],
        messages=of.messages_of(events),
        columns=_COLUMNS,
        payload_start=of.payload_start[events],
        rejections=(),
    )
    return Grouped(admitted, grouped.groups, np.arange(events.size), grouped.group_of)


def joined(parts: Sequence[Admitted]) -> Admitted:
    """Events of one partition, in order, as if they had been admitted together; without what brokers see of them."""
    starts = np.cumsum([0, *(len(part.frames) for part in parts)])
    frame_index = [part.frame_index + start for part, start in zip(parts, starts.tolist(), strict=False)]
    return Admitted(
        partition=parts[0].partition,
        first_offset=parts[0].first_offset,
        end_offset=parts[-1].end_offset,
        frames=tuple(frame for part in parts for frame in part.frames),
        frame_index=np.concatenate(frame_index),
        offset=np.concatenate([part.offset for part in parts]),
        row=np.concatenate([part.row for part in parts]),
        messages=[message for part in parts for message in part.messages],
        columns=_COLUMNS,
        payload_start=np.concatenate([part.payload_start for part in parts]),
        rejections=(),
    )


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


def kept_frames(piece: RetainedPiece, log: ReadableFrames, reader: PieceReader[SealedPiece]) -> list[Record] | None:
    """The frames of a retained piece that were not refused as a whole; None when they are no longer kept."""
    ref = piece.ref
    frames = log.partition(ref.partition)
    if frames.start() > ref.first:
        return None
    rejected = reader.piece(ref).rejected
    refused = {each.position.offset for each in rejected if each.position.row == WHOLE_FRAME}
    return [record for record in frames.read(ref.first, ref.end) if record.offset not in refused]
