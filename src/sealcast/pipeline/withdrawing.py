"""withdraw: records of a ledger whose events are removed. The record stays, and says how many each reader has missed.

    a record's pieces --> pieces of the same frames without events --> a signed note on the record --> files removed

A note is one on resealed pieces (`log.reseals`) that says why they are empty. So the ledger, its chain and everybody's
cursors stay as they are; whoever reads on passes the place, and is told how much was there for it; and a gateway needs
to know nothing of it. Keys that came with such a piece are asked for again by readers who need them for later events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sealcast.errors import Bug, Unavailable
from sealcast.log.entry import PieceRef
from sealcast.log.reseals import Removal, Resealed
from sealcast.pipeline.reseal import remove_superseded
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.witness.places import Delivered
from sealcast.wire import sealed
from sealcast.wire.emptied import emptied
from sealcast.wire.sealed import SealedPiece

#: Tries, should somebody collect pieces that no record names yet.
_TRIES: Final = 3


@dataclass(slots=True)
class Withdrawn:
    """What was removed."""

    records: int = 0
    pieces: int = 0
    deliveries: int = 0
    bytes: int = 0


def withdraw(step: FramesStep, records: Iterable[int], why: str, removal: Removal) -> Withdrawn:
    """Removes the events of these records. Killed at any moment, some are done and the others are not; done twice, it
    does nothing more."""
    done = Withdrawn()
    for record in records:
        for left in reversed(range(_TRIES)):
            try:
                _withdraw(step, record, why, removal, done)
                break
            except Unavailable:
                if not left:
                    raise
    remove_superseded(step)
    return done


def _withdraw(step: FramesStep, record: int, why: str, removal: Removal, done: Withdrawn) -> None:
    known, state = step.ledger.at(record), step.realm.state()
    if known.resealed is not None and known.resealed.removal is not None:
        return
    gone = Counter(dict(known.resealed.withdrawn) if known.resealed is not None else {})
    refs, deliveries = list[PieceRef](), 0
    for ref in known.entry.pieces:
        piece = step.parse(step.pieces.read(ref.name, ref.digest))
        if not isinstance(piece, SealedPiece):
            raise Bug(f"pieces of topic {step.name.topic!r} are not removed by their events")
        received = Counter(Delivered.of(piece).slot.tolist())
        left = emptied(piece, state.version)
        staged = step.pieces.stage(ref.partition, ref.first, ref.end, sealed.encode(left))
        refs.append(PieceRef.of(staged, left))
        gone.update(received)
        deliveries += received.total()
    epoch = state.topic(step.name.topic).epoch
    withdrawn = tuple(sorted(gone.items()))
    note = Resealed(record, known.tag, state.version, step.realm.clock(), epoch, tuple(refs), why, withdrawn, removal)
    step.ledger.reseal(note, step.pieces)
    done.records += 1
    done.pieces += len(refs)
    done.deliveries += deliveries
    done.bytes += sum(ref.size for ref in known.entry.pieces) - sum(ref.size for ref in refs)
