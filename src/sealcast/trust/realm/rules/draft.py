"""A state in the making: tables that are shared with a state until they are first written to.

What makes n changes cost n: a table is copied once, when a rule first writes to it, and not at all when rules only
read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from sealcast.errors import Misuse, Rejected
from sealcast.model.schema import Schema
from sealcast.model.subscription import Subscription
from sealcast.trust.certificates.revocation import RevocationView
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.kept import copied
from sealcast.trust.realm.overlays import Overlay
from sealcast.trust.realm.state import EMPTY, Entity, RealmState
from sealcast.trust.realm.topics import Terms, Topic, TopicState, terms_in

K = TypeVar("K")
V = TypeVar("V")


class DraftTable(Generic[K, V]):
    """A dictionary shared with a state until it is first written to."""

    __slots__ = ("_own", "read")

    def __init__(self, shared: Mapping[K, V]) -> None:
        self.read = shared
        self._own: dict[K, V] | None = None

    def write(self) -> dict[K, V]:
        if self._own is None:
            self.read = self._own = copied(self.read)
        return self._own

    def share(self) -> Mapping[K, V]:
        self._own = None
        return self.read


class TopicTables:
    """A topic's tables, each to be written to."""

    def __init__(self, base: TopicState) -> None:
        self.topic = base.topic
        self.terms = DraftTable(base.terms)
        self.slots = DraftTable(base.slots)
        self.subscriptions = DraftTable(base.subscriptions)
        self.credentials = DraftTable(base.credentials)
        self.topic_keys = DraftTable(base.topic_keys)
        self.receiving_keys = DraftTable(base.receiving_keys)
        self.pair_keys = DraftTable(base.pair_keys)
        self.filter_keys = DraftTable(base.filter_keys)
        self.stays = DraftTable(base.stays)
        self.incarnations = DraftTable(base.incarnations)
        self.nodes = DraftTable(base.nodes)
        self.places = DraftTable(base.places)
        self.left = DraftTable(base.left)
        self.moves = base.moves
        self.layer_keys = DraftTable(base.layer_keys)

    def terms_of(self, who: Entity) -> Terms:
        return terms_in(self.terms.read, self.topic, who.name, who.member)

    @property
    def overlay(self) -> Overlay:
        """The overlay as it is now. It changes with the fold, so do not keep it."""
        return Overlay(self.nodes.read, self.places.read, len(self.moves), self.left.read)

    def share(self) -> TopicState:
        tables: dict[str, Any] = {n: table.share() for n, table in vars(self).items() if isinstance(table, DraftTable)}
        return TopicState(self.topic, moves=self.moves, **tables)


class Draft:
    """What rules read and write. It enforces nothing: the rules do."""

    def __init__(self, state: RealmState = EMPTY) -> None:
        self.version = state.version
        self.entities = DraftTable(state.entities)
        self.topics = DraftTable(state.topics)
        self.owners = DraftTable(state.subscription_topics)
        self.ended = DraftTable(state.ended_subscriptions)
        self.founding = state.founding
        #: The newest revocation list, its entries apart; and the one before, for whoever verifies the newest.
        self.last_list = self.list_before = state.revoked
        self.entries = DraftTable(state.revoked.entries)
        self.lists = DraftTable(state.revocation_lists)
        self.peers = DraftTable(state.peers)
        self.gateways = DraftTable(state.gateways)
        self.carriers = DraftTable(state.carriers)
        self.carried = DraftTable(state.carried)
        self.journals = DraftTable(state.journals)
        self.deleted = DraftTable(state.deleted)
        self.leaving = DraftTable(state.leaving)
        self.departures = state.departures
        #: Topics written to since the last `state()`.
        self.open: dict[str, TopicTables] = {}

    def state(self) -> RealmState:
        """The state so far: a value that later changes do not touch."""
        if self.open:
            topics = self.topics.write()
            for name, tables in self.open.items():
                topics[name] = tables.share()
            self.open.clear()
        return RealmState(
            self.version,
            self.entities.share(),
            self.topics.share(),
            self.owners.share(),
            self.ended.share(),
            self.founding,
            replace(self.last_list, entries=self.entries.share()),
            self.lists.share(),
            self.peers.share(),
            self.gateways.share(),
            self.carriers.share(),
            self.carried.share(),
            self.journals.share(),
            self.deleted.share(),
            self.leaving.share(),
            self.departures,
        )

    @property
    def revoked(self) -> RevocationView:
        """Who is revoked as of now. It grows with the fold, so do not keep it."""
        return replace(self.last_list, entries=self.entries.read)

    def topic(self, name: str) -> Topic:
        """Returns a topic; refuses if there is none of that name."""
        return self.tables(name).topic

    def subscription(self, id: str) -> Subscription:
        """Returns a subscription; refuses if it does not exist or was removed."""
        topic = self.owners.read.get(id)
        return self.state().subscription(id) if topic is None else self.tables(topic).subscriptions.read[id]

    def schema(self, topic: str) -> Schema:
        """Returns the schema of a topic; refuses if there is none."""
        return self.topic(topic).schema

    def entity(self, name: str) -> Entity:
        """Returns an entity; refuses if there is none of that name."""
        return self.entities.read.get(name) or self.state().entity(name)

    def holder(self, name: str, role: Role) -> Entity:
        """Returns an entity that has the role and was not revoked; refuses otherwise."""
        who = self.entity(name)
        if role not in who.roles:
            raise Misuse(f"entity {name!r} is no {role}", hint="`sealcast entity list` shows everyone's roles")
        if who.revoked:
            raise Rejected(f"{role} {name!r} was revoked (at version {who.revoked_at_version})")
        return who

    def tables(self, name: str) -> TopicTables:
        """Returns the tables of a topic that exists, for writing."""
        tables = self.open.get(name)
        if tables is None:
            found = self.topics.read.get(name) or self.state().topic_state(name)
            tables = self.open[name] = TopicTables(found)
        return tables
