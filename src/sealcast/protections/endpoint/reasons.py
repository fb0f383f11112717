"""Why an event did or did not reach a subscriber: the decisions of its batch, worked out again from what was pinned.

    published?   is it in the log            admitted?    which of the numbered checks refused it
    processed?   which batch, which version  interested?  each filter of the subscriber, part by part
    authorised?  at that version             sealed?      how, and is it in the subscriber's mailbox

The ledger stores decisions, not rows (decision 7), so nothing here was written down beforehand. It is broker-side
code: it opens the frame, and so needs the broker's secrets. It needs no Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import numpy as np

from sealcast.broker.admit import admit
from sealcast.broker.context import gate_at
from sealcast.broker.gate import CHECK, Codes, bounds_of
from sealcast.broker.history import History, believe
from sealcast.broker.rulings import received_of, rule_frames
from sealcast.broker.standing import Standing, standings
from sealcast.broker.tables import condition
from sealcast.errors import Corrupt, FrameRejected, NotFound
from sealcast.filters.explain import Part, explain
from sealcast.log.entry import PieceRef
from sealcast.log.ledger import Committed, LedgerReader
from sealcast.log.pieces import Pieces
from sealcast.log.port import Record
from sealcast.model.event import Position
from sealcast.model.rejection import Rejection
from sealcast.model.schema import Schema, Value
from sealcast.model.stages import Ruled
from sealcast.protections.endpoint.audit_piece import place_of, places
from sealcast.protections.endpoint.expected import values
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import AddSubscription, RemoveSubscription
from sealcast.trust.realm.machine import RealmState
from sealcast.wire import frame, sealed
from sealcast.wire.frame import Header
from sealcast.wire.sealed import SealedPiece

_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Verdict(StrEnum):
    DELIVERED = "delivered"
    WAITING = "waiting"
    REFUSED = "refused"
    NOT_SUBSCRIBED = "not-subscribed"
    NOT_MATCHED = "not-matched"
    NOT_AUTHORISED = "not-authorised"
    #: The ledger does not say what it should: something is broken, or was altered.
    WRONG = "wrong"
    #: The frame is no longer kept: what happened is known, and why is not.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Interest:
    """One subscription of the subscriber, and what its filter says of the event."""

    id: str
    filter: str
    part: Part


@dataclass(frozen=True, slots=True)
class Batch:
    record: int
    query: str
    number: int
    version: int
    committed_at: datetime
    piece: str


@dataclass(frozen=True, slots=True)
class Sealing:
    """How the event was sealed, whoever got it."""

    #: `direct`: under the one key used; `content key`: under a key of its own, wrapped under each key used.
    mode: str
    encryptions: int
    readers: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that led to the verdict, as far as the event got."""

    topic: str
    event: Position
    subscriber: str
    verdict: Verdict = Verdict.WAITING
    because: str = "it is in the log, and no batch has taken it yet"
    publisher: str | None = None
    published_at: datetime | None = None
    sequence: int | None = None
    batch: Batch | None = None
    refused: Rejection | None = None
    attributes: dict[str, Value] | None = None
    authorised: bool | None = None
    interests: tuple[Interest, ...] = ()
    #: Subscriptions that the subscriber has made or ended outside the batch's version.
    other_times: tuple[str, ...] = ()
    sealing: Sealing | None = None

    def that(self, verdict: Verdict, because: str) -> Answer:
        return replace(self, verdict=verdict, because=because)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The event as admission sees it at the pinned version."""

    refused: Rejection | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    payload: bytes = b""


class Reasons:
    """Answers for one topic."""

    def __init__(self, realm: BrokerRealm, topic: str) -> None:
        self._realm = realm
        self._topic = topic
        self._broker = realm.broker()
        about, paths = realm.state().topic(topic), realm.paths.topic(topic)
        self._log = realm.frames(topic, read_only=True)
        self._ledger = LedgerReader(paths.ledger, self._broker.journal_key(about.id))
        self._pieces = Pieces(paths.pieces)

    def close(self) -> None:
        self._log.close()
        self._ledger.close()

    def why(self, event: Position, subscriber: str) -> Answer:
        self._realm.state().entity(subscriber)
        record = self._record(event)
        header = _header(record)
        if header is not None and event.row >= header.count:
            raise NotFound(
                f"frame {event.partition}/{event.offset} has events 0 to {header.count - 1}, not {event.row}"
            )
        answer = _published(Answer(self._topic, event, subscriber), header)
        committed = self._batch_of(event)
        if committed is None:
            return answer
        ref = _ref_of(committed, event)
        piece = self._piece(ref)
        answer = replace(answer, batch=_batch(committed, ref), sealing=_sealing(piece, event))
        state = self._realm.state(committed.entry.version)
        slot = state.slot_of(self._topic, subscriber)
        delivered = slot is not None and _delivered(piece, slot, event)
        if record is None:
            said = "it was delivered" if delivered else "it was not delivered"
            return answer.that(
                Verdict.UNKNOWN, f"{said}; its frame is no longer kept, so the reason cannot be worked out"
            )
        seen = self._admit(record, event, state, self._ruled(committed, event, piece, state))
        if committed.resealed is not None and not delivered:
            again = self._realm.state(committed.resealed.version)
            if not again.may_subscribe(self._topic, subscriber, committed.resealed.time_us):
                text = f"it was sealed again ({committed.resealed.why}), and then {_unauthorised(again, subscriber)}"
                return answer.that(Verdict.NOT_AUTHORISED, text)
        return self._decide(answer, seen, state, delivered, committed.entry.end.time_us)

    # --- the decision -------------------------------------------------------------------------------

    def _decide(self, answer: Answer, seen: _Seen, state: RealmState, delivered: bool, time_us: int) -> Answer:
        who = answer.subscriber
        if seen.refused is not None:
            reason = seen.refused.reason
            because = f"check {CHECK[reason]} of admission ({reason}) refused it: {seen.refused.detail}"
            answer = replace(answer, refused=seen.refused)
            return answer.that(Verdict.WRONG if delivered else Verdict.REFUSED, because)
        authorised = state.may_subscribe(self._topic, who, time_us)
        standing = self._standing(state, who)
        interests = self._interests(state, standing, seen)
        answer = replace(
            answer,
            attributes=seen.attributes,
            authorised=authorised,
            interests=interests,
            other_times=self._other_times(who, state.version),
        )
        matched = [interest.id for interest in interests if interest.part.result is True]
        served = [id for id in matched if standing[id].holds(time_us)]
        if bool(served) is not delivered:
            found = "delivered" if delivered else "not delivered"
            return answer.that(Verdict.WRONG, f"it was {found}, and that is not what filters and rights say")
        if delivered:
            return answer.that(Verdict.DELIVERED, f"{_listed(served)} matched, and {who} may read")
        if not state.served_at(self._topic, who, FIRST_BROKER):
            home = state.home_of(self._topic, who)
            return answer.that(
                Verdict.NOT_SUBSCRIBED, f"{who} was served by broker {home}, and this is {FIRST_BROKER}'s part"
            )
        if not interests:
            return answer.that(Verdict.NOT_SUBSCRIBED, f"{who} had no subscription on the topic then")
        if not matched:
            return answer.that(Verdict.NOT_MATCHED, f"no filter of {who} is true of it")
        why = _unauthorised(state, who) if not authorised else _without_token(state, standing[matched[0]], time_us)
        return answer.that(Verdict.NOT_AUTHORISED, f"{_listed(matched)} matched, but {why}")

    def _ruled(self, committed: Committed, event: Position, piece: SealedPiece, state: RealmState) -> Codes:
        """What was ruled of the frame: its batch is decided again, with the windows that the batches before it left."""
        entry, topic = committed.entry, state.topic(self._topic)
        history = History(self._ledger, self._pieces, self._log, bounds_of(topic))
        windows = history.windows(committed.index)
        spans = [
            (p, max(first, self._log.partition(p).start()), end) for p, first, end in entry.start.ranges(entry.end)
        ]
        gate = gate_at(state, topic, self._broker)
        kept = [span for span in spans if span[1] < span[2]]
        codes = rule_frames(windows, self._log, kept, gate, entry.end.settled_us)[event.partition]
        first = next(first for p, first, _ in kept if p == event.partition)
        code = codes[event.offset - first : event.offset - first + 1]
        return code if history.knows(entry.start.settled_us) else believe(code, event.offset, piece)

    def _admit(self, record: Record, event: Position, state: RealmState, code: Codes) -> _Seen:
        """The numbered checks again, for this frame, under the version of its batch."""
        topic = state.topic(self._topic)
        ruled = Ruled(received_of(event.partition, [record]), code)
        admitted = admit(ruled, gate_at(state, topic, self._broker))
        at = np.flatnonzero(admitted.row == event.row)
        if not at.size:
            refused = next(
                (r for r in admitted.rejections if r.position.row in (-1, event.row)),
                admitted.rejections[-1],  # of many refused events of a frame only the first are named
            )
            return _Seen(refused)
        one = int(at[0])
        payload = admitted.messages[one][int(admitted.payload_start[one]) :]
        return _Seen(None, list(values(admitted, topic.schema))[one], payload)

    def _standing(self, state: RealmState, subscriber: str) -> dict[str, Standing]:
        """Of the subscriber's subscriptions, what they were served, and when."""
        mine = {s.id: s for s in state.subscriptions_of(self._topic) if s.subscriber == subscriber}
        return dict(standings(state, state.topic(self._topic), mine))

    def _interests(self, state: RealmState, standing: dict[str, Standing], seen: _Seen) -> tuple[Interest, ...]:
        schema: Schema = state.topic(self._topic).schema
        return tuple(
            Interest(id, s.filter, explain(condition(s.filter, s.template, schema), seen.attributes, seen.payload))
            for id, s in standing.items()
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

    def _record(self, event: Position) -> Record | None:
        """The frame; None when it is no longer kept, NotFound when there never was one."""
        if event.partition >= self._log.partitions:
            raise NotFound(f"topic {self._topic!r} has partitions 0 to {self._log.partitions - 1}")
        log = self._log.partition(event.partition)
        if event.offset >= log.end():
            raise NotFound(
                f"topic {self._topic!r} has no event {event}: its partition {event.partition} has {log.end()} frames"
            )
        if event.offset < log.start():
            return None
        return next(iter(log.read(event.offset, event.offset + 1)))

    def _batch_of(self, event: Position) -> Committed | None:
        """The first record that ends behind the event: offsets only grow, so halving finds it."""
        low, high = 0, self._ledger.end()
        while low < high:
            middle = (low + high) // 2
            ends = self._ledger.at(middle).entry.end.partitions
            if event.partition < len(ends) and ends[event.partition] > event.offset:
                high = middle
            else:
                low = middle + 1
        return self._ledger.at(low) if low < self._ledger.end() else None

    def _piece(self, ref: PieceRef) -> SealedPiece:
        try:
            return sealed.parse(self._pieces.read(ref.name, ref.digest))
        except NotFound:
            raise Corrupt(f"{self._pieces.path(ref.name)} is gone; the ledger names it") from None
        except FrameRejected as error:
            raise Corrupt(f"{self._pieces.path(ref.name)} is no piece: {error.message}") from None


def _ref_of(committed: Committed, event: Position) -> PieceRef:
    for ref in committed.entry.pieces:
        if ref.partition == event.partition and ref.first <= event.offset < ref.end:
            return ref
    raise Corrupt(
        f"record {committed.index} of the ledger has taken event {event}, and no piece of it covers its frame",
        hint="see what else is wrong: sealcast check",
    )


def _batch(committed: Committed, ref: PieceRef) -> Batch:
    entry = committed.entry
    when = _1970 + timedelta(microseconds=committed.time_us)
    return Batch(committed.index, entry.query, entry.batch, entry.version, when, ref.name)


def _header(record: Record | None) -> Header | None:
    """What the frame says of itself; None when it cannot be read that far."""
    try:
        return frame.parse(record.data).header if record is not None else None
    except FrameRejected:
        return None


def _published(answer: Answer, header: Header | None) -> Answer:
    if header is None:
        return answer
    when, sequence = _1970 + timedelta(microseconds=header.time), header.sequence + answer.event.row
    return replace(answer, publisher=header.publisher, published_at=when, sequence=sequence)


def _event_in(piece: SealedPiece, event: Position) -> int | None:
    here, wanted = places(piece), place_of(event.offset, event.row)
    at = int(np.searchsorted(here, wanted))
    return at if at < here.size and here[at] == wanted else None


def _sealing(piece: SealedPiece, event: Position) -> Sealing | None:
    at = _event_in(piece, event)
    if at is None:
        return None
    encryptions = int(piece.use_start[at + 1]) - int(piece.use_start[at])
    readers = int(np.count_nonzero(np.asarray(piece.mailbox_event) == at))
    return Sealing("content key" if piece.wrapped[at] else "direct", encryptions, readers)


def _delivered(piece: SealedPiece, slot: int, event: Position) -> bool:
    at = _event_in(piece, event)
    return at is not None and at in piece.rows_for(slot)[0].tolist()


def _unauthorised(state: RealmState, subscriber: str) -> str:
    entity = state.entities.get(subscriber)
    if entity is not None and entity.revoked:
        return f"{subscriber} was revoked, at version {entity.revoked_at_version}"
    return f"{subscriber} had no right to read the topic at version {state.version}"


def _without_token(state: RealmState, standing: Standing, time_us: int) -> str:
    if standing.until_us <= standing.from_us:
        return f"its token was worth nothing at version {state.version}: its key center was revoked"
    when = _1970 + timedelta(microseconds=standing.until_us if time_us >= standing.until_us else standing.from_us)
    return f"its token {'had ended' if time_us >= standing.until_us else 'had not begun'} ({when.isoformat()})"


def _listed(ids: list[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{', '.join(ids[:-1])} and {ids[-1]}"
