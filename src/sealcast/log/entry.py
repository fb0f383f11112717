"""What a ledger record says: which input a batch consumed, under which version, into which pieces, with what counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from sealcast.errors import Misuse
from sealcast.log.offsets import Arrival, PinnedOffset
from sealcast.log.pieces import DIGEST_BYTES, StagedPiece
from sealcast.model.dataclass import dataclass
from sealcast.primitives.mac import TAG_BYTES
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_CBOR_ITEMS, MAX_COUNTS

if TYPE_CHECKING:
    from sealcast.wire.sealed import SealedPiece

FORMAT: Final = 1
MAX_PIECES: Final = 65_536
MAX_ENTRY_BYTES: Final = 16 << 20
MAX_QUERY_LENGTH: Final = 128
MAX_COUNT_NAME: Final = 64
_KEYS: Final = frozenset({"v", "query", "batch", "start", "end", "pieces", "counts", "previous"})
#: Only in entries that have any.
_LATE: Final = "late"
#: Only in entries of steps that are pinned to a version of the registry; releases before did not write it.
_CHAIN: Final = "chain"
CHAIN_BYTES: Final = 32
#: Of what is counted: events that brokers above removed before this broker took them. Some of them may have been for
#: those below it; nobody can say which.
REMOVED_ABOVE: Final = "removed_above"


@dataclass(frozen=True, slots=True)
class PieceRef:
    """A piece, as the ledger names it."""

    name: str
    digest: bytes
    size: int
    partition: int
    #: The frames it was made from: `first` to before `end`.
    first: int
    end: int
    events: int
    deliveries: int
    encryptions: int
    #: Who finds something in it: for subscriber slot i, bit i % 8 (lowest first) of byte i // 8, trailing zero bytes
    #: left out (`slot_bits`). With it a mailbox skips a piece on the ledger's word; None: the piece must be asked.
    slots: bytes | None = None

    def __post_init__(self) -> None:
        if len(self.digest) != DIGEST_BYTES or not 0 <= self.first < self.end:
            raise Misuse(f"piece {self.name!r} is not described properly")
        if self.slots is not None and self.slots.endswith(b"\0"):
            raise Misuse(f"piece {self.name!r}: its slots have trailing zero bytes")

    @classmethod
    def of(cls, staged: StagedPiece, piece: SealedPiece) -> PieceRef:
        """How the ledger will name a staged piece."""
        return cls(
            name=staged.name,
            digest=staged.digest,
            size=staged.size,
            partition=piece.partition,
            first=piece.first_offset,
            end=piece.end_offset,
            events=len(piece),
            deliveries=piece.deliveries,
            encryptions=piece.counts.get("encryptions", 0),
            # A key that is handed out concerns its receiver as much as an event does.
            slots=slot_bits([*piece.slots.tolist(), *piece.handout_slot.tolist()]),
        )

    def concerns(self, slot: int) -> bool:
        """May the subscriber at `slot` find something in this piece?"""
        if self.slots is None:
            return True
        return slot >> 3 < len(self.slots) and bool(self.slots[slot >> 3] >> (slot & 7) & 1)


def slot_bits(slots: Iterable[int]) -> bytes:
    """The `slots` of a piece, from slot numbers in any order."""
    chosen = set(slots)
    raw = bytearray(max(chosen, default=-1) // 8 + 1)
    for slot in chosen:
        raw[slot >> 3] |= 1 << (slot & 7)
    return bytes(raw)


@dataclass(frozen=True, slots=True)
class Entry:
    """One committed batch. Equal entries are equal batches."""

    #: The query's id, which its checkpoint keeps: batch numbers are counted within it.
    query: str
    batch: int
    start: PinnedOffset
    end: PinnedOffset
    pieces: tuple[PieceRef, ...] = ()
    #: Sums over the batch: `admitted`, `deliveries`, `rejected.signature`, ...
    counts: Mapping[str, int] = field(default_factory=dict)
    #: How many of the pieces, the first ones, are late: of frames that earlier batches took, for filters that came
    #: since. Readers find them before what the batch itself took.
    late: int = 0
    #: The chain of the registry up to `version`: another history of the same length is not the one that the batch was
    #: made under. Empty where the version is another one's, or nobody wrote it down.
    chain: bytes = b""

    def __post_init__(self) -> None:
        if len(self.chain) not in (0, CHAIN_BYTES):
            raise Misuse(f"the chain of a registry has {CHAIN_BYTES} bytes, not {len(self.chain)}")
        if not 0 < len(self.query) <= MAX_QUERY_LENGTH or self.batch < 0:
            raise Misuse("an entry names its query and the number of its batch")
        if not self.end.reaches(self.start):
            raise Misuse(f"a batch goes forward, not from {self.start} to {self.end}")
        if len(self.pieces) > MAX_PIECES or len(self.counts) > MAX_COUNTS:
            raise Misuse(f"a batch has at most {MAX_PIECES} pieces and {MAX_COUNTS} counts")
        if not 0 <= self.late <= len(self.pieces):
            raise Misuse(f"of {len(self.pieces)} pieces, {self.late} cannot be late")
        # No frame is delivered by two pieces of a batch, and late ones are of what was taken before.
        taken = {p: (first, end) for p, first, end in self.start.ranges(self.end)}
        _check_cover(self.own, taken, "are not this batch's")
        before = {p: (0, end) for p, end in enumerate(self.start.partitions)}
        _check_cover(self.pieces[: self.late], before, "are not an earlier batch's")

    @property
    def own(self) -> tuple[PieceRef, ...]:
        """The pieces of what the batch itself took."""
        return self.pieces[self.late :]

    @property
    def version(self) -> int:
        """The version of the realm's registry that is in force for the whole batch."""
        return self.end.version

    @property
    def arrival(self) -> Arrival:
        """When the frames that the batch itself took came."""
        return self.start.arrival(self.end)

    def reached(self, partition: int) -> int:
        """How far the batch and those before it consumed a partition."""
        return self.end.partitions[partition] if partition < len(self.end.partitions) else 0

    def encode(self, previous: bytes) -> bytes:
        late: dict[str, object] = {_LATE: self.late} if self.late else {}
        chain: dict[str, object] = {_CHAIN: self.chain} if self.chain else {}
        raw = cbor.encode(
            {
                "v": FORMAT,
                "query": self.query,
                "batch": self.batch,
                "start": self.start.to_cbor(),
                "end": self.end.to_cbor(),
                "pieces": [piece_to_cbor(piece) for piece in self.pieces],
                "counts": dict(self.counts),
                "previous": previous,
                **late,
                **chain,
            }
        )
        if len(raw) > MAX_ENTRY_BYTES:
            raise Misuse(
                f"a ledger record has at most {MAX_ENTRY_BYTES} bytes, not {len(raw)}: smaller batches, please"
            )
        return raw

    @classmethod
    def decode(cls, raw: bytes) -> tuple[Entry, bytes]:
        """The entry and the tag of the record before; Misuse or FrameRejected when these bytes are no entry."""
        body: Any = cbor.decode(raw, max_bytes=MAX_ENTRY_BYTES, max_items=MAX_CBOR_ITEMS)
        if not isinstance(body, dict) or body.keys() - {_LATE, _CHAIN} != _KEYS or body["v"] != FORMAT:
            raise Misuse(f"not an entry of format {FORMAT}")
        late, chain = body.get(_LATE, 0), body.get(_CHAIN, b"")
        pieces, counts, previous = body["pieces"], body["counts"], body["previous"]
        query, batch = body["query"], body["batch"]
        if not isinstance(pieces, list) or not isinstance(counts, dict) or not _is_tag(previous):
            raise Misuse("not an entry")
        if not isinstance(query, str) or not _natural(batch) or not all(map(_is_count, counts.items())):
            raise Misuse("not an entry")
        if not _natural(late) or (late == 0) is (_LATE in body):
            raise Misuse("not an entry")
        if not isinstance(chain, bytes) or (chain == b"") is (_CHAIN in body):
            raise Misuse("not an entry")
        start, end = PinnedOffset.from_cbor(body["start"]), PinnedOffset.from_cbor(body["end"])
        return cls(query, batch, start, end, tuple(map(piece_from_cbor, pieces)), counts, late, chain), previous


