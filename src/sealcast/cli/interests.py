"""Subscriptions on layered topics, for `sealcast subscription` and `sealcast sub`: each subscriber's own business.

What is asked for is known where the subscriber's key file is, and nowhere else: commands that show or change it work
there. Elsewhere the realm can say who stands where, and that is all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sealcast.cli import talk
from sealcast.errors import Misuse, NotFound

if TYPE_CHECKING:
    from sealcast.clients.reading import Reading
    from sealcast.errors import SealcastError
    from sealcast.protections.layered.interests import Interests
    from sealcast.protections.layered.own_filters import OwnFilter
    from sealcast.trust.deployment import Realm
    from sealcast.trust.realm.state import RealmState

#: What stands for a filter that this machine does not know.
UNKNOWN = "(its subscriber's own)"


def is_layered(state: RealmState, topic: str | None) -> bool:
    """Whether the topic is, or without one, whether any is."""
    names = state.topics if topic is None else [topic]
    return any(not state.topic(name).protection.brokers_read for name in names)


def add(
    here: Realm,
    topic: str,
    subscriber: str,
    wanted: Sequence[tuple[str, str | None]],
    broker: str | None = None,
) -> list[dict[str, Any]]:
    """(filter, id or None) each, for one subscriber; as documents that say what became of them."""
    with _own(here, topic, subscriber) as interests:
        for text, _ in wanted:
            with talk.about_filter(text):
                interests.cost(text)
                for remark in here.remarks(topic, text):
                    talk.warn(remark)
        made = interests.add_many(wanted, broker=broker)
        _remark_on_place(here, topic, subscriber)
        if interests.trouble is not None:
            talk.warn(f"kept, but its broker was not told yet: {interests.trouble.message}")
        elif not here.state().publishers_of(topic):
            talk.note(f"nobody has published on {topic!r} yet: the broker is told when somebody does")
        return [describe(here, interests, each) for each in made]


def _remark_on_place(here: Realm, topic: str, subscriber: str) -> None:
    state = here.state()
    layers, hops = state.topic(topic).protection.depth, state.overlay(topic).depth(subscriber)
    if hops < layers:
        talk.warn(
            f"{subscriber!r} stands {hops} hops below publishers: its filters have {hops} layers there, not "
            f"{layers}; deeper: sealcast overlay place {topic} {subscriber} --at BROKER"
        )


def find(here: Realm, subscriber: str, topic: str, text: str) -> bool:
    """Whether the subscriber asks for just this already."""
    with _own(here, topic, subscriber) as interests:
        return any(each.text == text for each in interests.filters())


def trouble_of(reader: Reading) -> SealcastError | None:
    """Why a reader's broker does not know what it wants, if so."""
    from sealcast.clients.layered_subscriber import LayeredSubscriber

    return reader.interests.trouble if isinstance(reader, LayeredSubscriber) else None


def describe(here: Realm, interests: Interests, own: OwnFilter) -> dict[str, Any]:
    state, cost = here.state(), interests.cost(own.text)
    return {
        "id": own.id,
        "topic": interests.topic,
        "subscriber": interests.name,
        "filter": own.text,
        "labels": cost.labels,
        "conjunctions": cost.conjunctions,
        "authorised": state.may_subscribe(interests.topic, interests.name),
        "broker": state.overlay(interests.topic).places.get(interests.name),
    }


def labels_of(described: dict[str, Any]) -> str:
    """What a subscription costs, in words."""
    return f"{described['labels']:,} label{'' if described['labels'] == 1 else 's'}"


def listed(here: Realm, topic: str, subscriber: str | None) -> list[dict[str, Any]]:
    """Of one subscriber what it asks for, which needs its key file; of all, where they stand."""
    state = here.state()
    if subscriber is not None:
        with _own(here, topic, subscriber) as interests:
            return [describe(here, interests, each) for each in interests.filters()]
    return [
        {
            "id": None,
            "topic": topic,
            "subscriber": name,
            "filter": None,
            "authorised": state.may_subscribe(topic, name),
            "broker": broker,
        }
        for name, broker in state.overlay(topic).places.items()
    ]


def remove(here: Realm, ids: Sequence[str], topic: str | None, subscriber: str | None) -> None:
    """Ends subscriptions of whoever has them here: all that are named, or none."""
    state = here.state()
    mine = {id: list(_owners(here, state, id, topic, subscriber)) for id in ids}
    for id, owners in mine.items():
        if not owners:
            raise NotFound(
                f"there is no subscription {id!r} in this realm, nor of a subscriber whose key file is here",
                hint="`sealcast subscription list` shows them; on a layered topic, add --as ENTITY",
            )
        if len(owners) > 1:
            raise Misuse(
                f"{id!r} names subscriptions of {', '.join(f'{name} on {at}' for at, name in owners)}",
                hint="say which: --topic TOPIC --as ENTITY",
            )
    for owner in dict.fromkeys(owners[0] for owners in mine.values()):
        with _own(here, *owner) as interests:
            interests.remove([id for id, (one,) in mine.items() if one == owner])
            if interests.trouble is not None:
                talk.warn(f"ended, but its broker was not told yet: {interests.trouble.message}")


def _owners(
    here: Realm, state: RealmState, id: str, topic: str | None, subscriber: str | None
) -> Iterator[tuple[str, str]]:
    from sealcast.protections.layered.interests import subscribers_here

    for name in [state.topic(topic).name] if topic is not None else list(state.topics):
        if is_layered(state, name):
            for who in [subscriber] if subscriber is not None else subscribers_here(here, state, name):
                with _own(here, name, who) as interests:
                    if any(each.id == id for each in interests.filters()):
                        yield name, who


def _own(here: Realm, topic: str, subscriber: str) -> Interests:
    from sealcast.protections.layered.interests import Interests
    from sealcast.trust.keys.layer_keys import key_file

    state = here.state()
    state.entity(subscriber)
    if not key_file(here, state, subscriber).exists():
        raise NotFound(
            f"the keys of {subscriber!r} are not here: on the layered topic {topic!r} a subscriber encrypts its own "
            "filters, and nobody else has them",
            hint=f"do this where {subscriber!r} keeps its key file",
        )
    return Interests(here, topic, subscriber)
