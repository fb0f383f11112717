"""`why` on a topic that peers carry: how far an event came, by its publisher's log and its subscriber's inbox.

Which of a subscriber's keys fit an event is known to whoever has them: where they are here, and the publisher's own log
is, the answer is worked out; elsewhere it is what the inbox says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from sealcast.broker.replay import Windows
from sealcast.errors import CannotOpen, FrameRejected
from sealcast.filters.check import fit
from sealcast.filters.explain import explain
from sealcast.filters.parse import parse
from sealcast.log.ledger import Committed
from sealcast.log.offsets import AS_STAMPED
from sealcast.log.piece_reader import peer_reader
from sealcast.model.event import OpenedEvent, Position
from sealcast.model.moments import moment
from sealcast.model.rejection import Rejection
from sealcast.protections.attribute import testimony
from sealcast.protections.attribute.interests import CredentialInterests
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.open import AttributeOpener, NotOurs
from sealcast.protections.attribute.outgoing import OutgoingFrames
from sealcast.protections.witness.answer import DecidingBatch, TracedInterest, Verdict, WhyAnswer
from sealcast.trust.deployment import Realm
from sealcast.trust.layout import TopicPaths
from sealcast.wire import frame
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.peer_pieces import PeerPiece


def why(realm: Realm, topic: str, position: Position, subscriber: str) -> WhyAnswer:
    """How far an event came on its way to a subscriber, and why."""
    state = realm.state()
    publisher = state.entity_numbered(position.partition)
    answer = WhyAnswer(
        topic, position, subscriber, because=f"it is in the log of {publisher!r}, whose peer did not run"
    )
    paths = realm.paths.topic(topic, publisher)
    if not paths.frames_root.is_dir():
        return answer.that(Verdict.UNKNOWN, f"the log of {publisher!r} is not here")
    with realm.outbox(topic, publisher, read_only=True) as log:
        part = log.partition(0)
        if not part.start() <= position.offset < part.end():
            return answer.that(Verdict.UNKNOWN, f"the log of {publisher!r} has no such frame, or none any more")
        (record,) = part.read(position.offset, position.offset + 1)
    try:
        header = frame.parse(record.data).header
    except FrameRejected:
        header = None
    if header is not None:
        answer = replace(
            answer,
            publisher=header.publisher,
            published_at=moment(header.time),
            sequence=header.sequence + position.row,
            epoch=header.epoch,
            admitted_at=publisher,
        )
    sent = next((each for each in _records(paths.sent) if each[0].entry.reached(0) > position.offset), None)
    if sent is None:
        return answer
    refused = _refused(sent[1], position)
    if refused is not None:
        because = f"{refused.reason}: {refused.detail}" if refused.detail else str(refused.reason)
        return replace(answer, refused=refused).that(Verdict.REFUSED, f"it was not admitted ({because})")
    return _arrived(realm, answer, publisher, sent[0].entry.version, sent[0].entry.start.time_us)


def _arrived(realm: Realm, answer: WhyAnswer, publisher: str, version: int, sent_us: int) -> WhyAnswer:
    topic, name, position = answer.topic, answer.subscriber, answer.event
    removed = False
    for committed, piece in _records(realm.paths.topic(topic, name)):
        removed = removed or (committed.is_emptied and committed.entry.end.time_us >= sent_us)
        refused = _refused(piece, position)
        if refused is not None:
            text = f"{name!r} refused it ({refused.reason}: {refused.detail})"
            return replace(answer, refused=refused).that(Verdict.REFUSED, text)
        event = next((event for event in range(len(piece)) if piece.position(event) == position), None)
        if event is not None:
            opened = _opened(realm, topic, name, piece.carried(event))
            answer = replace(answer, batch=_batch(committed, name), interests=_interests(realm, topic, name, opened))
            way = testimony.way_of(realm, topic, piece.carried(event).id, name)
            by = f", by way of {', '.join(map(repr, way))}" if way else ""
            return answer.that(Verdict.DELIVERED, f"it is in the inbox of {name!r}{by}")
    if removed:
        text = f"events were removed since from the inbox of {name!r}: whether it was among them is no longer known"
        return answer.that(Verdict.UNKNOWN, text)
    state = realm.state(version)
    if not any(each.subscriber == name for each in state.subscriptions_of(topic)):
        return answer.that(Verdict.NOT_SUBSCRIBED, f"{name!r} had no subscription when the event was sent")
    if not state.may_subscribe(topic, name):
        return answer.that(Verdict.NOT_AUTHORISED, f"{name!r} had no right to read when the event was sent")
    return _unmatched(realm, answer, publisher, version)


def _unmatched(realm: Realm, answer: WhyAnswer, publisher: str, version: int) -> WhyAnswer:
    """It is not in the inbox: whether it should be, by the subscriber's keys."""
    topic, name, position, keys = answer.topic, answer.subscriber, answer.event, realm.paths.entity_key
    if not keys(name).exists() or not keys(publisher).exists():
        return answer.that(Verdict.NOT_HANDED_ON, f"it is not in the inbox of {name!r}; why, only {name!r} can say")
    with closing(OutgoingFrames(realm, topic, publisher, read_only=True)) as frames:
        received = frames.received(position.offset, 1, AS_STAMPED)
        events, _ = frames.judged(received, Windows(frames.bounds), version, AS_STAMPED, 0)
    event = next((each for each in events if each.position == position), None)
    if event is None:
        return answer.that(Verdict.UNKNOWN, f"the frame in the log of {publisher!r} has no such event")
    try:
        _open(realm, topic, name, event)
    except NotOurs as error:
        return answer.that(Verdict.NOT_MATCHED, f"no key of {name!r} fits it: {error.message}")
    except CannotOpen as error:
        return answer.that(Verdict.REFUSED, f"{name!r} cannot open it: {error.message}")
    heard = testimony.heard_until_us(realm, topic, name)
    if testimony.has_spoken(realm, topic, publisher) and (heard is None or event_time_us(event) > heard):
        return answer.that(Verdict.WAITING, f"it is on its way: the peer of {name!r} has not heard everything since")
    return answer.that(Verdict.WRONG, f"the keys of {name!r} open it, and it is not in its inbox")


