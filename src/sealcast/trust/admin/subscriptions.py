"""Subscribing, and the tokens that subscriptions live by.

Where a topic's key center is at hand, the administrator asks it directly: a subscription that is added here comes with
a token that the center signed in the same act, and is checked like any other before it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sealcast.errors import Misuse
from sealcast.log.ledger import LedgerReader
from sealcast.model.subscription import Subscription
from sealcast.trust import vetting
from sealcast.trust.admin.handle import Handle
from sealcast.trust.keys import minting
from sealcast.trust.keys.filter_texts import FilterSealer
from sealcast.trust.realm.changes import AddSubscription, AttachSubscriber, Change, RemoveSubscription, Right
from sealcast.trust.realm.machine import RealmState

#: A subscription as it is asked for: subscriber, filter, and an id or None.
SubscriptionWanted = tuple[str, str, str | None]


def subscribe(
    realm: Handle, topic: str, subscriber: str, filter: str, id: str | None = None, *, broker: str | None = None
) -> Subscription:
    """Adds a subscription. Without an id it gets the subscriber's name and a number."""
    return subscribe_many(realm, topic, [(subscriber, filter, id)], broker=broker)[0]


def subscribe_many(
    realm: Handle, topic: str, wanted: Sequence[SubscriptionWanted], *, broker: str | None = None
) -> list[Subscription]:
    """Adds all of them, or none; each is (subscriber, filter, id or None). Who is new on the topic is at `broker`."""
    now, issuer, made = realm.clock(), realm.issuer(), list[Subscription]()
    about = realm.state().topic(topic)
    for _, filter, _ in wanted:
        vetting.vet_filter(about, filter, vetting.filter_epochs(about))
    # Before the transaction: the broker may be on another machine.
    first = 0 if broker is None else _records(realm, topic, broker)

    def decide(state: RealmState) -> list[Change]:
        made[:] = _with_ids(state, topic, wanted)
        subscribers = dict.fromkeys(s.subscriber for s in made)
        tokens = {name: issuer.credential(state, topic, name, now) for name in subscribers}
        keys, stored = _stored(state, topic, made)
        adds = [AddSubscription(s.id, topic, s.subscriber, s.filter, tokens[s.subscriber]) for s in stored]
        homes = () if broker is None else _homes(state, topic, subscribers, broker, first)
        return [*keys, *homes, *adds, *issuer.missing_pair_keys(state, topic, subscribers, now)]

    realm.registry.transact(decide)
    return made


def _stored(
    state: RealmState, topic: str, made: Sequence[Subscription]
) -> tuple[Sequence[Change], Sequence[Subscription]]:
    """Subscriptions as the registry keeps them: where brokers read filters, sealed to these brokers and to their
    owners. With the changes by which the brokers get the key."""
    if not state.topic(topic).protection.brokers_read or not made:
        return (), made
    sealer, keys = FilterSealer.fresh(state, topic)
    return keys, [each._replace(filter=sealer.seal(each)) for each in made]


def _records(realm: Handle, topic: str, broker: str) -> int:
    """How many records a broker's ledger has: somebody new there begins after them."""
    state = realm.state()
    state.broker_number(broker)
    with LedgerReader(realm.asking(state).journal(topic, broker)) as ledger:
        return ledger.end()


def _homes(state: RealmState, topic: str, subscribers: Iterable[str], broker: str, first: int) -> Iterator[Change]:
    for name in subscribers:
        if state.slot_of(topic, name) is None:
            yield AttachSubscriber(topic, name, broker, first)
        elif state.home_of(topic, name) != broker:
            raise Misuse(
                f"{name!r} is at broker {state.home_of(topic, name)!r}",
                hint=f"it can move: sealcast subscription move {topic} --as {name} --to {broker}",
            )


def renew_subscriptions(realm: Handle, topic: str | None = None, *, at_half_life: bool = True) -> int:
    """Issues new tokens to live subscriptions whose tokens have had half of their life, or to all; how many changes.

    Whoever may not subscribe any more gets none: its subscriptions end with their tokens.
    """
    now, issuer = realm.clock(), realm.issuer()

    def decide(state: RealmState) -> list[Change]:
        topics = state.topics if topic is None else [state.topic(topic).name]
        return [c for name in topics for c in issuer.renewals(state, name, now, at_half_life=at_half_life)]

    before = realm.registry.version()
    return realm.registry.transact(decide).version - before


def token(realm: Handle, topic: str, entity: str, right: Right = Right.PUBLISH) -> bytes:
    """A token for an entity, where the topic's key center is at hand; it gives what the entity may do now."""
    state = realm.state()
    center = realm.center(state.topic(topic).center)
    return minting.token_for(center, state, topic, entity, right, realm.clock())


def remarks(realm: Handle, topic: str, filter: str) -> list[str]:
    """What the author of a filter should know of it; FilterRejected when it does not fit the topic."""
    return vetting.remarks(realm.state().topic(topic).schema, filter)


def unsubscribe(realm: Handle, *ids: str) -> int:
    """Ends subscriptions, all of them or none. Gives the version from which on it counts."""
    return realm.registry.apply_many([RemoveSubscription(id) for id in ids])


def _with_ids(state: RealmState, topic: str, wanted: Sequence[SubscriptionWanted]) -> Iterator[Subscription]:
    """Those without an id get the subscriber's name and the next number that was never given."""
    numbers: dict[str, int] = {}
    taken: Mapping[str, object] = state.subscription_topics
    fresh = {id for _, _, id in wanted if id is not None}
    for subscriber, filter, given in wanted:
        id = given
        while id is None or (given is None and (id in taken or id in fresh)):
            numbers[subscriber] = numbers.get(subscriber, 0) + 1
            id = f"{subscriber}-{numbers[subscriber]}"
        yield Subscription(id, topic, subscriber, filter)
