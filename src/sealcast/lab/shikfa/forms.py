"""What everything must cost, told from who stands where and who wants what: no key, no token, no table.

Of an event f, let a way be what a filter f left at a node v: the ids of its last hops below v, towards a subscriber.

    rows(f, v)    ways of at most r - 1 hops, different ones      what v holds of f, and what arrives there of an event
    paths(f, v)   ways of at most r hops, different ones          what v sends on

    publisher     2 a target                    EN1 and EN2, the exponents of a target multiplied first
    broker        1 an entry that arrives, and 2 a path          a miss 1, a hit 1 + 2 destinations
    subscriber    1                             all layers at once
    a filter      1 at the subscriber; 1 wherever it arrives, and 1 where it is new and goes on

Below the publisher's children only what is wanted arrives. These get whatever is published: an entry for each target.
The naive way takes layers off and puts them on one by one, EN1 and EN2 alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sealcast.lab.shikfa.trees import PUBLISHER, Shape, Spent

Way = tuple[str, ...]


def up(shape: Shape, name: str) -> list[str]:
    """From a node to the publisher, both included."""
    found = [name]
    while found[-1] != PUBLISHER:
        found.append(shape.parents[found[-1]])
    return found


def ways(shape: Shape, label: str, hops: int) -> dict[str, set[Way]]:
    """The ways at every broker: where f came from, by at most so many hops, the nearest first."""
    found: dict[str, set[Way]] = {}
    for subscriber, wanted in shape.wanted.items():
        if wanted == label:
            chain = up(shape, subscriber)
            for i, node in enumerate(chain[1:-1], 1):
                found.setdefault(node, set()).add(tuple(reversed(chain[max(0, i - hops) : i])))
    return found


def targets(shape: Shape) -> list[list[str]]:
    """Whom the publisher encrypts for, each with the nodes on the way to it."""
    below = (up(shape, name)[:-1] for name in shape.parents)
    r = shape.layers
    return [way for way in below if len(way) == r or (1 < len(way) < r and way[0] in shape.wanted)]


def expected(shape: Shape, labels: Sequence[str]) -> Spent:
    """Computes everything that is counted, for events of these labels."""
    aims = targets(shape)
    publisher = brokers = subscribers = entries = 0
    for label in labels:
        rows, paths = ways(shape, label, shape.layers - 1), ways(shape, label, shape.layers)
        publisher += 2 * len(aims)
        deep = {node: found for node, found in rows.items() if shape.parents[node] != PUBLISHER}
        brokers += len(aims) + _count(deep) + 2 * _count(paths)
        subscribers += sum(wanted == label for wanted in shape.wanted.values())
        entries += len(aims) + _count(paths)
    held = [ways(shape, label, shape.layers - 1) for label in set(shape.wanted.values())]
    sizes: dict[str, int] = {}
    for one in held:
        for node, found in one.items():
            sizes[node] = sizes.get(node, 0) + len(found)
    return Spent(_filters(shape), publisher, brokers, subscribers, sum(sizes.values()), max(sizes.values()), entries, 0)


def _filters(shape: Shape) -> int:
    """Powers for filters. Every subscriber encrypts; what is new to a broker goes on, unless the publisher is next."""
    sent = 0
    for label in set(shape.wanted.values()):
        rows = ways(shape, label, shape.layers - 1)
        sent += sum(len(found) for node, found in rows.items() if shape.parents[node] != PUBLISHER)
    # A message costs 1 to make, whoever makes it, and 1 to take in.
    return 2 * (len(shape.wanted) + sent)


def naive(shape: Shape, label: str) -> int:
    """One power a layer, on EN1 and on EN2: an entry costs a broker 2, and so does every path."""
    aims = targets(shape)
    rows, paths = ways(shape, label, shape.layers - 1), ways(shape, label, shape.layers)
    deep = {node: found for node, found in rows.items() if shape.parents[node] != PUBLISHER}
    readers = [name for name, wanted in shape.wanted.items() if wanted == label]
    opening = sum(2 * min(shape.layers, len(up(shape, name)) - 1) for name in readers)
    return sum(2 * len(way) for way in aims) + 2 * (len(aims) + _count(deep)) + 2 * _count(paths) + opening


def _count(found: Mapping[str, set[Way]]) -> int:
    return sum(map(len, found.values()))
