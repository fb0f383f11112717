"""Who may publish and who may read what, in sets and intervals: a second opinion that shares nothing with `sealcast`.

Everything here is plain Python on names and numbers: no rule, no key, no file of the product. Times are microseconds.
What a broker sealed for whom, and what a client may do, is compared with what this says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

SECOND = 1_000_000
PUBLISH, SUBSCRIBE = "publish", "subscribe"
RIGHTS = (PUBLISH, SUBSCRIBE)
CENTER = "center"


@dataclass(frozen=True)
class Term:
    """From `start` to before `end` (None: for good), for events of one symbol (None: for all)."""

    start: int = 0
    end: int | None = None
    symbol: str | None = None

    def holds(self, at: int) -> bool:
        return self.start <= at and (self.end is None or at < self.end)


@dataclass(frozen=True)
class Ticket:
    """A token, as whoever has it could tell: in whole seconds."""

    topic: str
    who: str
    rights: frozenset[str]
    begins: int
    ends: int
    epoch: int
    center: str
    symbol: str | None


@dataclass(frozen=True)
class Said:
    """An event: its number is its name."""

    number: int
    symbol: str


@dataclass(frozen=True)
class Frame:
    """What one publisher sealed at once, wherever it may lie."""

    id: int
    topic: str
    publisher: str
    epoch: int
    time: int
    events: tuple[Said, ...]
    #: What it came with.
    ticket: Ticket


@dataclass(frozen=True)
class Taken:
    """A frame as a topic's log has it: where and when it was appended."""

    frame: Frame
    offset: int
    time: int


@dataclass(frozen=True)
class Interest:
    topic: str
    who: str
    #: None: every event; else those of one symbol.
    symbol: str | None
    ticket: Ticket


@dataclass
class Entity:
    certified_until: int
    revoked: bool = False


@dataclass
class Topic:
    name: str
    #: Whether everyone who is enrolled may use it before anyone decides anything.
    members: bool
    starts: list[int]
    decided: dict[str, dict[str, Term]] = field(default_factory=dict)
    #: (epoch, name): who was given the key of an epoch.
    keys: set[tuple[int, str]] = field(default_factory=set)
    center: str = CENTER
    #: The first epoch that was not forgotten on purpose.
    remembered: int = 1
    #: What the log has that no batch has taken.
    waiting: list[Taken] = field(default_factory=list)
    #: Frames whose numbers are spent.
    spent: set[int] = field(default_factory=set)
    #: By reader: the events that were sealed for it, in order, with the epoch they were sealed in.
    mailboxes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        return len(self.starts)


