"""What one broker that reads decided of an event, worked out again for the batch that took it and its pinned version.

    published?   is it in the log            admitted?    which of the numbered checks refused it
    processed?   which batch, which version  interested?  each filter of the subscriber, part by part
    authorised?  at that version             sealed?      how, and is it in the subscriber's mailbox

The ledger stores decisions, not rows (decision 7), so nothing here was written down beforehand. It is broker-side
code: it opens the frame, and so needs the broker's secrets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from sealcast.broker.admit import admit
from sealcast.broker.filter_conditions import OpenedFilters, condition
from sealcast.broker.gate import CHECK
from sealcast.broker.served import ServedInterval, served_intervals
from sealcast.errors import Corrupt, FrameRejected, NotFound
from sealcast.filters.explain import explain
from sealcast.filters.readers import may_open
from sealcast.log.entry import PieceRef
from sealcast.log.forwarded import BrokerTopic, ForwardedLog
from sealcast.log.ledger import Committed
from sealcast.log.piece_reader import sealed_reader
from sealcast.log.port import Record
from sealcast.model.event import Position
from sealcast.model.moments import moment
from sealcast.model.rejection import Rejection
from sealcast.model.schema import Value
from sealcast.model.stages import Admitted
from sealcast.model.subscription import Subscription
from sealcast.protections.journals import journal_signer
from sealcast.protections.witness.answer import DecidingBatch, Hop, SealingTrace, TracedInterest, Verdict, WhyAnswer
from sealcast.protections.witness.expected import values
from sealcast.protections.witness.places import place_of, places
from sealcast.protections.witness.reading import ReadingAudit
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.filter_texts import BrokerFilters
from sealcast.trust.realm.changes import AddSubscription, RemoveSubscription
from sealcast.trust.realm.machine import RealmState
from sealcast.wire import frame
from sealcast.wire.frame import Header
from sealcast.wire.sealed import SealedPiece

#: In place of the text of a filter that does not open.
UNREADABLE_FILTER: Final = "(cannot be read)"


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """The event as admission sees it at the pinned version."""

    refused: Rejection | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    payload: bytes = b""
    #: The predicate by which its publisher narrowed who may open it, if it did.
    readers: str = ""
    #: What was admitted of its frame, and which of that it is.
    admitted: Admitted | None = None
    number: int = 0


class BrokerDecisions:
    """What one broker has of a topic, and decided. Event positions are places in its own log."""

    #: What does the broker's decisions again.
    audit: ClassVar[type[ReadingAudit]] = ReadingAudit

    def __init__(self, realm: BrokerRealm, topic: str, broker: str) -> None:
        self._realm, self._topic, self.name = realm, topic, broker
        self._paths = realm.paths.topic(topic, broker)
        here, state = realm.paths.broker_key_of(broker).exists(), realm.state()
        about = state.topic(topic)
        key = realm.broker(broker).journal_key(about.id) if here else journal_signer(state, about, broker)
        self._reader = sealed_reader(realm.journal(topic, broker), key=key)

    @cached_property
    def _log(self) -> BrokerTopic:
        return self._realm.frames(self._topic, self.name, read_only=True)

    @cached_property
    def _audit(self) -> ReadingAudit:
        """What does the broker's decisions again: it needs the broker's secrets."""
        return self.audit(self._realm, self._topic, broker=self.name)

    def close(self) -> None:
        self._reader.close()
        for opened in ("_log", "_audit"):
            if opened in self.__dict__:
                getattr(self, opened).close()

    # --- frames of other brokers ------------------------------------------------------------------------

    def place_of(self, event: Position) -> int | None:
        """Where an event of another broker's stands in this log."""
        log = self._forwarded(event)
        if log is None:
            return None
        at = bisect_left(range(log.end()), event.offset, lo=log.start(), key=log.origin_of)
        return at if at < log.end() and log.origin_of(at) == event.offset else None

    def passed(self, event: Position) -> bool:
        """Whether later ones of that broker's are here."""
        log = self._forwarded(event)
        return log is not None and log.next_origin() > event.offset

    def origin_of(self, event: Position) -> int | None:
        """What this place of the log is at the broker that forwarded it."""
        log = self._forwarded(event)
        return None if log is None or not log.start() <= event.offset < log.end() else log.origin_of(event.offset)

    def _forwarded(self, event: Position) -> ForwardedLog | None:
        known = self._paths.frames(event.partition).is_dir()
        return self._log.forwarded(event.partition) if known else None

    # --- one event ----------------------------------------------------------------------------------------

    def why(self, event: Position, subscriber: str) -> WhyAnswer:
        record = self.record(event)
        answer = _published(WhyAnswer(self._topic, event, subscriber, admitted_at=self.name), _header(record))
        committed = self.batch_of(event)
        if committed is None:
            return answer
        _, _, ref = self._reader.find(event.partition, event.offset)
        if ref is None:
            text = (
                f"record {committed.index} of the ledger has taken event {event}, and no piece of it covers its frame"
            )
            raise Corrupt(text, hint="see what else is wrong: sealcast check")
        piece = self._reader.piece(ref)
        answer = replace(answer, batch=deciding(self.name, committed, ref), sealing=sealing_of(piece, event))
        state = self._realm.state(committed.entry.version)
        slot = state.slot_of(self._topic, subscriber)
        delivered = slot is not None and is_delivered(piece, slot, event)
        if delivered:
            answer = replace(answer, hops=(Hop(self.name, committed.index, state.version, subscriber),))
        if committed.resealed is not None and committed.resealed.removal is not None:
            text = (
                f"what its batch delivered was removed since ({committed.resealed.why}): whether it was among that is"
            )
            return answer.that(Verdict.UNKNOWN, f"{text} no longer known")
        if record is None:
            said = "it was delivered" if delivered else "it was not delivered"
            text = f"{said}; its frame is no longer kept, so the reason cannot be worked out"
            return answer.that(Verdict.UNKNOWN, text)
        seen = self._admit(committed, event, piece)
        if committed.resealed is not None and not delivered:
            again = self._realm.state(committed.resealed.version)
            if not again.may_subscribe(self._topic, subscriber, committed.resealed.time_us):
                text = f"it was sealed again ({committed.resealed.why}), and then {_unauthorised(again, subscriber)}"
                return answer.that(Verdict.NOT_AUTHORISED, text)
        suspended = self._audit.suspended_in(ref, state.version, piece)
        decided = self._decide(answer, seen, state, delivered, committed.entry.end.time_us, suspended)
        return self.later(decided, seen, committed)

    def later(self, answer: WhyAnswer, seen: SeenEvent, committed: Committed) -> WhyAnswer:
        """The answer of the event's own batch, or of a later one that delivered it."""
        return answer

    # --- the decision -------------------------------------------------------------------------------

    def _decide(
        self,
        answer: WhyAnswer,
        seen: SeenEvent,
        state: RealmState,
        delivered: bool,
        time_us: int,
        suspended: Collection[str],
    ) -> WhyAnswer:
        who = answer.subscriber
        if seen.refused is not None:
            reason = seen.refused.reason
            because = f"check {CHECK[reason]} of admission ({reason}) refused it: {seen.refused.detail}"
            answer = replace(answer, refused=seen.refused)
            return answer.that(Verdict.WRONG if delivered else Verdict.REFUSED, because)
        authorised = state.may_subscribe(self._topic, who, time_us)
        intervals = self._intervals(state, who)
        interests = self.interests(state, who, intervals, seen)
        answer = replace(
            answer,
            attributes=seen.attributes,
            authorised=authorised,
            interests=interests,
            other_times=self._other_times(who, state.version),
        )
        asked = zip(interests, intervals.values(), strict=True)
        matches = {interest.id: each for interest, each in asked if interest.part.result is True}
        matched, served = list(matches), [id for id, each in matches.items() if each.holds(time_us)]
        kept_out = [id for id in served if id in suspended]
        served = [id for id in served if id not in suspended]
        let_in = not seen.readers or may_open(seen.readers, who)
        if (bool(served) and let_in) is not delivered:
            found = "delivered" if delivered else "not delivered"
            return answer.that(Verdict.WRONG, f"it was {found}, and that is not what filters and rights say")
        if delivered:
            return answer.that(Verdict.DELIVERED, f"{listed(served)} matched, and {who} may read")
        if not state.served_at(self._topic, who, self.name):
            home = state.home_of(self._topic, who)
            return answer.that(Verdict.NOT_SUBSCRIBED, f"{who} was served by broker {home} then, not by {self.name}")
        if not interests:
            return answer.that(Verdict.NOT_SUBSCRIBED, f"{who} had no subscription on the topic then")
        if not matched and (unread := self.unreadable(state, [id for id in intervals if id in suspended])):
            said = "; ".join(f"{id}: {why}" for id, why in unread.items())
            text = f"no other filter of {who} is true of it, and not all can be read: {said}"
            return answer.that(Verdict.SUSPENDED, text)
        if not matched:
            return answer.that(Verdict.NOT_MATCHED, f"no filter of {who} is true of it")
        if served and not let_in:
            text = f"{listed(served)} matched, but its publisher lets only those open it: {seen.readers}"
            return answer.that(Verdict.NOT_AUTHORISED, text)
        if kept_out:
            text = (
                f"{listed(kept_out)} matched, and was suspended: the filters of {who} ask for more work than they may"
            )
            return answer.that(Verdict.SUSPENDED, text)
        why = _unauthorised(state, who) if not authorised else _without_token(state, matches[matched[0]], time_us)
        return answer.that(Verdict.NOT_AUTHORISED, f"{listed(matched)} matched, but {why}")

    def _admit(self, committed: Committed, event: Position, piece: SealedPiece) -> SeenEvent:
        """The numbered checks again, for this frame, after the batches before its own."""
        again, version = self._audit, committed.entry.version
        again.resume(committed)
        ruled = again.ruled(event.partition, event.offset, event.offset + 1, piece)
        if ruled is None:
            raise Corrupt(f"the frame of event {event} cannot be read", hint="see what else is wrong: sealcast check")
        admitted = admit(ruled, again.gate(version))
        at = np.flatnonzero(admitted.row == event.row)
        if not at.size:
            refused = next(
                (r for r in admitted.rejections if r.position.row in (-1, event.row)),
                admitted.rejections[-1],  # of many refused events of a frame only the first are named
            )
            return SeenEvent(refused)
        one = int(at[0])
        payload = admitted.messages[one][int(admitted.payload_start[one]) :]
        about = self._realm.state(version).topic(self._topic)
        hidden = about.protection.hidden_of(about.schema)
        shown = {name: value for name, value in list(values(admitted, about.schema))[one].items() if name not in hidden}
        readers = admitted.readers.get(int(admitted.frame_index[one]), "")
        return SeenEvent(None, shown, payload, readers, admitted, one)

    def _intervals(self, state: RealmState, subscriber: str) -> dict[str, ServedInterval]:
        """Returns when the subscriber's subscriptions were served here."""
        here = state.subscriptions_at(self._topic, self.name)
        mine = {id: subscription for id, subscription in here.items() if subscription.subscriber == subscriber}
        return dict(served_intervals(state, state.topic(self._topic), self.stated(state, mine)))

    @cached_property
    def _filters(self) -> OpenedFilters:
        return OpenedFilters(BrokerFilters(self._realm.broker(self.name)))

    def stated(self, state: RealmState, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Subscription]:
        """Subscriptions with their filters in clear, by the broker's keys."""
        return self._filters.stated(state, subscriptions)

    def unreadable(self, state: RealmState, ids: Iterable[str]) -> dict[str, str]:
        """Of these subscriptions, those whose filters the broker could not read, and why."""
        found = state.topic_state(self._topic).subscriptions
        why = {id: self._filters.why_unreadable(state, found[id]) for id in ids}
        return {id: reason for id, reason in why.items() if reason is not None}

    def interests(
        self, state: RealmState, subscriber: str, intervals: dict[str, ServedInterval], seen: SeenEvent
    ) -> tuple[TracedInterest, ...]:
        """What each of the subscriber's filters says of the event."""
        topic = state.topic(self._topic)
        return tuple(
            TracedInterest(
                id,
                s.filter or UNREADABLE_FILTER,
                explain(condition(s.filter, s.template, topic), seen.attributes, seen.payload),
            )
            for id, s in intervals.items()
        )

    def _other_times(self, subscriber: str, version: int) -> tuple[str, ...]:
        """Subscriptions that came later, or had gone: what people forget when they ask."""
        mine: set[str] = set()
        found: list[str] = []
        for at, _, change in self._realm.registry.changes():
            match change:
                case AddSubscription(id, topic, who) if topic == self._topic and who == subscriber:
                    mine.add(id)
                    if at > version:
                        found.append(f"{id} was added later, at version {at}")
                case RemoveSubscription(id) if id in mine and at <= version:
                    found.append(f"{id} had been removed, at version {at}")
        return tuple(found)

    # --- finding ------------------------------------------------------------------------------------

    def record(self, event: Position) -> Record | None:
        """The frame; None when it is no longer kept, NotFound when there never was one with such an event."""
        log = self._log.partition(event.partition) if self._paths.frames(event.partition).is_dir() else None
        if log is None or event.offset >= log.end():
            frames = log.end() if log is not None else 0
            raise NotFound(
                f"topic {self._topic!r} has no event {event}: partition {event.partition} has {frames} frames",
                hint="an event's name is partition/offset/row, as `sealcast pub` and `sealcast sub` print it",
            )
        if event.offset < log.start():
            return None
        record = next(iter(log.read(event.offset, event.offset + 1)))
        header = _header(record)
        if header is not None and event.row >= header.count:
            raise NotFound(
                f"frame {event.partition}/{event.offset} has events 0 to {header.count - 1}, not {event.row}"
            )
        return record

    def batch_of(self, event: Position) -> Committed | None:
        """The record of the batch that took the event."""
        try:
            return self._reader.record(self._reader.find(event.partition, event.offset)[0])
        except NotFound:
            return None


