"""What a subscriber's broker has been told, and what it has to be told next: a pure rule over numbers.

    told, the filters there are, the trees there are, the token --due--> posts, tree by tree --after--> told

Filters have numbers here, and nothing else: what they say is in `own_filters`, what goes out in `interests`.

**Told once.** A post is numbered, and a broker takes each number once. What is about to be posted is written down
first (`Told.pending`): after a crash the same is posted under the same number, and counts once. Numbers follow
the clock, so that a subscriber whose files were lost does not give numbers again that its broker has seen.

**Told again.** A broker drops what came from somebody whose token has ended or whose right was taken away, and does not
say so. So with a new token, when something was decided about the right, and now and then anyway, everything is said
afresh: it replaces what was said before, and a broker that still knows it all has nothing to pass on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sealcast.protections.layered.tree import TreeId

FORMAT: Final = 1
#: How long a broker is taken to know what it was told.
AFRESH_US: Final = 3_600_000_000
#: Of the realm, that may be looked through once more, for not writing a file whenever something happens in it.
VERSIONS: Final = 256


@dataclass(frozen=True, slots=True)
class Known:
    """What a broker knows of this subscriber in one tree."""

    filters: frozenset[int]
    #: SHA-256 of the token that was shown; and when everything was said afresh.
    token: bytes
    since_us: int


@dataclass(frozen=True, slots=True)
class Due:
    """What one tree has to be told: one post, or several where one does not hold it all, numbered from `number`."""

    tree: TreeId
    number: int
    #: Everything before is over; what is added is all.
    fresh: bool
    add: tuple[int, ...]
    remove: tuple[int, ...]
    token: bytes
    at_us: int


@dataclass(frozen=True, slots=True)
class Told:
    """What a subscriber's broker has been told so far."""

    #: The broker; whoever moves tells the next one everything.
    home: str = ""
    #: The last number that a filter got, and that a post got: neither is given again.
    filters: int = 0
    posts: int = 0
    trees: Mapping[TreeId, Known] = field(default_factory=dict)
    #: Filters that their owner has ended, and some tree may not know yet.
    ending: frozenset[int] = frozenset()
    pending: Due | None = None
    #: When a newer token should be shown.
    renew_us: int = 0
    #: The realm's version up to which it is known that its right to read was not interrupted.
    version: int = 0
    #: Every broker that it was at, in the order in which it came to them: something may be left there.
    homes: tuple[str, ...] = ()

    def at(self, home: str, trees: Collection[TreeId]) -> Told:
        """At this broker, and of these trees only: those that are over are told nothing more."""
        stayed = home == self.home
        kept = {tree: known for tree, known in self.trees.items() if stayed and tree in trees}
        pending = self.pending if stayed and self.pending is not None and self.pending.tree in trees else None
        homes = tuple(dict.fromkeys((*self.homes, home)))
        return replace(self, home=home, trees=kept, pending=pending, homes=homes)

    def seen(self, version: int, *, decided: bool) -> Told:
        """The realm has come to a version, and meanwhile `decided` about this subscriber's right, or not: a broker
        drops what came from somebody who may not read, and is told everything once that has changed."""
        if decided:
            return replace(self, trees={}, pending=None, version=version)
        return replace(self, version=version) if version > self.version + VERSIONS else self

    def due(self, filters: Collection[int], trees: Collection[TreeId], token: bytes, now_us: int) -> Iterator[Due]:
        """What has to be posted, given the filters and trees of now; numbers are given by `numbered`."""
        wanted = frozenset(filters) - self.ending
        for tree in sorted(trees):
            known = self.trees.get(tree)
            if known is None or (known.filters and (known.token != token or now_us >= known.since_us + AFRESH_US)):
                if wanted or known is not None:
                    yield Due(tree, 0, True, tuple(sorted(wanted)), (), token, now_us)
            elif known.filters != wanted:
                add, remove = sorted(wanted - known.filters), sorted(known.filters - wanted)
                yield Due(tree, 0, False, tuple(add), tuple(remove), token, now_us)

    def is_due(self, filters: Collection[int], home: str | None, trees: Collection[TreeId], now_us: int) -> bool:
        """Whether `due` may have something to say, asked without a key: numbers and times are enough."""
        if not filters:
            return False
        return (
            home != self.home
            or bool(self.ending)
            or self.pending is not None
            or now_us >= self.renew_us
            or any(self._is_due(tree, frozenset(filters), now_us) for tree in trees)
        )

    def _is_due(self, tree: TreeId, filters: frozenset[int], now_us: int) -> bool:
        known = self.trees.get(tree)
        return known is None or known.filters != filters or now_us >= known.since_us + AFRESH_US

    def numbered(self, due: Due, now_us: int) -> Due:
        return replace(due, number=max(self.posts + 1, now_us))

    def after(self, due: Due, posts: int) -> Told:
        """When it was posted, as so many posts."""
        before = self.trees.get(due.tree)
        if before is None or due.fresh:
            known = Known(frozenset(due.add), due.token, due.at_us)
        else:
            known = replace(before, filters=(before.filters | set(due.add)) - set(due.remove))
        return replace(
            self,
            posts=due.number + posts - 1,
            trees={**self.trees, due.tree: known},
            pending=None,
        )

    @property
    def ended(self) -> frozenset[int]:
        """Filters that ended, and that every tree knows to have ended."""
        return self.ending.difference(*(known.filters for known in self.trees.values()))


# --- as a file has it ---------------------------------------------------------------------------------


def to_json(told: Told) -> dict[str, Any]:
    due = told.pending
    return {
        "format": FORMAT,
        "home": told.home,
        "filters": told.filters,
        "posts": told.posts,
        "trees": [[*tree, sorted(k.filters), k.token.hex(), k.since_us] for tree, k in told.trees.items()],
        "ending": sorted(told.ending),
        "pending": due
        and [*due.tree, due.number, due.fresh, list(due.add), list(due.remove), due.token.hex(), due.at_us],
        "renew_us": told.renew_us,
        "version": told.version,
        "homes": list(told.homes),
    }


def from_json(body: Mapping[str, Any]) -> Told:
    """ValueError, TypeError or KeyError when it is none."""
    if body["format"] != FORMAT:
        raise ValueError(body["format"])
    return Told(
        home=str(body["home"]),
        filters=int(body["filters"]),
        posts=int(body["posts"]),
        trees=dict(map(_known, body["trees"])),
        ending=frozenset(map(int, body["ending"])),
        pending=None if body["pending"] is None else _due(body["pending"]),
        renew_us=int(body["renew_us"]),
        version=int(body["version"]),
        homes=tuple(map(str, body["homes"])),
    )


def _known(row: list[Any]) -> tuple[TreeId, Known]:
    publisher, epoch, generation, filters, token, since_us = row
    known = Known(frozenset(map(int, filters)), bytes.fromhex(token), int(since_us))
    return TreeId(str(publisher), int(epoch), int(generation)), known


def _due(row: list[Any]) -> Due:
    publisher, epoch, generation, number, fresh, add, remove, token, at_us = row
    tree = TreeId(str(publisher), int(epoch), int(generation))
    numbers = tuple(map(int, add)), tuple(map(int, remove))
    return Due(tree, int(number), bool(fresh), *numbers, bytes.fromhex(token), int(at_us))