class Oracle:
    """One realm, as it should be."""

    def __init__(self, *, grace: int, skew: int, stale: int, token: int) -> None:
        self.grace, self.skew, self.stale, self.token = grace, skew, stale, token
        self.entities: dict[str, Entity] = {}
        self.topics: dict[str, Topic] = {}
        self.interests: dict[str, Interest] = {}
        self.revoked_centers: set[str] = set()

    # --- who may do what ----------------------------------------------------------------------------

    def terms(self, topic: str, who: str) -> dict[str, Term]:
        person, about = self.entities.get(who), self.topics.get(topic)
        if person is None or person.revoked or about is None:
            return {}
        return about.decided.get(who, dict.fromkeys(RIGHTS, Term()) if about.members else {})

    def may(self, right: str, topic: str, who: str, at: int) -> bool:
        term = self.terms(topic, who).get(right)
        return term is not None and term.holds(at)

    def alive(self, who: str) -> bool:
        return who in self.entities and not self.entities[who].revoked

    def ticket(self, right: str, topic: str, who: str, now: int) -> Ticket | None:
        """The token that `who` would get now, if any."""
        if not self.may(right, topic, who, now):
            return None
        about, terms = self.topics[topic], self.terms(topic, who)
        term, begins = terms[right], now // SECOND
        ends = [begins + self.token, self.entities[who].certified_until // SECOND]
        ends += [] if term.end is None else [term.end // SECOND]
        if min(ends) <= begins:
            return None
        same = frozenset(r for r, t in terms.items() if t == term)
        return Ticket(topic, who, same, begins, min(ends), about.epoch, about.center, term.symbol)

    def counts(self, ticket: Ticket, right: str, at: int) -> bool:
        """Whether anyone would take the token for that right at that time."""
        if ticket.topic not in self.topics:
            return False
        in_time = ticket.begins * SECOND - self.skew <= at < ticket.ends * SECOND + self.skew
        return (
            in_time
            and right in ticket.rights
            and not self.entities[ticket.who].revoked
            and ticket.center not in self.revoked_centers
            and ticket.center == self.topics[ticket.topic].center
            and self._epoch_counts(self.topics[ticket.topic], ticket.epoch, at)
        )

    def _epoch_counts(self, topic: Topic, epoch: int, at: int) -> bool:
        if epoch < topic.remembered:
            return False
        return epoch == topic.epoch or (epoch < topic.epoch and at <= topic.starts[epoch] + self.grace)

    # --- what happens -------------------------------------------------------------------------------

    def enrol(self, who: str, until: int) -> None:
        self.entities[who] = Entity(until)
        for topic in self.topics.values():
            if topic.members:
                topic.keys.add((topic.epoch, who))

    def grant(self, topic: str, who: str, rights: Iterable[str], term: Term, now: int) -> None:
        about = self.topics[topic]
        before = self.terms(topic, who)
        about.decided[who] = {**before, **dict.fromkeys(rights, term)}
        about.keys.add((about.epoch, who))
        if before != about.decided[who]:
            self._renew(topic, now, who)

    def revoke(self, topic: str, who: str, rights: Iterable[str]) -> None:
        if self.alive(who):
            gone = frozenset(rights)
            left = {right: term for right, term in self.terms(topic, who).items() if right not in gone}
            self.topics[topic].decided[who] = left

    def delete(self, topic: str) -> None:
        """There is no such topic any more: not its rights, its interests, its keys, nor what was sealed."""
        del self.topics[topic]
        self.interests = {id: its for id, its in self.interests.items() if its.topic != topic}

    def subscribe(self, id: str, topic: str, who: str, symbol: str | None, now: int) -> None:
        ticket, about = self.ticket(SUBSCRIBE, topic, who, now), self.topics[topic]
        assert ticket is not None
        self.interests[id] = Interest(topic, who, symbol, ticket)
        about.keys.add((about.epoch, who))
        about.mailboxes.setdefault(who, [])

    def rotate(self, topic: str, now: int) -> None:
        about = self.topics[topic]
        about.starts.append(max(now, about.starts[-1]))
        for who in self.entities:
            if any(term.end is None or now < term.end for term in self.terms(topic, who).values()):
                about.keys.add((about.epoch, who))
        self._renew(topic, now)

    def renew_tickets(self, now: int) -> None:
        """Those that have had half of their life."""
        for topic in self.topics:
            self._renew(topic, now, due=lambda t: 2 * now >= (t.begins + t.ends) * SECOND)

    def _renew(self, topic: str, now: int, who: str | None = None, due: object = None) -> None:
        for id, its in self.interests.items():
            if its.topic != topic or (who is not None and its.who != who):
                continue
            if callable(due) and not due(its.ticket):
                continue
            ticket = self.ticket(SUBSCRIBE, topic, its.who, now)
            if ticket is not None:
                self.interests[id] = replace(its, ticket=ticket)

    def compromise(self, who: str, now: int) -> None:
        self.entities[who].revoked = True
        self.interests = {id: its for id, its in self.interests.items() if its.who != who}
        for name, topic in self.topics.items():
            if (topic.epoch, who) in topic.keys:
                self.rotate(name, now)

    def replace_center(self, gone: str, by: str, now: int) -> None:
        self.revoked_centers.add(gone)
        for name, topic in self.topics.items():
            topic.center = by
            self.rotate(name, now)

    # --- what a broker does ---------------------------------------------------------------------------

    def deliver(self, topic: str, now: int) -> dict[int, frozenset[str]]:
        """All that waits, as one batch: of every event that is admitted, for whom it is sealed."""
        about, sealed = self.topics[topic], dict[int, frozenset[str]]()
        admitted = [taken for taken in about.waiting if self._admit(about, taken)]
        about.waiting.clear()
        for event in (event for taken in admitted for event in self._within(taken.frame)):
            readers = frozenset(self._readers(about, event, now))
            sealed[event.number] = readers
            for who in readers:
                about.mailboxes[who].append((event.number, about.epoch))
        return sealed

    def _admit(self, topic: Topic, taken: Taken) -> bool:
        """By what is known now, and by the clock of the log."""
        frame, at = taken.frame, taken.time
        if frame.topic != topic.name or not self._epoch_counts(topic, frame.epoch, at):
            return False
        if not self.counts(frame.ticket, PUBLISH, at) or not self.may(PUBLISH, topic.name, frame.publisher, at):
            return False
        if frame.time - at > self.skew or at - frame.time > self.stale:
            return False
        if frame.id in topic.spent:
            return False
        topic.spent.add(frame.id)
        return True

    def _within(self, frame: Frame) -> Iterator[Said]:
        """The events that the frame's token is for, and its publisher's right; the others are refused one by one."""
        term = self.terms(frame.topic, frame.publisher)[PUBLISH]
        for event in frame.events:
            if all(symbol in (None, event.symbol) for symbol in (frame.ticket.symbol, term.symbol)):
                yield event

    def _readers(self, topic: Topic, event: Said, now: int) -> Iterator[str]:
        """Whoever wants it by a token that counts, and may by what was decided since."""
        for its in self.interests.values():
            if its.topic != topic.name or not self.may(SUBSCRIBE, topic.name, its.who, now):
                continue
            ticket, term = its.ticket, self.terms(topic.name, its.who)[SUBSCRIBE]
            in_time = ticket.begins * SECOND - self.skew <= now < ticket.ends * SECOND
            wanted = all(symbol in (None, event.symbol) for symbol in (its.symbol, ticket.symbol, term.symbol))
            if wanted and in_time and ticket.center not in self.revoked_centers:
                yield its.who

    def can_open(self, topic: str, who: str) -> list[int]:
        """Everything of a topic that an entity can open with all that it ever had, in order."""
        about = self.topics[topic]
        return [number for number, epoch in about.mailboxes.get(who, []) if (epoch, who) in about.keys]
