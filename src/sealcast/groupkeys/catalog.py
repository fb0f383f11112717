"""Every group key algorithm by its name, written out: what the lab, the pipeline and the commands choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from sealcast.errors import Misuse, NotFound
from sealcast.filters.bits import Words
from sealcast.groupkeys.build_up import BuildUp
from sealcast.groupkeys.clustered import Clustered
from sealcast.groupkeys.clustered_popular import ClusteredPopular
from sealcast.groupkeys.clusters import Clustering, arranged, by_rule
from sealcast.groupkeys.interface import Algorithm
from sealcast.groupkeys.key_tree import KeyTree
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.groupkeys.naive import Naive
from sealcast.groupkeys.simple import Simple

_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Setting:
    """What an algorithm is made with. Each takes what concerns it."""

    subscribers: int
    #: Entries at the broker.
    cache: int
    #: None: as many as the paper's rule says.
    clusters: int | None = None
    policy: str = "lru"
    arity: int = 2
    trees: int = 1
    #: Who is in a cluster together (`clusters.CLUSTERINGS`).
    clustering: str = "id"

    def __post_init__(self) -> None:
        if self.subscribers < 1:
            raise Misuse(f"there is at least one subscriber, not {self.subscribers}")
        if self.cache < 0:
            raise Misuse(f"a cache has 0 or more entries, not {self.cache}")


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    #: From a setting, and groups of the past, where there are some: similarity is of those.
    make: Callable[[Setting, Words | None], Algorithm]
    summary: str
    #: Which of the options change anything.
    options: frozenset[str] = frozenset()


def _clustering(setting: Setting, cache: int, past: Words | None) -> Clustering:
    n = setting.subscribers
    return arranged(setting.clustering, n, by_rule(n, cache) if setting.clusters is None else setting.clusters, past)


ALGORITHMS: Final[dict[str, CatalogEntry]] = {
    "naive": CatalogEntry(lambda s, _: Naive(), "every member under its own pair key"),
    "simple": CatalogEntry(
        lambda s, _: Simple(s.subscribers, s.cache, s.policy), "a cache of whole groups", frozenset({"policy"})
    ),
    "build-up": CatalogEntry(
        lambda s, _: BuildUp(s.subscribers, s.cache), "groups put together from cached sub-groups"
    ),
    "clustered": CatalogEntry(
        lambda s, past: Clustered(_clustering(s, s.cache, past), s.cache, s.policy),
        "a cache of sub-groups a cluster of subscribers",
        frozenset({"clusters", "clustering", "policy"}),
    ),
    "clustered-popular": CatalogEntry(
        # Half of the cache is the clusters'.
        lambda s, past: ClusteredPopular(_clustering(s, s.cache - s.cache // 2, past), s.cache, s.policy),
        "half a simple cache, half a clustered one behind it",
        frozenset({"clusters", "clustering", "policy"}),
    ),
    "key-tree": CatalogEntry(
        lambda s, _: KeyTree(s.subscribers, s.arity, s.trees),
        "a logical key hierarchy: the fewest nodes that cover the group",
        frozenset({"arity", "trees"}),
    ),
    "mosaic": CatalogEntry(
        # The lab counts the same twice; a broker draws its own seed, which nobody can plan against.
        lambda s, _: Mosaic(s.subscribers, s.cache * entry_bytes(s.subscribers), seed=0),
        "derived tables, and keys that grow over a tree of them (docs/group-keys.md)",
    ),
}


def entry_bytes(subscribers: int) -> int:
    """What an entry of the paper's caches takes: who is in the group, and its key. Ours gets as much, not more."""
    return -(-subscribers // 8) + _KEY_BYTES


def entry(name: str) -> CatalogEntry:
    if name not in ALGORITHMS:
        near = get_close_matches(name, ALGORITHMS, n=1)
        raise NotFound(
            f"there is no group key algorithm {name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""),
            hint=f"the algorithms are {', '.join(ALGORITHMS)}",
        )
    return ALGORITHMS[name]


def make(name: str, setting: Setting, past: Words | None = None) -> Algorithm:
    """A new algorithm that remembers nothing yet."""
    return entry(name).make(setting, past)
