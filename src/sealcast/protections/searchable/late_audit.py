"""The late part of a batch, done again: which filters were new, what was retained, and who should have got what of it.

What was retained, and which filters were new to the batch, is worked out from ledger and registry, as the broker does
(`retained`). Whether they match is asked of the sealed filters one by one (`asking`), without the broker's index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sealcast.broker.admit import admit
from sealcast.broker.rulings import admitted_before
from sealcast.broker.served import served_intervals
from sealcast.errors import Corrupt, FrameRejected, NotFound
from sealcast.log.entry import PieceRef
from sealcast.log.ledger import Committed
from sealcast.log.piece_reader import PieceReader, sealed_reader
from sealcast.model.stages import Admitted
from sealcast.model.subscription import Subscription
from sealcast.protections.enveloped.audit import EnvelopedAudit
from sealcast.protections.searchable import asking
from sealcast.protections.searchable.asking import StatedFilter, asked
from sealcast.protections.searchable.halves import BrokerHalves, searched
from sealcast.protections.searchable.late import HadBefore, LateFilters, PubFilters, tags_of
from sealcast.protections.searchable.late_batch import had_before, joined, kept_frames, late_refs
from sealcast.protections.searchable.retained import RetainedPiece, new_filters, retained
from sealcast.protections.witness import places
from sealcast.protections.witness.expected import Expected
from sealcast.protections.witness.ledger import resealing
from sealcast.protections.witness.places import Delivered, Pairs, place_of
from sealcast.protections.witness.report import Kind
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.state import RealmState
from sealcast.wire.sealed import SealedPiece

#: A late piece of the batch at hand; None where it cannot be read.
FoundPiece = tuple[SealedPiece | None, PieceRef]
_COUNTED = frozenset({"matched", "deliveries", "encryptions"})


class _Asked:
    """The filters that are new to one batch, ready to be asked."""

    def __init__(
        self, state: RealmState, topic: str, new: Mapping[str, Subscription], secrets: BrokerSecrets, time_us: int
    ) -> None:
        about, slots = state.topic(topic), state.slots_of(topic)
        self.filters = LateFilters(state, about, new, secrets, time_us)
        halves = BrokerHalves(state, about, secrets)
        self.stated, self.slots = list[StatedFilter](), list[int]()
        for id, each in served_intervals(state, about, new):
            if each.holds(time_us):
                self.stated.append(asked(each.filter, new[id].subscriber, about, halves))
                self.slots.append(slots[new[id].subscriber])


class _Judged(NamedTuple):
    """A retained piece: what was admitted of it, where it was worked out again, and what was delivered beyond."""

    piece: RetainedPiece
    admitted: Admitted | None
    beyond: Sequence[tuple[int, int]] = ()


class _Late(NamedTuple):
    """A late piece of the batch at hand."""

    piece: SealedPiece
    ref: PieceRef
    delivered: Delivered

    def outside(self, judged: Sequence[_Judged]) -> Pairs:
        """What it delivers that is of none of these."""
        spans = [(place_of(each.piece.ref.first, 0), place_of(each.piece.ref.end, 0)) for each in judged]
        pairs = zip(self.delivered.slot.tolist(), self.delivered.place.tolist(), strict=True)
        return [pair for pair in pairs if not any(first <= pair[1] < end for first, end in spans)]


class LateAudit(EnvelopedAudit):
    """A broker that matches filters that came later with what is retained."""

    @cached_property
    def _earlier(self) -> PieceReader[SealedPiece]:
        return sealed_reader(self._journal, key=self._key)

    @cached_property
    def _pub_filters(self) -> PubFilters:
        return PubFilters()

    def close(self) -> None:
        super().close()
        if "_earlier" in self.__dict__:
            self._earlier.close()

    def late(self, found: Sequence[FoundPiece], committed: Committed, before: int, where: str) -> None:
        state = self._realm.state(committed.entry.version)
        new = self._new(committed.index, before, state)
        made = [_Late(piece, ref, self._counted(piece, ref, where)) for piece, ref in found if piece is not None]
        judged = list[_Judged]()
        try:
            if new:
                filters = _Asked(state, self._topic, new, self._broker, committed.entry.end.time_us)
                judged = list(self._judged(made, filters, committed, where))
        except (Corrupt, NotFound, FrameRejected) as error:
            self.report.gap(f"{where}: its late deliveries cannot be judged: {error.message}")
            return
        for late in made:
            mine = [each for each in judged if _overlap(late.ref, each.piece.ref)]
            self._say_late(Kind.UNEXPECTED, late.outside(mine), late.ref.partition, where, "and was not retained")
            if mine and all(each.admitted is not None for each in mine):
                admitted = joined([each.admitted for each in mine if each.admitted is not None])
                none = np.empty(0, np.int64)
                beyond = [pair for each in mine for pair in each.beyond]
                self.opening(late.piece, late.delivered, Expected(admitted, none, none), beyond, where)

    def _judged(self, made: Sequence[_Late], filters: _Asked, committed: Committed, where: str) -> Iterator[_Judged]:
        """Judges everything that was retained: what was admitted, and what was delivered late without being due."""
        retention, now = self._about.protection.retention, committed.entry.end.time_us
        pieces = retained(self._earlier.record, committed.index, retention, now)
        earlier = late_refs(self._earlier, pieces[0].record + 1 if pieces else 0, committed.index)
        for piece in pieces:
            mine = [late for late in made if _overlap(late.ref, piece.ref)]
            known = self._pub_filters.get(piece.ref.name)
            if known is None or mine or filters.filters.may_match(known):
                had = had_before(piece, earlier, self._earlier)
                yield self._judge_late(mine, piece, filters, had, committed, where)
            else:
                yield _Judged(piece, None)

    def _new(self, index: int, before: int, state: RealmState) -> dict[str, Subscription]:
        if not index or before >= state.version or state.topic(self._topic).protection.retention is None:
            return {}
        return dict(new_filters(self._realm, self._topic, self._broker.name, self._realm.state(before), state))

    def _judge_late(
        self,
        mine: Sequence[_Late],
        piece: RetainedPiece,
        filters: _Asked,
        had: HadBefore,
        committed: Committed,
        where: str,
    ) -> _Judged:
        """One retained piece, and what the batch delivered late of it."""
        admitted = self._admitted(piece)
        if admitted is None:
            return _Judged(piece, None)
        expected = self._due(admitted, piece, filters, had)
        later = next((found for late in mine if (found := resealing(committed, late.ref)) is not None), None)
        if later is not None:
            expected = self._expectation.of_those(expected, later.version, later.time_us)
        lost, beyond = places.compare(_within(piece.ref, [late.delivered for late in mine]), expected)
        # What was withdrawn from somebody after a compromise is in no piece any more: nothing is said of those.
        lost, beyond = (_without(pairs, had) for pairs in (lost, beyond))
        partition = piece.ref.partition
        self.say(Kind.LOST, lost, partition, where, "was not delivered late, and a new filter matches it")
        twice = [pair for pair in beyond if pair in had.pairs]
        self._say_late(Kind.DUPLICATED, twice, partition, where, "and before")
        wrong = [pair for pair in beyond if pair not in had.pairs]
        self._say_late(Kind.UNEXPECTED, wrong, partition, where, "and should not have been")
        return _Judged(piece, admitted, beyond)

    def _admitted(self, piece: RetainedPiece) -> Admitted | None:
        """What was admitted of a retained piece; None when there is nothing of it, or it is no longer kept."""
        if self._log is None:
            return None
        records = kept_frames(piece, self._log, self._earlier)
        if records is None:
            self.report.gap("frames of retained events are no longer kept: late deliveries of them were not judged")
            return None
        if not records:
            return None
        return admit(admitted_before(piece.ref.partition, records), self.gate(piece.version))

    def _due(self, admitted: Admitted, piece: RetainedPiece, filters: _Asked, had: HadBefore) -> Expected:
        """Who should have got what late, by the filters themselves."""
        then, events = self._realm.state(piece.version), searched(admitted)
        self._pub_filters.put(piece.ref.name, tags_of(events, filters.filters.tag_bits))
        halves, pairs = BrokerHalves(then, then.topic(self._topic), self._broker), [np.empty((0, 2), np.int64)]
        for who, true in zip(filters.slots, asking.true(filters.stated, events, halves), strict=True):
            pairs.append(np.stack([np.full(true.size, who), true], axis=1))
        slot, event = np.unique(np.concatenate(pairs), axis=0).T
        fresh = ~had.has(admitted, slot, event)
        return Expected(admitted, slot[fresh], event[fresh])

    def _counted(self, made: SealedPiece, ref: PieceRef, where: str) -> Delivered:
        delivered = Delivered.of(made)
        self.report.deliveries += int(delivered.slot.size)
        for text in places.contradictions(made, ref, delivered):
            self.add(Kind.COUNTS, f"{where}, {ref.name}: {text}")
        if made.rejected or any(count for name, count in made.counts.items() if name not in _COUNTED):
            self.add(Kind.COUNTS, f"{where}, {ref.name}: it counts what the batch of its frames has counted")
        return delivered

    def _say_late(self, kind: Kind, pairs: Pairs, partition: int, where: str, what: str) -> None:
        self.say(kind, pairs, partition, where, f"was delivered late, {what}")


def _overlap(one: PieceRef, other: PieceRef) -> bool:
    return one.partition == other.partition and one.first < other.end and other.first < one.end


def _within(ref: PieceRef, delivered: Sequence[Delivered]) -> Delivered:
    """Those of deliveries that are of a piece's frames."""
    names, first, end = ("slot", "event", "use", "place"), place_of(ref.first, 0), place_of(ref.end, 0)
    here = [(first <= each.place) & (each.place < end) for each in delivered]
    columns = ([getattr(each, name)[mine] for each, mine in zip(delivered, here, strict=True)] for name in names)
    return Delivered(*(np.concatenate([np.empty(0, np.int64), *column]) for column in columns))


def _without(pairs: Pairs, had: HadBefore) -> Pairs:
    gone = set(had.withdrawn.tolist())
    return [pair for pair in pairs if pair[0] not in gone]
