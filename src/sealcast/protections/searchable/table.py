"""The sealed filters of a topic's tables, ready to be searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sealcast.broker.served import ServedInterval
from sealcast.filters import bits
from sealcast.model.stages import Admitted
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.searchable.asking import Asked, asked, true
from sealcast.protections.searchable.halves import Halves, good_filter, searched
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.machine import RealmState, Topic


class SealedIndexes(Unpicklable):
    """Indices of one topic's tables, one after the other."""

    def __init__(self, secrets: BrokerSecrets) -> None:
        self._secrets = secrets

    def at(self, state: RealmState, topic: Topic, intervals: Mapping[str, ServedInterval]) -> SealedIndex:
        halves = Halves(state, topic, self._secrets)
        filters = []
        for id, each in intervals.items():
            found = good_filter(each.filter, topic)
            half = None if found is None else halves.of(state.subscription(id).subscriber, found.epoch)
            filters.append(asked(found, half))
        return SealedIndex(tuple(filters), halves)


@dataclass(frozen=True, slots=True)
class SealedIndex:
    filters: tuple[Asked, ...]
    halves: Halves

    def match(self, admitted: Admitted) -> bits.Words:
        found = list(true(self.filters, searched(admitted), self.halves))
        events = np.concatenate([np.empty(0, np.int64), *found])
        columns = np.repeat(np.arange(len(found)), [each.size for each in found])
        return bits.pack(events, columns, len(admitted.messages), len(self.filters))
