"""A realm as a value: who is here, what each may do, who wants what, at one version.

A state is never written to: whoever holds one can rely on it while the realm moves on. It answers questions; what may
happen to it is for the rules (`realm.Fold`). Version n is the state after n changes, so a version names everything a
decision depended on.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import islice
from typing import Final, NamedTuple

from sealcast.errors import NotFound, Rejected
from sealcast.model.dataclass import dataclass
from sealcast.model.subscription import Subscription
from sealcast.trust.certificates.revocation import NOTHING_REVOKED, RevocationView
from sealcast.trust.certificates.roles import Role
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import Credential, FoundRealm, Right
from sealcast.trust.realm.overlays import Overlay
from sealcast.trust.realm.topics import DeletedTopic, Move, ReceivingKey, Stay, Terms, Topic, TopicState

#: Looking for a near name among more than this many costs more than the hint is worth.
_MAX_NAMES_COMPARED: Final = 2_000
_MEMBER: Final = frozenset({Role.ENTITY})


@dataclass(frozen=True, slots=True)
class Entity:
    """Someone with a name and public keys."""

    name: str
    verify_key: bytes
    kem_public: bytes
    revoked_at_version: int | None = None
    roles: frozenset[Role] = _MEMBER
    #: What the authority says of it, signed; and what it said before, for what was signed under that.
    certificate: bytes = b""
    former: tuple[bytes, ...] = ()
    #: Of all its certificates, the newest last; and when that one ends.
    serials: tuple[int, ...] = ()
    expires_us: int = 0

    @property
    def revoked(self) -> bool:
        return self.revoked_at_version is not None

    @property
    def member(self) -> bool:
        """Whether topics for members let it in: those who run the realm get rights by name only."""
        return Role.ENTITY in self.roles


class AnnouncedPeer(NamedTuple):
    """Where an entity's peer is reached, signed by it: `peer_addresses` verifies and reads it."""

    announcement: bytes
    sequence: int
    #: Whether it offers itself as a rendezvous.
    serves: bool = False


class BrokerGateway(NamedTuple):
    """Where a broker's logs, ledgers and pieces are reached, when they are on a machine of their own."""

    #: Who has to answer there.
    gateway: str
    host: str
    port: int


class Carried(NamedTuple):
    """Where a broker's frames of a topic are, when a carrier keeps them."""

    carrier: str
    #: What the topic is called there.
    name: str
    #: By partition: the position of our first record there, and its number.
    positions: tuple[int, ...]
    numbers: tuple[int, ...]


class CarriedName(NamedTuple):
    """Where a broker's ledger of a topic is, and all that belongs to it, when a carrier keeps them."""

    carrier: str
    #: What their names there begin with.
    name: str


