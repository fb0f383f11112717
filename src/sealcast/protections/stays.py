"""The mailboxes of a subscriber that moved: one after the other, each event once.

A subscriber is at one broker, and may have been at others before (`Stay`). It reads its stays in order:
each to the record at which that broker was done with it, then the next. While a move is under way, the broker that it
leaves still serves it; the next is read when that one is done. What two of them have sealed it recognises by what the
publisher signed, which no broker alters: the frame's signed header, and the event's row.

A durable cursor for each broker lies where that broker's deliveries are, as it does for one who never moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from sealcast.errors import NotFound
from sealcast.log.cursor import Cursor
from sealcast.log.mailbox import Delivery, Mailbox
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.topics import Stay

_Identity = tuple[bytes, int]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """What is read next: in which stay, and where in the mailbox there."""

    stay: int
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class StayDelivery(Delivery):
    """A delivery, and where it comes from."""

    stay: int
    broker: str

    @property
    def after(self) -> Place:
        at = self.cursor
        return Place(self.stay, Cursor(at.entry, at.piece, at.rank + 1))


class Stays:
    """Everything that one subscriber gets on one topic, wherever it was."""

    def __init__(self, realm: EntityRealm, topic: str, slot: int, name: str) -> None:
        self._realm, self._topic, self._slot, self._name = realm, topic, slot, name
        self._mailboxes: dict[str, Mailbox] = {}
        #: Of each stay that was come to: what was read in those before it and may come again.
        self._had: dict[int, frozenset[_Identity]] = {}
        #: Told where to start: what was acknowledged is read again, in later stays, too.
        self._again = False

    def list(self) -> tuple[Stay, ...]:
        return self._realm.state().stays_of(self._topic, self._name)

    def mailbox(self, broker: str) -> Mailbox:
        if broker not in self._mailboxes:
            root = self._realm.paths.topic(self._topic, broker).root
            self._mailboxes[broker] = Mailbox(root, self._slot, self._name)
        return self._mailboxes[broker]

    @property
    def current(self) -> Mailbox:
        """Where it is served now."""
        return self.mailbox(_served(self.list())[1].broker)

    # --- reading ------------------------------------------------------------------------------------

    def start(self) -> Place:
        """After what was acknowledged."""
        return Place(0, self._begin(self.list()[0], again=False))

    def deliveries(self, place: Place) -> Iterator[StayDelivery]:
        """Everything from there on that is committed by now."""
        return self._walk(place, again=self._again)

    def _walk(self, place: Place, *, again: bool) -> Iterator[StayDelivery]:
        stays, start = self.list(), place.cursor
        for number in range(place.stay, len(stays)):
            stay = stays[number]
            mailbox = self.mailbox(stay.broker)
            if number > place.stay:
                start = self._begin(stay, again=again)
            for delivery in mailbox.deliveries(start, end=stay.until):
                if _identity(delivery) not in self._before(number, stays):
                    given = {field.name: getattr(delivery, field.name) for field in fields(Delivery)}
                    yield StayDelivery(**given, stay=number, broker=stay.broker)
            if stay.until is None:
                return

    def locate(self, text: str) -> Place:
        """The place that `--from` names (`log.mailbox`): a number counts over all stays, the others mean where it is
        served now."""
        self._again = True
        if text.isascii() and text.isdigit():
            return self._at_ordinal(int(text))
        number, stay = _served(self.list())
        return Place(number, self.mailbox(stay.broker).locate(text))

    def lag(self) -> int:
        """How many events wait after what was acknowledged."""
        if len(self.list()) == 1:
            return self.current.lag()
        place = Place(0, self._begin(self.list()[0], again=False))
        return sum(1 for _ in self._walk(place, again=False))

    def acknowledge(self, delivery: StayDelivery) -> None:
        """Durably done with this and all before it."""
        for stay in self.list()[: delivery.stay]:
            mailbox = self.mailbox(stay.broker)
            if stay.until is not None and mailbox.cursor() < Cursor(stay.until):
                mailbox.seek(Cursor(stay.until))
        self.mailbox(delivery.broker).acknowledge(delivery)

    def close(self) -> None:
        while self._mailboxes:
            self._mailboxes.popitem()[1].close()

    # --- inside -------------------------------------------------------------------------------------

    def _begin(self, stay: Stay, *, again: bool) -> Cursor:
        begin = Cursor(stay.first)
        return begin if again else max(self.mailbox(stay.broker).cursor(), begin)

    def _before(self, number: int, stays: tuple[Stay, ...]) -> frozenset[_Identity]:
        if number not in self._had:
            found = set[_Identity]()
            for stay, first in zip(stays, stays[number].overlaps, strict=False):
                again = Cursor(max(first, stay.first))
                found.update(map(_identity, self.mailbox(stay.broker).deliveries(again, end=stay.until)))
            self._had[number] = frozenset(found)
        return self._had[number]

    def _at_ordinal(self, ordinal: int) -> Place:
        place, left = Place(0, Cursor(self.list()[0].first)), ordinal
        if len(self.list()) == 1:
            return Place(0, self.current.at_ordinal(ordinal))
        deliveries = self.deliveries(place) if ordinal else iter(())
        for delivery in deliveries:
            place, left = delivery.after, left - 1
            if not left:
                break
        if left:
            raise NotFound(f"the mailbox has {ordinal - left} deliveries so far, fewer than {ordinal}")
        return place


def _served(stays: tuple[Stay, ...]) -> tuple[int, Stay]:
    """The first stay that is not over: the last one, or the one before while a move is under way."""
    return next((number, stay) for number, stay in enumerate(stays) if stay.until is None)


def _identity(delivery: Delivery) -> _Identity:
    piece, event = delivery.piece, delivery.event
    return piece.frames[int(piece.frame_index[event])].signed, int(piece.row[event])