def event_time_us(event: CarriedEvent) -> int:
    """When its publisher published it."""
    return frame.parse_signed(event.signed).header.time


def _open(realm: Realm, topic: str, name: str, event: CarriedEvent) -> OpenedEvent:
    with closing(CredentialRing(realm, topic, realm.identity(name))) as ring:
        return AttributeOpener.of(realm.state, topic, ring).open(event)


def _opened(realm: Realm, topic: str, name: str, event: CarriedEvent) -> OpenedEvent | None:
    try:
        return _open(realm, topic, name, event) if realm.paths.entity_key(name).exists() else None
    except CannotOpen:
        return None


def _interests(realm: Realm, topic: str, name: str, opened: OpenedEvent | None) -> tuple[TracedInterest, ...]:
    """What the subscriber itself can say of an event that it got, where its keys are at hand."""
    if opened is None:
        return ()
    schema = realm.state().topic(topic).schema
    with CredentialInterests(realm, topic, name) as interests:
        return tuple(
            TracedInterest(own.id, own.text, explain(fit(parse(own.text), schema), opened.attributes, opened.payload))
            for own in interests.present()
        )


def _records(paths: TopicPaths) -> Iterator[tuple[Committed, PeerPiece]]:
    with closing(peer_reader(paths.root)) as reader:
        for committed in reader.ledger.entries() if reader.end() else ():
            for piece in reader.pieces(committed.index, committed.index + 1):
                yield committed, piece


def _refused(piece: PeerPiece, position: Position) -> Rejection | None:
    for each in piece.rejected:
        at = each.position
        if (at.partition, at.offset) == (position.partition, position.offset) and at.row in (-1, position.row):
            return each
    return None


def _batch(committed: Committed, name: str) -> DecidingBatch:
    entry = committed.entry
    (ref,) = entry.pieces
    return DecidingBatch(
        name, committed.index, entry.query, entry.batch, entry.version, moment(committed.time_us), ref.name
    )
