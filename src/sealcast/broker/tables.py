"""The subscription table of a topic at a version: who asked for what, compiled, and who may read.

Compiling thousands of filters costs more than matching a batch, so tables are immutable and shared (decision 5): in
memory while a worker lives, and on disk, named by the digest of what they were compiled from, to be mapped by the next
worker. A table that differs from the last one by a few subscriptions is the last one with a small index on top.

What is compiled, and how a batch is matched by it, is for the topic's protection to say (`Indexing`): filters that
brokers read become an index over attributes (`FilterIndexes`).

Who is served changes with time alone, too: tokens and rights end (served.py). `SubscriptionTable.at` is the table at
a time.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.budgets import over_budget
from sealcast.broker.served import ServedInterval, served_intervals
from sealcast.errors import Corrupt, NotFound
from sealcast.filters import bits
from sealcast.filters.check import fit
from sealcast.filters.index import ChangedIndex, Index, snapshot
from sealcast.filters.index.changed import NEW
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.model import Schema
from sealcast.model.stages import Admitted
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import EVERYTHING
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.trust.realm.templates import Template

#: Fewer are compiled sooner than read from a file.
MIN_SNAPSHOT: Final = 500
#: Snapshots kept of a topic: the newest, and those that workers on their way out may still open.
MAX_SNAPSHOTS: Final = 4

#: What is compiled, by subscription: its filter, and the template of its token.
Asked = Mapping[str, tuple[str, str]]
Times = NDArray[np.int64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class BatchIndex(Protocol):
    """The filters of a table, ready to be asked about whole batches."""

    def match(self, admitted: Admitted, /) -> bits.Words:
        """Bit i of an event's words: whether it satisfies subscription i of the table."""


@runtime_checkable
class MeteredIndex(Protocol):
    """One whose filters can cost more than they may (budgets.py)."""

    def match(self, admitted: Admitted, unasked: Bools | None = None, /) -> bits.Words:
        """Matches like the method above; whoever is not asked matches nothing."""

    def over_budget(self, admitted: Admitted, owners: Ints, /) -> Bools | None:
        """Subscriptions that are suspended for these events, by whose they are; None for none."""


class Indexing(Protocol):
    """Makes the indices of one topic's tables, one after the other. What they share it keeps."""

    def at(self, state: RealmState, topic: Topic, intervals: Mapping[str, ServedInterval], /) -> BatchIndex:
        """Makes the index of these subscriptions at the state's version."""


@dataclass(frozen=True, slots=True)
class AttributeIndex:
    """Filters that brokers read. Unknown (NULL) is not a match."""

    compiled: Index | ChangedIndex

    def match(self, admitted: Admitted, unasked: Bools | None = None) -> bits.Words:
        # Cut out only when some filter (XPath) reads them: most tables never do.
        payloads = admitted.payloads() if self.compiled.reads_payloads else None
        found = self.compiled.match(admitted.columns, payloads, unasked)
        return found if unasked is None else found & ~bits.mask(unasked)

    def over_budget(self, admitted: Admitted, owners: Ints) -> Bools | None:
        return over_budget(self.compiled, owners, admitted)


@dataclass(frozen=True, slots=True)
class SubscriptionTable:
    """Subscription i of `ids` is bit i of a match; its subscriber has slot `slots[i]`."""

    ids: tuple[str, ...]
    slots: NDArray[np.int64]
    #: Slots given so far: the width of a group.
    n_slots: int
    #: Every subscriber has one subscription, in order of slots: a match is the group.
    one_each: bool
    #: Of the slots, those that may read.
    authorised: bits.Words
    index: BatchIndex
    #: When each subscription is served; the end is not included.
    from_us: Times
    until_us: Times
    #: Of the subscriptions, those that are served; None for all.
    served: bits.Words | None = None

    def at(self, time_us: int) -> SubscriptionTable:
        """The table at a time: whose tokens and rights hold then."""
        holds = (self.from_us <= time_us) & (time_us < self.until_us)
        readers = np.zeros(self.n_slots, np.bool_)
        readers[self.slots[holds]] = True
        served = None if holds.all() else bits.mask(holds)
        return replace(self, authorised=bits.mask(readers), served=served)


