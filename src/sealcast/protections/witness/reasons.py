"""Why an event did or did not reach a subscriber, on topics whose brokers read.

An event is named by its place in the log of the broker that it was published at. It is followed from there to every
broker that serves or served the subscriber, where it has a place of its own (`log.forwarded`). What each broker decided
is worked out again (decided.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from sealcast.model.event import Position
from sealcast.overlay.routing import since
from sealcast.protections.witness.answer import Hop, Verdict, WhyAnswer, origin_of
from sealcast.protections.witness.decided import BrokerDecisions
from sealcast.trust.handles import BrokerRealm

#: Of what several brokers say, the most telling counts.
_TELLING: Final = {Verdict.DELIVERED: 3, Verdict.WRONG: 2, Verdict.NOT_SUBSCRIBED: 0}


class Reasons:
    """Answers for one topic."""

    def __init__(self, realm: BrokerRealm, topic: str, decided: type[BrokerDecisions] = BrokerDecisions) -> None:
        self._realm, self._topic, self._decided = realm, topic, decided
        self._parts: dict[str, BrokerDecisions] = {}

    def close(self) -> None:
        while self._parts:
            self._parts.popitem()[1].close()

    def why(self, event: Position, subscriber: str) -> WhyAnswer:
        state = self._realm.state()
        state.entity(subscriber)
        origin = origin_of(event, self._topic, state.brokers(), state.topic(self._topic).partitions)
        stayed = dict.fromkeys(stay.broker for stay in reversed(state.stays_of(self._topic, subscriber)))
        answers = [self._at(broker, origin, event, subscriber) for broker in stayed]
        found = max(answers, key=lambda answer: _TELLING.get(answer.verdict, 1))
        return replace(found, notes=tuple(self._namesakes([b for b in stayed if b != origin], event)))

    def _part(self, broker: str) -> BrokerDecisions:
        if broker not in self._parts:
            self._parts[broker] = self._decided(self._realm, self._topic, broker)
        return self._parts[broker]

    def _at(self, broker: str, origin: str, event: Position, subscriber: str) -> WhyAnswer:
        """What a broker that serves the subscriber, or did, made of an event that was published at another."""
        part, first = self._part(broker), self._part(origin)
        if broker == origin:
            return part.why(event, subscriber)
        first.record(event)  # there is such an event
        place = part.place_of(event)
        if place is not None:
            answer = replace(part.why(Position(event.partition, place, event.row), subscriber), event=event)
            came = first.batch_of(event)
            before = () if came is None else (Hop(origin, came.index, came.entry.version, broker),)
            return replace(answer, admitted_at=origin, hops=before + answer.hops)
        answer = first.why(event, subscriber)
        if answer.batch is None or answer.verdict in (Verdict.REFUSED, Verdict.UNKNOWN):
            return answer
        begins = since(self._realm.state(), self._topic, broker)
        if begins is None or begins > answer.batch.version:
            text = f"{subscriber} is served by broker {broker}, which had no subscriber when {origin} took the event"
            return answer.that(Verdict.NOT_SUBSCRIBED, text)
        if part.passed(event):
            return answer.that(Verdict.WRONG, f"broker {origin} admitted it, and forwarded later ones to {broker} only")
        return answer.that(Verdict.WAITING, f"broker {origin} has not forwarded it to {broker} yet")

    def _namesakes(self, brokers: list[str], event: Position) -> Iterator[str]:
        """Events that have the same numbers in the mailbox of the subscriber: what `sub` prints is a place there."""
        for broker in brokers:
            origin = self._part(broker).origin_of(event)
            if origin is not None and origin != event.offset:
                other = Position(event.partition, origin, event.row)
                yield f"what `sub` shows as {event} at broker {broker} was published as {other}: ask for that one"
