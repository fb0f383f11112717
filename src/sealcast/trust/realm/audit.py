"""Who could do what, when and why: the registry's history, read as spans of time. Pure: changes in, history out.

    rights         an entity may publish or subscribe on a topic: since which change, until which, on which terms, why
    keys           an entity was given its pair key of an epoch: what it can open, if it gets at the sealed bytes
    subscriptions  what an entity asked for, since when, until when; and the tokens that it lived by

A span of versions is exact: version n is the state after n changes. Its times are those that the registry noted for its
first change and for the one that ended it; a term may let a right begin later, or end before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sealcast.trust.realm.changes import (
    Access,
    AddSubscription,
    AlterTopic,
    Change,
    CreateTopic,
    Credential,
    DeleteTopic,
    EnrolEntity,
    Grant,
    PublishPairKey,
    RemoveSubscription,
    RenewSubscription,
    Revoke,
    RevokeEntity,
    Right,
    RotateTopic,
)
from sealcast.trust.realm.machine import Fold
from sealcast.trust.realm.topics import Term, Terms

#: What a right rests on, where nobody granted it.
MEMBERS = f"access={Access.MEMBERS}"


@dataclass(frozen=True, slots=True)
class Moment:
    """A change: its version, when it was made, and what it was."""

    version: int
    at_us: int
    what: str


@dataclass(frozen=True, slots=True)
class ChangeSpan:
    """From one change on, until another; still, if there is none."""

    since: Moment
    until: Moment | None = None

    def includes(self, version: int) -> bool:
        return self.since.version <= version and (self.until is None or version < self.until.version)


@dataclass(frozen=True, slots=True)
class RightHeld:
    """A right of an entity on a topic."""

    entity: str
    topic: str
    right: Right
    span: ChangeSpan
    term: Term
    #: `grant`, or `access=members`.
    why: str

    @property
    def from_us(self) -> int:
        return max(self.span.since.at_us, self.term.not_before_us)

    @property
    def until_us(self) -> int | None:
        """Not included; None while nothing ends it."""
        ends = [self.span.until.at_us] if self.span.until is not None else []
        ends += [self.term.until_us] if self.term.until_us is not None else []
        return min(ends, default=None)

    def allows(self, version: int, at_us: int) -> bool:
        return self.span.includes(version) and self.term.holds(at_us)


@dataclass(frozen=True, slots=True)
class KeyHeld:
    """A pair key that was sealed to an entity: of one topic, in one epoch, which ended with the next."""

    entity: str
    topic: str
    epoch: int
    issued: Moment
    ended: Moment | None = None


@dataclass(frozen=True, slots=True)
class TokenHeld:
    """A token that a subscription lived by, until the next one."""

    span: ChangeSpan
    credential: Credential


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription."""

    id: str
    entity: str
    topic: str
    filter: str
    span: ChangeSpan
    tokens: tuple[TokenHeld, ...] = ()


@dataclass(frozen=True, slots=True)
class EndedEntity:
    """An entity that was ended."""

    entity: str
    at: Moment


@dataclass(slots=True)
class RealmHistory:
    """Everything that was and is, in the order in which it began."""

    rights: list[RightHeld] = field(default_factory=list)
    keys: list[KeyHeld] = field(default_factory=list)
    subscriptions: list[Subscribed] = field(default_factory=list)
    revoked: list[EndedEntity] = field(default_factory=list)
    #: Of every change: its time. Version n is at place n - 1.
    times: list[int] = field(default_factory=list)

    def version_at(self, at_us: int) -> int:
        """The version in force at a time: the last one made by then."""
        return next((v for v in range(len(self.times), 0, -1) if self.times[v - 1] <= at_us), 0)


def history(
    changes: Iterable[tuple[int, int, Change]], *, entity: str | None = None, topic: str | None = None
) -> RealmHistory:
    """Works out the history of one entity or topic, or of all, from (version, time, change) of every change."""
    historian = _Historian(entity, topic)
    for version, at_us, change in changes:
        historian.take(version, at_us, change)
    return historian.finish()


