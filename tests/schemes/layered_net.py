"""Random trees and filters for the simulator of a tree, and whether events reach exactly those who asked for them."""

from __future__ import annotations

from collections import Counter
from random import Random

from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.lab.shikfa.net import Net
from sealcast.primitives.modular import SafePrimeGroup
from sealcast.protections.layered.messages import FilterMessage
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.tree import Tree

#: The same algebra at a hundredth of the price, and with no security whatever.
TOY = SafePrimeGroup("toy", 2_305_843_009_213_691_579)

LABELS = [f"label {i}".encode() for i in range(8)]


class VanishingNet(Net):
    """A network whose leaves may go without a word. Their parents withdraw whatever came from them."""

    def vanish(self, name: str) -> None:
        parent, tree = self.tree.place(name).parent, self.tree
        assert not tree.children(name)
        del tree._children[tree._parents.pop(name)][name], tree._children[name]
        for of in (self.brokers, self.wanted, self._openers):
            of.pop(name, None)
        if parent != tree.publisher:
            self._send_up(parent, withdrawn(self.brokers[parent], name))


def withdrawn(broker: RoutingNode, child: str) -> list[FilterMessage]:
    """What goes to a broker's parent because whatever came through a child ends."""
    gone = [(row, path, n) for row in broker.table.rows() for path, n in row.paths.items() if path[0] == child]
    return [m for row, path, n in gone for m in broker.change(row.slots, path, remove=True, count=n)]


def random_tree(random: Random) -> Tree:
    """r 2 to 5, depth 2 to 7."""
    layers, depth = random.randint(2, 5), random.randint(2, 7)
    tree = Tree("P", {}, layers)
    tree.join("n0", "P")
    spine = ["n0"]
    for i in range(1, depth):
        spine.append(f"n{i}")
        tree.join(spine[-1], spine[-2])
    for i in range(depth, depth + random.randint(2, 10)):
        parent = random.choice([n for n in ("P", *tree.names) if n == "P" or tree.depth(n) < depth])
        tree.join(f"n{i}", parent)
    return tree


def random_filter(random: Random) -> LabelFilter:
    def slot() -> tuple[bytes, ...]:
        return tuple(sorted(random.sample(LABELS, random.choice((1, 1, 2)))))

    conjunctions = {
        Conjunction(tuple(sorted({slot() for _ in range(random.choice((1, 1, 2)))})))
        for _ in range(random.choice((1, 1, 1, 2)))
    }
    return LabelFilter(tuple(sorted(conjunctions, key=lambda c: c.slots)))


def wrong_deliveries(net: Net, random: Random, events: int) -> tuple[int, int]:
    """(events published, events that did not reach exactly whom they should), while subscriptions come and go."""
    common = [random_filter(random) for _ in range(4)]
    able = [name for name in net.tree.names if net.tree.depth(name) >= 2]
    published = wrong = 0
    for step in range(events):
        for _ in range(2 if step < 12 else 1):
            name = random.choice(able)
            mine = list(net.wanted.get(name, Counter()).elements())
            if mine and random.random() < 0.45:
                net.unsubscribe(name, random.choice(mine))
            else:
                net.subscribe(name, random.choice(common) if random.random() < 0.7 else random_filter(random))
        labels = frozenset(random.sample(LABELS, random.randint(1, 4)))
        published += 1
        wrong += net.publish(labels, random.randbytes(4)).got != net.truth(labels)
    return published, wrong
