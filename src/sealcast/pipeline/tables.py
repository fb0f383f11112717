"""The subscription table of a topic at a version: who asked for what, compiled, and who may read.

Compiling thousands of filters costs more than matching a batch, so tables are immutable and shared (decision 5): in
memory while a worker lives, and on disk, named by the digest of what they were compiled from, to be mapped by the next
worker. A table that differs from the last one by a few subscriptions is the last one with a small index on top.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Corrupt, NotFound
from sealcast.filters import bits
from sealcast.filters.check import fit
from sealcast.filters.index import Index, Overlay, snapshot
from sealcast.filters.index.overlay import NEW
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.model import Schema, Subscription
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm import RealmState, Topic

#: Fewer are compiled sooner than read from a file.
MIN_SNAPSHOT: Final = 500
#: Snapshots kept of a topic: the newest, and those that workers on their way out may still open.
MAX_SNAPSHOTS: Final = 4

Subscriptions = Mapping[str, Subscription]


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
    index: Index | Overlay


class TableCache:
    """Tables of one topic at one broker, the last one kept."""

    def __init__(self, directory: Path, broker: str = FIRST_BROKER) -> None:
        self._directory = directory
        self._broker = broker
        #: The table last asked for, and the one that was last compiled as a whole.
        self._last: tuple[Subscriptions, Index | Overlay] | None = None
        self._base: tuple[Subscriptions, Index] | None = None

    def at(self, state: RealmState, topic: Topic) -> SubscriptionTable:
        """The table at the state's version."""
        slots_by_name = state.slots_of(topic.name)
        subscriptions = state.subscriptions_at(topic.name, self._broker)
        slots = np.array([slots_by_name[s.subscriber] for s in subscriptions.values()], np.int64)
        allowed = np.zeros(len(slots_by_name), np.bool_)
        allowed[list(state.authorised_slots(topic.name))] = True
        return SubscriptionTable(
            ids=tuple(subscriptions),
            slots=slots,
            n_slots=len(slots_by_name),
            one_each=np.array_equal(slots, np.arange(len(slots_by_name))),
            authorised=bits.mask(allowed),
            index=self._index(subscriptions, topic.schema),
        )

    def _index(self, subscriptions: Subscriptions, schema: Schema) -> Index | Overlay:
        if self._last is None or self._last[0] != subscriptions:
            self._last = (subscriptions, self._overlaid(subscriptions) or self._whole(subscriptions, schema))
        return self._last[1]

    def _overlaid(self, subscriptions: Subscriptions) -> Overlay | None:
        """On top of the last whole table, while they have most subscriptions in common."""
        if self._base is None:
            return None
        before, base = self._base
        # Ids are never given twice, so the same id is the same filter.
        place = {id: i for i, id in enumerate(before)}
        origin = np.array([place.get(id, NEW) for id in subscriptions], np.int64)
        added = [s.filter for id, s in subscriptions.items() if id not in place]
        overlay = Overlay.build(base, origin, compile_filters(added, base.schema))
        return None if overlay.stale else overlay

    def _whole(self, subscriptions: Subscriptions, schema: Schema) -> Index:
        filters = [s.filter for s in subscriptions.values()]
        path = self._directory / f"{digest(filters, schema)}.index"
        try:
            index = snapshot.load(path)
        except (NotFound, Corrupt):
            index = Index.build(compile_filters(filters, schema), schema)
            if len(filters) >= MIN_SNAPSHOT:
                self._keep(path, index)
        self._base = (subscriptions, index)
        return index

    def _keep(self, path: Path, index: Index) -> None:
        # A snapshot only saves time: where none can be written (a full disk, say), the next worker compiles again.
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            snapshot.save(path, index)
            newest_first = sorted(self._directory.glob("*.index"), key=lambda p: p.stat().st_mtime_ns, reverse=True)
            for old in newest_first[MAX_SNAPSHOTS:]:
                old.unlink(missing_ok=True)


def compile_filters(filters: Sequence[str], schema: Schema) -> list[Condition]:
    """Filters that were checked when they were subscribed; fitting them to the schema types their literals."""
    return [fit(parse(text), schema) for text in filters]


def digest(filters: Sequence[str], schema: Schema) -> str:
    """Names what a table is compiled from."""
    hasher = hashlib.sha256(schema.digest)
    for text in filters:
        encoded = text.encode()
        hasher.update(len(encoded).to_bytes(4, "big") + encoded)
    return hasher.hexdigest()
