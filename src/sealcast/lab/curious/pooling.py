"""Pooled keys, tried: which filters and events of a net a coalition really gets.

An observer with all keys reads off every token that was sent which layers are on it, by a dictionary of what products
of keys make of each label. A layer on a link is shared by someone below the link and someone above it, on one way from
a leaf to the publisher; the dictionary has every set of at most r such keys, and must know every token that was sent.
The coalition knows how the protocol works, hence which layers are on what it sees: it takes off what it has keys for,
and compares what is left with its own dictionary of labels; a payload key it proves by opening the body.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from sealcast.errors import Bug
from sealcast.lab.shikfa.net import Net, Pair, Sent
from sealcast.primitives.groups import Element, Exponent
from sealcast.protections.layered.messages import Notification
from sealcast.wire.notifications import LayeredEntry

Pairs = frozenset[Pair]


class Wiretap(NamedTuple):
    """What a coalition sees: whatever passes one of its members, and links it listens on."""

    members: tuple[str, ...]
    links: frozenset[tuple[str, str]] = frozenset()
    #: Whether its first member, a broker, also sends on what it should not.
    active: bool = False

    def sees(self, sent: Sent) -> bool:
        ends = (sent.sender, sent.receiver)
        return not set(self.members).isdisjoint(ends) or ends in self.links or ends[::-1] in self.links


class Observer:
    """Reads the label and the layers off any token: it has all keys."""

    def __init__(self, net: Net, labels: Collection[bytes]) -> None:
        self._net = net
        self._known: dict[bytes, tuple[bytes, Pairs]] = {}
        hashed = {label: net.hashes(label) for label in labels}
        for pairs in self._sets():
            powers = net.group.power_many(list(hashed.values()), net.product(pairs))
            for label, element in zip(hashed, powers, strict=True):
                self._known[net.group.encode(element)] = label, pairs

    def _sets(self) -> set[Pairs]:
        tree, found = self._net.tree, set()
        for leaf in (name for name in tree.names if not tree.children(name)):
            line = self._net.line(leaf)
            for above in range(1, len(line)):
                crossing = [(x, y) for x in line[:above] for y in line[above:] if (x, y) in self._net.keys]
                for count in range(1, tree.layers + 1):
                    found |= {frozenset(chosen) for chosen in combinations(crossing, count)}
        return found

    def read(self, token: bytes) -> tuple[bytes, Pairs]:
        """The label and the layers on it."""
        if token not in self._known:
            raise Bug("a token was sent that no set of keys of one link makes of a label")
        return self._known[token]


class Pool:
    """One coalition at work on what it saw of one net."""

    def __init__(self, net: Net, observer: Observer, tap: Wiretap) -> None:
        self._net, self._observer, self._tap = net, observer, tap
        self._keys = net.pooled(tap.members)

    def _exponent(self, pairs: Pairs) -> Exponent | None:
        """The product of these layers' keys, if the coalition has all of them."""
        return self._net.product(pairs) if pairs <= self._keys.keys() else None

    def bare(self, token: bytes) -> bytes | None:
        """Opens a token with the coalition's keys; None if some are missing."""
        label, pairs = self._observer.read(token)
        exponent = self._exponent(pairs)
        if exponent is None:
            return None
        element: Element = self._net.group.power(self._net.group.decode(token), exponent.inverse)
        if element != self._net.hashes(label):
            raise Bug("a token without its layers is not its label")
        return label

    def filters(self, subscriber: str) -> set[bytes]:
        """Opens what it can of the filters that came the subscriber's way. Aggregated ones are its filters, too."""
        net = self._net
        seen = [(sent, m) for sent, m in net.filters() if self._tap.sees(sent) and sent.sender in net.line(subscriber)]
        tokens = [
            t for sent, m in seen if m.path == net.path(sent.receiver, subscriber) for slot in m.slots for t in slot
        ]
        return {label for label in map(self.bare, tokens) if label is not None}

    def events(self) -> set[bytes]:
        """The events of which the coalition has the content. A publisher has its own."""
        if self._net.tree.publisher in self._tap.members:
            return set(self._net.events)
        return {
            message.event
            for sent, message in self._net.notifications()
            if self._tap.sees(sent) and any(self._opens(entry, message) for entry in message.entries)
        }

    def _opens(self, entry: LayeredEntry, message: Notification) -> bool:
        if not entry.tokens:
            return False
        _, pairs = self._observer.read(entry.tokens[0])
        exponent = self._exponent(pairs)
        # CannotOpen here would say that payload keys have other layers than tokens.
        return exponent is not None and bool(self._net.open_with(exponent, entry.key, message))

    # --- by events whose content is known -------------------------------------------------------------------------

    def named(self, broker: str, known: Iterable[bytes], labels: Collection[bytes]) -> dict[Element, set[bytes]]:
        """What each row's token at one of its brokers may be, after the events whose content is known."""
        hits = dict(self._hits(broker))
        left = {token: set(labels) for row in self._net.brokers[broker].table.rows() for s in row.slots for token in s}
        for event in known:
            content, hit = self._net.events[event].labels, hits.get(event, set())
            for token, candidates in left.items():
                if token in hit:
                    candidates &= content
                else:
                    candidates -= content
        return left

    def _hits(self, broker: str) -> Iterator[tuple[bytes, set[Element]]]:
        node = self._net.brokers[broker]
        for sent, message in self._net.notifications():
            if sent.receiver == broker:
                tokens = {node.take_off(t) for entry in message.entries if not entry.final for t in entry.tokens}
                yield message.event, tokens