def deciding(broker: str, committed: Committed, ref: PieceRef) -> DecidingBatch:
    """The batch of a record, and the piece of it that has the event."""
    entry = committed.entry
    when = moment(committed.time_us)
    return DecidingBatch(broker, committed.index, entry.query, entry.batch, entry.version, when, ref.name)


def _header(record: Record | None) -> Header | None:
    """What the frame says of itself; None when it cannot be read that far."""
    try:
        return frame.parse(record.data).header if record is not None else None
    except FrameRejected:
        return None


def _published(answer: WhyAnswer, header: Header | None) -> WhyAnswer:
    if header is None:
        return answer
    when, sequence = moment(header.time), header.sequence + answer.event.row
    return replace(answer, publisher=header.publisher, published_at=when, sequence=sequence, epoch=header.epoch)


def _event_in(piece: SealedPiece, event: Position) -> int | None:
    here, wanted = places(piece), place_of(event.offset, event.row)
    at = int(np.searchsorted(here, wanted))
    return at if at < here.size and here[at] == wanted else None


def sealing_of(piece: SealedPiece, event: Position) -> SealingTrace | None:
    """How an event was sealed in a piece; None where it is in none."""
    at = _event_in(piece, event)
    if at is None:
        return None
    encryptions = int(piece.use_start[at + 1]) - int(piece.use_start[at])
    readers = int(np.count_nonzero(np.asarray(piece.mailbox_event) == at))
    return SealingTrace("content key" if piece.wrapped[at] else "direct", encryptions, readers)


def is_delivered(piece: SealedPiece, slot: int, event: Position) -> bool:
    """Whether a piece has an event for a slot."""
    at = _event_in(piece, event)
    return at is not None and at in piece.rows_for(slot)[0].tolist()


def _unauthorised(state: RealmState, subscriber: str) -> str:
    entity = state.entities.get(subscriber)
    if entity is not None and entity.revoked:
        return f"{subscriber} was revoked, at version {entity.revoked_at_version}"
    return f"{subscriber} had no right to read the topic at version {state.version}"


def _without_token(state: RealmState, interval: ServedInterval, time_us: int) -> str:
    if interval.until_us <= interval.from_us:
        return f"its token was worth nothing at version {state.version}: its key center was revoked"
    when = moment(interval.until_us if time_us >= interval.until_us else interval.from_us)
    return f"its token {'had ended' if time_us >= interval.until_us else 'had not begun'} ({when.isoformat()})"


def listed(ids: list[str]) -> str:
    """Names in a sentence."""
    return ids[0] if len(ids) == 1 else f"{', '.join(ids[:-1])} and {ids[-1]}"
