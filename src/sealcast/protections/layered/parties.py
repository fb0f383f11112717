"""What everyone in one tree learns and does not, in words and with the tree's own names: what `explain` says.

What coalitions learn follows from the claims of `exposure`, which a drill checks by trying. What single parties learn
is what the curious brokers of `lab/curious` write down: tests check that they learn what is said here, and nothing that
they are said not to.
"""

from __future__ import annotations

from collections.abc import Collection

from sealcast.protections.layered.exposure import CLAIMS, shared_below, way
from sealcast.protections.layered.tree import MIN_LAYERS, Path, Tree
from sealcast.protections.port import Party


class Vantage:
    """A tree, and which of its nodes are brokers and subscribers: one may be both."""

    def __init__(
        self, tree: Tree, brokers: Collection[str], subscribers: Collection[str], *, padded: bool = False
    ) -> None:
        self.tree = tree
        self.padded = padded
        self.brokers = [name for name in tree.names if name in brokers]
        self.subscribers = [name for name in tree.names if name in subscribers]

    # --- single parties -------------------------------------------------------------------------------------------

    def parties(self) -> list[Party]:
        """Brokers last: there may be many."""
        return [self._publisher(), self._subscriber(), self._eavesdropper(), *map(self._broker, self.brokers)]

    def _publisher(self) -> Party:
        near = [name for name in self.subscribers if self.tree.depth(name) <= self.tree.layers]
        seen = f"who stands up to {self.tree.layers} hops below it" + (f", among them {_names(near)}" if near else "")
        return Party(
            "a publisher",
            ["its own events", seen],
            [
                "see any filter: none comes up to it",
                "learn who gets its events, or whether anyone does",
                "read other publishers' events: each has a tree and keys of its own",
            ],
        )

    def _broker(self, name: str) -> Party:
        tree, r = self.tree, self.tree.layers
        below = [s for s in self.subscribers if name in way(tree, s)]
        learns = [
            f"how many filters pass it ({_count(len(below), 'subscriber')} below it), how many labels each has, "
            "which events hit which, and how often",
        ]
        near = [s for s in below if way(tree, s).index(name) < r]
        if near:
            learns.append(f"the names on paths of {r} hops, and so that {_names(near)} subscribed: not to what")
        if any(shared_below(tree, name, s, s) for s in below):
            learns.append(
                f"which filters, and which labels in them, are equal, of those that come through the same {_nodes(r)} "
                "below it"
            )
        if any(not shared_below(tree, name, s, s) for s in below):
            learns.append(
                f"of subscribers fewer than {r} hops below it: whether the very same events hit their rows, "
                "never from tokens that filters are equal"
            )
        if tree.depth(name) == 1:
            learns.append("every event's id, size and time" + ("" if self.padded else ", and how many labels it has"))
        else:
            learns.append(
                "the ids, sizes and times of events that someone below it gets, and how many share their frames"
            )
        if name in self.subscribers:
            learns.append("what it subscribed to itself, and so which of its rows those events hit")
        cannot = ["open a filter, an event's labels or its payload with its own keys"]
        if tree.depth(name) > 1:
            cannot.append("see events, or labels of events, that nobody below it asked for")
        elif self.padded:
            cannot.append("see how many labels an event has: all are padded to the same number")
        return Party(f"{name} ({self._place(name)})", learns, cannot)

    def _place(self, name: str) -> str:
        kind = "a root" if self.tree.depth(name) == 1 else "inside"
        if not any(child in self.brokers for child in self.tree.children(name)):
            kind = "a root, with no broker below it" if self.tree.depth(name) == 1 else "a leaf"
        subscribes = ", subscribes itself" if name in self.subscribers else ""
        return f"{kind}, {_count(self.tree.depth(name), 'hop')} below publishers{subscribes}"

    def _subscriber(self) -> Party:
        who = f"a subscriber ({len(self.subscribers)} placed)"
        return Party(
            who,
            [
                "events that match one of its own filters, and how many share a frame with them",
                f"who its brokers are, up to {_count(self.tree.layers, 'hop')} above it",
            ],
            ["open any other event, unless a root above it sends it", "learn what others subscribe to"],
        )

    def _eavesdropper(self) -> Party:
        claim = CLAIMS["eavesdropper"]
        return Party(claim.who, list(claim.learns), list(claim.cannot))

    # --- coalitions -----------------------------------------------------------------------------------------------

    def coalitions(self) -> list[Party]:
        r, told = self.tree.layers, []
        here = {
            "publisher+root": _names(self._roots()),
            "publisher+broker": _names([b for b in self.brokers if self.tree.depth(b) > 1]),
            "r brokers": self._chains(),
            "r-1 brokers": "",
            "broker+subscriber": self._root_guests(),
            "active root+subscriber": self._below_roots(),
            "subscribing broker": _names([b for b in self.brokers if b in self.subscribers]),
            "two subscribers": "",
            "root..subscriber": _names([s for s in self.subscribers if self.tree.depth(s) <= r]),
            "all brokers": self._out_of_reach(),
        }
        for kind, where in here.items():
            claim = CLAIMS[kind]
            words = {"r": r, "below": _count(r - 1, "hop")}
            learns, cannot = ([text.format(**words) for text in texts] for texts in (claim.learns, claim.cannot))
            who = "a broker alone" if kind == "r-1 brokers" and r == MIN_LAYERS else claim.who.format(**words)
            told.append(Party(who, learns, cannot, where))
        return told

    def _roots(self) -> list[str]:
        return [name for name in self.brokers if self.tree.depth(name) == 1]

    def _chains(self) -> str:
        found: list[Path] = []
        for name in self.brokers:
            chain = (name, *self.tree.ancestors(name)[: self.tree.layers - 1])
            if len(chain) == self.tree.layers and self.tree.publisher not in chain:
                found.append(chain)
        if not found:
            return f"none: nowhere are {self.tree.layers} brokers in a row"
        return f"{_count(len(found), 'row')} of them, such as {_names(list(found[0]))}"

    def _root_guests(self) -> str:
        guests = [s for s in self.subscribers if self.tree.depth(s) == 2]
        return f"right below a root: {_names(guests)}" if guests else "nobody is right below a root"

    def _below_roots(self) -> str:
        if not self.subscribers:
            return "no subscriber is placed yet"
        return f"{_names(self._roots())}, each with any of those who read below it"

    def _out_of_reach(self) -> str:
        far = [s for s in self.subscribers if self.tree.depth(s) > self.tree.layers]
        if not self.subscribers:
            return "no subscriber is placed yet"
        return f"{len(far)} of {_count(len(self.subscribers), 'subscriber')} stand that far down"


def _names(names: list[str], most: int = 4) -> str:
    if not names:
        return "none"
    shown = names[:most] + ([f"{len(names) - most} more"] if len(names) > most else [])
    return ", ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1]


def _count(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _nodes(layers: int) -> str:
    return "broker" if layers == 2 else f"{layers - 1} brokers"
