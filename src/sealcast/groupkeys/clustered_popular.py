"""The clustered-popular cache (paper 000, section 4.4): a simple cache for popular groups in front of a clustered one.

A group that the simple half holds costs one encryption. Any other is put there, if the policy takes it, and delivered
through the clusters, which always keep what was used last. The paper does not say how members come by the key of a
group that was put into the simple half; here they are handed it with the first event that uses it.
"""

from __future__ import annotations

import numpy as np

from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.clustered import Clustered
from sealcast.groupkeys.clusters import Clustering, beyond, fit
from sealcast.groupkeys.handed import DELIVERED
from sealcast.groupkeys.interface import KeyPlan, events_of
from sealcast.groupkeys.plans import OWN, assign
from sealcast.groupkeys.policies import HIT, policy
from sealcast.groupkeys.subgroups import SubgroupCache


class ClusteredPopular:
    """Half of the entries for whole groups, the rest for sub-groups of clusters."""

    name = "clustered-popular"

    def __init__(self, clustering: Clustering, cache: int, policy_name: str = "lru") -> None:
        self._subscribers = clustering.subscribers
        self._popular = SubgroupCache(np.arange(self._subscribers), policy(policy_name, cache // 2))
        self._behind = Clustered(clustering, cache - cache // 2)

    @property
    def clusters(self) -> int | None:
        return self._behind.clusters

    def count(self, groups: Words, group_of: Indices | None = None) -> Indices:
        events = events_of(groups, group_of)
        hit = self._popular.ask(fit(groups, self._subscribers), events) == HIT
        total = 1 + beyond(groups, self._subscribers)[events]
        total[~hit] = self._behind.count(groups, events[~hit])
        return total

    def plan(self, groups: Words, group_of: Indices | None = None, tag: int = DELIVERED) -> KeyPlan:
        events = events_of(groups, group_of)
        within = fit(groups, self._subscribers)
        hit = self._popular.ask(within, events) == HIT
        popular = np.zeros(groups.shape[0], np.bool_)
        popular[events[hit]] = True
        front = self._popular.serve(within, popular, tag)
        behind = self._behind.serve(groups, events[~hit], ~popular, tag)

        group, slot = bits.pairs(groups)
        key, refs, new = self._behind.keys_of(behind, group, slot)
        mine = popular[group] & (slot < self._subscribers)
        key[mine] = np.where(front.key == OWN, OWN, front.key + len(refs))[group[mine]]
        return assign(groups.shape[0], group, slot, key, [*refs, *front.refs], np.append(new, front.new).astype(bool))

    def settle(self, tag: int, delivered: bool) -> None:
        self._popular.handed.settle(tag, delivered)
        self._behind.settle(tag, delivered)
