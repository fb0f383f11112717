"""The simple cache (paper 000, section 4.1): keys for whole groups, kept while the policy keeps them.

A group that is met again costs one encryption, any other as many as it has members: good where groups repeat, no
better than no cache at all where they do not. It is the clustered cache with a single cluster.
"""

from __future__ import annotations

from sealcast.groupkeys.clustered import Clustered
from sealcast.groupkeys.clusters import by_id


class Simple(Clustered):
    """One cache over all subscribers."""

    name = "simple"

    def __init__(self, subscribers: int, cache: int, policy_name: str = "lru") -> None:
        super().__init__(by_id(subscribers, 1), cache, policy_name)

    @property
    def clusters(self) -> int | None:
        return None