def _check_cover(pieces: Iterable[PieceRef], spans: Mapping[int, tuple[int, int]], fault: str) -> None:
    """Pieces lie within spans of frames, by partition, and do not overlap."""
    reached: dict[int, int] = {}
    for piece in sorted(pieces, key=lambda piece: (piece.partition, piece.first)):
        first, end = spans.get(piece.partition, (0, 0))
        if piece.first < max(first, reached.get(piece.partition, 0)) or piece.end > end:
            raise Misuse(f"piece {piece.name!r} covers frames that {fault}, or another piece's")
        reached[piece.partition] = piece.end


def piece_to_cbor(p: PieceRef) -> list[object]:
    return [p.name, p.digest, p.size, p.partition, p.first, p.end, p.events, p.deliveries, p.encryptions, p.slots]


def piece_from_cbor(body: Any) -> PieceRef:
    match body:
        case [str(), bytes(), *numbers, bytes() | None] if len(numbers) == 7 and all(map(_natural, numbers)):
            return PieceRef(*body)
        case _:
            raise Misuse("not a piece")


def _natural(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _is_tag(given: object) -> bool:
    return isinstance(given, bytes) and len(given) == TAG_BYTES


def _is_count(item: tuple[object, object]) -> bool:
    name, count = item
    return isinstance(name, str) and 0 < len(name) <= MAX_COUNT_NAME and _natural(count)
