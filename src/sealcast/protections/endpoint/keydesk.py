"""Requests for group keys, over a broker's control topic: its desk takes them, `protections.endpoint` decides.

    desk/keys      a signed key request (`protections.endpoint.requests`)     -> desk/keys     the reply to it

Two signatures: the envelope's says who sent it, the request's own says whose keys are asked for. They must be the same:
nobody spends another's budget by passing its request on.
"""

from __future__ import annotations

from typing import Final, Self

from sealcast.control.correspondence import Correspondent
from sealcast.control.desk import More, desks_at_hand
from sealcast.control.envelopes import Opened
from sealcast.control.service import Answer
from sealcast.errors import Rejected
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.endpoint.key_desk import KeyDesk
from sealcast.protections.endpoint.requests import parse_request
from sealcast.trust.handles import EntityRealm, OpenRealm
from sealcast.trust.keys.broker import BrokerSecrets

KEYS: Final = "desk/keys"


class KeyRequests(Unpicklable):
    """Answers them for one broker, on all topics that it serves; what a topic needs is opened when first asked for."""

    def __init__(self, realm: OpenRealm, broker: str) -> None:
        self._realm, self._name = realm, broker
        self._broker: BrokerSecrets | None = None
        self._desks: dict[str, KeyDesk] = {}

    def handle(self, request: Opened, now_us: int, /) -> Answer:
        state, data = self._realm.state(), request.message.body
        asked = parse_request(data, lambda name: VerifyKey(state.entity(name).verify_key))
        if asked.entity != request.sender.name:
            raise Rejected(f"the key request is {asked.entity!r}'s, and {request.sender.name!r} sent it")
        topic = next((found.topic.name for found in state.topics.values() if found.topic.id == asked.topic), None)
        if topic is None or not state.may_subscribe(topic, asked.entity, now_us):
            raise Rejected("there is no such topic that its asker may read")
        return Answer(KEYS, self._desk(topic).reply(data, now_us))

    def _desk(self, topic: str) -> KeyDesk:
        if topic not in self._desks:
            if self._broker is None:
                self._broker = BrokerSecrets.load(self._realm.paths.broker_key_of(self._name))
            self._desks[topic] = KeyDesk(self._realm, topic, self._broker)
        return self._desks[topic]


def key_requests(realm: OpenRealm, broker: str) -> More:
    """For `control.desk`: what a broker of that name is asked besides subscriptions."""
    return {KEYS: KeyRequests(realm, broker).handle}


class AskDesk(Unpicklable):
    """A signed key request in, the broker's reply out: what a subscriber asks with, when it has to."""

    def __init__(self, realm: EntityRealm, topic: str, as_: str, *, at_hand: bool = True) -> None:
        """At the broker that is the subscriber's home; without `at_hand`, over discovery in any case."""
        self._realm, self._topic, self._name, self._at_hand = realm, topic, as_, at_hand
        self._correspondent: Correspondent | None = None

    def __call__(self, data: bytes) -> bytes:
        if self._correspondent is None:
            identity = self._realm.identity(self._name)
            desks = desks_at_hand(self._realm, lambda name: key_requests(self._realm, name)) if self._at_hand else None
            self._correspondent = Correspondent(self._realm, identity, at_hand=desks)
        home = self._realm.state().home_of(self._topic, self._name)
        return self._correspondent.ask_broker(home, KEYS, data).message.body

    def close(self) -> None:
        if self._correspondent is not None:
            self._correspondent.close()
            self._correspondent = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()
