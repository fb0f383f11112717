"""Finding publishers that sign two things for one number, among the frames that were refused as replays.

Most replays are copies. One whose header differs from that of the frame which had its numbers before, and which its
publisher signed as well, is none. Nothing is decided by it: the frame was refused. It is looked for after the batch,
away from the path of events, and the work is bounded whatever was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final, NamedTuple

from sealcast.broker.gate import WHOLE_FRAME
from sealcast.broker.history import History, RefusingPiece
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.entry import Entry
from sealcast.log.equivocations import Equivocation, SignedPlace
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import PieceStore
from sealcast.model.bounded import bounded
from sealcast.model.rejection import Reason
from sealcast.primitives.sign import VerifyKey
from sealcast.wire import frame, frames
from sealcast.wire.frame import BOOT_BYTES

#: Refused frames of a batch that are looked into, and frames that are compared with them. Beyond that some pairs are
#: not found: who sends so many will send more.
MAX_LOOKED_INTO: Final = 1_024
MAX_COMPARED: Final = 262_144
_CHUNK_FRAMES, _CHUNK_BYTES = 1_024, 16 << 20


class _Suspect(NamedTuple):
    """A frame that was refused as a replay."""

    place: SignedPlace
    publisher: str
    boot: bytes
    first: int
    end: int


def equivocations(
    entry: Entry,
    pieces: PieceStore,
    parse: Callable[[bytes], RefusingPiece],
    log: EmbeddedTopic,
    history: History,
    verify_key: Callable[[str], VerifyKey],
) -> list[Equivocation]:
    """Those that one batch's refusals show."""
    suspects: dict[bytes, list[_Suspect]] = {}
    for suspect in _suspects(entry, pieces, parse, log):
        suspects.setdefault(suspect.boot, []).append(suspect)
    if not suspects:
        return []
    first, found = history.first_frames(entry.arrival.from_us - history.bounds.period_us), list[Equivocation]()
    for place, other in _frames(log, suspects, first or entry.start, entry.end):
        for suspect in list(suspects.get(other.header.boot, ())):
            shared = max(suspect.first, other.header.sequence)
            overlap = shared < min(suspect.end, other.header.sequence + other.header.count)
            if not overlap or place[:2] == suspect.place[:2] or other.header.publisher != suspect.publisher:
                continue
            if place.signed == suspect.place.signed:
                suspects[suspect.boot].remove(suspect)  # a copy
            elif verify_key(suspect.publisher).verify(other.to_be_signed, other.signature):
                found.append(Equivocation(suspect.publisher, suspect.boot, shared, place, suspect.place))
                suspects[suspect.boot].remove(suspect)
        if not any(suspects.values()):
            break
    return found


def _suspects(
    entry: Entry, pieces: PieceStore, parse: Callable[[bytes], RefusingPiece], log: EmbeddedTopic
) -> Iterator[_Suspect]:
    """Their signatures were verified at admission: a replay is refused after that."""
    left = MAX_LOOKED_INTO
    for ref in entry.pieces:
        for refused in parse(pieces.read(ref.name, ref.digest)).rejected:
            at = refused.position
            if refused.reason is not Reason.REPLAY or at.row != WHOLE_FRAME or not left:
                continue
            left -= 1
            kept = log.partition(at.partition)
            for record in kept.read(at.offset, at.offset + 1) if at.offset >= kept.start() else ():
                parsed = frame.parse(record.data)
                header, place = parsed.header, SignedPlace(at.partition, at.offset, parsed.signed)
                end = header.sequence + header.count
                yield _Suspect(place, header.publisher, header.boot, header.sequence, end)


def _frames(
    log: EmbeddedTopic, boots: Container[bytes], begin: PinnedOffset, stop: PinnedOffset
) -> Iterator[tuple[SignedPlace, frame.Frame]]:
    """The frames of these boots, of all partitions."""
    left = MAX_COMPARED
    for number, begun, end in begin.ranges(stop):
        partition = log.partition(number)
        first = max(partition.start(), begun)
        records = partition.read(first, min(end, first + left)) if first < end else iter(())
        for held in bounded(records, lambda record: len(record.data), _CHUNK_BYTES, _CHUNK_FRAMES):
            left -= len(held)
            taken = frames.parse_many([record.data for record in held])
            for record, good, end_of in zip(held, taken.good.tolist(), taken.fields.sender_end.tolist(), strict=True):
                if good and record.data[end_of - BOOT_BYTES : end_of] in boots:
                    parsed = frame.parse(record.data)
                    yield SignedPlace(number, record.offset, parsed.signed), parsed
