"""Interests that their subscriber keeps: filters in files of its own, and whoever has to know of them told again and
again.

What differs between protections is whom they are told to, in which form and when (`refresh`). The rest is here: filters
are written down before anybody hears of them, one that ends is marked until nobody goes by it any more, and what cannot
be told now is told later.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import ClassVar, Final, TypeVar

from sealcast.control.desk import MAX_SUBSCRIPTIONS_EACH
from sealcast.errors import Misuse, Rejected, SealcastError, Unavailable
from sealcast.log import files
from sealcast.log.closing import Closing
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.labelled import MAX_ID, named, new_ids
from sealcast.protections.own_filters import OwnFilter, OwnFilters, keep_together, unregistered_ids
from sealcast.protections.port import Interest
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic

_ENDING: Final = ".ending"
#: Filters as they are asked for: the text, and an id or None.
FilterWanted = tuple[str, str | None]
K = TypeVar("K", bound="KeptInterests")


class EndingFilters(OwnFilters):
    """A subscriber's own filters. One that ends is marked until it counts nowhere any more."""

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


class KeptInterests(Closing, Unpicklable, ABC):
    """One entity's filters on one topic. Close it."""

    #: Of an id, in characters.
    max_id: ClassVar[int] = MAX_ID
    #: What is said of a filter that nobody could be told of yet.
    untold: ClassVar[str]

    def __init__(self, realm: EntityRealm, topic: str, name: str) -> None:
        self.realm, self.topic, self.name = realm, topic, name
        self._own = EndingFilters(realm.paths.root / "wallets", name, realm.state().topic(topic).id)
        #: Why the last attempt to tell came to nothing, if it did; it is made again.
        self.trouble: SealcastError | None = None

    @abstractmethod
    def refresh(self) -> int:
        """Tells whoever has to know what it does not know yet, and ends what is over; how many there were."""

    @abstractmethod
    def vet(self, text: str, about: Topic) -> object:
        """FilterRejected for what cannot be told."""

    @abstractmethod
    def broker(self, state: RealmState) -> str:
        """Who serves the subscriber."""

    def over(self, state: RealmState) -> set[int]:
        """The numbers of filters that are ending."""
        return self._own.ending()

    # --- what is wanted -------------------------------------------------------------------------------

    def filters(self) -> list[Interest]:
        state = self.realm.state()
        return [self._interest(each, state) for each in self.present(state)]

    def present(self, state: RealmState | None = None) -> list[OwnFilter]:
        """Those that are not ending, oldest first."""
        over = self.over(self.realm.state() if state is None else state)
        return [each for number, each in self._own.all().items() if number not in over]

    def add(self, text: str, id: str | None = None) -> Interest:
        return self.add_many([(text, id)])[0]

    def add_many(self, wanted: Sequence[FilterWanted]) -> list[Interest]:
        """Filters, all of them or none. One that nobody can be told of now is kept, and told later."""
        state = self.realm.state()
        state.require(Right.SUBSCRIBE, self.topic, self.name, self.realm.clock())
        kept = self.keep(wanted, state)
        try:
            self.refresh()
            self.trouble = None
        except Unavailable as error:
            self.trouble = error
        except (Rejected, Misuse):
            self.withdraw(kept)
            raise
        said = () if self.trouble is None else (f"kept, but {self.untold} yet: {self.trouble.message}",)
        state = self.realm.state()
        return [self._interest(each, state, said) for each in kept]

    def keep(self, wanted: Sequence[FilterWanted], state: RealmState) -> list[OwnFilter]:
        """Writes filters down, all of them or none; FilterRejected for one that cannot be told."""
        return self.keep_all({self: wanted}, state)[self]

    @staticmethod
    def keep_all(wanted: Mapping[K, Sequence[FilterWanted]], state: RealmState) -> dict[K, list[OwnFilter]]:
        """`keep` for many subscribers: all of them, or none."""
        files.make_directories(each._own.directory for each in wanted)
        with ExitStack() as held:
            # In the order in which everybody takes them: two that do this at once do not wait for each other.
            for each in sorted(wanted, key=lambda each: each.name):
                held.enter_context(each._own.locked())
            made = {each: each._new(asked, state) for each, asked in wanted.items()}
            keep_together({each._own: new for each, new in made.items()})
        return made

    def _new(self, wanted: Sequence[FilterWanted], state: RealmState) -> list[OwnFilter]:
        """Filters that can be written down, as long as the lock is held."""
        for text, _ in wanted:
            self.vet(text, state.topic(self.topic))
        known = {each.id for each in self._own.all().values()}
        if len(known) + len(wanted) > MAX_SUBSCRIPTIONS_EACH:
            raise Misuse(f"{self.name!r} can have {MAX_SUBSCRIPTIONS_EACH} filters on a topic")
        known |= unregistered_ids(self.realm.paths.root / "wallets", state, self.name)
        ids = list(new_ids(state, self.name, [id for _, id in wanted], known, self.max_id))
        for (text, _), id in zip(wanted, ids, strict=True):
            self._own.check(id, text)
        first = self._own.next_number()
        return [OwnFilter(first + at, id, text) for at, ((text, _), id) in enumerate(zip(wanted, ids, strict=True))]

    def withdraw(self, kept: Iterable[OwnFilter]) -> None:
        """Takes back filters that came to nothing."""
        with self._own.locked():
            for each in kept:
                self._own.forget(each.number)

    def remove(self, ids: Iterable[str]) -> None:
        with self._own.locked():
            for each in named(self.present(), ids, self.topic, self.name):
                self._own.end(each.number)
        self.try_refresh()

    def try_refresh(self) -> int | None:
        """`refresh`; what keeps it from being done now is `trouble`, and no reason to lose anything."""
        try:
            done = self.refresh()
        except (Unavailable, Rejected, Misuse) as error:
            self.trouble = error
            return None
        self.trouble = None
        return done

    def _interest(self, own: OwnFilter, state: RealmState, said: tuple[str, ...] = ()) -> Interest:
        return Interest(own.id, self.topic, self.name, own.text, self.broker(state), said)
