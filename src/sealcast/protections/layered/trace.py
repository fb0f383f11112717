"""How far an event of a layered topic came on its way to a subscriber, broker by broker.

Brokers match what they cannot read, so there is no answer in the words of a filter: what can be said is whether a root
admitted the event, which broker handed it on, by which version of its table, and whether it is in the mailbox. Why a
row was hit, or was not there, only the subscriber could say; where its key file is here, and it got the event, its own
filters are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from sealcast.errors import NotFound
from sealcast.filters.check import fit
from sealcast.filters.explain import explain
from sealcast.filters.parse import parse
from sealcast.log.journal import Journal
from sealcast.log.ledger import LedgerReader
from sealcast.log.piece_reader import hop_reader
from sealcast.model.event import Position
from sealcast.model.moments import moment
from sealcast.model.rejection import Rejection
from sealcast.protections.layered.audit import opener_of
from sealcast.protections.layered.interests import LayeredInterests
from sealcast.protections.witness.answer import Hop, TracedInterest, Verdict, WhyAnswer, origin_of
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.layer_keys import overlay_of
from sealcast.wire import frame
from sealcast.wire.hops import HopPiece
from sealcast.wire.notifications import MESSAGES_PER_EVENT


class Seen(NamedTuple):
    """An event in a piece of a broker's."""

    record: int
    piece: HopPiece
    event: int

    def row_of(self, recipient: str) -> int | None:
        rows = self.piece.rows_for(recipient)
        return next((row for row in rows if self.piece.event_of(row) == self.event), None)


def why(realm: Realm, topic: str, position: Position, subscriber: str) -> WhyAnswer:
    state = realm.state()
    state.entity(subscriber)
    answer = WhyAnswer(topic, position, subscriber)
    if subscriber not in state.overlay(topic).places:
        raise NotFound(
            f"{subscriber!r} stands nowhere in the overlay of {topic!r}: it subscribed to nothing there",
            hint=f"who does: sealcast overlay show {topic}",
        )
    root = origin_of(position, topic, state.brokers(), state.topic(topic).partitions)
    admitted = realm.journal(topic, root)
    found = _admitted(admitted, position)
    if found is None and (why_removed := _removed(admitted, position.offset)) is not None:
        text = f"events of its frame were removed since ({why_removed}): whether it was among them is no longer known"
        return answer.that(Verdict.UNKNOWN, text)
    if found is None:
        return answer.that(Verdict.WAITING, f"root {root!r} has not admitted it yet, or there is no such event")
    if isinstance(found, Rejection):
        because = f"{found.reason}: {found.detail}" if found.detail else str(found.reason)
        return replace(answer, refused=found).that(Verdict.REFUSED, f"it was not admitted ({because})")
    header = frame.parse_signed(found.piece.frame(found.event).signed).header
    answer = replace(
        answer,
        publisher=header.publisher,
        published_at=moment(header.time),
        sequence=header.sequence // MESSAGES_PER_EVENT + position.row,
        epoch=header.epoch,
        admitted_at=root,
    )
    return _followed(realm, answer, found)


def _followed(realm: Realm, answer: WhyAnswer, found: Seen) -> WhyAnswer:
    """From the root that the subscriber stood below, when the event was published, down to it."""
    topic, subscriber, id = answer.topic, answer.subscriber, found.piece.event_id(found.event)
    overlay = overlay_of(realm, realm.state(), topic, int(found.piece.generation[found.event]))
    if subscriber not in overlay.places:
        return answer.that(Verdict.NOT_SUBSCRIBED, f"{subscriber!r} stood nowhere when the event was published")
    home = overlay.places[subscriber]
    way, last = [*reversed(overlay.path_up(home)), home], found
    for node, onwards in zip(way, [*way[1:], subscriber], strict=True):
        handed_on = realm.journal(topic, node, "hops")
        passed = (Seen(*at, event) for at in _pieces(handed_on) for event in range(len(at[1])))
        seen = next((each for each in passed if each.piece.event_id(each.event) == id), None)
        if seen is None or seen.row_of(onwards) is None:
            if _is_empty(handed_on):
                return answer.that(Verdict.WAITING, f"broker {node!r} has handed nothing on yet")
            if seen is None and (why_removed := _removed(handed_on, last.record)) is not None:
                text = f"what broker {node!r} handed on of it was removed since ({why_removed}), if there was something"
                return answer.that(Verdict.UNKNOWN, text)
            others = "" if seen is None else ", only to others"
            text = f"no row of {node!r} for {onwards!r} was hit{others}; or it has not taken the event yet"
            return answer.that(Verdict.NOT_HANDED_ON, text)
        answer = replace(answer, hops=(*answer.hops, Hop(node, seen.record, seen.piece.version, onwards)))
        last = seen
    answer = answer.that(Verdict.DELIVERED, f"it is in the mailbox of {subscriber!r} at broker {home!r}")
    return replace(answer, interests=_own_filters(realm, topic, subscriber, last))


def _admitted(journal: Journal, position: Position) -> Seen | Rejection | None:
    """The event as its root admitted it, or why it did not."""
    for record, piece in _pieces(journal):
        for rejection in piece.rejected:
            at = rejection.position
            if (at.partition, at.offset) == (position.partition, position.offset) and at.row in (-1, position.row):
                return rejection
        for event in range(len(piece)):
            if piece.position(event) == position:
                return Seen(record, piece, event)
    return None


def _removed(journal: Journal, number: int) -> str | None:
    """Why events were taken out of what a broker made of a frame, or of a record above it, if some were."""
    with LedgerReader(journal) as reader:
        for committed in reader.entries():
            covered = [ref.first <= number < ref.end for ref in committed.entry.pieces]
            if any(covered) and committed.resealed is not None and committed.resealed.removal is not None:
                return committed.resealed.why
    return None


def _is_empty(journal: Journal) -> bool:
    with LedgerReader(journal) as reader:
        return reader.end() == 0


def _pieces(journal: Journal) -> Iterator[tuple[int, HopPiece]]:
    """A broker's pieces, each with the number of its record."""
    with closing(hop_reader(journal)) as reader:
        for index in range(reader.end()):
            yield from ((index, piece) for piece in reader.pieces(index, index + 1))


def _own_filters(realm: Realm, topic: str, subscriber: str, last: Seen) -> tuple[TracedInterest, ...]:
    """What the subscriber itself can say of an event that it got, where its keys are at hand."""
    state, row = realm.state(), last.row_of(subscriber)
    opener = opener_of(realm, state, topic, subscriber)
    if opener is None or row is None:
        return ()
    event, schema = opener.open(last.piece, row), state.topic(topic).schema
    with LayeredInterests(realm, topic, subscriber) as interests:
        return tuple(
            TracedInterest(own.id, own.filter, explain(fit(parse(own.filter), schema), event.attributes, event.payload))
            for own in interests.filters()
            if own.id is not None and own.filter is not None
        )
