"""Who can learn what of a layered topic: the claims, as rules over a tree. `explain` tells them, a drill checks them.

A layer k(x, y) is known to x and to y and to nobody else, so that a coalition gets a token bare if and only if it has
one of the two of every layer on it. What is on a token on its way from S (v_0) over v_1, v_2, ... to the publisher,
when v_i took its own off:

    k(v_m, v_(m+r))   for the r - 1 nodes v_m before v_i, without S; the publisher where there is no v_(m+r)
    k(S, v_j)         for i < j <= r

From that follow the rules here; `lab/curious` does not know them, it pools keys and tries. Four ways to learn:

    keys      a bare token is compared with hashes of guesses: a dictionary, without any event, and nobody notices
    asking    a subscriber of the coalition subscribes to a guess; a broker of it sees whether the row was there
    events    whoever knows what is in an event knows what the rows are that it hits; a few events tell them apart
    payloads  a bare payload key opens the event

Brokers of a coalition are curious and route as they should, but for one kind: an active root sends events where they
should not go. A claim that promises too much or too little fails the drill.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from sealcast.protections.layered.tree import Path, Tree

#: A coalition: brokers from the lowest up; a subscriber of it, and the publisher, come last.
Members = tuple[str, ...]


class Reach(StrEnum):
    """Which events a coalition opens."""

    NONE = "none"
    #: What its own subscribers asked for.
    OWN = "own"
    #: What goes to the subscriber it is after, too.
    PASSING = "passing"
    #: Whatever is published, also what nobody asked for.
    ALL = "all"


class Exposure(NamedTuple):
    """What a coalition learns about one subscriber outside it, and of events."""

    keys: bool
    asking: bool
    events: bool
    payloads: Reach


NOTHING: Final = Exposure(False, False, False, Reach.NONE)

#: (the tree, the coalition, a subscriber that is not in it) -> what it learns of that one.
Rule = Callable[[Tree, Members, str], Exposure]


@dataclass(frozen=True, slots=True)
class CoalitionClaim:
    """One kind of coalition."""

    who: str
    rule: Rule
    #: In words, for people; {r} is the number of layers.
    learns: tuple[str, ...]
    cannot: tuple[str, ...]


def way(tree: Tree, subscriber: str) -> Path:
    """The brokers that its filters pass, the nearest first."""
    return tree.ancestors(subscriber)[:-1]


def layers_left(tree: Tree, subscriber: str, broker: str) -> frozenset[tuple[str, str]]:
    """What is on a row of the subscriber's at a broker: (descendant, ancestor) of each layer."""
    line = (subscriber, *tree.ancestors(subscriber))
    at, last, r = line.index(broker), len(line) - 1, tree.layers
    passed = {(line[m], line[min(m + r, last)]) for m in range(max(at - r + 1, 1), at)}
    return frozenset(passed | {(subscriber, line[j]) for j in range(at + 1, min(r, last) + 1)})


def shared_below(tree: Tree, broker: str, one: str, other: str) -> bool:
    """Whether equal filters of the two are one row at the broker: both come through the same r - 1 nodes below it."""

    def last(name: str) -> Path | None:
        up = tree.ancestors(name)
        at = up.index(broker) if broker in up else 0
        return up[at - tree.layers + 1 : at] if at >= tree.layers - 1 else None

    return last(one) is not None and last(one) == last(other)


# --- the rules ----------------------------------------------------------------------------------------------------


def _nothing(tree: Tree, members: Members, subscriber: str) -> Exposure:
    return NOTHING


def _publisher(tree: Tree, members: Members, subscriber: str) -> Exposure:
    """It wrote the events; who gets them, it is not told."""
    return Exposure(False, False, False, Reach.ALL)


def _publisher_and_broker(tree: Tree, members: Members, subscriber: str) -> Exposure:
    broker, _ = members
    above = broker in way(tree, subscriber)
    return Exposure(above and tree.depth(broker) == 1, False, above, Reach.ALL)


def _chain(tree: Tree, members: Members, subscriber: str) -> Exposure:
    """Brokers in a row, all above the subscriber: r of them open what the lowest has."""
    if len(members) < tree.layers or not set(members) <= set(way(tree, subscriber)):
        return NOTHING
    from_root = any(tree.depth(broker) == 1 for broker in members)
    return Exposure(True, False, True, Reach.ALL if from_root else Reach.PASSING)


def _broker_and_subscriber(tree: Tree, members: Members, subscriber: str) -> Exposure:
    broker, asker = members
    above = broker in way(tree, subscriber)
    # A subscriber that near is a target of the publisher's, and the layers on its payload keys are theirs alone.
    is_all = tree.depth(broker) == 1 and tree.ancestors(asker)[0] == broker
    asked = above and shared_below(tree, broker, asker, subscriber)
    return Exposure(False, asked, above, Reach.ALL if is_all else Reach.OWN)


