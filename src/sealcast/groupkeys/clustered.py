"""The clustered cache (paper 000, section 4.3): subscribers are divided into clusters, each with a cache of its own.

A group is served cluster by cluster, each part by the key of that sub-group if the cluster's cache holds one. With K
clusters of n subscribers there are only 2^n sub-groups a cluster to be lucky with, instead of 2^N groups. Once warm, K
encryptions are the floor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.clusters import Clustering, beyond, split
from sealcast.groupkeys.handed import DELIVERED
from sealcast.groupkeys.interface import GroupKey, KeyPlan, events_of
from sealcast.groupkeys.plans import OWN, assign
from sealcast.groupkeys.policies import ADMITTED, policy
from sealcast.groupkeys.subgroups import KeyedSubgroups, SubgroupCache


class Clustered:
    """A cache of sub-groups a cluster; members in no cluster (they came later) are served under their pair keys."""

    name = "clustered"

    def __init__(self, clustering: Clustering, cache: int, policy_name: str = "lru") -> None:
        self._clustering = clustering
        self._caches = [
            SubgroupCache(slots, policy(policy_name, room))
            for slots, room in zip(clustering.slots(), split(cache, len(clustering)), strict=True)
        ]

    @property
    def clusters(self) -> int | None:
        return len(self._clustering)

    def count(self, groups: Words, group_of: Indices | None = None) -> Indices:
        events = events_of(groups, group_of)
        total = beyond(groups, self._clustering.subscribers)[events]
        for subgroups, cache in zip(self._clustering.restrict(groups), self._caches, strict=True):
            total += cache.count(subgroups, events)
        return total

    def plan(self, groups: Words, group_of: Indices | None = None, tag: int = DELIVERED) -> KeyPlan:
        served = self.serve(groups, events_of(groups, group_of), np.ones(groups.shape[0], np.bool_), tag)
        group, slot = bits.pairs(groups)
        key, refs, new = self.keys_of(served, group, slot)
        return assign(groups.shape[0], group, slot, key, refs, new)

    def settle(self, tag: int, delivered: bool) -> None:
        for cache in self._caches:
            cache.handed.settle(tag, delivered)

    def serve(self, groups: Words, group_of: Indices, wanted: NDArray[np.bool_], tag: int) -> list[KeyedSubgroups]:
        """Serves every cluster: keys for the parts of the wanted groups. All events are looked up."""
        served = []
        for subgroups, cache in zip(self._clustering.restrict(groups), self._caches, strict=True):
            found = cache.ask(subgroups, group_of)
            held = np.zeros(groups.shape[0], np.bool_)
            held[group_of[found >= ADMITTED]] = True
            served.append(cache.serve(subgroups, held & wanted, tag))
        return served

    def keys_of(
        self, served: list[KeyedSubgroups], group: Indices, slot: Indices
    ) -> tuple[Indices, list[GroupKey], NDArray[np.bool_]]:
        """The key through which each member opens: a position in one list over all clusters, or OWN."""
        refs = [ref for part in served for ref in part.refs]
        new = np.array([fresh for part in served for fresh in part.new], np.bool_)
        first = np.cumsum([0, *(len(part.refs) for part in served)])
        at = np.column_stack([np.where(p.key == OWN, OWN, p.key + f) for p, f in zip(served, first, strict=False)])
        clustered = slot < self._clustering.subscribers
        key = np.full(slot.size, OWN, np.int64)
        key[clustered] = at[group[clustered], self._clustering.cluster_of[slot[clustered]]]
        return key, refs, new
