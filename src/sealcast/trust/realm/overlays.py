"""Where brokers and subscribers of a layered topic stand: a forest of brokers, as a value.

    publishers        everyone who publishes stands above all roots
      └ roots         brokers that take frames in
          └ brokers   each below one other
              └ subscribers      each below one broker, not only below leaves

The tree of one publisher is this forest with the publisher put on top: keys, tables and trees are per publisher. A
broker that itself subscribes stands as a subscriber where it stands as a broker, below its parent; a root cannot, since
only publishers are above it.

**Generations.** Keys and rows are for a tree as it stands. A new leaf, broker or subscriber, leaves everyone else where
they are. Moving or removing a broker that has anybody below it or subscribes, and moving a subscriber, does not: it
begins a new generation of the forest, in which all derive new keys and say again what they want. A subscriber that
leaves and comes back to the same broker moves nobody either: what it asked before it left is over, and it asks anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Final, NamedTuple

from sealcast.errors import NotFound
from sealcast.model.dataclass import dataclass

#: From a publisher to a subscriber: the tree's own limit (`protections.layered.tree`) less the two ends.
MAX_BROKER_DEPTH: Final = 62


class Leave(NamedTuple):
    """A subscriber left the overlay, because it may not read any more."""

    #: That it had.
    broker: str
    #: When it came back to that broker, if it did.
    back_us: int | None = None


@dataclass(frozen=True)
class Overlay:
    """One topic's forest. The mappings are never written to."""

    #: Every broker with the one above it; None for roots.
    parents: Mapping[str, str | None] = field(default_factory=dict)
    #: Every subscriber that was placed, with its broker.
    places: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0
    #: Every subscriber that left in this generation.
    left: Mapping[str, Leave] = field(default_factory=dict)

    # --- brokers ----------------------------------------------------------------------------------

    @property
    def roots(self) -> tuple[str, ...]:
        return tuple(name for name, parent in self.parents.items() if parent is None)

    @cached_property
    def _below(self) -> Mapping[str | None, tuple[str, ...]]:
        found: dict[str | None, list[str]] = {}
        for name, parent in self.parents.items():
            found.setdefault(parent, []).append(name)
        return {parent: tuple(names) for parent, names in found.items()}

    @cached_property
    def _guests(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for name, broker in self.places.items():
            found.setdefault(broker, []).append(name)
        return {broker: tuple(names) for broker, names in found.items()}

    def children(self, name: str) -> tuple[str, ...]:
        """The brokers right below a broker."""
        self._known(name)
        return self._below.get(name, ())

    def subscribers(self, name: str) -> tuple[str, ...]:
        """Those who stand right below a broker to read; a broker that subscribes is among them."""
        self._known(name)
        return self._guests.get(name, ())

    def below(self, name: str) -> tuple[str, ...]:
        """Everyone right below a broker, each once: whom it takes posts from and sends messages to."""
        return tuple(dict.fromkeys((*self.children(name), *self.subscribers(name))))

    def path_up(self, name: str) -> tuple[str, ...]:
        """The brokers above a broker or a subscriber, the nearest first, up to a root. Publishers come after."""
        if name in self.parents:
            at = self.parents[name]
        elif name in self.places:
            at = self.places[name]
        else:
            raise self._unknown(name)
        found: list[str] = []
        while at is not None:
            found.append(at)
            at = self.parents[at]
        return tuple(found)

    def depth(self, name: str) -> int:
        """Hops from a publisher: 1 for a root."""
        return len(self.path_up(name)) + 1

    def downwards(self) -> tuple[str, ...]:
        """All brokers, each after the one above it, a root with all below it before the next."""
        found: list[str] = []
        waiting = list(reversed(self.roots))
        while waiting:
            at = waiting.pop()
            found.append(at)
            waiting.extend(reversed(self._below.get(at, ())))
        return tuple(found)

    def has_below(self, name: str) -> bool:
        """Whether anybody's rows may hang on where this broker stands: someone below it, also who has left, or itself,
        who subscribes."""
        return bool(self.below(name)) or name in self.places or any(name == each.broker for each in self.left.values())

    def stood(self, name: str) -> str | None:
        """The broker that a subscriber has, or had in this generation before it left."""
        return self.left[name].broker if name in self.left else self.places.get(name)

    # --- trees ------------------------------------------------------------------------------------

    def parents_for(self, publisher: str) -> dict[str, str]:
        """The tree of one publisher, everyone with whom it stands below: what `protections.layered.tree.Tree` takes.

        The publisher itself, should it subscribe, is not below itself: it knows what it publishes.
        """
        tree = {name: publisher if parent is None else parent for name, parent in self.parents.items()}
        for name, broker in self.places.items():
            if name != publisher:
                tree[name] = broker
        return tree

    def homes_free(self, layers: int) -> list[str]:
        """Where a subscriber may be put that nobody placed: leaf brokers so far down that all its layers count, the
        least loaded first; where none is, those that come nearest to it."""
        load = {name: len(self._guests.get(name, ())) for name in self.parents}
        leaves = [(self.depth(name) + 1, name) for name in self.parents if name not in self._below]
        enough = min(layers, max((hops for hops, _ in leaves), default=0))
        order = {name: i for i, name in enumerate(self.parents)}
        return sorted((n for hops, n in leaves if hops >= enough), key=lambda n: (load[n], order[n]))

    def _known(self, name: str) -> None:
        if name not in self.parents:
            raise self._unknown(name)

    def _unknown(self, name: str) -> NotFound:
        return NotFound(f"{name!r} stands nowhere in this overlay", hint="who does: sealcast overlay show TOPIC")
