"""One broker among others: what it is asked by them and by entities, and how it comes to know what they know.

    peer/message       [topic, body, token], by a broker        -> peer/taken []       or peer/secure [topic]
    plain/publish      [topic, body]                            -> plain/done []
    plain/subscribe    [topic]                                  -> plain/done []       or refused: it needs a token
    plain/unsubscribe  [topic]                                  -> plain/done []
    desk/move          [topic's name], by a subscriber          -> desk/done [version]

Over the control topics of the brokers' desks (`control.desk`), found through the discovery nodes; the rules are
`knowledge`. `peer/secure` is the error that a knowing broker returns: the one that sent a message without a token
learns from it, and removes its subscriptions without tokens. What is published on plain topics lies in a log of its
own, open to everyone: nothing protects it, and nothing that is protected gets there.

A broker's revocation lists are its own, on stable storage: after a restart it fetches what is new (section 4.8.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from sealcast.control.bodies import Body, Name, that
from sealcast.control.correspondence import Correspondent, strange
from sealcast.control.desk import DONE, ListTopics, More, Topics, desks_at_hand
from sealcast.control.discovery.advertisements import What
from sealcast.control.discovery.embedded import RealmDiscovery, nodes
from sealcast.control.envelopes import ProvenMessage
from sealcast.control.service import Answer
from sealcast.errors import FrameRejected, NotFound, Rejected, TokenRejected, Unavailable
from sealcast.log.closing import Closing
from sealcast.overlay import knowledge, moves
from sealcast.overlay.knowledge import Action, Knowledge, Learnt, Source, TopicMessage
from sealcast.overlay.memory import KnowledgeStore
from sealcast.overlay.plain import PlainLogs
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.certificates.certificate import Role
from sealcast.trust.certificates.revocation import Fetched, RevocationStore
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.changes import DEFAULT_PARAMETERS
from sealcast.trust.realm.state import RealmState
from sealcast.trust.tokens import gates
from sealcast.trust.tokens.claims import Token
from sealcast.trust.tokens.token import TokenGate, VerifiedTokens
from sealcast.wire import cbor

TAKEN: Final = "peer/taken"
SECURE: Final = "peer/secure"
SUBSCRIBE: Final = "plain/subscribe"
UNSUBSCRIBE: Final = "plain/unsubscribe"
PLAIN_DONE: Final = "plain/done"
Bytes = Annotated[bytes, that(lambda value: isinstance(value, bytes))]
#: Pages of a list that is read from another broker.
MAX_PAGES: Final = 64


@dataclass(frozen=True, slots=True)
class Forwarded(Body):
    """A message that another broker passes on."""

    KIND = "peer/message"
    topic: Bytes
    body: Bytes
    token: Bytes


@dataclass(frozen=True, slots=True)
class PlainPublish(Body):
    """Something to be published without a token."""

    KIND = "plain/publish"
    topic: Bytes
    body: Bytes


@dataclass(frozen=True, slots=True)
class PlainTopic(Body):
    """A plain topic to be subscribed to, or to be left."""

    KIND = SUBSCRIBE
    topic: Bytes


@dataclass(frozen=True, slots=True)
class MoveHere(Body):
    """A topic that a subscriber wants to be served on by this broker."""

    KIND = "desk/move"
    topic: Name


class Node(Unpicklable, Closing):
    """A broker, with its keys at hand."""

    def __init__(self, realm: BrokerRealm, name: str, *, at_hand: bool = True) -> None:
        """`at_hand` says whether other brokers whose keys are here, too, are run a turn at a time from here."""
        self._realm, self.name, self._at_hand = realm, name, at_hand
        state = realm.state()
        self.store = KnowledgeStore(realm.paths.broker(name) / "knowledge")
        self._plain_logs = PlainLogs(realm.paths.broker(name) / "plain")
        self._revoked = RevocationStore(realm.paths.revocations(name), realm.trust(state))
        #: What was new in the revocation lists when it started.
        self.fetched: Fetched = self._revoked.update(state)
        self._tokens = VerifiedTokens()
        self._asking: Correspondent | None = None
        self.learn_served(state)

    @property
    def known(self) -> Knowledge:
        return self.store.read()

    def learn_served(self, state: RealmState | None = None) -> None:
        """The topics whose keys it was handed are secure."""
        state = self._realm.state() if state is None else state
        mine = [t.topic.id for t in state.topics.values() if state.topic_key(t.topic.name, t.topic.epoch, self.name)]
        self.store.update(lambda known: knowledge.learn(known, mine, Learnt(Source.SERVED, self.name)))

    # --- others -------------------------------------------------------------------------------------

    def peers(self) -> list[str]:
        """The other brokers that can be found: advertised by themselves, under certificates that count. Those whose
        keys are at hand are there without being advertised: whoever asks them takes their turn."""
        here = [b.name for b in self._realm.state().holders(Role.BROKER)] if self._at_hand else []
        names = {name for name in here if self._realm.paths.broker_key_of(name).exists()}
        if nodes(self._realm):
            with RealmDiscovery(self._realm, self._realm.broker(self.name).identity) as discovery:
                names |= {found.owner for found in discovery.find("*", What.BROKER)}
        return sorted(names - {self.name})

    def join(self, through: str) -> int:
        """Takes over the list of secure topics of the broker that it connects to; how many were news."""
        before, after = len(self.known.secure), ""
        for _ in range(MAX_PAGES):
            reply = self._ask(through, ListTopics.KIND, ListTopics(after).to_bytes())
            try:
                found = Topics.from_bytes(reply.message.body)
            except FrameRejected:
                raise strange(reply) from None
            self.store.update(partial(knowledge.learn_list, sender=reply.sender, topics=[t[1] for t in found.page]))
            if not found.more or not found.page:
                break
            after = found.page[-1][0]
        return len(self.known.secure) - before

    def publish(self, message: TopicMessage) -> tuple[Action, ...]:
        """What an entity publishes here; it goes on to the other brokers where the rules say so."""
        return self._take(message, None)

    # --- asked --------------------------------------------------------------------------------------

    def more(self) -> More:
        """For the broker's desk."""
        return {
            Forwarded.KIND: self._message,
            PlainPublish.KIND: self._publish,
            SUBSCRIBE: lambda request, now: self._plain(request, knowledge.subscribe),
            UNSUBSCRIBE: lambda request, now: self._plain(request, knowledge.unsubscribe),
            MoveHere.KIND: self._move,
        }

    def _message(self, request: ProvenMessage, now_us: int) -> Answer:
        if Role.BROKER not in request.sender.roles:
            raise Rejected(f"{request.sender.name!r} is no broker", hint="entities publish: plain/publish")
        sent = Forwarded.from_bytes(request.message.body)
        actions = self._take(TopicMessage(sent.topic, sent.body, sent.token), request.sender.name)
        return Answer(SECURE, cbor.encode([sent.topic])) if Action.REFUSE in actions else Answer(TAKEN, cbor.encode([]))

    def _publish(self, request: ProvenMessage, now_us: int) -> Answer:
        wanted = PlainPublish.from_bytes(request.message.body)
        if Action.DISCARD in self.publish(TopicMessage(wanted.topic, wanted.body)):
            raise Rejected("this topic is secure: what has no token is discarded", hint="publish it with a token")
        return Answer(PLAIN_DONE, cbor.encode([]))

    def _plain(self, request: ProvenMessage, rule: Callable[[Knowledge, bytes, str], knowledge.Outcome]) -> Answer:
        topic = PlainTopic.from_bytes(request.message.body).topic
        self.store.update(lambda known: rule(known, topic, request.sender.name))
        return Answer(PLAIN_DONE, cbor.encode([]))

    def _move(self, request: ProvenMessage, now_us: int) -> Answer:
        """A subscriber comes to this broker, by its own signed word."""
        topic, state = MoveHere.from_bytes(request.message.body).topic, self._realm.state()
        who = request.sender.name
        # Whether there is such a topic is not for those to learn who have nothing on it.
        if topic not in state.topics or state.slot_of(topic, who) is None:
            raise Rejected(f"{who!r} has no subscription on topic {topic!r}")
        if state.home_of(topic, who) != self.name:
            state = moves.move(self._realm, topic, who, self.name)
        return Answer(DONE, cbor.encode([state.version]))

    # --- inside -------------------------------------------------------------------------------------

    def _take(self, message: TopicMessage, sender: str | None) -> tuple[Action, ...]:
        valid = self._valid(message.token)
        actions = self.store.update(lambda known: knowledge.take(known, message, sender, valid))
        if Action.DELIVER in actions:
            self._plain_logs.append(message.topic, message.body)
        if Action.PROPAGATE in actions:
            self._propagate(message)
        return actions

    def plain_log(self, topic: bytes) -> Path:
        """Where what was published on a plain topic lies."""
        return self._plain_logs.log(topic)

    def _valid(self, token: bytes) -> Token | None:
        if not token:
            return None
        state = self._realm.state()
        self._revoked.update(state)
        centers = gates.center_certificates(state)
        gate = TokenGate(self._realm.trust(state), centers, self._revoked.view, self._tokens)
        try:
            return gate.learn(token, self._realm.clock(), DEFAULT_PARAMETERS)
        except TokenRejected:
            return None

    def _propagate(self, message: TopicMessage) -> None:
        """To every other broker. One that is away misses it: nobody promised anything of plain topics."""
        body = Forwarded(message.topic, message.body, message.token).to_bytes()
        for peer in self.peers():
            try:
                reply = self._ask(peer, Forwarded.KIND, body)
            except (Unavailable, NotFound, Rejected):
                continue
            if reply.message.kind == SECURE:
                self.store.update(partial(knowledge.learn_error, sender=reply.sender, topic=message.topic))

    def _ask(self, broker: str, kind: str, body: bytes) -> ProvenMessage:
        if self._asking is None:
            me = self._realm.broker(self.name).identity
            desks = desks_at_hand(self._realm, self._more_of) if self._at_hand else None
            self._asking = Correspondent(self._realm, me, at_hand=desks)
        return self._asking.ask_broker(broker, kind, body)

    def _more_of(self, broker: str) -> More:
        return Node(self._realm, broker, at_hand=False).more()

    def close(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None


def requests_of(realm: BrokerRealm, broker: str) -> More:
    """What a broker of that name is asked by other brokers and on plain topics: for its desk."""
    return Node(realm, broker).more()
