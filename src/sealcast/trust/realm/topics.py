"""A topic as a value, and all that was decided about it: who may do what and when, who wants what, whose keys.

**Epochs.** A topic's keys are those of an epoch. Sealing is always in the current one. A frame of an earlier epoch was
sealed in good faith when it reached the log before the next one began, or within the grace after: that is decided by
the log's clock, so that a batch which is run again decides the same.

**Terms.** A right is held for a time and for what its template admits. Two rights of one entity may have different
terms; a topic for all members gives both rights for good, unless something else was decided for that entity.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final, NamedTuple

from sealcast.model.dataclass import dataclass
from sealcast.model.protection import Protection
from sealcast.model.schema import Schema
from sealcast.model.subscription import Subscription
from sealcast.trust.realm.changes import DEFAULT_GROUP_KEYS, DEFAULT_PARAMETERS, EVERYTHING, Access, Credential, Right
from sealcast.trust.realm.overlays import Leave, Overlay
from sealcast.trust.realm.parameters import FOR_EVER_S, KeyParameters

FIRST_EPOCH: Final = 1
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes
    schema: Schema
    partitions: int
    protection: Protection
    epoch: int
    access: Access
    #: The one key center that makes its keys and signs its tokens.
    center: str = ""
    parameters: KeyParameters = DEFAULT_PARAMETERS
    #: When each epoch started, the first one first.
    epoch_starts: tuple[int, ...] = (0,)
    #: Who registered it; nobody but the administrator when empty.
    owner: str = ""
    #: The first epoch whose keys are this center's.
    center_since: int = FIRST_EPOCH
    #: The algorithm by which its groups of subscribers get their keys.
    group_keys: str = DEFAULT_GROUP_KEYS
    #: The first epoch of this center's whose keys are of a chain that is forgotten from its beginning on; 0 before any.
    chained_since: int = FIRST_EPOCH
    #: Keys of epochs before this one were destroyed on purpose (`ForgetEpochs`).
    forgotten_before: int = FIRST_EPOCH
    #: The versions of its schema before the present one, the first one first.
    earlier_schemas: tuple[Schema, ...] = ()
    #: The epoch in which each of them gave way to the next. Where keys are made for a schema, it is the last one in
    #: which it counts (`in_epoch`).
    schemas_until: tuple[int, ...] = ()

    def in_epoch(self, epoch: int) -> Topic:
        """The topic with the version of its schema that keys of an epoch are made for, where they are made for one."""
        at = bisect_left(self.schemas_until, epoch)
        if at == len(self.schemas_until):
            return self
        return replace(
            self,
            schema=self.earlier_schemas[at],
            earlier_schemas=self.earlier_schemas[:at],
            schemas_until=self.schemas_until[:at],
        )

    def epoch_admissible(self, epoch: int, log_time_us: int) -> bool:
        """Whether a frame sealed in `epoch` and appended to the log at that time is admitted."""
        if epoch == self.epoch:
            return True
        if not self.forgotten_before <= epoch < self.epoch:
            return False
        ended = self.epoch_starts[epoch + 1 - FIRST_EPOCH]
        return log_time_us <= ended + self.parameters.grace_s * _MICROSECONDS

    @property
    def frames_kept_us(self) -> int | None:
        """How old committed frames become, at the most; None for any age. The newest three quarters of that time are
        always there, so that at least is what replay detection looks back and what filters that come later may ask
        for."""
        given = self.parameters
        if given.frames_kept_s >= FOR_EVER_S:
            return None
        return max(given.frames_kept_s * _MICROSECONDS, self.least_kept_us)

    @property
    def looked_back_us(self) -> int:
        """Frames that are younger are always there: replay detection looks back so far, and filters that come later."""
        given, retained = self.parameters, self.protection.retention
        least = max(2 * (given.max_skew_s + given.stale_after_s), 0 if retained is None else retained.seconds)
        return least * _MICROSECONDS

    @property
    def least_kept_us(self) -> int:
        """The shortest time that frames can be kept for: three quarters of it are what is looked back."""
        return -(-4 * (self.looked_back_us // _MICROSECONDS) // 3) * _MICROSECONDS

    @property
    def pieces_kept_us(self) -> int | None:
        """How old sealed pieces become, at the most; None for any age. They are kept as long as frames are: what became
        of a frame is looked up in its piece."""
        given = self.parameters
        if given.pieces_kept_s >= FOR_EVER_S:
            return None
        return max(given.pieces_kept_s * _MICROSECONDS, self.frames_kept_us or 0)

    def first_needed(self, now_us: int) -> int:
        """The first epoch whose keys a center may be asked for: frames that were sealed in it are taken, or are kept,
        and a broker may join that has them to open."""
        kept_us, epoch = self.frames_kept_us, self.epoch
        if kept_us is None:
            return self.forgotten_before
        needed_us = self.parameters.grace_s * _MICROSECONDS + kept_us
        while epoch > self.forgotten_before and now_us <= self.epoch_starts[epoch - FIRST_EPOCH] + needed_us:
            epoch -= 1
        return epoch

    def rotation_due(self, now_us: int, messages: int = 0) -> str | None:
        """Why the current epoch's key should be replaced, if it should: it is too old, or has served too much."""
        limits = self.parameters
        if messages >= limits.messages_per_key:
            return f"its key has sealed {messages} messages of {limits.messages_per_key}"
        age = (now_us - self.epoch_starts[-1]) // _MICROSECONDS
        if age >= limits.key_lifetime_s:
            return f"its key is {age} s old, of {limits.key_lifetime_s} s"
        return None


