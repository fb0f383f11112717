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
from typing import Final, Protocol

from sealcast.errors import Unavailable
from sealcast.log.entry import PieceRef
from sealcast.log.journal import KeptJournal
from sealcast.log.ledger import Ledger
from sealcast.log.pieces import PieceStore
from sealcast.log.replays import Replays
from sealcast.log.reseals import Removal, Resealed
from sealcast.protections.steps import EmptiedPiece
from sealcast.trust.handles import OpenRealm

#: Tries, should somebody collect pieces that no record names yet.
_TRIES: Final = 3


class Emptying(Protocol):
    """A ledger whose records can be emptied by whoever keeps it: of a step of a broker (`steps.OpenStep`), or of a
    reader's own inbox."""

    @property
    def realm(self) -> OpenRealm: ...
    @property
    def topic(self) -> str: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def pieces(self) -> PieceStore: ...
    @property
    def journal(self) -> KeptJournal: ...
    def emptied(self, data: bytes, version: int) -> EmptiedPiece: ...


@dataclass(slots=True)
class Withdrawn:
    """What was removed."""

    records: int = 0
    pieces: int = 0
    deliveries: int = 0
    bytes: int = 0


def withdraw(step: Emptying, records: Iterable[int], why: str, removal: Removal) -> Withdrawn:
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


def _withdraw(step: Emptying, record: int, why: str, removal: Removal, done: Withdrawn) -> None:
    known, state = step.ledger.at(record), step.realm.state()
    if known.is_emptied:
        return
    before, refs = known.resealed, list[PieceRef]()
    gone = Counter[int](dict(before.withdrawn) if before is not None else {})
    passing, already = Counter[int](), gone.total()
    for ref in known.entry.pieces:
        left = step.emptied(step.pieces.read(ref.name, ref.digest), state.version)
        staged = step.pieces.stage(ref.partition, ref.first, ref.end, left.data)
        # It concerns nobody: a mailbox skips it on the ledger's word.
        refs.append(PieceRef(staged.name, staged.digest, staged.size, ref.partition, ref.first, ref.end, 0, 0, 0, b""))
        gone.update(left.delivered)
        passing.update(left.on_the_way)
    epoch, now = state.topic(step.topic).epoch, step.realm.clock()
    withdrawn, on_the_way = (tuple(sorted(counts.items())) for counts in (gone, passing))
    note = Resealed(record, known.tag, state.version, now, epoch, tuple(refs), why, withdrawn, removal, on_the_way)
    step.ledger.reseal(note, step.pieces)
    done.records += 1
    done.pieces += len(refs)
    done.deliveries += gone.total() - already
    done.bytes += sum(ref.size for ref in known.entry.pieces) - sum(ref.size for ref in refs)


def remove_superseded(kept: Emptying) -> int:
    """Removes the pieces that lost their places, also those that a job before was killed before it removed; and what
    was replayed in earlier epochs, which its reader can ask for again."""
    gone = kept.ledger.superseded().intersection(kept.pieces.names())
    kept.pieces.remove(gone)
    replays, epoch = Replays(kept.journal), kept.realm.state().topic(kept.topic).epoch
    past = {ref.name for each in replays.all() if each.epoch < epoch for ref in each.pieces}
    current = {ref.name for each in replays.all() if each.epoch == epoch for ref in each.pieces}
    old = (past - current).intersection(replays.pieces.names())
    if old:
        replays.pieces.remove(old)
    replays.close()
    return len(gone) + len(old)
