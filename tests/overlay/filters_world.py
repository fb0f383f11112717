"""Brokers of layered topics with their keepers, subscribers who post to them, and the plaintext truth.

No pipeline: events go down through the tables at their newest versions, from hand to hand. One realm serves many
topics, each with a forest of its own.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sealcast.errors import NotFound
from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.lab.shikfa.net import Net
from sealcast.log import files
from sealcast.log.embedded import EmbeddedLog
from sealcast.model import Schema
from sealcast.model.protection import Layered
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import CachedHashes, Exponent
from sealcast.protections.layered.agreement import layers_for
from sealcast.protections.layered.filters.checks import PostReason
from sealcast.protections.layered.filters.keeper import TableKeeper
from sealcast.protections.layered.filters.posts import Numbered, post_many
from sealcast.protections.layered.filters.records import PostRefusal
from sealcast.protections.layered.filters.table import NodeTables
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.messages import FilterMessage
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.subscribe import FilterEncrypter
from sealcast.protections.layered.tree import Tree, TreeId
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.layer_keys import LayerKeyring, agreement_keys, own_identity
from sealcast.trust.keys.minting import token_for
from sealcast.trust.realm.changes import PlaceNode, PlaceSubscriber, Right
from sealcast.trust.realm.overlays import Overlay
from sealcast.wire import posts

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})
LABELS = [f"label {i}".encode() for i in range(6)]
BROKERS = [f"b{i}" for i in range(6)]
READERS = [f"s{i}" for i in range(5)]
PUBLISHERS = ["p0", "p1"]
#: Every set of one to three of the first four labels.
EVENTS = [frozenset(LABELS[i] for i in chosen) for n in (1, 2, 3) for chosen in itertools.combinations(range(4), n)]
#: A root, two below it, one below the first of these; readers at all levels but the first.
SHAPE: dict[str, Any] = {"parents": [None, 0, 0, 1], "homes": [3, 1, 2]}
_TOPICS = itertools.count()


def post(
    realm: Realm,
    topic: str,
    sender: Identity,
    to_broker: str,
    tree: TreeId,
    filters: Sequence[FilterMessage],
    token: bytes = b"",
    *,
    number: int | None = None,
    fresh: bool = False,
) -> int:
    """Posts filters for one tree; the number of the post, or of the last one if it took several."""
    given = time.time_ns() // 1000 if number is None else number
    post_many(realm, topic, sender, to_broker, [Numbered(tree, filters, given, fresh)], token)
    return given + len(posts.batches(filters)) - 1


def told_by(keeper: TableKeeper) -> tuple[Counter[str], list[PostRefusal]]:
    """What a keeper refused in all its turns, by reason, and the refusals that it describes."""
    turns = list(keeper._log.turns(0))
    counts = sum((Counter(turn.counts) for turn in turns), Counter[str]())
    return counts, [told for turn in turns for told in turn.told]


def refused(keeper: TableKeeper) -> dict[str, int]:
    """Without what came twice."""
    return {reason: count for reason, count in told_by(keeper)[0].items() if reason != PostReason.SEEN}


class PowerLost(Exception):
    """What a test cuts a turn short with."""


class Realms:
    """One realm, for all topics of a test module."""

    def __init__(self, directory: Path) -> None:
        self.realm = Realm.create(directory)
        self.realm.enrol_many([*READERS, *PUBLISHERS])
        for name in BROKERS:
            self.realm.add_broker(name, [])

    def world(
        self,
        layers: int,
        parents: Sequence[int | None],
        homes: Sequence[int],
        publishers: int = 1,
        silent: Sequence[str] = (),
        **settings: int,
    ) -> World:
        return World(self.realm, Layered(layers, **settings), parents, homes, PUBLISHERS[:publishers], silent)


class World:
    """Broker i stands below broker `parents[i]`; reader i reads at broker `homes[i]`. Who is silent announces its key
    when its keeper first turns."""

    def __init__(
        self,
        realm: Realm,
        layering: Layered,
        parents: Sequence[int | None],
        homes: Sequence[int],
        publishers: Sequence[str],
        silent: Sequence[str] = (),
    ) -> None:
        self.realm, self.topic = realm, f"topic-{next(_TOPICS)}"
        self.layering = layering
        self.group = CURVE
        realm.create_topic(self.topic, SCHEMA, protection=self.layering, nodes=0, access="members")
        nodes = [PlaceNode(self.topic, BROKERS[i], None if p is None else BROKERS[p]) for i, p in enumerate(parents)]
        places = [PlaceSubscriber(self.topic, READERS[i], BROKERS[home]) for i, home in enumerate(homes)]
        realm.registry.transact(lambda state: [*nodes, *places])
        self.brokers = [BROKERS[i] for i in range(len(parents))]
        self.readers = [READERS[i] for i in range(len(homes))]
        self.publishers = list(publishers)
        self.hashes = CachedHashes(self.group, self.topic.encode())
        self.wanted: dict[str, Counter[LabelFilter]] = {name: Counter() for name in self.readers}
        self._layers: dict[tuple[str, TreeId], Layers] = {}
        self._identities: dict[str, Identity] = {}
        self._nets: dict[TreeId, Agreed] = {}
        self._center = realm.center()
        if silent:
            for name in (*self.brokers, *self.readers):
                if name not in silent:
                    LayerKeyring(realm, self.identity(name)).ensure(self.topic)
        self.announce(everyone=not silent)
        self.keepers = {name: TableKeeper(realm, self.topic, name) for name in self.brokers}
        self._tables = {name: NodeTables(realm, self.topic, name) for name in self.brokers}

    def announce(self, *, everyone: bool = True) -> None:
        if everyone:
            self.realm.announce_layer_keys([self.topic])
        for name in self.publishers:
            LayerKeyring(self.realm, self.identity(name)).ensure(self.topic, publishes=True)

    def close(self) -> None:
        for each in (*self.keepers.values(), *self._tables.values()):
            each.close()

    # --- who stands where -----------------------------------------------------------------------------

    @property
    def overlay(self) -> Overlay:
        return self.realm.state().overlay(self.topic)

    def trees(self) -> list[TreeId]:
        epoch = self.realm.state().topic(self.topic).epoch
        return [TreeId(publisher, epoch, self.overlay.generation) for publisher in self.publishers]

    def tree(self, id: TreeId) -> Tree:
        return Tree(id.publisher, self.overlay.parents_for(id.publisher), self.layering.layers)

    def layers(self, name: str, id: TreeId) -> Layers:
        found = self._layers.get((name, id))
        if found is None:
            state = self.realm.state()
            keys = agreement_keys(self.realm, self.identity(name), state, self.topic, id.epoch)
            found = self._layers[name, id] = layers_for(keys, self.tree(id), id, self.group)
        return found

    def identity(self, name: str) -> Identity:
        if name not in self._identities:
            self._identities[name] = own_identity(self.realm, self.realm.state(), name)
        return self._identities[name]

    # --- what subscribers do --------------------------------------------------------------------------

    def token(self, name: str, at_us: int | None = None) -> bytes:
        at = self.realm.clock() if at_us is None else at_us
        return token_for(self._center, self.realm.state(), self.topic, name, Right.SUBSCRIBE, at)

    def encrypted(self, name: str, wanted: LabelFilter, id: TreeId, *, remove: bool = False) -> list[FilterMessage]:
        return FilterEncrypter(self.tree(id).place(name), self.layers(name, id), self.hashes).encrypt_filter(
            wanted, remove=remove
        )

    def say(self, name: str, wanted: Sequence[tuple[LabelFilter, bool]], *, fresh: bool = False) -> None:
        """Posts it in every tree: (filter, whether it ends)."""
        home, token = self.overlay.places[name], self.token(name)
        for id in self.trees():
            messages = [m for each, remove in wanted for m in self.encrypted(name, each, id, remove=remove)]
            post(self.realm, self.topic, self.identity(name), home, id, messages, token, fresh=fresh)

    def subscribe(self, name: str, wanted: LabelFilter) -> None:
        self.say(name, [(wanted, False)])
        self.wanted[name][wanted] += 1

    def unsubscribe(self, name: str, wanted: LabelFilter) -> None:
        self.say(name, [(wanted, True)])
        self.wanted[name] = self.wanted[name] - Counter([wanted])

    def start_over(self, name: str, wanted: Sequence[LabelFilter]) -> None:
        self.say(name, [(each, False) for each in wanted], fresh=True)
        self.wanted[name] = Counter(wanted)

    # --- what brokers do ------------------------------------------------------------------------------

    def restart(self, name: str) -> None:
        self.keepers[name].close()
        self.keepers[name] = TableKeeper(self.realm, self.topic, name)

    def settle(self) -> None:
        """Turns, children before parents, until nothing moves."""
        upwards = [name for name in reversed(self.overlay.downwards()) if name in self.keepers]
        while sum(self.keepers[name].turn() for name in upwards):
            pass

    def refused(self) -> Counter[str]:
        return sum((Counter(refused(keeper)) for keeper in self.keepers.values()), Counter())

    # --- what comes of it -----------------------------------------------------------------------------

    def delivered(self, id: TreeId, labels: frozenset[bytes]) -> set[str]:
        """Who gets, and can open, an event with these labels."""
        if id not in self._nets:
            self._nets[id] = Agreed(self, id)
            # Whoever is placed counts as a subscriber: a row that should have ended would reach it.
            self._nets[id].wanted = {name: Counter([wants([[0]])]) for name in self.overlay.places}
        for name, tables in self._tables.items():
            broker = tables.at(tables.version()).get(id)
            if broker is not None:
                self._nets[id].brokers[name] = broker
        return set(self._nets[id].publish(labels, b"body").got)

    def truth(self, labels: frozenset[bytes]) -> set[str]:
        return {name for name, filters in self.wanted.items() if any(f.matches(labels) for f in filters)}

    def tables(self, name: str) -> NodeTables:
        return self._tables[name]

    def expected(self, id: TreeId) -> dict[str, dict[object, Mapping[object, int]]]:
        """The rows of all brokers if everyone said at once, to brokers that never heard anything before, what it wants
        now."""
        net = Agreed(self, id)
        for name, filters in self.wanted.items():
            for each in filters.elements():
                net.subscribe(name, each)
        return {name: _rows(net.brokers[name]) for name in self.brokers}

    def rows(self, name: str, id: TreeId | None = None) -> dict[object, Mapping[object, int]]:
        """A broker's rows by its newest table, with their paths."""
        tables = self._tables[name].at(self._tables[name].version())
        broker = tables.get(id or self.trees()[0])
        return {} if broker is None else _rows(broker)


