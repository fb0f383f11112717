"""What a broker of an overlay has on a carrier beside its ledgers.

    NAME.posts    filters that those below it post (`carried_posts`)
    NAME.taken    how far its keeper has looked at them
    NAME.table    its keeper's turns: version n of its routing table is the first n of them; one writer at a time
    NAME.notes    what it notes for itself (`hop_notes`); one writer at a time

Its ledger of what it admits is `NAME.ledger` as on every topic, and that of what it hands on `NAME.hops.ledger`, each
with notes and pieces (`carried_journal`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal

from sealcast.log.carried import CarriedLog
from sealcast.log.carried_posts import CarriedPosts
from sealcast.log.carriers import Carrier, Placement
from sealcast.log.hop_notes import HopNotes
from sealcast.log.journal import LogPlace
from sealcast.log.numbered import NumberedLog
from sealcast.primitives.secrets import Secret, Unpicklable

#: Of the name that the ledgers of a broker have: its hops'.
HOPS_SUFFIX: Final = ".hops"
_LOGS: Final = ("posts", "taken", "table", "notes")


class CarriedOverlay(Unpicklable):
    """One broker's part of one topic's overlay. A child process opens its own."""

    def __init__(self, carrier: Carrier, name: str) -> None:
        self._carrier, self._name = carrier, name

    def create(self, placement: Placement) -> None:
        """Makes what is missing of it on the carrier; Misuse where something that is there cannot keep it."""
        for suffix in _LOGS:
            called = f"{self._name}.{suffix}"
            if self._carrier.partitions(called) is None:
                self._carrier.create(called, placement._replace(partitions=1))
            self._carrier.check(called)

    def remove(self) -> None:
        """Removes all of it from the carrier. Done twice, it does nothing more."""
        for suffix in _LOGS:
            self._carrier.remove(f"{self._name}.{suffix}")

    def posts(self, first: int = 0, still_here: Callable[[], None] = lambda: None) -> CarriedPosts:
        """`first` is the number of the first one (`HopNotes.first_post`): for the keeper. `still_here` is for whoever
        posts (`CarriedLog`)."""
        posts, marks = (self._carrier.partition(f"{self._name}.{which}", 0) for which in ("posts", "taken"))
        return CarriedPosts(CarriedLog(posts, 0, first, still_here), CarriedLog(marks), first)

    def log(self, which: Literal["table", "notes"]) -> NumberedLog:
        return NumberedLog(self._carrier.partition(f"{self._name}.{which}", 0))

    def place(self, which: Literal["table", "notes"]) -> LogPlace:
        opened = partial(self.log, which)
        return LogPlace(f"{self._carrier.shown}/{self._name}.{which}", opened, opened)

    def notes(self, key: Secret) -> HopNotes:
        return HopNotes(self.place("notes"), key)
