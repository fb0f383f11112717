"""What one subscriber wants on an `attribute` topic: filters that it keeps, and keys that its key center gave it.

    own filter "ann-1"  --asked for in epoch 2-->  registered as "ann-1", keys of epoch 2 in the subscriber's key ring

The registry says that a subscription exists. What it asks for, its subscriber and the key center know, which issues its
keys. Keys are of one epoch: in every new one the subscriber asks once more, whenever it, or anybody who has its keys,
looks (`refresh`). Those of an epoch before stay with it, for events that are still on their way.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from sealcast.control.desk import MAX_SUBSCRIPTIONS_EACH
from sealcast.errors import Misuse, Rejected, SealcastError, Unavailable
from sealcast.log.closing import Closing
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.center import wanted_labels
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.labelled import named, new_ids
from sealcast.protections.own_filters import OwnFilter, OwnFilters, unregistered_ids
from sealcast.protections.port import Interest
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState

_ENDING: Final = ".ending"


class CredentialFilters(OwnFilters):
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


class CredentialInterests(Closing, Unpicklable):
    """One entity's filters on one topic. Close it."""

    def __init__(self, realm: EntityRealm, topic: str, name: str, ring: CredentialRing | None = None) -> None:
        """NotFound where the entity's keys are not on this machine."""
        self.realm, self.topic, self.name = realm, topic, name
        self._own = CredentialFilters(realm.paths.root / "wallets", name, realm.state().topic(topic).id)
        self._ring = CredentialRing(realm, topic, realm.identity(name)) if ring is None else ring
        self._owns_ring = ring is None
        #: Why the last attempt to get keys came to nothing, if it did; it is made again.
        self.trouble: SealcastError | None = None

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def filters(self) -> list[Interest]:
        return [self._interest(each) for each in self.present()]

    def present(self) -> list[OwnFilter]:
        """Those that are not ending, oldest first."""
        over = {each.number for each in self._over(self.realm.state())}
        return [each for number, each in self._own.all().items() if number not in over]

    def _over(self, state: RealmState) -> list[OwnFilter]:
        """Those that are ending, and those whose subscriptions an administrator has ended."""
        ending, given = self._own.ending(), state.subscription_topics
        return [each for each in self._own.all().values() if each.number in ending or given.get(each.id, "") is None]

    def add(self, text: str, id: str | None = None) -> Interest:
        return self.add_many([(text, id)])[0]

    def add_many(self, wanted: Sequence[tuple[str, str | None]]) -> list[Interest]:
        """Filters, all of them or none; FilterRejected for one that labels cannot express. One whose keys cannot be had
        now is kept, and asked for later."""
        state = self.realm.state()
        state.require(Right.SUBSCRIBE, self.topic, self.name, self.realm.clock())
        kept = self._keep(wanted, state)
        try:
            self.refresh()
            self.trouble = None
        except Unavailable as error:
            self.trouble = error
        except (Rejected, Misuse):
            self._withdraw(kept)
            raise
        said = () if self.trouble is None else (f"kept, but without keys yet: {self.trouble.message}",)
        return [self._interest(each, said) for each in kept]

    def remove(self, ids: Iterable[str]) -> None:
        with self._own.locked():
            for each in named(self.present(), ids, self.topic, self.name):
                self._own.end(each.number)
        self.try_refresh()

    def _keep(self, wanted: Sequence[tuple[str, str | None]], state: RealmState) -> list[OwnFilter]:
        for text, _ in wanted:
            wanted_labels(text, state.topic(self.topic))
        with self._own.locked():
            known = {each.id for each in self._own.all().values()}
            if len(known) + len(wanted) > MAX_SUBSCRIPTIONS_EACH:
                raise Misuse(f"{self.name!r} can have {MAX_SUBSCRIPTIONS_EACH} filters on a topic")
            known |= unregistered_ids(self.realm.paths.root / "wallets", state, self.name)
            ids = list(new_ids(state, self.name, [id for _, id in wanted], known))
            for (text, _), id in zip(wanted, ids, strict=True):
                self._own.check(id, text)
            first = self._own.next_number()
            pairs = zip(wanted, ids, strict=True)
            return [self._own.keep(first + at, id, text) for at, ((text, _), id) in enumerate(pairs)]

    def _withdraw(self, kept: Iterable[OwnFilter]) -> None:
        """Takes back filters that came to nothing, and what the center registered of them."""
        with self._own.locked():
            for each in kept:
                self._own.end(each.number)
        self.try_refresh()

    # --- keys -------------------------------------------------------------------------------------------------------

    def try_refresh(self) -> int | None:
        """`refresh`; what keeps it from being done now is `trouble`, and no reason to lose anything."""
        try:
            done = self.refresh()
        except (Unavailable, Rejected, Misuse) as error:
            self.trouble = error
            return None
        self.trouble = None
        return done

    def refresh(self) -> int:
        """Gets the keys of this epoch that are missing, and ends what is over; how many there were."""
        state = self.realm.state()
        epoch, done = state.topic(self.topic).epoch, 0
        if not self.is_due(state):
            return 0
        with self._own.locked():
            gone = self._over(state)
            live = [each.id for each in gone if state.subscription_topics.get(each.id) == self.topic]
            if live:
                self._ring.unsubscribe(live)
            for each in gone:
                self._ring.retire(each.number)
                self._own.forget(each.number)
            done += len(gone)
            if not state.may_subscribe(self.topic, self.name, self.realm.clock()):
                return done
            for each in self._own.all().values():
                if not self._ring.has(each.number, epoch):
                    self._ring.subscribe(each, epoch)
                    done += 1
        return done

    def is_due(self, state: RealmState) -> bool:
        """Whether `refresh` has anything to do."""
        epoch = state.topic(self.topic).epoch
        missing = any(not self._ring.has(number, epoch) for number in self._own.numbers())
        return missing or bool(self._over(state))

    def close(self) -> None:
        if self._owns_ring:
            self._ring.close()

    def _interest(self, own: OwnFilter, said: tuple[str, ...] = ()) -> Interest:
        return Interest(own.id, self.topic, self.name, own.text, None, said)
