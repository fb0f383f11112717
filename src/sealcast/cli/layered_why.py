"""`sealcast why` on a layered topic: how far an event came on its way to a subscriber, broker by broker.

Brokers match what they cannot read, so there is no answer in the words of a filter: what can be said is whether a root
admitted the event, which broker handed it on, by which version of its table, and whether it is in the mailbox. Why a
row was hit, or was not there, only the subscriber could say; where its key file is here, and it got the event, its own
filters are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sealcast.cli import talk
from sealcast.errors import NotFound

if TYPE_CHECKING:
    from sealcast.log.piece_reader import PieceReader
    from sealcast.model.event import OpenedEvent, Position
    from sealcast.protections.layered.interests import Interests
    from sealcast.trust.deployment import Realm
    from sealcast.wire.hops import HopPiece


@dataclass(frozen=True, slots=True)
class Seen:
    """An event in a piece of a broker's."""

    record: int
    piece: HopPiece
    event: int

    @property
    def id(self) -> bytes:
        return self.piece.event_id(self.event)

    def went_to(self, recipient: str) -> bool:
        return any(self.piece.event_of(row) == self.event for row in self.piece.rows_for(recipient))

    def row_of(self, recipient: str) -> int:
        return next(row for row in self.piece.rows_for(recipient) if self.piece.event_of(row) == self.event)


def why(here: Realm, topic: str, position: Position, subscriber: str) -> dict[str, Any]:
    """The answer, as a document."""
    from sealcast.log.piece_reader import hop_reader
    from sealcast.wire import frame

    state = here.state()
    state.entity(subscriber)
    overlay = state.overlay(topic)
    answer: dict[str, Any] = {"topic": topic, "event": str(position), "subscriber": subscriber, "hops": []}
    if subscriber not in overlay.places:
        raise NotFound(
            f"{subscriber!r} stands nowhere in the overlay of {topic!r}: it subscribed to nothing there",
            hint=f"who does: sealcast overlay show {topic}",
        )
    home = overlay.places[subscriber]
    way = [*reversed(overlay.path_up(home)), home]
    reader = hop_reader(here.paths.topic(topic, way[0]).root)
    try:
        refused, found = _admitted(reader, position)
    finally:
        reader.close()
    if found is None:
        answer |= refused or {
            "verdict": "waiting",
            "because": f"root {way[0]!r} has not admitted it yet, or there is no such event",
        }
        return answer
    header = frame.parse_signed(found.piece.frame(found.event).signed).header
    answer |= {"publisher": header.publisher, "epoch": header.epoch, "admitted_at": way[0]}
    last = found
    for node, onwards in zip(way, [*way[1:], subscriber], strict=True):
        reader = hop_reader(here.paths.topic(topic, node).hops.root)
        try:
            seen, taken = _find(reader, found.id), reader.end()
        finally:
            reader.close()
        if seen is None or not seen.went_to(onwards):
            return answer | _stopped(node, onwards, seen, taken)
        hop = {"broker": node, "record": seen.record, "table_version": seen.piece.version, "handed_on_to": onwards}
        answer["hops"].append(hop)
        last = seen
    answer |= {"verdict": "delivered", "because": f"it is in the mailbox of {subscriber!r} at broker {home!r}"}
    return answer | _own_filters(here, topic, subscriber, last)


def show(answer: dict[str, Any]) -> None:
    verdict = answer["verdict"].replace("-", " ")
    talk.say(f"event {answer['topic']}/{answer['event']}, {answer['subscriber']}: {verdict}: {answer['because']}\n")
    rows: list[tuple[str, object]] = []
    if "publisher" in answer:
        rows += [("published", f"by {answer['publisher']}, in epoch {answer['epoch']}")]
        rows += [("admitted", f"by root {answer['admitted_at']}")]
    for hop in answer["hops"]:
        version = f"by version {hop['table_version']} of its table, in record {hop['record']}"
        rows.append((hop["broker"], f"handed it on to {hop['handed_on_to']}, {version}"))
    for each in answer.get("subscriptions", ()):
        rows.append((each["id"], f"{'true' if each['result'] else 'not true'}: {each['filter']}"))
    if rows:
        talk.pairs(rows)
    if answer["verdict"] == "waiting":
        talk.note("the pipeline takes it: sealcast run --once")
    if answer["verdict"] == "not-handed-on":
        talk.note("a broker cannot say why no row was hit: it knows neither the filters nor the event")


# --- inside -----------------------------------------------------------------------------------------------


def _admitted(reader: PieceReader[HopPiece], position: Position) -> tuple[dict[str, Any] | None, Seen | None]:
    """A refusal, or the event as its root admitted it, or neither."""
    for seen in _events(reader):
        for rejection in seen.piece.rejected:
            at = rejection.position
            if (at.partition, at.offset) == (position.partition, position.offset) and at.row in (-1, position.row):
                why = f"{rejection.reason}: {rejection.detail}" if rejection.detail else str(rejection.reason)
                return {"verdict": "refused", "because": f"it was not admitted ({why})"}, None
        for event in range(len(seen.piece)):
            if seen.piece.position(event) == position:
                return None, Seen(seen.record, seen.piece, event)
    return None, None


def _find(reader: PieceReader[HopPiece], id: bytes) -> Seen | None:
    for seen in _events(reader):
        for event in range(len(seen.piece)):
            if seen.piece.event_id(event) == id:
                return Seen(seen.record, seen.piece, event)
    return None


def _events(reader: PieceReader[HopPiece]) -> Iterator[Seen]:
    for index in range(reader.end()):
        for ref in reader.record(index).entry.pieces:
            yield Seen(index, reader.piece(ref), -1)


def _stopped(node: str, onwards: str, seen: Seen | None, taken: int) -> dict[str, Any]:
    if not taken:
        return {"verdict": "waiting", "because": f"broker {node!r} has handed nothing on yet"}
    others = "" if seen is None else ", only to others"
    return {
        "verdict": "not-handed-on",
        "because": f"no row of {node!r} for {onwards!r} was hit{others}; or it has not taken the event yet",
    }


def _own_filters(here: Realm, topic: str, subscriber: str, last: Seen) -> dict[str, Any]:
    """What the subscriber itself can say of an event that it got, where its keys are at hand."""
    from sealcast.protections.layered.interests import Interests
    from sealcast.trust.keys.layer_keys import key_file

    if not key_file(here, here.state(), subscriber).exists():
        return {}
    with Interests(here, topic, subscriber) as interests:
        event = _opened(here, interests, last)
        matched = interests.matching(event)
        filters = [{"id": f.id, "filter": f.filter, "result": f.id in matched} for f in interests.filters()]
        return {"subscriptions": filters}


def _opened(here: Realm, interests: Interests, last: Seen) -> OpenedEvent:
    from sealcast.protections.layered.client import opener_for

    return opener_for(here, interests.topic, interests.standing).open(last.piece, last.row_of(interests.name))
