"""What one subscriber wants on a `searchable` topic: filters that it keeps, and sealed ones that the registry has.

    own filter "ann-1"  --seal in epoch 2-->  registered as "ann-1.e2", at a broker's desk, with a token

A sealed filter is of one epoch, because its keys are. So in every new epoch the subscriber registers its filters once
more, whenever it, or anybody who has its keys, looks (`refresh`). Those of an epoch before go when the broker has taken
in all that was published in it. People see their own ids only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sealcast.control import requests
from sealcast.control.desk import MAX_IDS, MAX_SUBSCRIPTIONS_EACH
from sealcast.control.wallet import Wallet
from sealcast.errors import Misuse, Rejected, SealcastError, Unavailable
from sealcast.filters.check import fit
from sealcast.filters.labels import LabelFilter, label_filter
from sealcast.filters.parse import parse
from sealcast.log.closing import Closing
from sealcast.log.ledger import LedgerReader
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.labelled import named, new_ids
from sealcast.protections.own_filters import OwnFilter, OwnFilters, registered_id
from sealcast.protections.port import Interest
from sealcast.protections.searchable.keys import user_keys
from sealcast.protections.searchable.scheme import UserKeys
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic

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
        for text, _ in wanted:
            _labels(text, state.topic(self.topic))
        with self._own.locked():
            known = {each.id for each in self._own.all().values()}
            if len(known) + len(wanted) > MAX_SUBSCRIPTIONS_EACH:
                raise Misuse(f"{self.name!r} can have {MAX_SUBSCRIPTIONS_EACH} filters on a topic")
            ids = list(new_ids(state, self.name, [id for _, id in wanted], known, MAX_ID))
            for (text, _), id in zip(wanted, ids, strict=True):
                self._own.check(id, text)
            first = self._own.next_number()
            pairs = zip(wanted, ids, strict=True)
            return [self._own.keep(first + at, id, text) for at, ((text, _), id) in enumerate(pairs)]

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

    def sealed(self, state: RealmState, filters: Sequence[OwnFilter]) -> list[str]:
        """Filters as the registry takes them in this epoch."""
        about = state.topic(self.topic)
        keys = user_keys(self.identity.topic_keys(state, self.topic), about, about.epoch, self.name)
        return [sealed_text(each.text, about, keys) for each in filters]

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
        about = state.topic(self.topic)
        mine = list((registered(state, self.topic) if known is None else known).get(self.name, ()))
        if not self.is_due(state, mine):
            return 0
        state.require(Right.SUBSCRIBE, self.topic, self.name, self.realm.clock())
        with self._own.locked():
            # An id that was given before and is gone was ended by somebody else: until the next epoch it stays so.
            fresh = [
                each for each in self.present() if registered_id(each.id, about.epoch) not in state.subscription_topics
            ]
            for each, text in zip(fresh, self.sealed(state, fresh), strict=True):
                requests.subscribe(self.wallet, self.topic, text, registered_id(each.id, about.epoch))
            over = self._over(state, mine)
            broker = requests.serving_broker(state, self.topic)
            for first in range(0, len(over), MAX_IDS):
                requests.unsubscribe(self.wallet.correspondent, broker, over[first : first + MAX_IDS])
            for number in self._own.ending():
                self._own.forget(number)
        return len(fresh) + len(over)

    def is_due(self, state: RealmState, mine: Iterable[str]) -> bool:
        """Whether `refresh` has anything to do, without opening a filter."""
        epoch, ending = state.topic(self.topic).epoch, self._own.ending()
        epochs = [own_id(id)[1] for id in mine]
        here = len(set(self._own.numbers()) - ending)
        return bool(ending) or epochs.count(epoch) < here or any(self._is_over(state, e) for e in set(epochs))

    def _over(self, state: RealmState, mine: Iterable[str]) -> list[str]:
        ending, everything = self._own.ending(), self._own.all()
        gone = {everything[number].id for number in ending if number in everything}
        found = ((id, *own_id(id)) for id in mine)
        return [id for id, own, epoch in found if own in gone or self._is_over(state, epoch)]

    def _is_over(self, state: RealmState, epoch: int) -> bool:
        """Whether every event of an epoch before this one was taken in by all brokers that serve the subscriber."""
        about = state.topic(self.topic)
        if not FIRST_EPOCH <= epoch < about.epoch:
            return False
        ended = about.epoch_starts[epoch + 1 - FIRST_EPOCH] + about.parameters.grace_s * 1_000_000
        serving = [stay.broker for stay in state.stays_of(self.topic, self.name) if stay.until is None]
        return all(_settled(self.realm, self.topic, broker) > ended for broker in serving)

    def close(self) -> None:
        self.wallet.close()


def sealed_text(text: str, about: Topic, keys: UserKeys) -> str:
    """A filter as brokers take it in an epoch, with its owner's keys of that epoch."""
    conjunctions = _labels(text, about).conjunctions
    return keys.seal_filter([each.slots for each in conjunctions]).to_text()


def _labels(text: str, about: Topic) -> LabelFilter:
    return label_filter(fit(parse(text), about.schema), about.schema)


def _settled(realm: EntityRealm, topic: str, broker: str) -> int:
    """Everything that a broker has not taken in came at this time or later."""
    with LedgerReader(realm.paths.topic(topic, broker).ledger) as ledger:
        last = ledger.last()
        return last.entry.end.settled_us if last is not None else 0