class Agreed(Net):
    """The simulator of one of a world's trees, with the keys that the world's nodes really agreed on."""

    def __init__(self, world: World, id: TreeId) -> None:
        self._world, self._id = world, id
        super().__init__(world.tree(id), world.group, domain=world.topic.encode())

    def agreed(self, descendant: str, ancestor: str) -> Exponent:
        try:
            return self._world.layers(descendant, self._id).key(ancestor)
        except NotFound:  # a newcomer without a key yet: a random one is as good as none
            return super().agreed(descendant, ancestor)


def _rows(broker: RoutingNode) -> dict[object, Mapping[object, int]]:
    return {row.slots: dict(row.paths) for row in broker.table.rows()}


def wants(*conjunctions: Sequence[Sequence[int]]) -> LabelFilter:
    """Labels by number: slots of conjunctions."""
    made = {
        Conjunction(tuple(sorted({tuple(sorted(LABELS[i] for i in set(slot))) for slot in slots})))
        for slots in conjunctions
    }
    return LabelFilter(tuple(sorted(made, key=lambda c: c.slots)))


def check(world: World, events: Sequence[frozenset[bytes]] = EVENTS) -> None:
    """Every table is what it would be without a past; and events reach whom they should."""
    for id in world.trees():
        assert {name: world.rows(name, id) for name in world.brokers} == world.expected(id)
        for labels in events:
            assert world.delivered(id, labels) == world.truth(labels), (id, labels)


@contextmanager
def quick_realms(directory: Path) -> Iterator[Realms]:
    """Nothing is synced: crashes here are of processes, not of machines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync_data", lambda fd: None)
        patch.setattr(files, "sync_directory", lambda path: None)
        yield Realms(directory / "realm")


@contextmanager
def power_lost(after: int, *, before_write: bool) -> Iterator[None]:
    """The `after`-th durable step from now on fails, before it was done or when it was done and nobody heard of it; and
    after it, nothing is written any more."""
    left, dead = itertools.count(after, -1), False
    append, replace = EmbeddedLog.append, files.replace_file

    def cut(real: Callable[..., Any], *args: Any) -> Any:
        nonlocal dead
        if dead:
            raise PowerLost
        dead = next(left) == 0
        if dead and before_write:
            raise PowerLost
        done = real(*args)
        if dead:
            raise PowerLost
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedLog, "append", lambda *a: cut(append, *a))
        patch.setattr(files, "replace_file", lambda *a: cut(replace, *a))
        yield
