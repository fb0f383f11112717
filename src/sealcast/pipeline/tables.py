"""The subscription table of a topic at a version: who asked for what, compiled, and who may read.

Compiling thousands of filters costs more than matching a batch, so tables are immutable and shared (decision 5): in
memory while a worker lives, on disk by the digest of what they were compiled from, memory-mapped by the next worker.
A table that differs from the last one by a few subscriptions is the last one with a small index on top.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sealcast.filters import bits
from sealcast.filters.check import fit
from sealcast.filters.index import Index
from sealcast.filters.parse import parse
from sealcast.model import Schema, Subscription
from sealcast.trust.realm import RealmState, Topic


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
    index: Index


class TableCache:
    """Tables of one topic, the last one kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._compiled: tuple[Mapping[str, Subscription], Index] | None = None

    def at(self, state: RealmState, topic: Topic) -> SubscriptionTable:
        """The table at the state's version."""
        slots_by_name = state.slots_of(topic.name)
        subscriptions = state.topic_state(topic.name).subscriptions
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

    def _index(self, subscriptions: Mapping[str, Subscription], schema: Schema) -> Index:
        if self._compiled is not None and self._compiled[0] == subscriptions:
            return self._compiled[1]
        index = compile_filters([s.filter for s in subscriptions.values()], schema)
        self._compiled = (subscriptions, index)
        return index


def compile_filters(filters: Sequence[str], schema: Schema) -> Index:
    """The index of filters that were checked when they were subscribed; checking again types their literals."""
    return Index.build([fit(parse(text), schema) for text in filters], schema)


def digest(filters: Sequence[str], schema: Schema) -> str:
    """Names what a table is compiled from."""
    hasher = hashlib.sha256(schema.digest)
    for text in filters:
        encoded = text.encode()
        hasher.update(len(encoded).to_bytes(4, "big") + encoded)
    return hasher.hexdigest()
