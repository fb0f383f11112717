"""cut: events are taken out of the pieces of a step as these stand, where every event is sealed by itself.

    a record's pieces --> the same pieces without these events --> a signed note on the record --> files removed

What `withdrawing` does to whole records, and `reseal` to pieces that a broker can open, this does where brokers open
nothing (`protections.steps.CuttingStep`). Ledger, chain and cursors stay as they are, and readers are told what they
missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from sealcast.errors import Bug, Unavailable
from sealcast.log.entry import PieceRef
from sealcast.log.reseals import Removal, Resealed
from sealcast.protections.steps import CutEvent, CuttingStep, OpenStep
from sealcast.protections.withdrawing import remove_superseded

#: Tries, should somebody collect pieces that no record names yet.
_TRIES: Final = 3


@dataclass(slots=True)
class Cut:
    """What was taken out, or would be."""

    records: int = 0
    events: int = 0
    deliveries: int = 0


@dataclass(slots=True)
class _Record:
    """What is to go of one record: by the number of its piece, which of its events."""

    index: int
    gone: dict[int, set[int]] = field(default_factory=dict)
    withdrawn: Counter[int] = field(default_factory=Counter)


def events_of(step: OpenStep, record: int) -> Iterator[tuple[int, int, CutEvent]]:
    """The events of a record: which of its pieces, which event there, and what is known of it."""
    for number, ref in enumerate(step.ledger.at(record).entry.pieces):
        for at, event in enumerate(_cutting(step).events_in(step.pieces.read(ref.name, ref.digest))):
            yield number, at, event


def cut(step: OpenStep, ids: Collection[bytes], why: str, *, dry_run: bool = False) -> Cut:
    """Takes the events of these ids out of everything that the step made. Killed at any moment, some records are done
    and the others are not; done twice, it does nothing more."""
    done = Cut()
    for index in range(step.ledger.end()):
        found = _Record(index)
        for number, at, event in events_of(step, index):
            if event.id in ids:
                found.gone.setdefault(number, set()).add(at)
                found.withdrawn.update(event.delivered)
        if found.gone:
            done.records += 1
            done.events += sum(map(len, found.gone.values()))
            done.deliveries += found.withdrawn.total()
            if not dry_run:
                _commit(step, found, why)
    if not dry_run:
        remove_superseded(step)
    return done


def _commit(step: OpenStep, found: _Record, why: str) -> None:
    for left in reversed(range(_TRIES)):
        known, state = step.ledger.at(found.index), step.realm.state()
        # One note stands for all pieces of a record that are not its first ones: they say one version.
        refs = [
            _cut(step, ref, found.gone.get(number, set()), state.version)
            if number in found.gone or ref not in (known.committed_pieces or known.entry.pieces)
            else ref
            for number, ref in enumerate(known.entry.pieces)
        ]
        gone = Counter(dict(known.resealed.withdrawn) if known.resealed is not None else {}) + found.withdrawn
        epoch, withdrawn = state.topic(step.name.topic).epoch, tuple(sorted(gone.items()))
        now = step.realm.clock()
        note = Resealed(
            found.index, known.tag, state.version, now, epoch, tuple(refs), why, withdrawn, Removal.FORGOTTEN
        )
        try:
            step.ledger.reseal(note, step.pieces)
            return
        except Unavailable:
            if not left:
                raise


def _cut(step: OpenStep, ref: PieceRef, gone: Collection[int], version: int) -> PieceRef:
    made = _cutting(step).cut(step.pieces.read(ref.name, ref.digest), gone, version)
    staged = step.pieces.stage(ref.partition, ref.first, ref.end, made.data)
    about = made.events, made.deliveries, made.encryptions
    return PieceRef(staged.name, staged.digest, staged.size, ref.partition, ref.first, ref.end, *about)


def _cutting(step: OpenStep) -> CuttingStep:
    if not isinstance(step, CuttingStep):
        raise Bug(f"events of topic {step.name.topic!r} are not sealed one by one")
    return step
