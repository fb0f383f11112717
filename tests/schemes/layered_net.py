"""A whole tree in one process: nodes that talk by messages only, each with its own keys; and the plaintext truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.primitives.groups import CachedHashes, Exponent, Group
from sealcast.primitives.modular import SafePrimeGroup
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.messages import FilterMessage
from sealcast.protections.layered.open import Opener
from sealcast.protections.layered.publish import Publisher
from sealcast.protections.layered.route import Broker
from sealcast.protections.layered.subscribe import Subscriber
from sealcast.protections.layered.table import RoutingTable
from sealcast.protections.layered.tree import Tree

#: The same algebra at a hundredth of the price, and with no security whatever.
TOY = SafePrimeGroup("toy", 2_305_843_009_213_691_579)


class Net:
    def __init__(
        self,
        tree: Tree,
        group: Group,
        random: Random,
        broker: type[Broker] = Broker,
        table: type[RoutingTable] = RoutingTable,
    ) -> None:
        self.tree, self.group, self.random = tree, group, random
        self._broker, self._table = broker, table
        self.hashes = CachedHashes(group, b"topic 1")
        self.keys: dict[tuple[str, str], Exponent] = {}
        self.brokers: dict[str, Broker] = {}
        self.wanted: dict[str, Counter[LabelFilter]] = {}
        for name in tree.names:
            self._meet(name)
        self.publisher = Publisher(self._layers(tree.publisher), self.hashes, [])

    def _meet(self, name: str) -> None:
        for ancestor in self.tree.ancestors(name)[: self.tree.layers]:
            self.keys[name, ancestor] = Exponent(self.random.randrange(1, self.group.order), self.group.order)
        for met in (name, *self.tree.ancestors(name)):
            if met in self.brokers:
                self.brokers[met].layers.replace(self._own(met))
        if name not in self.brokers:
            self.brokers[name] = self._broker(self.tree.place(name), self._layers(name), self._table())

    def _own(self, name: str) -> Mapping[str, Exponent]:
        return {a if d == name else d: k for (d, a), k in self.keys.items() if name in (d, a)}

    def _layers(self, name: str) -> Layers:
        return Layers(self.group, self._own(name))

    # --- what happens -----------------------------------------------------------------------------------------------

    def subscribe(self, name: str, wanted: LabelFilter) -> None:
        self._filter(name, wanted, remove=False)
        self.wanted.setdefault(name, Counter())[wanted] += 1

    def unsubscribe(self, name: str, wanted: LabelFilter) -> None:
        self._filter(name, wanted, remove=True)
        self.wanted[name][wanted] -= 1
        self.wanted[name] = +self.wanted[name]

    def _filter(self, name: str, wanted: LabelFilter, *, remove: bool) -> None:
        messages = Subscriber(self.tree.place(name), self._layers(name), self.hashes).encrypt_filter(
            wanted, remove=remove
        )
        self.upwards(name, messages)

    def upwards(self, sender: str, messages: Sequence[FilterMessage]) -> None:
        for message in messages:
            at, current, pending = self.tree.ancestors(sender)[0], sender, [message]
            while pending and at != self.tree.publisher:
                pending = [m for p in pending for m in self.brokers[at].on_filter(current, p)]
                current, at = at, self.tree.ancestors(at)[0]

    def join(self, name: str, parent: str) -> None:
        self.tree.join(name, parent)
        self._meet(name)

    def vanish(self, name: str) -> None:
        """A leaf leaves without a word."""
        parent = self.tree.ancestors(name)[0]
        self.tree.leave(name)
        del self.brokers[name]
        self.wanted.pop(name, None)
        if parent != self.tree.publisher:
            self.upwards(parent, self.brokers[parent].withdraw(name))

    def publish(self, labels: frozenset[bytes], payload: bytes) -> dict[str, bytes]:
        """Who got what: the payload as each subscriber opened it."""
        subscribers = frozenset(name for name, filters in self.wanted.items() if filters)
        self.publisher._layers.replace(self._own(self.tree.publisher))
        self.publisher.retarget(self.tree.targets(subscribers))
        got: dict[str, bytes] = {}
        pending = list(self.publisher.encrypt_notification(labels, payload).items())
        while pending:
            name, message = pending.pop()
            if any(entry.final for entry in message.entries):
                assert name not in got, "delivered twice"
                got[name] = Opener(self.tree.place(name), self._layers(name)).open(message)
            if name in self.brokers:
                pending += self.brokers[name].on_notification(message).items()
        return got

    def truth(self, labels: frozenset[bytes]) -> set[str]:
        return {name for name, filters in self.wanted.items() if any(f.matches(labels) for f in filters)}


# --- random worlds --------------------------------------------------------------------------------------------------

LABELS = [f"label {i}".encode() for i in range(8)]


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
        payload = random.randbytes(4)
        got = net.publish(labels, payload)
        published += 1
        wrong += set(got) != net.truth(labels) or any(body != payload for body in got.values())
    return published, wrong
