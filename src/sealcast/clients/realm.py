"""A realm as its users hold it: the administrator's handle, with subscribing that serves every protection.

On most topics the administrator adds subscriptions. Where filters are their subscribers' own business, each subscriber
states its interests with its own keys, which then have to be on this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sealcast.errors import Misuse, NotFound, SealcastError
from sealcast.model.subscription import Subscription
from sealcast.protections.port import ClientSide, Interest, Wanted, client_side
from sealcast.trust import deployment
from sealcast.trust.admin import subscriptions

#: A topic and a subscriber.
_Owner = tuple[str, str]


class EndedSubscriptions(NamedTuple):
    """What became of ending subscriptions: the version from which on it counts, and why brokers were not told yet."""

    version: int
    troubles: list[SealcastError]


class Realm(deployment.Realm):
    """One deployment: its registry, its topics, and where its files lie."""

    def subscribe(
        self, topic: str, subscriber: str, filter: str, id: str | None = None, *, broker: str | None = None
    ) -> Subscription:
        """A subscription; without an id it gets the subscriber's name and a number."""
        return self.subscribe_many(topic, [(subscriber, filter, id)], broker=broker)[0]

    def subscribe_many(self, topic: str, wanted: Sequence[Wanted], *, broker: str | None = None) -> list[Subscription]:
        """(subscriber, filter, id or None) each: all of them, or none; where filters are their subscribers' own, all or
        none of each. Whoever is new on the topic is at `broker`."""
        made = side_of(self, topic).subscribe_many(self, topic, wanted, broker=broker)
        return [
            Subscription(each.id, topic, each.subscriber, each.filter)
            for each in made
            if each.id is not None and each.filter is not None
        ]

    def unsubscribe(self, *ids: str) -> int:
        """Ends subscriptions, all of them or none; the version from which on it counts."""
        return unsubscribe(self, ids).version


def side_of(realm: deployment.Realm, topic: str) -> ClientSide:
    return client_side(realm.state().topic(topic).protection)


def unsubscribe(
    realm: deployment.Realm, ids: Iterable[str], topic: str | None = None, subscriber: str | None = None
) -> EndedSubscriptions:
    """Ends subscriptions, on one topic or of one subscriber if they are named: all of them, or none. Those in the
    registry are ended there, the others by their subscribers."""
    state, ids = realm.state(), list(dict.fromkeys(ids))
    registered = {
        each.id: (name, each.subscriber)
        for name in ([state.topic(topic).name] if topic is not None else state.topics)
        for each in state.subscriptions_of(name)
        if subscriber in (None, each.subscriber)
    }
    owners = {id: _owner(realm, id, topic, subscriber) for id in ids if id not in registered}
    if not realm.site.here:  # nobody's keys but their owners' are here
        owners |= {id: registered[id] for id in ids if id in registered}
    troubles = list[SealcastError]()
    for at, who in dict.fromkeys(owners.values()):
        with side_of(realm, at).interests(realm, at, who) as interests:
            interests.remove([id for id, owner in owners.items() if owner == (at, who)])
            troubles += [interests.trouble] if interests.trouble is not None else []
    ended = [id for id in ids if id not in owners]
    return EndedSubscriptions(subscriptions.unsubscribe(realm, *ended) if ended else state.version, troubles)


def _owner(realm: deployment.Realm, id: str, topic: str | None, subscriber: str | None) -> _Owner:
    """Whose subscription an id names, among those whose filters are kept on this machine."""
    owners = list(_owners(realm, id, topic, subscriber))
    if not owners:
        realm.state().subscription(id)  # NotFound, in the words of the registry
        raise NotFound(f"subscription {id!r} is on another topic, or somebody else's")
    if len(owners) > 1:
        raise Misuse(
            f"{id!r} names subscriptions of {', '.join(f'{who} on {at}' for at, who in owners)}",
            hint="say which: --topic TOPIC --as ENTITY",
        )
    return owners[0]


def _owners(realm: deployment.Realm, id: str, topic: str | None, subscriber: str | None) -> Iterator[_Owner]:
    for name in [topic] if topic is not None else list(realm.state().topics):
        side = side_of(realm, name)
        for who in side.filter_owners(realm, name):
            if subscriber in (None, who) and _has(side.listed(realm, name, who), id):
                yield name, who


def _has(interests: Iterable[Interest], id: str) -> bool:
    return any(each.id == id for each in interests)