class TableCache:
    """Tables of one topic at one broker."""

    def __init__(self, indexing: Indexing, broker: str = FIRST_BROKER) -> None:
        self._indexing = indexing
        self._broker = broker

    def at(self, state: RealmState, topic: Topic) -> SubscriptionTable:
        """The table at the state's version; at any time, until it is pinned to one."""
        slots_by_name = state.slots_of(topic.name)
        subscriptions = state.subscriptions_at(topic.name, self._broker)
        slots = np.array([slots_by_name[s.subscriber] for s in subscriptions.values()], np.int64)
        intervals = dict(served_intervals(state, topic, subscriptions))
        allowed = np.zeros(len(slots_by_name), np.bool_)
        allowed[list(state.authorised_slots(topic.name))] = True
        return SubscriptionTable(
            ids=tuple(subscriptions),
            slots=slots,
            n_slots=len(slots_by_name),
            one_each=np.array_equal(slots, np.arange(len(slots_by_name))),
            authorised=bits.mask(allowed),
            index=self._indexing.at(state, topic, intervals),
            from_us=np.array([s.from_us for s in intervals.values()], np.int64),
            until_us=np.array([s.until_us for s in intervals.values()], np.int64),
        )


class FilterIndexes:
    """Filters that brokers read, compiled: the last index is kept, and whole ones are on disk for other workers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        #: The table last asked for, and the one that was last compiled as a whole.
        self._last: tuple[Asked, Index | ChangedIndex] | None = None
        self._base: tuple[Asked, Index] | None = None

    def at(self, state: RealmState, topic: Topic, intervals: Mapping[str, ServedInterval]) -> AttributeIndex:
        asked = {id: (s.filter, s.template) for id, s in intervals.items()}
        if self._last is None or self._last[0] != asked:
            self._last = (asked, self._overlaid(asked) or self._whole(asked, topic.schema))
        return AttributeIndex(self._last[1])

    def _overlaid(self, asked: Asked) -> ChangedIndex | None:
        """On top of the last whole table, while they have most subscriptions in common."""
        if self._base is None:
            return None
        before, base = self._base
        # Ids are never given twice; a template can change with a new token.
        place = {(id, what): i for i, (id, what) in enumerate(before.items())}
        origin = np.array([place.get(item, NEW) for item in asked.items()], np.int64)
        added = [what for id, what in asked.items() if (id, what) not in place]
        overlay = ChangedIndex.build(base, origin, _compiled(added, base.schema))
        return None if overlay.stale else overlay

    def _whole(self, asked: Asked, schema: Schema) -> Index:
        path = self._directory / f"{digest(asked.values(), schema)}.index"
        try:
            index = snapshot.load(path)
        except (NotFound, Corrupt):
            index = Index.build(_compiled(asked.values(), schema), schema)
            if len(asked) >= MIN_SNAPSHOT:
                self._keep(path, index)
        self._base = (asked, index)
        return index

    def _keep(self, path: Path, index: Index) -> None:
        # A snapshot only saves time: where none can be written (a full disk, say), the next worker compiles again.
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            snapshot.save(path, index)
            newest_first = sorted(self._directory.glob("*.index"), key=lambda p: p.stat().st_mtime_ns, reverse=True)
            for old in newest_first[MAX_SNAPSHOTS:]:
                old.unlink(missing_ok=True)


def condition(filter: str, template: str, schema: Schema) -> Condition:
    """What a subscriber gets: what it asked for, within what its token is for."""
    wanted = fit(parse(filter), schema)
    return wanted if template == EVERYTHING else Template.parse(template).within(wanted, schema)


def _compiled(asked: Iterable[tuple[str, str]], schema: Schema) -> list[Condition]:
    return [condition(filter, template, schema) for filter, template in asked]


def digest(asked: Iterable[tuple[str, str]], schema: Schema) -> str:
    """Names what a table is compiled from."""
    hasher = hashlib.sha256(schema.digest)
    for what in asked:
        for text in what:
            encoded = text.encode()
            hasher.update(len(encoded).to_bytes(4, "big") + encoded)
    return hasher.hexdigest()
