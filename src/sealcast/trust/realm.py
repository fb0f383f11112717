"""The rules of a realm, as a pure state machine: no clock, no file, no key.

    RealmState --change--> RealmState        or a refusal, and nothing has changed

A state is a value: whoever holds one can rely on it while the realm moves on. `Fold` applies many changes at the
price of the changes (tables are copied once, when first touched, and not at all when only read); `apply` is one
step of it. Version n is the state after n changes, so a version names everything a decision depended on.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from sealcast.errors import Misuse, NotFound, Rejected
from sealcast.model.schema import Schema
from sealcast.model.subscription import Subscription
from sealcast.trust.changes import (
    Access,
    AddSubscription,
    Change,
    CreateTopic,
    EnrolEntity,
    Grant,
    PublishPairKey,
    RemoveSubscription,
    Revoke,
    RevokeEntity,
    Right,
)

K = TypeVar("K")
V = TypeVar("V")

#: Names of topics, entities and subscriptions: safe as file names, and never mistaken for an option.
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
PROTECTIONS: Final = ("endpoint",)
MAX_PARTITIONS: Final = 1024
#: Longer filters are refused here unread; what a filter may cost is `filters`' own business.
MAX_FILTER_CHARACTERS: Final = 65_536
KEY_BYTES: Final = 32
TOPIC_ID_BYTES: Final = 16
MAX_SEALED_KEY_BYTES: Final = 512
FIRST_EPOCH: Final = 1

_BOTH: Final = frozenset(Right)
_NONE: Final[frozenset[Right]] = frozenset()
#: Looking for a near name among more than this many costs more than the hint is worth.
_MAX_NAMES_COMPARED: Final = 2_000


@dataclass(frozen=True, slots=True)
class Entity:
    """Someone with a name and public keys."""

    name: str
    verify_key: bytes
    kem_public: bytes
    revoked_at_version: int | None = None

    @property
    def revoked(self) -> bool:
        return self.revoked_at_version is not None


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes
    schema: Schema
    partitions: int
    protection: str
    epoch: int
    access: Access


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic and all that was decided about it. The tables are never written to: a `Fold` copies before it writes."""

    topic: Topic
    #: Rights that differ from what the topic's access gives by itself.
    rights: Mapping[str, frozenset[Right]] = field(default_factory=dict)
    #: Subscribers' numbers, in the order in which they first subscribed; never given to anyone else.
    slots: Mapping[str, int] = field(default_factory=dict)
    #: Live subscriptions, oldest first.
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    #: Sealed pair keys by (epoch, entity).
    pair_keys: Mapping[tuple[int, str], bytes] = field(default_factory=dict)

    def rights_of(self, entity: str) -> frozenset[Right]:
        """What the topic by itself lets `entity` do; whether it is enrolled and not revoked is for `RealmState.may`."""
        return self.rights.get(entity, _default_rights(self.topic))


@dataclass(frozen=True, slots=True)
class RealmState:
    """The realm after `version` changes."""

    version: int = 0
    entities: Mapping[str, Entity] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    #: The topic of every subscription id that was ever given; None once it was removed. Ids are not given twice.
    subscription_topics: Mapping[str, str | None] = field(default_factory=dict)

    # --- look-ups that say what is wrong ----------------------------------------------------------

    def entity(self, name: str) -> Entity:
        found = self.entities.get(name)
        if found is None:
            raise _unknown("entity", name, self.entities, "enrol it with `sealcast entity enrol`")
        return found

    def topic(self, name: str) -> Topic:
        return self.topic_state(name).topic

    def topic_state(self, name: str) -> TopicState:
        found = self.topics.get(name)
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

    # --- decisions --------------------------------------------------------------------------------

    def may(self, right: Right, topic: str, entity: str) -> bool:
        """Enrolled, not revoked, and let in by the topic. Unknown names may nothing."""
        who, where = self.entities.get(entity), self.topics.get(topic)
        return who is not None and where is not None and not who.revoked and right in where.rights_of(entity)

    def may_publish(self, topic: str, entity: str) -> bool:
        return self.may(Right.PUBLISH, topic, entity)

    def may_subscribe(self, topic: str, entity: str) -> bool:
        return self.may(Right.SUBSCRIBE, topic, entity)

    def require(self, right: Right, topic: str, entity: str) -> None:
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

    def slot_of(self, topic: str, subscriber: str) -> int | None:
        return self.topic_state(topic).slots.get(subscriber)

    def slots_of(self, topic: str) -> Mapping[str, int]:
        """Every subscriber the topic ever had, with its slot; the slots are 0, 1, 2, ... in this order."""
        return self.topic_state(topic).slots

    def authorised_slots(self, topic: str) -> Iterator[int]:
        """The slots of those who may read now, ascending: interest is not enough."""
        return (slot for name, slot in self.slots_of(topic).items() if self.may_subscribe(topic, name))

    def subscriptions_of(self, topic: str) -> Iterable[Subscription]:
        """Live subscriptions, oldest first: position i here is bit i of a match."""
        return self.topic_state(topic).subscriptions.values()

    def subscription_table(self, topic: str) -> list[tuple[str, int, str]]:
        """(id, slot, filter) of every live subscription, in the order of `subscriptions_of`."""
        slots = self.slots_of(topic)
        return [(s.id, slots[s.subscriber], s.filter) for s in self.subscriptions_of(topic)]

    def pair_key(self, topic: str, epoch: int, entity: str) -> bytes | None:
        """The sealed pair key, if one was published."""
        return self.topic_state(topic).pair_keys.get((epoch, entity))


