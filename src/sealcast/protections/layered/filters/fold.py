"""The routing tables of one broker as a value of its log: no key, no clock, no file.

Applying the first n turns gives version n, wherever and whenever that is done. What is kept beside each tree's table:
how far each sender's numbers are, and its rows in the order in which they came, so that a sender that is gone costs the
work of its own rows and not of the table's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sealcast.errors import Corrupt, Rejected
from sealcast.protections.layered.filters.kept import Kept
from sealcast.protections.layered.filters.records import (
    Dropped,
    EndedEpochs,
    OpenedTree,
    RowChange,
    Shown,
    Stream,
    TableTurn,
    Took,
    Withdrew,
)
from sealcast.protections.layered.table import Conjunction, RoutingTable
from sealcast.protections.layered.tree import Path, TreeId, TreePlace

#: A row and the path it came by, with how often.
Rows = dict[tuple[Conjunction, Path], int]


def size_of(slots: Conjunction) -> int:
    """How many tokens a row has."""
    return sum(map(len, slots))


@dataclass(slots=True)
class TreeTable:
    """What a broker knows of one tree."""

    id: TreeId
    place: TreePlace
    table: RoutingTable = field(default_factory=RoutingTable)
    #: The highest number of each stream.
    heads: dict[Stream, int] = field(default_factory=dict)
    rows: dict[Stream, Rows] = field(default_factory=dict)
    #: How many tokens the rows of a stream have.
    tokens: dict[Stream, int] = field(default_factory=dict)

    def count(self, stream: Stream, slots: Conjunction, path: Path, by: int) -> None:
        """Keeps `rows` in step with the table."""
        rows = self.rows.setdefault(stream, {})
        before = rows.get((slots, path), 0)
        if before + by:
            rows[slots, path] = before + by
            if not before:
                self.tokens[stream] = self.tokens.get(stream, 0) + size_of(slots)
            return
        del rows[slots, path]
        self.tokens[stream] -= size_of(slots)
        if not rows:
            del self.rows[stream], self.tokens[stream]

    def oldest(self, stream: Stream, most: int) -> list[tuple[Conjunction, Path, int]]:
        """The first rows that came in a stream."""
        found = zip(self.rows.get(stream, {}).items(), range(most), strict=False)
        return [(slots, path, count) for ((slots, path), count), _ in found]


@dataclass(frozen=True, slots=True)
class PostCredential:
    """By which token a subscriber reads, and until when."""

    token: bytes
    until_us: int


class TableFold:
    """All tables of one broker, after `version` turns."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        #: Posts before this offset have been decided about.
        self.taken = 0
        #: Those before this one have been looked at, and are counted if they were refused.
        self.scanned = 0
        #: By the numbers they were opened under; `opened` is the next.
        self.trees: dict[int, TreeTable] = {}
        self.numbers: dict[TreeId, int] = {}
        self.opened = 0
        #: Trees that are of an epoch or generation before these are over, whether they were ever opened or not.
        self.kept = Kept()
        self.credentials: dict[str, PostCredential] = {}
        self.refused: Counter[str] = Counter()
        #: Rows changed since the beginning, and as of the newest snapshot: for who decides when to make the next.
        self.changed = 0

    def __len__(self) -> int:
        return sum(len(tree.table) for tree in self.trees.values())

    def apply(self, turn: TableTurn) -> None:
        """One turn more."""
        for step in turn.steps:
            match step:
                case OpenedTree():
                    self.open(step)
                case Took(number_of, stream, number, changes):
                    tree = self._tree(number_of)
                    tree.heads[stream] = number
                    for change in changes:
                        self._change(tree, stream, change)
                case Shown(subscriber, token, until_us):
                    self.credentials[subscriber] = PostCredential(token, until_us)
                case Withdrew(number_of, stream, rows):
                    self._withdraw(self._tree(number_of), stream, rows)
                case Dropped(number_of):
                    self.drop(number_of)
                case EndedEpochs():
                    self.end(step)
        self.finish(turn)

    def finish(self, turn: TableTurn) -> None:
        """What a turn leaves beside its steps."""
        self.taken, self.scanned = turn.taken, max(self.scanned, turn.scanned, turn.taken)
        self.refused.update(turn.counts)
        self.version += 1

    def open(self, step: OpenedTree) -> TreeTable:
        place = TreePlace(self.name, step.chain, step.tree.publisher, step.layers)
        tree = self.trees[self.opened] = TreeTable(step.tree, place)
        self.numbers[step.tree] = self.opened
        self.opened += 1
        return tree

    def drop(self, number_of: int) -> None:
        del self.numbers[self._tree(number_of).id]
        del self.trees[number_of]
        reading = {stream.sender for tree in self.trees.values() for stream in tree.heads if stream.own}
        self.credentials = {name: c for name, c in self.credentials.items() if name in reading}

    def end(self, step: EndedEpochs) -> None:
        self.kept = Kept(step.epoch, step.generation)

    def held(self, stream: Stream) -> tuple[tuple[int, Stream], ...]:
        """The trees in which a stream has rows."""
        return tuple((number_of, stream) for number_of, tree in self.trees.items() if stream in tree.rows)

    def head(self, number_of: int, stream: Stream) -> int:
        """The highest number of a stream in a tree. Subscribers number by the clock, in microseconds."""
        return self.trees[number_of].heads.get(stream, -1)

    def _tree(self, number_of: int) -> TreeTable:
        try:
            return self.trees[number_of]
        except KeyError:
            raise Corrupt(
                f"turn {self.version} of {self.name!r} is about tree {number_of}, which is not open"
            ) from None

    def _change(self, tree: TreeTable, stream: Stream, change: RowChange) -> None:
        slots, path, remove = change
        try:
            if remove:
                tree.table.remove(slots, path)
            else:
                tree.table.add(slots, path)
        except Rejected as error:
            raise Corrupt(f"turn {self.version} of {self.name!r} cannot have been taken: {error.message}") from None
        tree.count(stream, slots, path, -1 if remove else 1)
        self.changed += 1

    def _withdraw(self, tree: TreeTable, stream: Stream, rows: int) -> None:
        for slots, path, count in tree.oldest(stream, rows):
            tree.table.remove(slots, path, count)
            tree.count(stream, slots, path, -count)
            self.changed += 1
