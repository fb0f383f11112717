"""What one subscriber wants on a `searchable` topic: filters that it keeps, and sealed ones that the registry has.

    own filter "ann-1"  --seal in epoch 2-->  registered as "ann-1.e2", at a broker's desk, with a token

A sealed filter is of one epoch, because its keys are. So in every new epoch the subscriber registers its filters once
more, whenever it, or anybody who has its keys, looks (`refresh`). A filter is also registered in the epochs before from
which brokers retain events, as far as the subscriber has their keys: that is how it gets what was published before it
asked, or while it was away. Those of an epoch before go when the broker has taken in all that was published in it, and
has matched them with what it retains. People see their own ids only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Final

from sealcast.control import requests
from sealcast.control.desk import MAX_IDS, MAX_SUBSCRIPTIONS_EACH
from sealcast.control.wallet import Wallet
from sealcast.errors import Misuse, Rejected, SealcastError, Unavailable
from sealcast.filters.check import fit
from sealcast.filters.labels import LabelFilter, label_filter
from sealcast.filters.parse import parse
from sealcast.log import files
from sealcast.log.closing import Closing
from sealcast.log.ledger import LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.labelled import named, new_ids
from sealcast.protections.own_filters import OwnFilter, OwnFilters, keep_together, registered_id
from sealcast.protections.port import Interest
from sealcast.protections.searchable.keys import user_keys
from sealcast.protections.searchable.scheme import UserKeys
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic
from sealcast.trust.vetting import filter_epochs

#: Registered ids are names, too: this much is left for the epoch.
MAX_ID: Final = 52
_ENDING: Final = ".ending"
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


class SealedFilters(OwnFilters):
    """A subscriber's own filters. One that ends is marked until it is registered no more."""

    def ending(self) -> set[int]:
        return {int(path.stem) for path in self.directory.glob(f"*{_ENDING}") if path.stem.isdigit()}

    def end(self, number: int) -> None:
        (self.directory / f"{number}{_ENDING}").touch()

    def forget(self, number: int) -> None:
        super().forget(number)
        (self.directory / f"{number}{_ENDING}").unlink(missing_ok=True)

    def next_number(self) -> int:
        """Later ones are greater, and none is given twice, also not after the last was forgotten."""
        return max([time.time_ns() // 1_000, *(number + 1 for number in self.numbers())])


class SealedInterests(Closing, Unpicklable):
    """One entity's filters on one topic. Close it."""

    def __init__(self, realm: EntityRealm, topic: str, name: str) -> None:
        """NotFound where the entity's keys are not on this machine."""
        self.realm, self.topic, self.name = realm, topic, name
        self.identity = realm.identity(name)
        self._own = SealedFilters(realm.paths.root / "wallets", name, realm.state().topic(topic).id)
        #: Its tokens.
        self.wallet = Wallet(realm, name, identity=self.identity)
        #: Of earlier epochs whose keys it has: whether they open events.
        self._opened: dict[int, bool] = {}
        #: Why the last attempt to register came to nothing, if it did; it is made again.
        self.trouble: SealcastError | None = None

    # --- what is wanted -------------------------------------------------------------------------------

    def filters(self) -> list[Interest]:
        broker = self.realm.state().home_of(self.topic, self.name)
        return [Interest(each.id, self.topic, self.name, each.text, broker) for each in self.present()]

    def present(self) -> list[OwnFilter]:
        """Those that are not ending, oldest first."""
        ending = self._own.ending()
        return [each for number, each in self._own.all().items() if number not in ending]

    def add(self, text: str, id: str | None = None) -> Interest:
        state = self.realm.state()
        state.require(Right.SUBSCRIBE, self.topic, self.name, self.realm.clock())
        (kept,) = self.keep([(text, id)], state)
        try:
            self.refresh()
            self.trouble = None
        except Unavailable as error:
            self.trouble = error
        except (Rejected, Misuse):
            self.drop([kept])
            raise
        said = () if self.trouble is None else (f"kept, but not registered yet: {self.trouble.message}",)
        return Interest(kept.id, self.topic, self.name, text, self.realm.state().home_of(self.topic, self.name), said)

    def keep(self, wanted: Sequence[tuple[str, str | None]], state: RealmState) -> list[OwnFilter]:
        """Writes filters down, all of them or none; FilterRejected for one that labels cannot express."""
        with self._own.locked():
            made = self._new(wanted, state)
            keep_together({self._own: made})
        return made

    def _new(self, wanted: Sequence[tuple[str, str | None]], state: RealmState) -> list[OwnFilter]:
        """Filters that can be written down, as long as the lock is held."""
        for text, _ in wanted:
            _labels(text, state.topic(self.topic))
        known = {each.id for each in self._own.all().values()}
        if len(known) + len(wanted) > MAX_SUBSCRIPTIONS_EACH:
            raise Misuse(f"{self.name!r} can have {MAX_SUBSCRIPTIONS_EACH} filters on a topic")
        ids = list(new_ids(state, self.name, [id for _, id in wanted], known, MAX_ID))
        for (text, _), id in zip(wanted, ids, strict=True):
            self._own.check(id, text)
        first = self._own.next_number()
        return [OwnFilter(first + at, id, text) for at, ((text, _), id) in enumerate(zip(wanted, ids, strict=True))]

    @staticmethod
    def keep_all(
        wanted: Mapping[SealedInterests, Sequence[tuple[str, str | None]]], state: RealmState
    ) -> dict[SealedInterests, list[OwnFilter]]:
        """`keep` for many subscribers: all of them, or none."""
        files.make_directories(each._own.directory for each in wanted)
        with ExitStack() as held:
            # In the order in which everybody takes them: two that do this at once do not wait for each other.
            for each in sorted(wanted, key=lambda each: each.name):
                held.enter_context(each._own.locked())
            made = {each: each._new(asked, state) for each, asked in wanted.items()}
            keep_together({each._own: new for each, new in made.items()})
        return made

    def drop(self, kept: Iterable[OwnFilter]) -> None:
        """Forgets filters that nobody was told of."""
        with self._own.locked():
            for each in kept:
                self._own.forget(each.number)

    def remove(self, ids: Iterable[str]) -> None:
        with self._own.locked():
            for each in named(self.present(), ids, self.topic, self.name):
                self._own.end(each.number)
        self.try_refresh()

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

    def try_refresh(self) -> int | None:
        """`refresh`; what keeps it from being done now is `trouble`, and no reason to lose anything."""
        try:
            done = self.refresh()
        except (Unavailable, Rejected, Misuse) as error:
            self.trouble = error
            return None
        self.trouble = None
        return done

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
        """Those of epochs before this one of which all brokers that serve the subscriber have taken in every event. A
        broker has to have known them, too: that is when it matches them with what it retains."""
        about = state.topic(self.topic)
        earlier = [(id, epoch) for id in mine if FIRST_EPOCH <= (epoch := own_id(id)[1]) < about.epoch]
        if not earlier:
            return []
        serving = [stay.broker for stay in state.stays_of(self.topic, self.name) if stay.until is None]
        lasts = [_last(self.realm, self.topic, broker) for broker in serving]
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


def _last(realm: EntityRealm, topic: str, broker: str) -> PinnedOffset:
    """How far a broker came, and what its last batch was pinned to."""
    with LedgerReader(realm.paths.topic(topic, broker).ledger) as ledger:
        last = ledger.last_span()
        return last.end if last is not None else PinnedOffset.initial(1)