EMPTY: Final = RealmState()


def apply(state: RealmState, change: Change) -> RealmState:
    """The state after one change, or a refusal."""
    return apply_all(state, (change,))


def apply_all(state: RealmState, changes: Iterable[Change]) -> RealmState:
    """The state after all of them, or a refusal of all."""
    fold = Fold(state)
    for change in changes:
        fold.apply(change)
    return fold.state()


class _Table(Generic[K, V]):
    """A dictionary shared with a state until it is first written to."""

    __slots__ = ("_own", "read")

    def __init__(self, shared: Mapping[K, V]) -> None:
        self.read = shared
        self._own: dict[K, V] | None = None

    def write(self) -> dict[K, V]:
        if self._own is None:
            self.read = self._own = dict(self.read)
        return self._own

    def share(self) -> Mapping[K, V]:
        self._own = None
        return self.read


class _TopicTables:
    __slots__ = ("base", "pair_keys", "rights", "slots", "subscriptions")

    def __init__(self, base: TopicState) -> None:
        self.base = base
        self.rights = _Table(base.rights)
        self.slots = _Table(base.slots)
        self.subscriptions = _Table(base.subscriptions)
        self.pair_keys = _Table(base.pair_keys)

    def rights_of(self, entity: str) -> frozenset[Right]:
        return self.rights.read.get(entity, _default_rights(self.base.topic))

    def share(self) -> TopicState:
        return TopicState(
            self.base.topic, self.rights.share(), self.slots.share(), self.subscriptions.share(), self.pair_keys.share()
        )


