"""A reader's report of events that it did not ask for: signed, over the control topic of the broker that serves it.

    layered/misrouted   [topic, count, [[publisher, boot, sequence], ...], time, signature]  -> layered/noted  [kept]

The broker may be the one that misroutes. It can lose a report, and cannot make one up. A reader tries again with its
next acknowledgement until somebody has taken it, and `sub` says it in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Final

from sealcast.control.bodies import MAX_NAME, Body, Name, binary, natural, rows, text
from sealcast.control.correspondence import Correspondent
from sealcast.control.desk import More, desks_at_hand
from sealcast.control.envelopes import ProvenMessage
from sealcast.control.service import Answer
from sealcast.errors import Rejected
from sealcast.log.closing import Closing
from sealcast.log.misrouted import MisroutedNote, MisroutedNotes
from sealcast.model.event import OpenedEvent
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.sign import SIGNATURE_BYTES, VerifyKey
from sealcast.trust.handles import BrokerRealm, EntityRealm, OpenRealm
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.state import RealmState
from sealcast.wire import cbor

#: Events that one report names; it counts all of them.
MAX_NAMED: Final = 8
NOTED: Final = "layered/noted"
_MAX_COUNT: Final = 1 << 53
_LABEL: Final = b"sealcast/1 misrouted\0"
_EVENTS: Final = rows(MAX_NAMED, text(MAX_NAME), binary(1, 64), natural(_MAX_COUNT))
_NUMBER: Final = natural(_MAX_COUNT)
_SIGNATURE: Final = binary(SIGNATURE_BYTES, SIGNATURE_BYTES)


@dataclass(frozen=True, slots=True)
class Misrouted(Body):
    KIND = "layered/misrouted"
    MAX_DEPTH = 3
    MAX_ITEMS = 8 + 4 * MAX_NAMED
    topic: Name
    count: Annotated[int, _NUMBER]
    events: Annotated[tuple[tuple[str, bytes, int], ...], _EVENTS]
    at_us: Annotated[int, _NUMBER]
    signature: Annotated[bytes, _SIGNATURE]


def said(realm: bytes, topic: bytes, reader: str, about: Misrouted) -> bytes:
    """What a reader signs: for one realm and topic, in its own name."""
    events = [list(each) for each in about.events]
    return _LABEL + cbor.encode([realm, topic, reader, about.count, events, about.at_us])


def is_signed(state: RealmState, note: MisroutedNote) -> bool:
    """Whether a report that was kept is the reader's own."""
    who = state.entities.get(note.reader)
    return who is not None and VerifyKey(who.verify_key).verify(note.said, note.signature)


class Reporter(Closing, Unpicklable):
    """Reports of one reader on one topic. Close it."""

    def __init__(self, realm: EntityRealm, topic: str, name: str) -> None:
        self._realm, self._topic, self._name = realm, topic, name
        self._correspondent: Correspondent | None = None

    def report(self, events: Sequence[OpenedEvent], count: int) -> bool:
        """Tells the broker that serves the reader; whether it has kept the report."""
        state, identity = self._realm.state(), self._realm.identity(self._name)
        named = tuple((event.publisher, event.boot, event.sequence) for event in events[:MAX_NAMED])
        about = Misrouted(self._topic, count, named, self._realm.clock(), bytes(SIGNATURE_BYTES))
        message = said(self._realm.id, state.topic(self._topic).id, self._name, about)
        signed = Misrouted(self._topic, count, named, about.at_us, identity.signer.sign(message))
        if self._correspondent is None:
            desks = desks_at_hand(self._realm, lambda broker: report_requests(self._realm, broker))
            self._correspondent = Correspondent(self._realm, identity, at_hand=desks)
        home = state.overlay(self._topic).places[self._name]
        reply = self._correspondent.ask_broker(home, Misrouted.KIND, signed.to_bytes())
        return bool(cbor.decode(reply.message.body, max_bytes=16, max_depth=1, max_items=2) == [True])

    def close(self) -> None:
        if self._correspondent is not None:
            self._correspondent.close()
            self._correspondent = None


def report_requests(realm: OpenRealm, broker: str) -> More:
    """For `control.desk`: what a broker of that name does with reports."""

    def handle(request: ProvenMessage, now_us: int, /) -> Answer:
        about, state, reader = Misrouted.from_bytes(request.message.body), realm.state(), request.sender.name
        found = state.topics.get(about.topic)
        # Whoever does not read below this broker learns nothing of its topics.
        if (
            found is None
            or not found.topic.protection.overlay
            or state.overlay(about.topic).places.get(reader) != broker
            or not state.may_subscribe(about.topic, reader, now_us)
        ):
            raise Rejected("there is no such topic that its sender reads here")
        message = said(realm.id, found.topic.id, reader, about)
        note = MisroutedNote(reader, about.count, about.events, now_us, message, about.signature)
        if not 0 < len(about.events) <= about.count or not is_signed(state, note):
            raise Rejected("the report is not signed by its sender")
        secrets = BrokerSecrets.load(realm.paths.broker_key_of(broker))
        notes = MisroutedNotes(realm.paths.topic(about.topic, broker).root, secrets.journal_key(found.topic.id))
        with closing(notes):
            return Answer(NOTED, cbor.encode([notes.add(note)]))

    return {Misrouted.KIND: handle}


def broker_requests(realm: BrokerRealm, broker: str) -> More:
    """For `BrokerSide`."""
    return report_requests(realm, broker)
