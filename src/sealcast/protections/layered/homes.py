"""A subscriber's mailboxes: at the broker it stands below, and at those where it stood before and left something.

A subscriber of a `layered` topic may be placed below another broker. That begins a new generation of the overlay, and
an event belongs to one: what was published before comes to the old place, under keys that the subscriber still has,
what is published after it to the new one. So no event comes twice, and generations are read in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sealcast.errors import NotFound
from sealcast.log.cursor import Cursor
from sealcast.protections.layered.mailbox import HopDelivery, HopMailbox


@dataclass(frozen=True, slots=True)
class Found:
    """A delivery, and the broker that has it."""

    home: str
    delivery: HopDelivery


class Homes:
    """Everything that one subscriber gets on one topic, wherever it stood. The current home is the last."""

    def __init__(self, directories: Mapping[str, Path], name: str, *, routes: bool = False) -> None:
        """`directories`: the `hops/` of each broker, the oldest home first. A subscriber that `routes`, being a broker
        itself, finds there also what is only on its way through: it is not for its mailbox."""
        self._name = name
        self._routes = routes
        self._mailboxes: dict[str, HopMailbox] = {}
        self._next: dict[str, Cursor] = {}
        self.update(directories)

    def update(self, directories: Mapping[str, Path]) -> None:
        """It may have moved meanwhile."""
        if list(directories) == list(self._mailboxes):
            return
        known = self._mailboxes
        self._mailboxes = {home: known.get(home) or HopMailbox(at, self._name) for home, at in directories.items()}
        for home, mailbox in self._mailboxes.items():
            self._next.setdefault(home, mailbox.cursor())

    @property
    def current(self) -> HopMailbox:
        return next(reversed(self._mailboxes.values()))

    # --- reading --------------------------------------------------------------------------------------

    def deliveries(self) -> Iterator[Found]:
        """Everything after what was `passed` that is committed by now."""
        if len(self._mailboxes) == 1:
            ((home, mailbox),) = self._mailboxes.items()
            yield from (Found(home, delivery) for delivery in self._own(mailbox, self._next[home]))
            return
        streams = {home: self._own(mailbox, self._next[home]) for home, mailbox in self._mailboxes.items()}
        heads = {home: first for home, stream in streams.items() if (first := next(stream, None)) is not None}
        while heads:
            # The oldest generation first: who came back to a broker has earlier and later ones there.
            home = min(heads, key=lambda at: heads[at].generation)
            yield Found(home, heads[home])
            following = next(streams[home], None)
            heads = {at: head for at, head in heads.items() if at != home}
            heads |= {} if following is None else {home: following}

    def between(self, first: int, end: int) -> Iterator[HopDelivery]:
        """What records `first` to before `end` of the current home's ledger have."""
        return self._own(self.current, Cursor(first), end)

    def _own(self, mailbox: HopMailbox, start: Cursor | None = None, end: int | None = None) -> Iterator[HopDelivery]:
        for delivery in mailbox.deliveries(start, end=end):
            if not self._routes or any(entry.final for entry in delivery.entries):
                yield delivery

    def passed(self, found: Found) -> None:
        """It was handed out, or given up: what follows comes next."""
        at = found.delivery.cursor
        self._next[found.home] = Cursor(at.entry, at.piece, at.rank + 1)

    def locate(self, text: str) -> None:
        """Goes to the place that `--from` names: a number counts over all homes, the others mean the current one."""
        if text.isascii() and text.isdigit():
            self._at_ordinal(int(text))
            return
        place = self.current.locate(text)
        for home, mailbox in self._mailboxes.items():
            self._next[home] = place if mailbox is self.current else Cursor(mailbox.reader.end())

    def _at_ordinal(self, ordinal: int) -> None:
        self._next, left = dict.fromkeys(self._mailboxes, Cursor()), ordinal
        for found in self.deliveries():
            if not left:
                return
            self.passed(found)
            left -= 1
        if left:
            raise NotFound(f"the mailbox has {ordinal - left} deliveries so far, fewer than {ordinal}")

    # --- what is done with ----------------------------------------------------------------------------

    def lag(self) -> int:
        """How many events wait after what was acknowledged."""
        if self._routes:
            return sum(1 for mailbox in self._mailboxes.values() for _ in self._own(mailbox))
        return sum(mailbox.lag() for mailbox in self._mailboxes.values())

    def acknowledge(self, done: Mapping[str, HopDelivery]) -> None:
        """Durably done with these, the last of each home, and with all before them."""
        for home, delivery in done.items():
            self._mailboxes[home].acknowledge(delivery)

    def close(self) -> None:
        while self._mailboxes:
            self._mailboxes.popitem()[1].close()
