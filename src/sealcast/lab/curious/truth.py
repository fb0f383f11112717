"""What a broker's rows really are: read with all keys, to say how good its guesses were."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from sealcast.errors import Bug
from sealcast.filters.labels import Conjunction
from sealcast.lab.curious.workload import compiled
from sealcast.lab.shikfa.net import Net
from sealcast.primitives.groups import Element
from sealcast.protections.layered import table
from sealcast.protections.layered.exposure import layers_left
from sealcast.protections.layered.tree import Path


class NetTruth:
    """The truth about the rows of one net, in which `filters` says who asked for what."""

    def __init__(self, net: Net, filters: Mapping[str, str]) -> None:
        self._net = net
        self._filters = filters
        self.rows = cache(self._rows)

    def passing(self, broker: str) -> list[tuple[Conjunction, Path, str]]:
        """(conjunction, path, subscriber) of everything below a broker."""
        found = []
        for name, text in self._filters.items():
            if broker in self._net.line(name):
                path = self._net.path(broker, name)
                found += [(conjunction, path, name) for conjunction in compiled(text).conjunctions]
        return found

    def met(self, broker: str) -> set[frozenset[Path]]:
        """The paths of equal filters that came through the same r - 1 nodes."""
        rows: dict[tuple[Conjunction, Path], set[Path]] = {}
        for conjunction, path, _ in self.passing(broker):
            rows.setdefault((conjunction, path[: self._net.tree.layers - 1]), set()).add(path)
        return {frozenset(paths) for paths in rows.values() if len(paths) > 1}

    def _rows(self, broker: str) -> dict[table.Conjunction, Conjunction]:
        found = {}
        for conjunction, _, name in self.passing(broker):
            named = self._tokens(conjunction, name, broker)
            row = tuple(sorted(tuple(sorted(named[label] for label in slot)) for slot in conjunction.slots))
            found[row] = conjunction
        if found.keys() != {row.slots for row in self._net.brokers[broker].table.rows()}:
            raise Bug(f"the table of {broker} has other rows than subscribers below it asked for")
        return found

    def labels(self, broker: str) -> dict[Element, bytes]:
        """The label of each token in a broker's rows."""
        return {
            token: label
            for conjunction, _, name in self.passing(broker)
            for label, token in self._tokens(conjunction, name, broker).items()
        }

    def _tokens(self, conjunction: Conjunction, name: str, broker: str) -> dict[bytes, Element]:
        net = self._net
        exponent = net.product(layers_left(net.tree, name, broker))
        labels = sorted({label for slot in conjunction.slots for label in slot})
        powers = net.group.power_many([net.hashes(label) for label in labels], exponent)
        return dict(zip(labels, powers, strict=True))
