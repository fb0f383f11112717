"""What one subscriber wants on a `searchable` topic: filters that it keeps, and sealed ones that the registry has.

    own filter "ann-1"  --seal in epoch 2-->  registered as "ann-1.e2", at a broker's desk, with a token

A sealed filter is of one epoch, because its keys are. So in every new epoch the subscriber registers its filters once
more, whenever it, or anybody who has its keys, looks (`refresh`). A filter is also registered in the epochs before from
which brokers retain events, as far as the subscriber has their keys: that is how it gets what was published before it
asked, or while it was away. Those of an epoch before go when the broker has taken in all that was published in it, and
has matched them with what it retains. People see their own ids only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from sealcast.control import requests
from sealcast.control.desk import MAX_IDS
from sealcast.control.wallet import Wallet
from sealcast.filters.check import fit
from sealcast.filters.labels import LabelFilter, label_filter
from sealcast.filters.parse import parse
from sealcast.log.ledger import LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.protections.kept_interests import KeptInterests
from sealcast.protections.own_filters import OwnFilter, registered_id
from sealcast.protections.searchable.keys import user_keys
from sealcast.protections.searchable.scheme import UserKeys
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic
from sealcast.trust.vetting import filter_epochs

#: The registered ids of each subscriber of a topic.
Registered = Mapping[str, Sequence[str]]


def own_id(registered: str) -> tuple[str, int]:
    """A subscriber's own id, and the epoch; the id itself and 0 for what nobody registered this way."""
    own, _, epoch = registered.rpartition(".e")
    return (own, int(epoch)) if own and epoch.isascii() and epoch.isdigit() else (registered, 0)


