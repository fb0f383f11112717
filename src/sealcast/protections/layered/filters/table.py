"""The routing tables of one broker, versioned: version n is what its keeper had made of posts after n turns.

    TableLog      the turns, authenticated by the broker's journal key, and the snapshots
    NodeTables    {tree: RoutingNode} at any version, ready to route with this broker's keys and no other's

A batch is pinned to a version, so that it routes the same when it is run again. A process that goes from version to
version folds what is new; one that starts, or is asked for an earlier version, begins at the nearest snapshot before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from sealcast.errors import Bug, Corrupt, Misuse
from sealcast.log.annals import GENESIS, MAX_NOTE_BYTES, Annals
from sealcast.log.closing import Closing
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.layered.filters import records
from sealcast.protections.layered.filters.agreed import LayersOf, agreed_layers
from sealcast.protections.layered.filters.fold import TableFold
from sealcast.protections.layered.filters.kept import Kept
from sealcast.protections.layered.filters.records import CONTEXT, TableTurn, Upwards
from sealcast.protections.layered.filters.snapshots import TableSnapshots
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.tree import TreeId
from sealcast.trust.handles import BrokerRealm, OpenRealm
from sealcast.trust.keys.broker import BrokerSecrets

#: So many rows change before a snapshot is worth its writing; and a share of those that there are.
SNAPSHOT_ROWS: Final = 20_000
SNAPSHOT_SHARE: Final = 4
_TURN: Final = "turn"
#: What annals put around a turn.
_ENVELOPE: Final = 1024


class TableLog(Closing, Unpicklable):
    """The turns of one broker's keeper for one topic. One keeper appends; any number of processes read."""

    def __init__(self, realm: OpenRealm, topic: str, secrets: BrokerSecrets) -> None:
        about = realm.state().topic(topic)
        paths, key = realm.paths.topic(topic, secrets.name), secrets.journal_key(about.id)
        self.name = secrets.name
        there = realm.carriers.overlay(realm.state(), topic, secrets.name)
        self._annals = Annals(paths.filter_table if there is None else there.place("table"), CONTEXT, key)
        self._snapshots = TableSnapshots(paths.filters / "snapshots", key, secrets.name.encode() + b"\0" + about.id)
        self._snapshot_at = 0

    def version(self) -> int:
        """How many turns there are. Cheap."""
        return self._annals.end()

    def append(self, turn: TableTurn, version: int) -> None:
        """The turn that follows so many others, durable on return; Locked if another process took one since."""
        data = records.encode(turn)
        if len(data) > MAX_NOTE_BYTES - _ENVELOPE:
            raise Bug(f"a turn of {len(data)} bytes is larger than a record may be")
        self._annals.append([{_TURN: data}], version)

    def turns(self, start: int, end: int | None = None) -> Iterator[TableTurn]:
        """Those from number `start` on, to before `end`, each verified."""
        return (records.parse(data, self._where(index)) for index, data in self._notes(start, end))

    def upwards(self, start: int, end: int) -> Iterator[tuple[int, list[Upwards]]]:
        """(number of a turn, what it sends up), of those that send anything."""
        for index, data in self._notes(start, end):
            if up := records.up_of(data, self._where(index)):
                yield index, up

    def _notes(self, start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
        for note in self._annals.read(start):
            if end is not None and note.index >= end:
                return
            match note.body:
                case {"turn": bytes(data)}:
                    yield note.index, data
                case _:
                    raise Corrupt(f"{self._where(note.index)} is no turn of a keeper")

    def _where(self, index: int) -> str:
        return f"{self._annals.shown}: record {index}"

    def fold(self, version: int | None = None) -> TableFold:
        """The tables at a version, the newest unless one is named."""
        version = self.version() if version is None else version
        for at in reversed(self._snapshots.versions()):
            if at <= version:
                found = self._snapshots.load(self.name, at, self._tag(at))
                if found is not None:
                    self._snapshot_at = max(self._snapshot_at, found.changed)
                    return self.advance(found, version)
        return self.advance(TableFold(self.name), version)

    def advance(self, fold: TableFold, version: int) -> TableFold:
        """Returns the same tables some turns later."""
        if not fold.version <= version <= self.version():
            raise Misuse(f"the table of {self.name!r} has versions 0 to {self.version()}, not {version}")
        if fold.version < version:
            for turn in self.turns(fold.version, version):
                fold.apply(turn)
        return fold

    def snapshot(self, fold: TableFold, *, always: bool = False) -> bool:
        """Writes one if enough has changed since the last; whether it did."""
        due = max(SNAPSHOT_ROWS, len(fold) // SNAPSHOT_SHARE)
        if fold.version == 0 or not (always or fold.changed - self._snapshot_at >= due):
            return False
        self._snapshots.save(fold, self._tag(fold.version))
        self._snapshot_at = fold.changed
        return True

    def close(self) -> None:
        self._annals.close()

    def _tag(self, version: int) -> bytes:
        """Returns the tag of the last turn before a version."""
        if not 0 < version <= self.version():
            return GENESIS
        return next(self._annals.read(version - 1)).tag


class NodeTables(Unpicklable):
    """What one broker routes by. A child process makes its own."""

    def __init__(self, realm: BrokerRealm, topic: str, node: str, *, layers: LayersOf | None = None) -> None:
        """`layers` gives the keys of a tree; without it, they are agreed on as everyone's are."""
        secrets = realm.broker(node)
        self._log = TableLog(realm, topic, secrets)
        self._layers_of = layers or agreed_layers(realm, topic, secrets.identity)
        self._lock = threading.RLock()
        self._fold: TableFold | None = None
        self._brokers: dict[TreeId, RoutingNode] = {}
        #: Outlive the tables: what a tree's keys were applied to before is the same at every version.
        self._layers: dict[TreeId, Layers] = {}

    def version(self) -> int:
        """The newest there is."""
        return self._log.version()

    def at(self, version: int) -> Mapping[TreeId, RoutingNode]:
        """The tables at a version, each with this broker's keys for its tree.

        They stay as they are until another version is asked for; threads that may ask for several go by `holding`.
        """
        with self._lock:
            if self._fold is None or version < self._fold.version:
                # First, so that a fold that fails leaves nothing behind that is half a version.
                self._fold, self._brokers = None, {}
                self._fold = self._log.fold(version)
                self._refresh(self._fold)
            elif version != self._fold.version:
                fold, self._fold = self._fold, None
                self._fold = self._log.advance(fold, version)
                self._refresh(self._fold)
            return self._brokers

    def kept_at(self, version: int) -> Kept:
        """What has not ended at a version: of an event without a table, whether nobody asked, or it came too late."""
        with self._lock:
            self.at(version)
            return Kept() if self._fold is None else self._fold.kept

    @contextmanager
    def holding(self, version: int) -> Iterator[Mapping[TreeId, RoutingNode]]:
        """The tables at a version, which no other thread moves to another meanwhile."""
        with self._lock:
            yield self.at(version)

    def close(self) -> None:
        self._log.close()

    def _refresh(self, fold: TableFold) -> None:
        brokers = {}
        for tree in fold.trees.values():
            known = self._brokers.get(tree.id)
            if known is not None and known.table is tree.table:
                brokers[tree.id] = known
                continue
            if tree.id not in self._layers:
                self._layers[tree.id] = self._layers_of(tree.id, tree.place)
            brokers[tree.id] = RoutingNode(tree.place, self._layers[tree.id], tree.table)
        self._brokers = brokers
        self._layers = {id: layers for id, layers in self._layers.items() if id in fold.numbers}
