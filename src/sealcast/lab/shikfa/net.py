"""The simulator of a tree: real nodes with real keys in one process, and every message that they send written down.

All experiments, benchmarks and tests that need the layered scheme without files and without Spark use it. A node has
nothing but its own keys and the messages that it gets. A subclass says who is weaker, which keys are agreed on and what
is counted: by the attributes at the head of `Net`, and by `agreed` and `computing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import mul
from random import Random, SystemRandom
from typing import NamedTuple

from sealcast.errors import Bug, Misuse
from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.primitives.groups import CachedHashes, Exponent, Group
from sealcast.protections.layered import keys
from sealcast.protections.layered.layers import MAX_CACHED_TOKENS, Layers
from sealcast.protections.layered.messages import FilterMessage, Notification
from sealcast.protections.layered.open import Opener
from sealcast.protections.layered.publish import TreePublisher
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.subscribe import FilterEncrypter
from sealcast.protections.layered.table import RoutingTable
from sealcast.protections.layered.tree import Path, Tree
from sealcast.wire.notifications import EVENT_BYTES

#: (descendant, ancestor): the two who know a layer's key.
Pair = tuple[str, str]


def only(label: bytes) -> LabelFilter:
    """The filter that asks for one label."""
    return LabelFilter((Conjunction(((label,),)),))


class Sent(NamedTuple):
    """One message on one link."""

    sender: str
    receiver: str
    message: FilterMessage | Notification


class TrueEvent(NamedTuple):
    """The truth about an event, which no broker is told."""

    event: bytes
    labels: frozenset[bytes]
    payload: bytes
    #: Who got it and opened it.
    got: frozenset[str]


class Net:
    """One publisher's tree in one epoch: another domain or another `random` is another epoch."""

    publishing: type[TreePublisher] = TreePublisher
    routing: type[RoutingNode] = RoutingNode
    tables: type[RoutingTable] = RoutingTable
    opening: type[Opener] = Opener

    def __init__(
        self,
        tree: Tree,
        group: Group,
        random: Random | None = None,
        domain: bytes = b"epoch 1",
        *,
        cached: int = MAX_CACHED_TOKENS,
        key_uses: int = keys.DEFAULT_USES,
    ) -> None:
        self.tree = tree
        self.group = group
        self.random = random if random is not None else SystemRandom()
        self.hashes = CachedHashes(group, domain)
        self.keys: dict[Pair, Exponent] = {}
        self.layers: dict[str, Layers] = {}
        self.brokers: dict[str, RoutingNode] = {}
        self.wanted: dict[str, Counter[LabelFilter]] = {}
        self.sent: list[Sent] = []
        self.events: dict[bytes, TrueEvent] = {}
        self._cached = cached
        self._openers: dict[str, Opener] = {}
        self._targeted: frozenset[str] | None = None
        self.layers[tree.publisher] = Layers(self.computing(tree.publisher), {}, cached)
        for name in tree.names:
            self._meet(name)
        own = self.layers[tree.publisher]
        self.publisher = self.publishing(own, self.hashes, [], key_uses=key_uses, cached=cached)

    def agreed(self, descendant: str, ancestor: str) -> Exponent:
        """Draws k(descendant, ancestor) at random: to everyone else, what two nodes agree on is random."""
        return Exponent(self.random.randrange(1, self.group.order), self.group.order)

    def computing(self, name: str) -> Group:
        """The group that a node computes its powers in."""
        return self.group

    # --- who is there ---------------------------------------------------------------------------------------------

    def _meet(self, name: str) -> None:
        """Lets a node agree on keys with its ancestors, each of whom has one key more from then on."""
        chain = self.tree.place(name).chain
        self.keys |= {(name, ancestor): self.agreed(name, ancestor) for ancestor in chain}
        self.layers[name] = Layers(self.computing(name), self._own(name), self._cached)
        for ancestor in chain:
            self.layers[ancestor].replace(self._own(ancestor))
        self.brokers[name] = self.routing(self.tree.place(name), self.layers[name], self.tables())
        self._targeted = None

    def _own(self, name: str) -> dict[str, Exponent]:
        return {a if d == name else d: key for (d, a), key in self.keys.items() if name in (d, a)}

    def join(self, name: str, parent: str) -> None:
        self.tree.join(name, parent)
        self._meet(name)

    def line(self, name: str) -> Path:
        """From a node to the publisher, both included."""
        return name, *self.tree.ancestors(name)

    def path(self, at: str, name: str) -> Path:
        """The path with which what a node below sends arrives at a broker."""
        line = self.line(name)
        return line[line.index(at) - 1 :: -1][: self.tree.layers]

    def product(self, pairs: Iterable[Pair]) -> Exponent:
        """The product of the keys of these layers."""
        return reduce(mul, (self.keys[pair] for pair in pairs))

    def pooled(self, members: Iterable[str]) -> Mapping[Pair, Exponent]:
        """The keys that any of these members has."""
        known = set(members)
        return {pair: key for pair, key in self.keys.items() if not known.isdisjoint(pair)}

    # --- what happens ---------------------------------------------------------------------------------------------

    def subscribe(self, name: str, wanted: LabelFilter) -> None:
        self._filter(name, wanted, remove=False)
        self.wanted.setdefault(name, Counter())[wanted] += 1

    def unsubscribe(self, name: str, wanted: LabelFilter) -> None:
        self._filter(name, wanted, remove=True)
        self.wanted[name] -= Counter((wanted,))

    def _filter(self, name: str, wanted: LabelFilter, *, remove: bool) -> None:
        subscriber = FilterEncrypter(self.tree.place(name), self.layers[name], self.hashes)
        self._send_up(name, subscriber.encrypt_filter(wanted, remove=remove))

    def _send_up(self, name: str, pending: list[FilterMessage]) -> None:
        up = self.tree.ancestors(name)
        for sender, at in zip((name, *up), up[:-1], strict=False):
            self.sent += [Sent(sender, at, message) for message in pending]
            pending = [onwards for message in pending for onwards in self.brokers[at].on_filter(sender, message)]

    def publish(self, labels: frozenset[bytes], payload: bytes, *, pad_to: int = 0) -> TrueEvent:
        """Sends an event all the way down. Whoever gets it opens it."""
        subscribers = frozenset(name for name, filters in self.wanted.items() if filters)
        if subscribers != self._targeted:
            self.publisher.retarget(self.tree.targets(subscribers))
            self._targeted = subscribers
        event, got = self.random.randbytes(EVENT_BYTES), set[str]()
        bundles = self.publisher.encrypt_notification(labels, payload, event, pad_to=pad_to)
        pending = [(self.tree.publisher, child, message) for child, message in bundles.items()]
        while pending:
            sender, name, message = pending.pop()
            self.sent.append(Sent(sender, name, message))
            if any(entry.final for entry in message.entries):
                if name in got or self.opener(name).open(message) != payload:
                    raise Bug(f"{name} got an event twice, or opened something else than was published")
                got.add(name)
            pending += [(name, child, m) for child, m in self.brokers[name].on_notification(message).items()]
        self.events[event] = TrueEvent(event, labels, payload, frozenset(got))
        return self.events[event]

    def opener(self, name: str) -> Opener:
        if name not in self._openers:
            self._openers[name] = self.opening(self.tree.place(name), self.layers[name])
        return self._openers[name]

    # --- what was seen --------------------------------------------------------------------------------------------

    def truth(self, labels: frozenset[bytes]) -> set[str]:
        """Who asked for an event with these labels, by the filters in the clear."""
        return {name for name, filters in self.wanted.items() if any(f.matches(labels) for f in filters)}

    def filters(self) -> list[tuple[Sent, FilterMessage]]:
        return [(sent, sent.message) for sent in self.sent if isinstance(sent.message, FilterMessage)]

    def notifications(self, since: int = 0) -> list[tuple[Sent, Notification]]:
        return [(sent, sent.message) for sent in self.sent[since:] if isinstance(sent.message, Notification)]

    def open_with(self, exponent: Exponent, key: bytes, message: Notification) -> bytes:
        """Opens the payload with a product of keys. Raises CannotOpen if it is not the right one."""
        if message.event not in self.events:
            raise Misuse("an event of another tree")
        shared = self.group.power(self.group.decode(key), exponent.inverse)
        return keys.open_body(keys.body_key(self.group, shared, message.event, b""), message.body)