@dataclass(frozen=True, slots=True)
class Term:
    """For how long, and for which topics and events, a right is held."""

    not_before_us: int = 0
    #: None: until it is taken away. The moment itself is not included.
    until_us: int | None = None
    template: str = EVERYTHING

    def holds(self, at_us: int) -> bool:
        return self.not_before_us <= at_us and not self.over(at_us)

    def over(self, at_us: int) -> bool:
        return self.until_us is not None and self.until_us <= at_us


@dataclass(frozen=True, slots=True)
class Stay:
    """A subscriber at one of a topic's brokers, in numbers of that broker's ledger records."""

    broker: str
    #: The version from which on the broker seals for it, and the records that its ledger had by then.
    since: int = 0
    first: int = 0
    #: The record from which on nothing is its; None while it is served there.
    until: int | None = None
    #: For each stay before this one, the first record whose events may come here again; known once it is settled.
    overlaps: tuple[int, ...] = ()


class Move(NamedTuple):
    """Someone below whom others stood, or who reads, stands elsewhere from this version on: a generation has begun."""

    version: int
    at_us: int


@dataclass(frozen=True, slots=True)
class LayerKey:
    """What one participant announced for one epoch: its agreement key, signed by it. Verify before use."""

    announcement: bytes
    publishes: bool = False


class ReceivingKey(NamedTuple):
    """The key by which a broker is handed a topic's keys, as it announced it last."""

    number: int
    public: bytes


class DeletedTopic(NamedTuple):
    """What is remembered of a topic that was deleted."""

    id: bytes
    #: The first version without it.
    version: int
    #: When the chain of its keys began: on that day's secret they depend (`keys.centers`).
    began_us: int


Terms = Mapping[Right, Term]
_ALWAYS: Final[Terms] = {right: Term() for right in Right}
_NEVER: Final[Terms] = {}


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic and all that was decided about it. The tables are never written to: a `Fold` copies before it writes."""

    topic: Topic
    #: What was decided for single entities, whatever the topic's access gives by itself.
    terms: Mapping[str, Terms] = field(default_factory=dict)
    #: Subscribers' numbers, in the order in which they first subscribed; never given to anyone else.
    slots: Mapping[str, int] = field(default_factory=dict)
    #: Live subscriptions, oldest first.
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    #: The tokens that live subscriptions live by.
    credentials: Mapping[str, Credential] = field(default_factory=dict)
    #: Sealed topic keys by (epoch, broker).
    topic_keys: Mapping[tuple[int, str], bytes] = field(default_factory=dict)
    #: By which keys brokers are handed the topic's from now on, where they said so.
    receiving_keys: Mapping[str, ReceivingKey] = field(default_factory=dict)
    #: Sealed pair keys by (epoch, entity).
    pair_keys: Mapping[tuple[int, str], bytes] = field(default_factory=dict)
    #: Keys that filters are sealed under, by (id, broker), each sealed to that broker.
    filter_keys: Mapping[tuple[bytes, str], bytes] = field(default_factory=dict)
    #: Where subscribers are and were, oldest first; those who are not named are at the realm's first broker.
    stays: Mapping[str, tuple[Stay, ...]] = field(default_factory=dict)
    #: What the keys of each broker's runs depend on, by broker and the version from which on they do, oldest first.
    incarnations: Mapping[tuple[str, int], bytes] = field(default_factory=dict)
    #: The overlay of a layered topic: brokers with those above them, subscribers with their brokers.
    nodes: Mapping[str, str | None] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    #: Subscribers that left the overlay in its present generation.
    left: Mapping[str, Leave] = field(default_factory=dict)
    #: How each generation of it after the first began.
    moves: tuple[Move, ...] = ()
    #: Announced agreement keys by (epoch, entity).
    layer_keys: Mapping[tuple[int, str], LayerKey] = field(default_factory=dict)

    @property
    def overlay(self) -> Overlay:
        return Overlay(self.nodes, self.places, len(self.moves), self.left)

    def terms_of(self, entity: str, member: bool = True) -> Terms:
        """The rights of an entity with their terms; `member` is whether topics for members let it in."""
        return terms_in(self.terms, self.topic, entity, member)


def terms_in(decided: Mapping[str, Terms], topic: Topic, entity: str, member: bool) -> Terms:
    """What was decided for an entity, else what the topic gives by itself."""
    found = decided.get(entity)
    if found is not None:
        return found
    return _ALWAYS if member and topic.access is Access.MEMBERS else _NEVER
