"""How subscribers tell their brokers what they want, one of them or many side by side.

A subscriber prepares posts and writes down that it is about to make them, its broker's log takes them in, and the
subscriber writes down that they were made. Where the keys of many subscribers are on one machine, each does its part
for itself, and the posts of all of them for one broker are one durable append.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sealcast.errors import Misuse, Rejected, SealcastError, Unavailable
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Grant, Revoke
from sealcast.trust.site import Site


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What became of telling a broker what is wanted."""

    #: Posts that were made; trees that know everything now; and publishers whose trees wait for somebody's key.
    posts: int
    trees: int
    waiting: tuple[str, ...]


class Said(NamedTuple):
    """Signed posts for a broker."""

    broker: str
    posts: list[bytes]


#: Yields what is to be posted, and goes on when that is durable.
Telling = Generator[Said, None, Refreshed]


def tell(realm: EntityRealm, topic: str, telling: Mapping[str, Telling]) -> dict[str, Refreshed | SealcastError]:
    """Lets them all tell what they have to; what became of each. One's trouble is not the others'."""
    left, done = dict(telling), dict[str, Refreshed | SealcastError]()
    try:
        while left:
            said = dict[str, list[tuple[str, Said]]]()
            for name in list(left):
                try:
                    post = next(left[name])
                except StopIteration as end:
                    done[name] = end.value
                    del left[name]
                except (Unavailable, Rejected, Misuse) as error:
                    done[name] = error
                    del left[name]
                else:
                    said.setdefault(post.broker, []).append((name, post))
            for broker, each in said.items():
                for name, trouble in _posted(realm, topic, broker, each):
                    done[name] = trouble
                    left.pop(name).close()
    finally:
        for unfinished in left.values():
            unfinished.close()
    return done


def _posted(
    realm: EntityRealm, topic: str, broker: str, said: Sequence[tuple[str, Said]]
) -> Iterator[tuple[str, SealcastError]]:
    """Posts what these say to a broker, in one durable append for all whose posts go one way; those who have to wait,
    and why."""
    ways = dict[Site, list[tuple[str, Said]]]()
    for name, post in said:
        ways.setdefault(realm.site.of(name).at(broker), []).append((name, post))
    for site, each in ways.items():
        yield from _posted_by(site, topic, broker, each)


def _posted_by(
    site: Site, topic: str, broker: str, said: Sequence[tuple[str, Said]]
) -> Iterator[tuple[str, SealcastError]]:
    made, posting = list[bytes](), list[str]()
    try:
        with site.posts(topic, broker) as log:
            for name, post in said:
                try:
                    log.check_share(name)
                except Unavailable as error:
                    yield name, error
                else:
                    made += post.posts
                    posting.append(name)
            if made:
                log.append(made)
    except (Unavailable, Rejected, Misuse) as error:
        for name in posting:
            yield name, error


class RightChanges:
    """Who had a right on a topic given or taken, and when. The registry is looked through once for all who ask."""

    def __init__(self, realm: EntityRealm, topic: str) -> None:
        self._realm, self._topic = realm, topic
        self._first = self._end = -1
        self._last: dict[str, int] = {}

    def since(self, version: int, now: int, name: str) -> bool:
        """Whether, after a version of the realm, something was decided about an entity's rights."""
        if self._end < 0:
            self._first = self._end = version
        if version < self._first:
            self._look(version, self._first)
            self._first = version
        if now > self._end:
            self._look(self._end, now)
            self._end = now
        return self._last.get(name, version) > version

    def _look(self, after: int, upto: int) -> None:
        for version, _, change in self._realm.registry.changes(after + 1, upto):
            if isinstance(change, Grant | Revoke) and change.topic == self._topic:
                self._last[change.entity] = max(version, self._last.get(change.entity, 0))
