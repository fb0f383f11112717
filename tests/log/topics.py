"""A topic's directory with real pieces and a real ledger, from a plain description of who gets what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import Pieces
from sealcast.model.event import Position
from sealcast.model.stages import FrameProof
from sealcast.primitives import merkle
from sealcast.primitives.aead import COMMITMENT_BYTES, TAG_BYTES, WRAPPED_BYTES
from sealcast.primitives.secrets import Secret
from sealcast.wire import sealed
from sealcast.wire.limits import KEY_ID_BYTES
from sealcast.wire.sealed import SealedPiece
from tests.wire.mailboxes import of_deliveries

KEY = Secret(bytes(range(32)))
ROWS = 4

#: Of a batch: who gets each event.
Deliveries = Mapping[Position, Sequence[int]]


def make_piece(partition: int, first: int, end: int, gets: Deliveries) -> SealedPiece:
    """A piece over frames of ROWS events each. Its keys are no keys, and nothing in it opens; its structure is real."""
    events = sorted(position for position in gets if gets[position])
    offsets = sorted({position.offset for position in events})
    slots = sorted({slot for slots in gets.values() for slot in slots})
    use_start = np.cumsum([0, *(len(gets[position]) for position in events)])
    boxes = {slot: [i for i, position in enumerate(events) if slot in gets[position]] for slot in slots}
    rows = [(slot, i, use_start[i] + sorted(gets[events[i]]).index(slot)) for slot in slots for i in boxes[slot]]
    uses = [slots.index(slot) for position in events for slot in sorted(gets[position])]
    none = np.zeros(0, np.int64)
    return SealedPiece(
        topic=bytes(16),
        epoch=0,
        version=1,
        partition=partition,
        first_offset=first,
        end_offset=end,
        frames=tuple(FrameProof(offset, b"signed", ROWS, bytes(merkle.size(ROWS))) for offset in offsets),
        frame_index=np.array([offsets.index(position.offset) for position in events], np.int64),
        row=np.array([position.row for position in events], np.int64),
        body_start=np.arange(len(events) + 1) * (TAG_BYTES + 1),
        bodies=bytes(len(events) * (TAG_BYTES + 1)),
        commitments=bytes(COMMITMENT_BYTES * len(events)),
        wrapped=np.ones(len(events), np.int64),
        key_ids=bytes(KEY_ID_BYTES * len(slots)),
        key_kind=np.zeros(len(slots), np.uint8),
        use_start=use_start,
        uses=np.array(uses, np.int64),
        wraps=bytes(WRAPPED_BYTES * len(uses)),
        **of_deliveries(rows, use_start),
        handout_slot=none,
        handout_key=none,
        handout_event=none,
        handouts=b"",
        rejected=(),
        counts={"encryptions": len(uses)},
    )


class TopicMaker:
    """Commits batches to a topic's directory."""

    def __init__(self, root: Path, partitions: int = 2) -> None:
        self.root = root
        self.pieces = Pieces(root / "pieces")
        self.ledger = Ledger(root / "ledger", KEY)
        self.end = PinnedOffset.initial(partitions)

    def batch(self, ends: Sequence[int], gets: Deliveries, *, skip_bits: bool = False) -> Entry:
        """Commit the frames up to `ends`, two frames a piece at most."""
        end = PinnedOffset(tuple(ends), 1)
        refs = []
        for partition, first, last in self.end.ranges(end):
            for low in range(first, last, 2):
                high = min(low + 2, last)
                mine = {p: s for p, s in gets.items() if p.partition == partition and low <= p.offset < high}
                piece = make_piece(partition, low, high, mine)
                ref = PieceRef.of(self.pieces.stage(partition, low, high, sealed.encode(piece)), piece)
                refs.append(_without_bits(ref) if skip_bits else ref)
        last_entry = self.ledger.last_span()
        entry = Entry("query", last_entry.batch + 1 if last_entry else 0, self.end, end, tuple(refs), {"admitted": 1})
        assert self.ledger.commit(entry)
        self.end = end
        return entry


def _without_bits(ref: PieceRef) -> PieceRef:
    return PieceRef(ref.name, ref.digest, ref.size, ref.partition, ref.first, ref.end, 0, 0, 0, None)