class _Historian:
    """Folds changes, and notes after each what it began and ended."""

    def __init__(self, entity: str | None, topic: str | None) -> None:
        self._only = (entity, topic)
        self._fold = Fold()
        self._names: list[str] = []
        self._topics: list[str] = []
        self._done = RealmHistory()
        self._rights: dict[tuple[str, str, Right], RightHeld] = {}
        self._keys: dict[tuple[str, str], KeyHeld] = {}
        self._subscriptions: dict[str, Subscribed] = {}

    def take(self, version: int, at_us: int, change: Change) -> None:
        self._fold.apply(change)
        self._done.times.append(at_us)
        now = Moment(version, at_us, str(change.kind))
        match change:
            case EnrolEntity():
                self._names.append(change.name)
                self._settle(((topic, change.name) for topic in self._topics), now)
            case CreateTopic():
                self._topics.append(change.name)
                self._settle(((change.name, name) for name in self._names), now)
            case AlterTopic():
                self._settle(((change.topic, name) for name in self._names), now)
            case DeleteTopic():
                self._end_topic(change.topic, now)
            case Grant():
                self._settle([(change.topic, change.entity)], now, change.rights)
            case Revoke():
                self._settle([(change.topic, change.entity)], now)
            case RevokeEntity():
                self._settle(((topic, change.name) for topic in self._topics), now)
                if self._wanted(change.name):
                    self._done.revoked.append(EndedEntity(change.name, now))
            case RotateTopic():
                self._end_keys(change.topic, now)
            case PublishPairKey() if self._wanted(change.entity, change.topic):
                self._keys[change.topic, change.entity] = KeyHeld(change.entity, change.topic, change.epoch, now)
            case AddSubscription() if self._wanted(change.subscriber, change.topic):
                tokens = () if change.credential is None else (TokenHeld(ChangeSpan(now), change.credential),)
                made = Subscribed(change.id, change.subscriber, change.topic, change.filter, ChangeSpan(now), tokens)
                self._subscriptions[change.id] = made
            case RenewSubscription():
                self._renew(change, now)
            case RemoveSubscription() if change.id in self._subscriptions:
                self._done.subscriptions.append(_ended(self._subscriptions.pop(change.id), now))
            case _:
                pass

    def finish(self) -> RealmHistory:
        done = self._done
        done.rights += self._rights.values()
        done.keys += self._keys.values()
        done.subscriptions += self._subscriptions.values()
        done.rights.sort(key=lambda held: (held.span.since.version, held.topic, held.entity, held.right))
        done.keys.sort(key=lambda key: (key.issued.version, key.topic, key.entity))
        done.subscriptions.sort(key=lambda made: made.span.since.version)
        return done

    def _wanted(self, entity: str, topic: str | None = None) -> bool:
        only_entity, only_topic = self._only
        return only_entity in (None, entity) and (topic is None or only_topic in (None, topic))

    def _settle(self, pairs: Iterable[tuple[str, str]], now: Moment, granted: tuple[Right, ...] = ()) -> None:
        """Compares what these entities may do on these topics now with what was noted, and notes what changed."""
        for topic, name in pairs:
            if not self._wanted(name, topic):
                continue
            terms = self._terms(topic, name)
            for right in Right:
                held, term = self._rights.get((topic, name, right)), terms.get(right)
                why = "grant" if right in granted else held.why if held is not None else MEMBERS
                if held is not None and (held.term, held.why) == (term, why):
                    continue
                if held is not None:
                    ended = replace(held, span=ChangeSpan(held.span.since, now))
                    self._done.rights.append(ended)
                    del self._rights[topic, name, right]
                if term is not None:
                    self._rights[topic, name, right] = RightHeld(name, topic, right, ChangeSpan(now), term, why)

    def _terms(self, topic: str, name: str) -> Terms:
        who = self._fold.entity(name)
        return {} if who.revoked else self._fold.tables(topic).terms_of(who)

    def _end_topic(self, topic: str, now: Moment) -> None:
        """Whatever anybody had there ends with a topic."""
        self._topics.remove(topic)
        self._end_keys(topic, now)
        for place in [place for place in self._rights if place[0] == topic]:
            held = self._rights.pop(place)
            self._done.rights.append(replace(held, span=ChangeSpan(held.span.since, now)))
        for id in [id for id, made in self._subscriptions.items() if made.topic == topic]:
            self._done.subscriptions.append(_ended(self._subscriptions.pop(id), now))

    def _end_keys(self, topic: str, now: Moment) -> None:
        for place in [place for place in self._keys if place[0] == topic]:
            self._done.keys.append(replace(self._keys.pop(place), ended=now))

    def _renew(self, change: RenewSubscription, now: Moment) -> None:
        for id in change.ids:
            known = self._subscriptions.get(id)
            if known is not None:
                tokens = (*_closed(known.tokens, now), TokenHeld(ChangeSpan(now), change.credential))
                self._subscriptions[id] = replace(known, tokens=tokens)


def _closed(tokens: tuple[TokenHeld, ...], now: Moment) -> Iterator[TokenHeld]:
    for token in tokens:
        yield token if token.span.until is not None else replace(token, span=ChangeSpan(token.span.since, now))


def _ended(made: Subscribed, now: Moment) -> Subscribed:
    return replace(made, span=ChangeSpan(made.span.since, now), tokens=tuple(_closed(made.tokens, now)))
