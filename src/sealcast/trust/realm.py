"""The rules of a realm, as a pure state machine: no clock, no file, no key.

    RealmState --change--> RealmState        or a refusal, and nothing has changed

`Fold` applies many changes at the price of the changes (tables are copied once, when first touched, and not at all
when only read); `apply` is one step of it. What a state answers stands in `state` and `topics`; here is what may
happen to it, a rule for each kind of change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Generic, TypeVar

from sealcast.errors import Misuse, Rejected
from sealcast.model.names import NAME
from sealcast.model.schema import Schema
from sealcast.model.subscription import Subscription
from sealcast.trust.changes import (
    AddSubscription,
    Change,
    CreateTopic,
    EnrolEntity,
    Grant,
    PublishPairKey,
    PublishTopicKey,
    RemoveSubscription,
    Revoke,
    RevokeEntity,
    Right,
    RotateTopic,
)
from sealcast.trust.roles import Role
from sealcast.trust.state import EMPTY, Entity, RealmState
from sealcast.trust.topics import FIRST_EPOCH, Term, Terms, Topic, TopicState, terms_in

__all__ = [
    "EMPTY",
    "FIRST_EPOCH",
    "KEY_BYTES",
    "MAX_FILTER_CHARACTERS",
    "MAX_PARTITIONS",
    "MAX_SEALED_KEY_BYTES",
    "NAME",
    "PROTECTIONS",
    "TOPIC_ID_BYTES",
    "Entity",
    "Fold",
    "RealmState",
    "Term",
    "Topic",
    "TopicState",
    "apply",
    "apply_all",
]

K = TypeVar("K")
V = TypeVar("V")

PROTECTIONS: Final = ("endpoint",)
MAX_PARTITIONS: Final = 1024
#: Longer filters are refused here unread; what a filter may cost is `filters`' own business.
MAX_FILTER_CHARACTERS: Final = 65_536
KEY_BYTES: Final = 32
TOPIC_ID_BYTES: Final = 16
MAX_SEALED_KEY_BYTES: Final = 512


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
    __slots__ = ("pair_keys", "slots", "subscriptions", "terms", "topic", "topic_keys")

    def __init__(self, base: TopicState) -> None:
        self.topic = base.topic
        self.terms = _Table(base.terms)
        self.slots = _Table(base.slots)
        self.subscriptions = _Table(base.subscriptions)
        self.topic_keys = _Table(base.topic_keys)
        self.pair_keys = _Table(base.pair_keys)

    def terms_of(self, who: Entity) -> Terms:
        return terms_in(self.terms.read, self.topic, who.name, who.member)

    def share(self) -> TopicState:
        return TopicState(
            self.topic,
            self.terms.share(),
            self.slots.share(),
            self.subscriptions.share(),
            self.topic_keys.share(),
            self.pair_keys.share(),
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
        return self._topic(topic).topic.schema

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
            case RotateTopic():
                self._rotate_topic(change)
            case PublishTopicKey():
                self._publish_topic_key(change)
            case Grant() | Revoke():
                self._change_rights(change)
            case RemoveSubscription():
                self._remove_subscription(change)
        self.version += 1

    # --- one rule each: all checks first, then the write: entities ----------------------------------

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
        if not change.roles or Role.AUTHORITY in change.roles:
            raise Misuse(f"entity {change.name!r}: an entity has a role, and the authority is none of the realm's")
        made = Entity(change.name, change.verify_key, change.kem_public, roles=frozenset(change.roles))
        self._entities.write()[change.name] = made

    def _revoke_entity(self, change: RevokeEntity) -> None:
        known = self._entity(change.name)
        if known.revoked:
            raise Misuse(f"entity {change.name!r} was revoked before, at version {known.revoked_at_version}")
        self._entities.write()[change.name] = replace(known, revoked_at_version=self.version + 1)

    # --- topics and their keys ----------------------------------------------------------------------

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
        if change.center:
            self._holder(change.center, Role.KEY_CENTER)
        topic = Topic(
            change.name,
            change.id,
            change.schema,
            change.partitions,
            change.protection,
            FIRST_EPOCH,
            change.access,
            change.center,
            change.parameters,
            (change.at_us,),
        )
        self._open[change.name] = _TopicTables(TopicState(topic))

    def _rotate_topic(self, change: RotateTopic) -> None:
        tables = self._topic(change.topic)
        topic = tables.topic
        if change.epoch != topic.epoch + 1:
            raise Misuse(f"topic {topic.name!r} is in epoch {topic.epoch}: the next is not {change.epoch}")
        if change.at_us < topic.epoch_starts[-1]:
            raise Misuse(
                f"topic {topic.name!r}: epoch {change.epoch} would start before epoch {topic.epoch} did",
                hint="this machine's clock, or the one that started the epoch before, is wrong",
            )
        tables.topic = replace(topic, epoch=change.epoch, epoch_starts=(*topic.epoch_starts, change.at_us))

    def _publish_topic_key(self, change: PublishTopicKey) -> None:
        broker, tables = self._holder(change.broker, Role.BROKER), self._topic(change.topic)
        if not FIRST_EPOCH <= change.epoch <= tables.topic.epoch:
            raise Misuse(f"topic {change.topic!r} is in epoch {tables.topic.epoch}; it has no epoch {change.epoch}")
        _check_sealed("topic", change.sealed)
        if (change.epoch, broker.name) in tables.topic_keys.read:
            raise Misuse(f"broker {broker.name!r} has the key of topic {change.topic!r}, epoch {change.epoch}")
        tables.topic_keys.write()[(change.epoch, broker.name)] = change.sealed

    def _publish_pair_key(self, change: PublishPairKey) -> None:
        who, tables = self._entity(change.entity), self._topic(change.topic)
        if who.revoked:
            raise Rejected(
                f"entity {change.entity!r} was revoked (at version {who.revoked_at_version}); it gets no keys"
            )
        if change.epoch != tables.topic.epoch:
            raise Misuse(f"topic {change.topic!r} is in epoch {tables.topic.epoch}, not {change.epoch}")
        _check_sealed("pair", change.sealed)
        if (change.epoch, change.entity) in tables.pair_keys.read:
            raise Misuse(f"entity {change.entity!r} has its pair key for topic {change.topic!r}, epoch {change.epoch}")
        tables.pair_keys.write()[(change.epoch, change.entity)] = change.sealed

    # --- rights and subscriptions -------------------------------------------------------------------

    def _change_rights(self, change: Grant | Revoke) -> None:
        if not change.rights:
            raise Misuse("no right was named", hint=f"rights are {' and '.join(Right)}")
        who, tables = self._entity(change.entity), self._topic(change.topic)
        if isinstance(change, Grant):
            if who.revoked:
                raise Rejected(
                    f"entity {change.entity!r} was revoked (at version {who.revoked_at_version}); it gets no rights"
                )
            term = _check_term(change)
            after = {**tables.terms_of(who), **dict.fromkeys(change.rights, term)}
        else:
            after = {right: term for right, term in tables.terms_of(who).items() if right not in change.rights}
        tables.terms.write()[change.entity] = after

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
        if who.revoked or Right.SUBSCRIBE not in tables.terms_of(who):
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

    # --- inside -------------------------------------------------------------------------------------

    def _entity(self, name: str) -> Entity:
        return self._entities.read.get(name) or self.state().entity(name)

    def _holder(self, name: str, role: Role) -> Entity:
        who = self._entity(name)
        if role not in who.roles:
            raise Misuse(f"entity {name!r} is no {role}", hint="`sealcast entity list` shows everyone's roles")
        if who.revoked:
            raise Rejected(f"{role} {name!r} was revoked (at version {who.revoked_at_version})")
        return who

    def _topic(self, name: str) -> _TopicTables:
        tables = self._open.get(name)
        if tables is None:
            found = self._topics.read.get(name) or self.state().topic_state(name)
            tables = self._open[name] = _TopicTables(found)
        return tables


def _check_term(grant: Grant) -> Term:
    if grant.until_us is not None and grant.until_us <= grant.not_before_us:
        raise Misuse(f"a right on topic {grant.topic!r} that ends before it begins is none")
    if not grant.template:
        raise Misuse("a template that is empty admits nothing", hint="write * for everything")
    return Term(grant.not_before_us, grant.until_us, grant.template)


def _check_sealed(what: str, sealed: bytes) -> None:
    if not 0 < len(sealed) <= MAX_SEALED_KEY_BYTES:
        raise Misuse(f"a sealed {what} key has 1 to {MAX_SEALED_KEY_BYTES} bytes, not {len(sealed)}")


def _not_unicode(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise Misuse(
            f"{name!r} is no {what} name",
            hint="1 to 64 of A-Z a-z 0-9 . _ - and the first no dot or dash",
        )