def _active_root(tree: Tree, members: Members, subscriber: str) -> Exposure:
    """Payload keys are not bound to tokens: a root puts the tokens of a friend's row beside the key of any event, and
    the brokers below do the rest. However deep the friend stands, and whatever it asked for."""
    root, friend = members
    passive = _broker_and_subscriber(tree, members, subscriber)
    return passive._replace(payloads=Reach.ALL) if root in way(tree, friend) else passive


def _subscribing_broker(tree: Tree, members: Members, subscriber: str) -> Exposure:
    (broker,) = members
    return Exposure(False, False, broker in way(tree, subscriber), Reach.OWN)


def _subscribers(tree: Tree, members: Members, subscriber: str) -> Exposure:
    return Exposure(False, False, False, Reach.OWN)


def _root_to_subscriber(tree: Tree, members: Members, subscriber: str) -> Exposure:
    """The brokers from a root down to a subscriber no deeper than r, and that one."""
    return Exposure(False, False, not set(members[:-1]).isdisjoint(way(tree, subscriber)), Reach.ALL)


def _all_brokers(tree: Tree, members: Members, subscriber: str) -> Exposure:
    """Deeper than r there are r of them in a row. Up to r, the last layer is shared with the publisher alone."""
    if tree.depth(subscriber) > tree.layers:
        return Exposure(True, False, True, Reach.ALL)
    opened = any(tree.depth(broker) == tree.layers for broker in members)
    return Exposure(False, False, opened, Reach.ALL if opened else Reach.NONE)


#: By the names that the drill's table has.
CLAIMS: Final[dict[str, CoalitionClaim]] = {
    "publisher": CoalitionClaim(
        "the publisher alone",
        _publisher,
        ("its own events; where brokers stand, and subscribers up to {r} hops below it",),
        ("see any filter: none comes up to it", "learn who gets its events, or whether anyone does"),
    ),
    "publisher+root": CoalitionClaim(
        "a publisher and a root broker",
        _publisher_and_broker,
        (
            "every filter in that root's table, by trying guesses, without an event and however many layers there are: "
            "all layers there end at the publisher",
        ),
        ("see from whom a filter came, beyond the {r} hops that its path names",),
    ),
    "publisher+broker": CoalitionClaim(
        "a publisher and another broker",
        _publisher_and_broker,
        ("what the rows of that broker are, once events hit them: the publisher knows what was in each event",),
        ("open rows by their keys: what no event hits stays closed",),
    ),
    "r brokers": CoalitionClaim(
        "{r} brokers in a row",
        _chain,
        (
            "every filter in the lowest one's table, by trying guesses",
            "the content of every event that passes them, and of every event at all if one of them is a root",
        ),
        (),
    ),
    "r-1 brokers": CoalitionClaim(
        "fewer than {r} brokers in a row",
        _chain,
        ("what a broker sees, see above: equality, frequency, paths",),
        ("open any filter or event",),
    ),
    "broker+subscriber": CoalitionClaim(
        "a broker and a subscriber",
        _broker_and_subscriber,
        (
            "the content of what the subscriber asked for, and so what the broker's rows are that such events hit",
            "by subscribing to guesses: whether one of those behind the same broker, {below} below it, has that "
            "filter; every label is one guess",
            "every event, if the subscriber is right below that broker and the broker is a root",
        ),
        ("open other rows or, but for that last case, other events, as long as the broker routes as it should",),
    ),
    "active root+subscriber": CoalitionClaim(
        "a root broker that reroutes events, and any one subscriber below it",
        _active_root,
        ("the content of every event, whatever the subscriber asked for", "and so what the rows are that events hit"),
        ("open by their keys filters that no event hits", "make an honest subscriber hand out what it did not ask for"),
    ),
    "subscribing broker": CoalitionClaim(
        "a broker that subscribes to f",
        _subscribing_broker,
        ("which rows of its table are f, and more about others, from the events that it may read",),
        ("open events that its own filter does not match",),
    ),
    "two subscribers": CoalitionClaim(
        "subscribers together",
        _subscribers,
        ("what each of them asked for",),
        ("open anything else", "learn others' filters"),
    ),
    "root..subscriber": CoalitionClaim(
        "all brokers from a root down to a subscriber at most {r} hops below the publisher, and that subscriber",
        _root_to_subscriber,
        ("the content of every event", "and so what the rows are that those events hit"),
        ("open filters that no event hits",),
    ),
    "all brokers": CoalitionClaim(
        "all brokers together, without the publisher and any subscriber",
        _all_brokers,
        ("every filter and every event of subscribers that stand more than {r} hops below the publisher",),
        ("open by their keys the filters of subscribers that stand nearer: the last layer is the publisher's",),
    ),
    "eavesdropper": CoalitionClaim(
        "whoever listens on links, on however many",
        _nothing,
        (
            "which tokens on a link are equal, how often they come, how many there are, and the ids on paths",
            "on several links: who gets which event, by its id and its body, which are the same everywhere",
        ),
        ("open any filter or event",),
    ),
}
