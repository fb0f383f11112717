"""What a broker goes by at one version of the registry: its halves of users' keys, and which events are whose.

A user that may do nothing on the topic has no half here. So its filters are in no table and match nothing, from the
first batch on that is pinned to that version: that is what deleting a half means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from sealcast.errors import NotFound, Rejected
from sealcast.model.stages import Admitted
from sealcast.primitives.groups import Exponent
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.past import Sender, senders
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.wire.searching import SealedFilter, SealedRejected, block_size


class BrokerHalves(Unpicklable):
    """A broker's halves at one version."""

    def __init__(self, state: RealmState, topic: Topic, secrets: BrokerSecrets) -> None:
        self._state, self._topic = state, topic
        self._keys = cache(lambda epoch: _keys(state, topic, secrets, epoch))
        #: At one version a half stays what it is, and deriving it costs more than looking an event up.
        self._made: dict[tuple[int, str], Exponent] = {}

    def allowed(self, user: str) -> bool:
        """Whether it may do anything on the topic."""
        entity = self._state.entities.get(user)
        return entity is not None and not entity.revoked and bool(self._state.terms_of(self._topic.name, user))

    def of(self, epoch: int, user: str) -> Exponent | None:
        """None for who may do nothing on the topic, and in an epoch whose key the broker was not handed."""
        made = self._made.get((epoch, user))
        if made is None:
            keys = self._keys(epoch) if self.allowed(user) else None
            if keys is None:
                return None
            made = self._made[epoch, user] = keys.search_half(user)
        return made


def _keys(state: RealmState, topic: Topic, secrets: BrokerSecrets, epoch: int) -> TopicKeys | None:
    try:
        return secrets.topic_keys(state, topic, epoch)
    except NotFound:
        return None


class Searched(NamedTuple):
    """The events of a batch as brokers search them."""

    senders: Sequence[Sender]
    blocks: Sequence[bytes]


def searched(admitted: Admitted) -> Searched:
    """Whose events these are, as their publishers signed, and their blocks. Admission has checked both."""
    return Searched(senders(admitted), [payload[: block_size(payload)] for payload in admitted.payloads()])


def good_filter(text: str, topic: Topic) -> SealedFilter | None:
    """A registered filter; None for one whose points are none. It was taken as it is because looking at its points
    takes long, and it matches nothing."""
    try:
        found = SealedFilter.from_text(text, topic.protection.tag_bits_shown)
        found.check_points()
    except (SealedRejected, Rejected):
        return None
    return found


def refused_filters(state: RealmState, topic: str, subscriptions: Mapping[str, object]) -> int:
    """How many of these live subscriptions have a filter that cannot be searched with."""
    about = state.topic(topic)
    return sum(good_filter(state.subscription(id).filter, about) is None for id in subscriptions)
