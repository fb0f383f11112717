"""What the broker of a `searchable` topic decided of one event: in the event's own batch, or late, in one after it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from sealcast.broker.served import ServedInterval, served_intervals
from sealcast.filters.explain import ExplainedPart
from sealcast.log.ledger import Committed
from sealcast.model.subscription import Subscription
from sealcast.protections.searchable import asking
from sealcast.protections.searchable.asking import asked
from sealcast.protections.searchable.audit import SearchableAudit
from sealcast.protections.searchable.halves import BrokerHalves, Searched, searched
from sealcast.protections.searchable.interests import own_id
from sealcast.protections.searchable.retained import new_filters, retained
from sealcast.protections.witness.answer import Hop, TracedInterest, Verdict, WhyAnswer
from sealcast.protections.witness.decided import BrokerDecisions, SeenEvent, deciding, is_delivered, listed, sealing_of
from sealcast.trust.realm.changes import AddSubscription
from sealcast.trust.realm.machine import RealmState

#: What stands for a filter whose text its subscriber keeps.
UNKNOWN: Final = "(its subscriber's own)"
#: What may be followed by a late delivery.
_NOT_YET: Final = (Verdict.NOT_SUBSCRIBED, Verdict.NOT_MATCHED, Verdict.NOT_AUTHORISED)


class SealedDecided(BrokerDecisions):
    audit = SearchableAudit

    def interests(
        self, state: RealmState, subscriber: str, intervals: dict[str, ServedInterval], seen: SeenEvent
    ) -> tuple[TracedInterest, ...]:
        """Which of the sealed filters match, as the broker finds out. What they say, only their subscriber knows."""
        return tuple(self._traced(state, state, subscriber, intervals, seen))

    def _traced(
        self,
        now: RealmState,
        then: RealmState,
        subscriber: str,
        intervals: Mapping[str, ServedInterval],
        seen: SeenEvent,
    ) -> Iterator[TracedInterest]:
        """Filters of now, and an event that was admitted then."""
        assert seen.admitted is not None
        about, events, secrets = now.topic(self._topic), searched(seen.admitted), self._realm.broker(self.name)
        only = slice(seen.number, seen.number + 1)
        one = Searched(events.senders[only], events.blocks[only])
        halves, publishers = BrokerHalves(now, about, secrets), BrokerHalves(then, then.topic(self._topic), secrets)
        for id, each in intervals.items():
            stated = asked(each.filter, subscriber, about, halves)
            result = bool(next(asking.true([stated], one, publishers)).size)
            part = ExplainedPart(UNKNOWN, 0, len(UNKNOWN), result, True, (), ())
            yield TracedInterest(own_id(id)[0], UNKNOWN, part)

    # --- late -----------------------------------------------------------------------------------------

    def later(self, answer: WhyAnswer, seen: SeenEvent, committed: Committed) -> WhyAnswer:
        """Whether a filter that came after the event brought it, or will."""
        if answer.verdict not in _NOT_YET:
            return answer
        event, slot = answer.event, self._realm.state().slot_of(self._topic, answer.subscriber)
        for index, _, ref in self._reader.late(event.partition, event.offset, committed.index):
            piece = self._reader.piece(ref) if slot is not None and ref.concerns(slot) else None
            if piece is not None and slot is not None and is_delivered(piece, slot, event):
                batch = deciding(self.name, self._reader.record(index), ref)
                found = replace(answer, batch=batch, sealing=sealing_of(piece, event))
                return self._came_late(found, seen, committed, self._reader.record(index))
        return self._missed(answer, seen, committed)

    def _came_late(self, answer: WhyAnswer, seen: SeenEvent, taken: Committed, committed: Committed) -> WhyAnswer:
        """It is in a late piece of that record."""
        before = self._realm.state(self._reader.record(committed.index - 1).entry.version)
        state, time_us = self._realm.state(committed.entry.version), committed.entry.end.time_us
        new = new_filters(self._realm, self._topic, self.name, before, state)
        interests, served = self._new_interests(answer, seen, taken, state, new, time_us)
        hop = Hop(self.name, committed.index, state.version, answer.subscriber)
        authorised = state.may_subscribe(self._topic, answer.subscriber, time_us)
        answer = replace(answer, hops=(hop,), interests=interests, authorised=authorised)
        if not served:
            return answer.that(Verdict.WRONG, "it was delivered late, and no filter that was new then matches it")
        return answer.that(
            Verdict.DELIVERED,
            f"{listed(served)} came after record {taken.index} had handled it, and matched it in record "
            f"{committed.index} with what was retained",
        )

    def _missed(self, answer: WhyAnswer, seen: SeenEvent, taken: Committed) -> WhyAnswer:
        """It is in no piece for the subscriber: what filters that came since have to do with it."""
        newest, who = self._realm.state(), answer.subscriber
        came = new_filters(self._realm, self._topic, self.name, self._realm.state(taken.entry.version), newest)
        new = {id: each for id, each in came.items() if each.subscriber == who}
        if not new or newest.topic(self._topic).protection.retention is None:
            return answer
        _, served = self._new_interests(answer, seen, taken, newest, new, self._realm.clock())
        if not served:
            return answer
        added = {
            change.id: version
            for version, _, change in self._realm.registry.changes(taken.entry.version + 1)
            if isinstance(change, AddSubscription) and change.id in new
        }
        first = self._first_batch(max(version for id, version in added.items() if own_id(id)[0] in served))
        if first is None:
            text = f"{listed(served)} came later and matches it: the next batch delivers it, if it is still retained"
            return answer.that(Verdict.WAITING, text)
        end = first.entry.end
        pieces = retained(self._reader.record, first.index, newest.topic(self._topic).protection.retention, end.time_us)
        if taken.index not in {piece.record for piece in pieces}:
            text = f"{listed(served)} came later and matches it, and by then it was no longer retained"
            return answer.that(Verdict.NOT_SUBSCRIBED, text)
        text = f"{listed(served)} came later and matches it, but {who} could not read when record {first.index} looked"
        return answer.that(Verdict.NOT_AUTHORISED, text)

    def _new_interests(
        self,
        answer: WhyAnswer,
        seen: SeenEvent,
        taken: Committed,
        state: RealmState,
        new: Mapping[str, Subscription],
        time_us: int,
    ) -> tuple[tuple[TracedInterest, ...], list[str]]:
        """What the subscriber's new filters say of the event, and those that match and are served."""
        mine = {id: each for id, each in new.items() if each.subscriber == answer.subscriber}
        intervals = dict(served_intervals(state, state.topic(self._topic), mine))
        then = self._realm.state(taken.entry.version)
        interests = tuple(self._traced(state, then, answer.subscriber, intervals, seen))
        pairs = zip(interests, intervals.values(), strict=True)
        return interests, [i.id for i, each in pairs if i.part.result is True and each.holds(time_us)]

    def _first_batch(self, version: int) -> Committed | None:
        """The first that was pinned to that version or a later one."""
        end = self._reader.end()
        at = bisect_left(range(end), version, key=lambda index: self._reader.record(index).entry.version)
        return self._reader.record(at) if at < end else None