@dataclass(frozen=True, slots=True)
class RealmState:
    """The realm after `version` changes."""

    version: int = 0
    entities: Mapping[str, Entity] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    #: The topic of every subscription id that was ever given; None once it was removed. Ids are not given twice.
    subscription_topics: Mapping[str, str | None] = field(default_factory=dict)
    #: Whose the removed ones were.
    ended_subscriptions: Mapping[str, str] = field(default_factory=dict)
    #: Whom the realm believes; None before it was founded.
    founding: FoundRealm | None = None
    #: Which certificates count no more.
    revoked: RevocationView = NOTHING_REVOKED
    #: The signed lists that say so, by number.
    revocation_lists: Mapping[int, bytes] = field(default_factory=dict)
    #: Where peers are reached, as each announced it last.
    peers: Mapping[str, AnnouncedPeer] = field(default_factory=dict)
    #: The brokers that are on machines of their own; all others are where the realm is.
    gateways: Mapping[str, BrokerGateway] = field(default_factory=dict)
    #: Servers that keep logs for the realm, and their addresses.
    carriers: Mapping[str, str] = field(default_factory=dict)
    #: Frames that are on one of them, by topic and broker; all others are in their broker's directory.
    carried: Mapping[tuple[str, str], Carried] = field(default_factory=dict)
    #: The same for ledgers and pieces.
    journals: Mapping[tuple[str, str], CarriedName] = field(default_factory=dict)
    #: Topics that there were, by name. None of these names is given again.
    deleted: Mapping[str, DeletedTopic] = field(default_factory=dict)
    #: What is on its way from a carrier to its broker's directory, by topic and broker, and since which version.
    leaving: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: How often something came back from a carrier. A name there may have had another log before.
    departures: int = 0

    # --- look-ups that say what is wrong ----------------------------------------------------------

    def entity(self, name: str) -> Entity:
        found = self.entities.get(name)
        if found is None:
            raise _unknown(
                "entity",
                name,
                self.entities,
                "`sealcast entity list` shows who there is; new ones are enrolled with `sealcast entity enrol`",
            )
        return found

    def topic(self, name: str) -> Topic:
        return self.topic_state(name).topic

    def topic_state(self, name: str) -> TopicState:
        found = self.topics.get(name)
        if found is None and name in self.deleted:
            raise NotFound(
                f"topic {name!r} was deleted (at version {self.deleted[name].version})",
                hint="its name is not given again: `sealcast topic list` shows the topics that there are",
            )
        if found is None:
            raise _unknown("topic", name, self.topics, "make it with `sealcast topic create`")
        return found

    def subscription(self, id: str) -> Subscription:
        topic = self.subscription_topics.get(id)
        if topic is None:
            if id in self.subscription_topics:
                raise NotFound(f"subscription {id!r} was removed")
            live = [i for i, t in self.subscription_topics.items() if t is not None]
            raise _unknown("subscription", id, live, "`sealcast subscription list` shows them")
        return self.topics[topic].subscriptions[id]

    def holders(self, role: Role) -> list[Entity]:
        """Those of a role who were not revoked, in the order in which they came."""
        return [e for e in self.entities.values() if role in e.roles and not e.revoked]

    def revocations(self, since: int) -> list[bytes]:
        """The signed lists after number `since`: what a broker that knows those up to it has to fetch."""
        return [self.revocation_lists[number] for number in range(since + 1, self.revoked.number + 1)]

    def carrier(self, name: str) -> str:
        """The address of a carrier."""
        found = self.carriers.get(name)
        if found is None:
            raise _unknown("carrier", name, self.carriers, "add it with `sealcast carrier add`")
        return found

    # --- decisions --------------------------------------------------------------------------------

    def terms_of(self, topic: str, entity: str) -> Terms:
        """The rights of an entity on a topic, with their terms, past and future ones too. Unknown names have none."""
        who, where = self.entities.get(entity), self.topics.get(topic)
        return {} if who is None or where is None or who.revoked else where.terms_of(entity, who.member)

    def rights_of(self, topic: str, entity: str, at_us: int | None = None) -> frozenset[Right]:
        """Its rights; with a time, only those whose term includes it."""
        terms = self.terms_of(topic, entity)
        return frozenset(right for right, term in terms.items() if at_us is None or term.holds(at_us))

    def may(self, right: Right, topic: str, entity: str, at_us: int | None = None) -> bool:
        """Enrolled, not revoked, and let in by the topic; with a time, also at that time. Unknown names may nothing."""
        term = self.terms_of(topic, entity).get(right)
        return term is not None and (at_us is None or term.holds(at_us))

    def may_publish(self, topic: str, entity: str, at_us: int | None = None) -> bool:
        return self.may(Right.PUBLISH, topic, entity, at_us)

    def may_subscribe(self, topic: str, entity: str, at_us: int | None = None) -> bool:
        return self.may(Right.SUBSCRIBE, topic, entity, at_us)

    def require(self, right: Right, topic: str, entity: str, at_us: int | None = None) -> None:
        """Rejected, saying why and what would help, unless `entity` has the right."""
        who, where = self.entity(entity), self.topic(topic)
        if who.revoked:
            raise Rejected(
                f"entity {entity!r} was revoked (at version {who.revoked_at_version}) and may not {right}",
                hint="a revoked name stays revoked: enrol a new one",
            )
        if not self.may(right, topic, entity):
            raise Rejected(
                f"entity {entity!r} may not {right} on topic {where.name!r}",
                hint=f"let it: sealcast grant {where.name} {entity} {right}",
            )
        if at_us is not None and not self.may(right, topic, entity, at_us):
            early = at_us < self.terms_of(topic, entity)[right].not_before_us
            raise Rejected(
                f"entity {entity!r} may not {right} on topic {where.name!r} {'yet' if early else 'any more'}: "
                f"its right {'has not begun' if early else 'has ended'}",
                hint=f"give it another term: sealcast grant {where.name} {entity} {right} --for 30d",
            )

    def entitled(self, topic: str, at_us: int) -> Iterator[Entity]:
        """Everyone who has a right on the topic now or will have one, in the order in which they came."""
        for who in self.entities.values():
            if not all(term.over(at_us) for term in self.terms_of(topic, who.name).values()):
                yield who

    def slot_of(self, topic: str, subscriber: str) -> int | None:
        return self.topic_state(topic).slots.get(subscriber)

    def slots_of(self, topic: str) -> Mapping[str, int]:
        """Every subscriber the topic ever had, with its slot; the slots are 0, 1, 2, ... in this order."""
        return self.topic_state(topic).slots

    def authorised_slots(self, topic: str, at_us: int | None = None) -> Iterator[int]:
        """The slots of those who may read, ascending: interest is not enough."""
        return (slot for name, slot in self.slots_of(topic).items() if self.may_subscribe(topic, name, at_us))

    def subscriptions_of(self, topic: str) -> Iterable[Subscription]:
        """Live subscriptions, oldest first: position i here is bit i of a match."""
        return self.topic_state(topic).subscriptions.values()

    def credentials_of(self, topic: str) -> Mapping[str, Credential]:
        """The tokens that the topic's live subscriptions live by, by subscription."""
        return self.topic_state(topic).credentials

    # --- several brokers --------------------------------------------------------------------------

    def stays_of(self, topic: str, subscriber: str) -> tuple[Stay, ...]:
        """Where a subscriber is and was, oldest first. The last is its home; the one before may still be served."""
        return self.topic_state(topic).stays.get(subscriber, _AT_FIRST)

    def home_of(self, topic: str, subscriber: str) -> str:
        return self.stays_of(topic, subscriber)[-1].broker

    def served_at(self, topic: str, subscriber: str, broker: str) -> bool:
        """Whether the broker seals for the subscriber at this version."""
        return any(stay.broker == broker and stay.until is None for stay in self.stays_of(topic, subscriber))

    def subscriptions_at(self, topic: str, broker: str) -> Mapping[str, Subscription]:
        """Those live subscriptions, oldest first, that the broker seals for."""
        found = self.topic_state(topic)
        if not found.stays:
            return found.subscriptions if broker == FIRST_BROKER else {}
        # By subscriber: they are fewer, and where all of them or none is here, nobody has to read what they want.
        here = {name for name in found.slots if self.served_at(topic, name, broker)}
        if len(here) in (0, len(found.slots)):
            return found.subscriptions if here else {}
        return {id: s for id, s in found.subscriptions.items() if s.subscriber in here}

    def serving(self, topic: str) -> list[str]:
        """The brokers that have the topic's current key, in the order in which they came; not those revoked."""
        epoch = self.topic(topic).epoch
        return [b.name for b in self.holders(Role.BROKER) if self.topic_key(topic, epoch, b.name) is not None]

    def entity_number(self, name: str) -> int:
        """Entities are numbered in the order in which they came; no number is given again."""
        return list(self.entities).index(self.entity(name).name)

    def entity_numbered(self, number: int) -> str:
        """The entity of a number; NotFound when there are not so many."""
        if not 0 <= number < len(self.entities):
            raise NotFound(f"the realm has {len(self.entities)} entities: none has number {number}")
        return next(islice(self.entities, number, None))

    def broker_number(self, name: str) -> int:
        """Brokers are numbered in the order in which they came; the numbers of those revoked are not given again."""
        if name not in self.entities:
            elsewhere = f"on a machine of its own, `sealcast entity invite {name} --role broker`"
            raise _unknown("broker", name, self.brokers(), f"add it with `sealcast broker add {name}`, or {elsewhere}")
        if Role.BROKER not in self.entity(name).roles:
            raise NotFound(f"entity {name!r} is no broker", hint="those that are: sealcast broker list")
        return self.brokers().index(name)

    def brokers(self) -> list[str]:
        """Every broker that there ever was, by number."""
        return [e.name for e in self.entities.values() if Role.BROKER in e.roles]

    def topic_key(self, topic: str, epoch: int, broker: str) -> bytes | None:
        """The topic's key, sealed to a broker, if it was handed to it."""
        return self.topic_state(topic).topic_keys.get((epoch, broker))

    def receiving_key(self, topic: str, broker: str) -> ReceivingKey | None:
        """The key by which a broker is handed the topic's; None where it has announced none, or the topic's brokers
        forget nothing."""
        found = self.topic_state(topic)
        return found.receiving_keys.get(broker) if found.topic.parameters.forgets else None

    def pair_key(self, topic: str, epoch: int, entity: str) -> bytes | None:
        """The sealed pair key, if one was published."""
        return self.topic_state(topic).pair_keys.get((epoch, entity))

    def incarnation(self, topic: str, broker: str, version: int | None = None) -> bytes:
        """What the keys depend on that the broker seals with at a version, this one unless another is named; empty
        before its first run."""
        known, at = self.topic_state(topic).incarnations, self.version if version is None else version
        newest = max((since for who, since in known if who == broker and since <= at), default=None)
        return b"" if newest is None else known[broker, newest]

    # --- layered topics ---------------------------------------------------------------------------

    def overlay(self, topic: str) -> Overlay:
        """Where the brokers and subscribers of a layered topic stand; empty for the others."""
        return self.topic_state(topic).overlay

    def generation_ended(self, topic: str, generation: int) -> Move | None:
        """What ended a generation of the overlay, and when; None while it lasts."""
        moves = self.topic_state(topic).moves
        return moves[generation] if 0 <= generation < len(moves) else None

    def layer_key(self, topic: str, epoch: int, entity: str) -> bytes | None:
        """What an entity announced as its agreement key, signed by it: `layer_keys` verifies and opens it."""
        found = self.topic_state(topic).layer_keys.get((epoch, entity))
        return None if found is None else found.announcement

    def publishers_of(self, topic: str, epoch: int | None = None) -> list[str]:
        """Who has announced itself as a publisher of an epoch, the current one unless another is named, and may still
        publish: each is the root of a tree. In the order in which they announced themselves."""
        found = self.topic_state(topic)
        wanted = found.topic.epoch if epoch is None else epoch
        named = [who for (at, who), key in found.layer_keys.items() if at == wanted and key.publishes]
        return [who for who in named if who not in found.nodes and self.may_publish(topic, who)]


EMPTY: Final = RealmState()
_AT_FIRST: Final = (Stay(FIRST_BROKER),)


def _unknown(what: str, name: str, names: Iterable[str], otherwise: str) -> NotFound:
    known = list(names)
    near = difflib.get_close_matches(name, known[:_MAX_NAMES_COMPARED], n=1)
    hint = f"did you mean {near[0]!r}?" if near else otherwise
    return NotFound(f"there is no {what} {name!r} in this realm", hint=hint)
