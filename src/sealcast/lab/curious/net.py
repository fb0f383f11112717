"""A whole tree in one process, of which every message is written down. The nodes are the real ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from sealcast.errors import CannotOpen, Misuse
from sealcast.filters.labels import LabelFilter
from sealcast.primitives.groups import CachedHashes, Exponent, Group
from sealcast.protections.layered import keys
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.messages import FilterMessage, Notification
from sealcast.protections.layered.open import Opener
from sealcast.protections.layered.publish import EVENT_BYTES, Publisher
from sealcast.protections.layered.route import Broker
from sealcast.protections.layered.subscribe import Subscriber
from sealcast.protections.layered.tree import Tree

#: (descendant, ancestor): the two who know a layer's key.
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Sent:
    """One message on one link."""

    sender: str
    receiver: str
    message: FilterMessage | Notification


@dataclass(frozen=True, slots=True)
class Published:
    """The truth about an event, which no broker is told."""

    labels: frozenset[bytes]
    payload: bytes
    #: Who got it and opened it.
    got: frozenset[str]


class Net:
    """One publisher's tree in one epoch: another domain or another `random` is another epoch."""

    #: Who publishes; a test may put someone weaker here.
    publishing: type[Publisher] = Publisher

    def __init__(self, tree: Tree, group: Group, random: Random, domain: bytes = b"epoch 1") -> None:
        self.tree = tree
        self.group = group
        self.random = random
        self.hashes = CachedHashes(group, domain)
        self.keys: dict[Pair, Exponent] = {pair: self.agreed(*pair) for pair in tree.pairs()}
        self.brokers: dict[str, Broker] = {name: Broker(tree.place(name), self._layers(name)) for name in tree.names}
        self.wanted: dict[str, list[LabelFilter]] = {}
        self.sent: list[Sent] = []
        self.events: dict[bytes, Published] = {}
        self._publisher = self.publishing(self._layers(tree.publisher), self.hashes, [])
        self._targeted: frozenset[str] | None = None

    def agreed(self, descendant: str, ancestor: str) -> Exponent:
        """k(descendant, ancestor): at random, as what two nodes agree on is to everyone else."""
        return Exponent(self.random.randrange(1, self.group.order), self.group.order)

    def _layers(self, name: str) -> Layers:
        own = {a if d == name else d: key for (d, a), key in self.keys.items() if name in (d, a)}
        return Layers(self.group, own)

    def pooled(self, members: Iterable[str]) -> Mapping[Pair, Exponent]:
        """The keys of all of them."""
        known = set(members)
        return {pair: key for pair, key in self.keys.items() if not known.isdisjoint(pair)}

    # --- what happens ---------------------------------------------------------------------------------------------

    def subscribe(self, name: str, wanted: LabelFilter) -> None:
        self.wanted.setdefault(name, []).append(wanted)
        pending = Subscriber(self.tree.place(name), self._layers(name), self.hashes).encrypt_filter(wanted)
        up = self.tree.ancestors(name)
        for sender, at in zip((name, *up), up[:-1], strict=False):
            self.sent += [Sent(sender, at, message) for message in pending]
            pending = [onwards for message in pending for onwards in self.brokers[at].on_filter(sender, message)]

    def publish(self, labels: frozenset[bytes], payload: bytes, *, pad_to: int = 0) -> bytes:
        """The event's id."""
        subscribers = frozenset(self.wanted)
        if subscribers != self._targeted:
            self._publisher.retarget(self.tree.targets(subscribers))
            self._targeted = subscribers
        event, got = self.random.randbytes(EVENT_BYTES), set()
        bundles = self._publisher.encrypt_notification(labels, payload, event, pad_to=pad_to)
        pending = [Sent(self.tree.publisher, child, message) for child, message in bundles.items()]
        while pending:
            sent = pending.pop()
            self.sent.append(sent)
            name, message = sent.receiver, sent.message
            assert isinstance(message, Notification)
            if any(entry.final for entry in message.entries):
                if Opener(self.tree.place(name), self._layers(name)).open(message) != payload:
                    raise CannotOpen(f"{name} opened something else than was published")
                got.add(name)
            pending += [Sent(name, child, m) for child, m in self.brokers[name].on_notification(message).items()]
        self.events[event] = Published(labels, payload, frozenset(got))
        return event

    # --- what was seen --------------------------------------------------------------------------------------------

    def filters(self) -> list[tuple[Sent, FilterMessage]]:
        return [(sent, sent.message) for sent in self.sent if isinstance(sent.message, FilterMessage)]

    def notifications(self) -> list[tuple[Sent, Notification]]:
        return [(sent, sent.message) for sent in self.sent if isinstance(sent.message, Notification)]

    def open_with(self, exponent: Exponent, key: bytes, message: Notification) -> bytes:
        """The payload, by whoever has a product of keys: CannotOpen if it is not the right one."""
        if message.event not in self.events:
            raise Misuse("an event of another tree")
        shared = self.group.power(self.group.decode(key), exponent.inverse)
        return keys.open_body(keys.body_key(self.group, shared, message.event, b""), message.body)