class Fold:
    """A state in the making. A refused change leaves it as it was."""

    def __init__(self, state: RealmState = EMPTY) -> None:
        self.version = state.version
        self._entities = _Table(state.entities)
        self._topics = _Table(state.topics)
        self._owners = _Table(state.subscription_topics)
        #: Topics written to since the last `state()`.
        self._open: dict[str, _TopicTables] = {}

    def state(self) -> RealmState:
        """The state so far: a value that later changes do not touch."""
        if self._open:
            topics = self._topics.write()
            for name, tables in self._open.items():
                topics[name] = tables.share()
            self._open.clear()
        return RealmState(self.version, self._entities.share(), self._topics.share(), self._owners.share())

    def schema(self, topic: str) -> Schema:
        """Of a topic that exists."""
        return self._topic(topic).base.topic.schema

    def apply(self, change: Change) -> None:
        match change:
            case AddSubscription():
                self._add_subscription(change)
            case PublishPairKey():
                self._publish_pair_key(change)
            case EnrolEntity():
                self._enrol(change)
            case RevokeEntity():
                self._revoke_entity(change)
            case CreateTopic():
                self._create_topic(change)
            case Grant() | Revoke():
                self._change_rights(change)
            case RemoveSubscription():
                self._remove_subscription(change)
        self.version += 1

    # --- one rule each: all checks first, then the write -------------------------------------------

    def _enrol(self, change: EnrolEntity) -> None:
        _check_name("entity", change.name)
        known = self._entities.read.get(change.name)
        if known is not None and known.revoked:
            raise Rejected(
                f"the name {change.name!r} belonged to a revoked entity",
                hint="names are never given twice: choose another",
            )
        if known is not None:
            raise Misuse(f"entity {change.name!r} is enrolled already")
        if len(change.verify_key) != KEY_BYTES or len(change.kem_public) != KEY_BYTES:
            raise Rejected(f"entity {change.name!r}: both public keys have {KEY_BYTES} bytes")
        self._entities.write()[change.name] = Entity(change.name, change.verify_key, change.kem_public)

    def _revoke_entity(self, change: RevokeEntity) -> None:
        known = self._entity(change.name)
        if known.revoked:
            raise Misuse(f"entity {change.name!r} was revoked before, at version {known.revoked_at_version}")
        self._entities.write()[change.name] = Entity(known.name, known.verify_key, known.kem_public, self.version + 1)

    def _create_topic(self, change: CreateTopic) -> None:
        _check_name("topic", change.name)
        if change.name in self._topics.read or change.name in self._open:
            raise Misuse(f"topic {change.name!r} exists already", hint=f"see it: sealcast topic show {change.name}")
        if not 1 <= change.partitions <= MAX_PARTITIONS:
            raise Misuse(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {change.partitions}")
        if change.protection not in PROTECTIONS:
            raise Misuse(f"protection is one of {', '.join(PROTECTIONS)}, not {change.protection!r}")
        if len(change.id) != TOPIC_ID_BYTES:
            raise Misuse(f"a topic's id has {TOPIC_ID_BYTES} bytes, not {len(change.id)}")
        topic = Topic(
            change.name, change.id, change.schema, change.partitions, change.protection, FIRST_EPOCH, change.access
        )
        self._open[change.name] = _TopicTables(TopicState(topic))

    def _change_rights(self, change: Grant | Revoke) -> None:
        if not change.rights:
            raise Misuse("no right was named", hint=f"rights are {' and '.join(Right)}")
        who, tables = self._entity(change.entity), self._topic(change.topic)
        if who.revoked and isinstance(change, Grant):
            raise Rejected(
                f"entity {change.entity!r} was revoked (at version {who.revoked_at_version}); it gets no rights"
            )
        before = tables.rights_of(change.entity)
        named = frozenset(change.rights)
        tables.rights.write()[change.entity] = before | named if isinstance(change, Grant) else before - named

    def _add_subscription(self, change: AddSubscription) -> None:
        _check_name("subscription", change.id)
        if change.id in self._owners.read:
            raise Misuse(
                f"subscription id {change.id!r} was given before", hint="ids are never given twice: choose another"
            )
        if not change.filter or len(change.filter) > MAX_FILTER_CHARACTERS:
            raise Rejected(f"subscription {change.id!r}: a filter has 1 to {MAX_FILTER_CHARACTERS} characters")
        if _not_unicode(change.filter):
            raise Rejected(f"subscription {change.id!r}: its filter is not valid Unicode (a lone surrogate)")
        who, tables = self._entity(change.subscriber), self._topic(change.topic)
        if who.revoked or Right.SUBSCRIBE not in tables.rights_of(who.name):
            self.state().require(Right.SUBSCRIBE, change.topic, change.subscriber)
        if who.name not in tables.slots.read:
            tables.slots.write()[who.name] = len(tables.slots.read)
        subscription = Subscription(change.id, change.topic, change.subscriber, change.filter)
        tables.subscriptions.write()[change.id] = subscription
        self._owners.write()[change.id] = change.topic

    def _remove_subscription(self, change: RemoveSubscription) -> None:
        topic = self._owners.read.get(change.id)
        if topic is None:
            self.state().subscription(change.id)
        assert topic is not None
        del self._topic(topic).subscriptions.write()[change.id]
        self._owners.write()[change.id] = None

    def _publish_pair_key(self, change: PublishPairKey) -> None:
        who, tables = self._entity(change.entity), self._topic(change.topic)
        if who.revoked:
            raise Rejected(
                f"entity {change.entity!r} was revoked (at version {who.revoked_at_version}); it gets no keys"
            )
        if change.epoch != tables.base.topic.epoch:
            raise Misuse(f"topic {change.topic!r} is in epoch {tables.base.topic.epoch}, not {change.epoch}")
        if not 0 < len(change.sealed) <= MAX_SEALED_KEY_BYTES:
            raise Misuse(f"a sealed pair key has 1 to {MAX_SEALED_KEY_BYTES} bytes, not {len(change.sealed)}")
        if (change.epoch, change.entity) in tables.pair_keys.read:
            raise Misuse(f"entity {change.entity!r} has its pair key for topic {change.topic!r}, epoch {change.epoch}")
        tables.pair_keys.write()[(change.epoch, change.entity)] = change.sealed

    def _entity(self, name: str) -> Entity:
        return self._entities.read.get(name) or self.state().entity(name)

    def _topic(self, name: str) -> _TopicTables:
        tables = self._open.get(name)
        if tables is None:
            found = self._topics.read.get(name) or self.state().topic_state(name)
            tables = self._open[name] = _TopicTables(found)
        return tables


def _default_rights(topic: Topic) -> frozenset[Right]:
    return _BOTH if topic.access is Access.MEMBERS else _NONE


def _not_unicode(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise Misuse(
            f"{name!r} is no {what} name",
            hint="1 to 64 of A-Z a-z 0-9 . _ - and the first no dot or dash",
        )


def _unknown(what: str, name: str, names: Iterable[str], otherwise: str) -> NotFound:
    known = list(names)
    near = difflib.get_close_matches(name, known[:_MAX_NAMES_COMPARED], n=1)
    hint = f"did you mean {near[0]!r}?" if near else otherwise
    return NotFound(f"there is no {what} {name!r} in this realm", hint=hint)
