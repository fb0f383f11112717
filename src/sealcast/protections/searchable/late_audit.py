"""The late part of a batch, done again: which filters were new, what was retained, and who should have got what of it.

What was retained, and which filters were new to the batch, is worked out from ledger and registry, as the broker does
(`retained`). Whether they match is asked of the sealed filters one by one (`asking`), without the broker's index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from sealcast.broker.admit import admit
from sealcast.broker.rulings import received_of
from sealcast.broker.served import served_intervals
from sealcast.errors import Corrupt, FrameRejected, NotFound
from sealcast.log.entry import PieceRef
from sealcast.log.ledger import Committed
from sealcast.log.piece_reader import PieceReader, sealed_reader
from sealcast.model.stages import Admitted, Ruled
from sealcast.model.subscription import Subscription
from sealcast.protections.enveloped.audit import EnvelopedAudit
from sealcast.protections.searchable import asking
from sealcast.protections.searchable.asking import StatedFilter, asked
from sealcast.protections.searchable.halves import BrokerHalves, searched
from sealcast.protections.searchable.late import HadBefore, LateFilters, PubFilters, tags_of
from sealcast.protections.searchable.late_batch import had_before, kept_frames, late_refs
from sealcast.protections.searchable.retained import RetainedPiece, new_filters, retained
from sealcast.protections.witness import places
from sealcast.protections.witness.expected import Expected
from sealcast.protections.witness.ledger import resealing
from sealcast.protections.witness.places import Delivered, Pairs
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


class LateAudit(EnvelopedAudit):
    """A broker that matches filters that came later with what is retained."""

    @cached_property
    def _earlier(self) -> PieceReader[SealedPiece]:
        return sealed_reader(self._paths.root, key=self._key)

    @cached_property
    def _pub_filters(self) -> PubFilters:
        return PubFilters()

    def close(self) -> None:
        super().close()
        if "_earlier" in self.__dict__:
            self._earlier.close()

    def late(self, found: Sequence[FoundPiece], committed: Committed, before: int, where: str) -> None:
        entry = committed.entry
        state = self._realm.state(entry.version)
        new = self._new(committed.index, before, state)
        if not new and not found:
            return
        try:
            pieces = self._retained(committed) if new else []
            filters = _Asked(state, self._topic, new, self._broker, entry.end.time_us)
            for piece in pieces:
                mine = [(made, ref) for made, ref in found if _within(ref, piece.ref)]
                self._judge_late(mine, piece, filters, committed, where)
        except (Corrupt, NotFound, FrameRejected) as error:
            self.report.gap(f"{where}: its late deliveries cannot be judged: {error.message}")
            return
        for made, ref in found:
            if made is not None and not any(_within(ref, piece.ref) for piece in pieces):
                delivered = self._counted(made, ref, where)
                pairs = list(zip(delivered.slot.tolist(), delivered.place.tolist(), strict=True))
                self._say_late(Kind.UNEXPECTED, pairs, ref.partition, where, "and nothing of it was retained")

    def _new(self, index: int, before: int, state: RealmState) -> dict[str, Subscription]:
        if not index or before >= state.version or state.topic(self._topic).protection.retention is None:
            return {}
        return dict(new_filters(self._realm, self._topic, self._broker.name, self._realm.state(before), state))

    def _retained(self, committed: Committed) -> list[RetainedPiece]:
        retention, now = self._about.protection.retention, committed.entry.end.time_us
        return retained(self._earlier.record, committed.index, retention, now)

    def _judge_late(
        self,
        mine: Sequence[FoundPiece],
        piece: RetainedPiece,
        filters: _Asked,
        committed: Committed,
        where: str,
    ) -> None:
        """One retained piece, and what the batch delivered late of it."""
        known = self._pub_filters.get(piece.ref.name)
        if known is not None and not mine and not filters.filters.may_match(known):
            return
        admitted = self._admitted(piece)
        if admitted is None:
            return
        had = had_before(piece, late_refs(self._earlier, piece.record + 1, committed.index), self._earlier)
        expected = self._due(admitted, piece, filters, had)
        read = [(made, ref, self._counted(made, ref, where)) for made, ref in mine if made is not None]
        later = next((found for _, ref in mine if (found := resealing(committed, ref)) is not None), None)
        if later is not None:
            expected = self._expectation.of_those(expected, later.version, later.time_us)
        lost, beyond = places.compare(_joined(each for _, _, each in read), expected)
        # What was withdrawn from somebody after a compromise is in no piece any more: nothing is said of those.
        lost, beyond = (_without(pairs, had) for pairs in (lost, beyond))
        twice = [pair for pair in beyond if pair in had.pairs]
        partition = piece.ref.partition
        self.say(Kind.LOST, lost, partition, where, "was not delivered late, and a new filter matches it")
        self._say_late(Kind.DUPLICATED, twice, partition, where, "and before")
        wrong = [pair for pair in beyond if pair not in had.pairs]
        self._say_late(Kind.UNEXPECTED, wrong, partition, where, "and should not have been")
        for made, _, delivered in read:
            self.opening(made, delivered, expected, beyond, where)

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
        ruled = Ruled(received_of(piece.ref.partition, records), np.zeros(len(records), np.uint8))
        return admit(ruled, self.gate(piece.version))

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


def _within(ref: PieceRef, piece: PieceRef) -> bool:
    return ref.partition == piece.partition and piece.first <= ref.first and ref.end <= piece.end


def _joined(each: Iterable[Delivered]) -> Delivered:
    parts = list(each)
    columns = ([getattr(part, name) for part in parts] for name in ("slot", "event", "use", "place"))
    return Delivered(*(np.concatenate([np.empty(0, np.int64), *column]) for column in columns))


def _without(pairs: Pairs, had: HadBefore) -> Pairs:
    gone = set(had.withdrawn.tolist())
    return [pair for pair in pairs if pair[0] not in gone]