def registered(state: RealmState, topic: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in state.subscriptions_of(topic):
        found.setdefault(each.subscriber, []).append(each.id)
    return found


class SealedInterests(KeptInterests):
    """One entity's filters on one topic. Close it."""

    #: Registered ids are names, too: this much is left for the epoch.
    max_id = 52
    untold = "not registered"

    def __init__(self, realm: EntityRealm, topic: str, name: str) -> None:
        """NotFound where the entity's keys are not on this machine."""
        super().__init__(realm, topic, name)
        self.identity = realm.identity(name)
        #: Its tokens.
        self.wallet = Wallet(realm, name, identity=self.identity)
        #: Of earlier epochs whose keys it has: whether they open events.
        self._opened: dict[int, bool] = {}

    def vet(self, text: str, about: Topic) -> LabelFilter:
        return _labels(text, about)

    def broker(self, state: RealmState) -> str:
        return state.home_of(self.topic, self.name)

    # --- the registry ---------------------------------------------------------------------------------

    def epochs(self, state: RealmState) -> list[int]:
        """The epochs in which a new filter asks for something, the oldest first: this one, and those before from which
        brokers may retain events that the subscriber can open."""
        about = state.topic(self.topic)
        earlier = [e for e in earlier_epochs(about, self.realm.clock()) if self._opens(state, e)]
        return [*earlier, about.epoch]

    def _opens(self, state: RealmState, epoch: int) -> bool:
        """Whether the subscriber can open events of an epoch, and seal filters in it."""
        if epoch not in self._opened and state.pair_key(self.topic, epoch, self.name) is not None:
            keys = self.identity.topic_keys(state, self.topic, epoch)
            self._opened[epoch] = keys.search is not None and keys.content is not None and keys.content.reads
        return self._opened.get(epoch, False)

    def unregistered(self, state: RealmState, filters: Sequence[OwnFilter]) -> list[tuple[OwnFilter, int]]:
        """What is still to be registered, with the epoch. An id that was given before and is gone was ended by somebody
        else: it stays so."""
        wanted = ((each, epoch) for epoch in self.epochs(state) for each in filters)
        return [(own, e) for own, e in wanted if registered_id(own.id, e) not in state.subscription_topics]

    def sealed(self, state: RealmState, wanted: Iterable[tuple[OwnFilter, int]]) -> Iterator[tuple[str, str]]:
        """Filters as the registry takes them in an epoch, each with its id there."""
        about = state.topic(self.topic)
        keys_of = cache(lambda e: user_keys(self.identity.topic_keys(state, self.topic, e), about, e, self.name))
        for own, epoch in wanted:
            yield registered_id(own.id, epoch), sealed_text(own.text, about, keys_of(epoch))

    def refresh(self, known: Registered | None = None) -> int:
        """Registers what this epoch does not have yet, and ends what is over; how many there were. `known` spares it a
        look through the registry."""
        state = self.realm.state()
        mine = list((registered(state, self.topic) if known is None else known).get(self.name, ()))
        if not self.is_due(state, mine):
            return 0
        state.require(Right.SUBSCRIBE, self.topic, self.name, self.realm.clock())
        with self._own.locked():
            fresh = self.unregistered(state, self.present())
            for id, text in self.sealed(state, fresh):
                requests.subscribe(self.wallet, self.topic, text, id)
            over = self._ended(state, mine)
            broker = requests.serving_broker(state, self.topic)
            for first in range(0, len(over), MAX_IDS):
                requests.unsubscribe(self.wallet.correspondent, broker, over[first : first + MAX_IDS])
            for number in self._own.ending():
                self._own.forget(number)
        return len(fresh) + len(over)

    def is_due(self, state: RealmState, mine: Iterable[str]) -> bool:
        """Whether `refresh` has anything to do, without opening a filter."""
        about, ending, mine = state.topic(self.topic), self._own.ending(), list(mine)
        present = [own for own, epoch in map(own_id, mine) if epoch == about.epoch]
        if ending or len(present) < len(set(self._own.numbers()) - ending) or self._over(state, mine):
            return True
        missing = (
            epoch
            for epoch in earlier_epochs(about, self.realm.clock())
            if any(registered_id(own, epoch) not in state.subscription_topics for own in present)
        )
        return any(self._opens(state, epoch) for epoch in missing)

    def _ended(self, state: RealmState, mine: Iterable[str]) -> list[str]:
        """What is to be registered no more: filters that their owner ended, and those of epochs that are over."""
        ending, everything = self._own.ending(), self._own.all()
        gone = {everything[number].id for number in ending if number in everything}
        over = set(self._over(state, mine))
        return [id for id in mine if id in over or own_id(id)[0] in gone]

    def _over(self, state: RealmState, mine: Iterable[str]) -> list[str]:
        """Finds the filters of earlier epochs that are no longer needed: every broker that serves the subscriber has
        taken in all events of the epoch. A broker must have known the filter, too, since it then matches it with what
        it retains."""
        about = state.topic(self.topic)
        earlier = [(id, epoch) for id in mine if FIRST_EPOCH <= (epoch := own_id(id)[1]) < about.epoch]
        if not earlier:
            return []
        serving = [stay.broker for stay in state.stays_of(self.topic, self.name) if stay.until is None]
        lasts = [_last(self.realm, self.name, self.topic, broker) for broker in serving]
        known = [self.realm.state(last.version).topics[self.topic].subscriptions for last in lasts if last.version]
        settled = min(last.settled_us for last in lasts)
        return [
            id
            for id, epoch in earlier
            if settled > about.epoch_starts[epoch + 1 - FIRST_EPOCH] + about.parameters.grace_s * 1_000_000
            and (about.protection.retention is None or all(id in each for each in known))
        ]

    def close(self) -> None:
        self.wallet.close()


def sealed_text(text: str, about: Topic, keys: UserKeys) -> str:
    """A filter as brokers take it in an epoch, with its owner's keys of that epoch."""
    conjunctions = _labels(text, about).conjunctions
    return keys.seal_filter([each.slots for each in conjunctions]).to_text()


def _labels(text: str, about: Topic) -> LabelFilter:
    return label_filter(fit(parse(text), about.schema), about.schema)


def earlier_epochs(about: Topic, now_us: int) -> list[int]:
    """The epochs before this one from which brokers may retain events, the oldest first."""
    retention = about.protection.retention
    if retention is None:
        return []
    since = now_us - (retention.seconds + about.parameters.grace_s) * 1_000_000
    return [epoch for epoch in filter_epochs(about)[:-1] if about.epoch_starts[epoch + 1 - FIRST_EPOCH] >= since]


def _last(realm: EntityRealm, name: str, topic: str, broker: str) -> PinnedOffset:
    """How far a broker came, and what its last batch was pinned to."""
    with LedgerReader(realm.site.of(name).journal(topic, broker)) as ledger:
        last = ledger.last_span()
        return last.end if last is not None else PinnedOffset.initial(1)
