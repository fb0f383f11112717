"""The mailboxes of one subscriber: at the broker where it is, and at those where it was before and left something.

A stay is a stretch of one broker's ledger. Stays are read side by side, in an order that the topic's protection gives:

    one after the other     the broker that a subscriber leaves serves it until the move is settled; then comes the next
    by generation           a move begins a new generation of the overlay, and every event belongs to one

What two brokers have both sealed, around a move, is handed out once: it is recognised by what the publisher signed,
which no broker alters, the frame's signed header and the event's row.

A durable cursor for each broker lies where that broker's deliveries are, as it does for one who never moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, Generic, NoReturn

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log.closing import Closing
from sealcast.log.cursor import Cursor
from sealcast.log.had import Had
from sealcast.log.mailbox import Delivery, Mailbox, Part
from sealcast.log.piece_reader import P
from sealcast.model.dataclass import dataclass
from sealcast.transports.problems import GatewayUnreachable
from sealcast.trust.realm.topics import Stay

#: How long a subscriber waits for mail at one of several brokers before it looks at the others.
SEVERAL_SECONDS: Final = 0.25
#: How long a broker on another machine that a subscriber has left is tried: it may be gone for good.
LEFT_PATIENCE_S: Final = 10.0
#: A broker, and the first record of the stay there.
StayKey = tuple[str, int]
#: How far each stay was read.
Place = Mapping[StayKey, Cursor]
_Identity = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class Found(Generic[P]):
    """A delivery, and the stay that it comes from."""

    number: int
    stay: Stay
    delivery: Delivery[P]

    @property
    def broker(self) -> str:
        return self.stay.broker


@dataclass(frozen=True, slots=True)
class FoundPart(Generic[P]):
    """Deliveries of one piece that come next, and the stay that they come from."""

    number: int
    stay: Stay
    part: Part[P]

    @property
    def broker(self) -> str:
        return self.stay.broker

    def cut(self, start: int, end: int) -> FoundPart[P]:
        """Some that follow each other."""
        return FoundPart(self.number, self.stay, self.part.cut(start, end))

    def only(self, rows: Sequence[int]) -> FoundPart[P]:
        """Those in these rows, in their order."""
        return FoundPart(self.number, self.stay, self.part.only(rows))

    def deliveries(self) -> Iterator[Found[P]]:
        return (Found(self.number, self.stay, delivery) for delivery in self.part.deliveries())


class Stays(Closing, Generic[P]):
    """Everything that one subscriber gets on one topic, wherever it was. Close it."""

    def __init__(
        self,
        stays: Callable[[], Sequence[Stay]],
        mailbox_at: Callable[[str, float | None], Mailbox[P]],
        generation: Callable[[P, int], int] | None = None,
    ) -> None:
        """`stays` gives those of now, the oldest first; `mailbox_at` opens a broker's mailbox, which is tried for so
        long when it cannot be reached. Without a `generation` of a piece's events, stays are read one after the
        other."""
        self._all, self._mailbox_at, self._generation = stays, mailbox_at, generation
        self._mailboxes: dict[str, Mailbox[P]] = {}
        #: Where each stay is read on, and how far it was handed out and not acknowledged.
        self._next: dict[StayKey, Cursor] = {}
        self._done: dict[StayKey, Cursor] = {}
        #: Told where to start: what was acknowledged is read again, in later stays, too.
        self._again = False
        #: Of each stay that was come to: what was read in those before it and may come again.
        self._had: dict[StayKey, frozenset[_Identity]] = {}

    def mailbox(self, broker: str) -> Mailbox[P]:
        if broker not in self._mailboxes:
            left = all(stay.until is not None for stay in self._all() if stay.broker == broker)
            self._mailboxes[broker] = self._mailbox_at(broker, LEFT_PATIENCE_S if left else None)
        return self._mailboxes[broker]

    @property
    def home(self) -> str:
        """The broker where it is, or is going."""
        return self._all()[-1].broker

    @property
    def only(self) -> Mailbox[P]:
        """The one mailbox there is: for readers that keep their place themselves, as a place in one ledger."""
        stays = self._all()
        if len(stays) > 1:
            name, (before, now) = self.mailbox(self._readable()[-1].broker).recipient.name, stays[-2:]
            raise Misuse(
                f"{name!r} has moved from broker {before.broker!r} to {now.broker!r}: whoever keeps a place in one "
                "ledger, as a stream of Spark's does, cannot follow",
                hint="read with sealcast.Subscriber, or subscribe under another name at that broker",
            )
        return self.mailbox(stays[0].broker)

    # --- reading ------------------------------------------------------------------------------------

    def deliveries(self) -> Iterator[Found[P]]:
        """Everything after what was `passed` that is committed by now."""
        for found in self.parts():
            yield from found.deliveries()

    def parts(self) -> Iterator[FoundPart[P]]:
        """`deliveries`, as many together as follow each other in one piece."""
        return self._walk(self.places())

    def places(self) -> Place:
        """Where each stay is read on."""
        for stay in self._readable():
            if stay_key(stay) not in self._next:
                self._next[stay_key(stay)] = self._begin(stay, again=self._again)
        return self._next

    def resume(self, places: Place) -> None:
        """Reads on from these places, and a stay that is not among them from its beginning. The durable cursor stays:
        for readers that keep their place themselves."""
        self._next = {stay_key(stay): places.get(stay_key(stay), Cursor(stay.first)) for stay in self._readable()}
        self._again = True

    def wait(self, seconds: float) -> None:
        """Returns when there may be more deliveries, and in any case when the time is over."""
        stays = self._readable()
        mailbox = self.mailbox(stays[-1].broker)
        # One of several is waited for; the others are looked at now and then.
        mailbox.wait(seconds if len(stays) == 1 else min(seconds, SEVERAL_SECONDS))

    def passed(self, found: Found[P]) -> None:
        """It was handed out, or given up: what follows comes next."""
        self._pass(found.stay, found.delivery.after)

    def passed_part(self, found: FoundPart[P], rows: int) -> None:
        """`passed` for its first deliveries, so many of them."""
        if rows:
            self._pass(found.stay, found.part.after(rows))

    def _pass(self, stay: Stay, place: Cursor) -> None:
        self._next[stay_key(stay)] = self._done[stay_key(stay)] = place

    def locate(self, text: str) -> None:
        """Goes to the place that `--from` names (`log.mailbox`): a number and `start` count over all stays, the others
        mean where it is served now. The durable cursor stays."""
        self._again, stays = True, self._readable()
        if len(stays) > 1 and (text == "start" or (text.isascii() and text.isdigit())):
            self._at_ordinal(0 if text == "start" else int(text))
            return
        place = self.mailbox(stays[-1].broker).locate(text)
        self._next = {stay_key(stay): self._end(stay) for stay in stays[:-1]}
        self._next[stay_key(stays[-1])] = place

    def between(self, first: int, end: int) -> Iterator[FoundPart[P]]:
        """What records `first` to before `end` hold, where there is one ledger (`only`)."""
        stay = self._all()[0]
        return (FoundPart(0, stay, part) for part in self.only.parts(Cursor(first), end))

    def lag(self) -> int:
        """How many events wait after what was acknowledged."""
        stays = self._readable()
        if len(stays) == 1:
            return self.mailbox(stays[0].broker).lag()
        return sum(len(each.part) for each in self._walk({stay_key(s): self._begin(s, again=False) for s in stays}))

    # --- what is done with --------------------------------------------------------------------------

    @property
    def handed_out(self) -> Place | None:
        """How far it was handed out and not acknowledged."""
        return dict(self._done) or None

    @property
    def missed(self) -> int:
        """How many deliveries were removed before they were read, of what was come to."""
        return sum(sum(box.missed.values()) for box in self._mailboxes.values())

    @property
    def perhaps_missed(self) -> int:
        """How many events were removed before the brokers that serve it took them, of what was come to: more than any
        of them may have been for it."""
        return sum(sum(box.perhaps_missed.values()) for box in self._mailboxes.values())

    def had(self) -> Had:
        """All that is remembered of what was acknowledged, wherever that was."""
        had = Had()
        for stay in self._readable():
            had.take(self.mailbox(stay.broker).had())
        return had

    def heads(self) -> Iterator[tuple[Path | str, tuple[int, bytes]]]:
        """Which heads of the registry were kept with cursors, and which one a broker's newest record is pinned to, if
        they say so. Each comes with the cursor's file, or with how the ledger is called."""
        for stay in self._readable():
            box = self.mailbox(stay.broker)
            path, kept = box.head()
            if kept is not None:
                yield path, kept
            if self._is_done_with(stay):
                continue
            # A record that is not its broker's is named when the reader comes to it; what is before it can be read.
            last = None
            with suppress(Corrupt):
                last = box.reader.record(box.reader.end() - 1).entry if box.reader.end() else None
            if last is not None and last.chain:
                yield box.reader.ledger.shown, (last.version, last.chain)

    def acknowledge(
        self, upto: Place | None = None, had: Had | None = None, head: tuple[int, bytes] | None = None
    ) -> None:
        """Durably done with everything that was handed out so far, or up to what was `handed_out` before; these events
        were had, and the registry had come to this head."""
        done, stays = dict(self._done if upto is None else upto), self._readable()
        last = max((number for number, stay in enumerate(stays) if stay_key(stay) in done), default=0)
        for stay in stays[:last]:
            # Whatever was there, it was read before what follows it.
            if stay.until is not None and not self._is_done_with(stay):
                self.mailbox(stay.broker).advance(Cursor(stay.until), head=head)
        for key, cursor in done.items():
            self.mailbox(key[0]).advance(cursor, had, head)
        self._done = {key: cursor for key, cursor in self._done.items() if cursor != done.get(key)}

    def close(self) -> None:
        while self._mailboxes:
            self._mailboxes.popitem()[1].close()

    # --- inside -------------------------------------------------------------------------------------

    def _readable(self) -> list[Stay]:
        """The stays up to the one that serves now: while a move is settled, the next one is not read yet."""
        stays = list(self._all())
        serving = next(number for number, stay in enumerate(stays) if stay.until is None)
        return stays if self._generation is not None else stays[: serving + 1]

    def _is_done_with(self, stay: Stay) -> bool:
        """Whether it was left, and read to its end: nobody needs its broker any more, which may be gone."""
        if stay.until is None:
            return False
        return max(self.mailbox(stay.broker).saved(), Cursor(stay.first)) >= Cursor(stay.until)

    def _end(self, stay: Stay) -> Cursor:
        return Cursor(self.mailbox(stay.broker).reader.end() if stay.until is None else stay.until)

    def _begin(self, stay: Stay, *, again: bool) -> Cursor:
        """Where a stay is read from: after what was acknowledged, unless it is read `again`."""
        first = Cursor(stay.first)
        if not again and self._is_done_with(stay):
            return self._end(stay)
        return first if again else max(self.mailbox(stay.broker).resume(), first)

    def _walk(self, places: Place) -> Iterator[FoundPart[P]]:
        stays = self._readable()
        return merge(*(self._stream(number, stays, places) for number in range(len(stays))), key=self._rank)

    def _rank(self, found: FoundPart[P]) -> int:
        part = found.part
        return found.number if self._generation is None else self._generation(part.piece, part.events[0])

    def _stream(self, number: int, stays: Sequence[Stay], places: Place) -> Iterator[FoundPart[P]]:
        stay = stays[number]
        for part in self.mailbox(stay.broker).parts(places[stay_key(stay)], stay.until):
            if stay.overlaps:
                before, ids = self._before(number, stays), _identities(part)
                part = part.only([row for row, each in enumerate(ids) if each not in before])
            for some in self._alike(part):
                yield FoundPart(number, stay, some)

    def _alike(self, part: Part[P]) -> Iterator[Part[P]]:
        """Neighbours of one generation: others may come between those of two."""
        if self._generation is None:
            if len(part):
                yield part
            return
        ranks = [self._generation(part.piece, event) for event in part.events]
        changes = [row for row, (one, other) in enumerate(pairwise(ranks), 1) if one != other]
        for start, end in pairwise((0, *changes, len(part))):
            if start < end:
                yield part.cut(start, end)

    def _before(self, number: int, stays: Sequence[Stay]) -> frozenset[_Identity]:
        key = stay_key(stays[number])
        if key not in self._had:
            found = set[_Identity]()
            for stay, first in zip(stays, stays[number].overlaps, strict=False):
                again = Cursor(max(first, stay.first))
                try:
                    for part in self.mailbox(stay.broker).parts(again, stay.until):
                        found.update(_identities(part))
                except GatewayUnreachable:
                    # Readers know what they had (`log.had`): all of a stay that they are done with.
                    if not self._is_done_with(stay):
                        raise
            self._had[key] = frozenset(found)
        return self._had[key]

    def _at_ordinal(self, ordinal: int) -> None:
        self._next, left = {}, ordinal
        for found in islice(self.deliveries(), ordinal):
            self._next[stay_key(found.stay)] = found.delivery.after
            left -= 1
        if left:
            raise NotFound(f"the mailbox has {ordinal - left} deliveries so far, fewer than {ordinal}")


def no_subscription(topic: str, subscriber: str) -> NoReturn:
    raise NotFound(
        f"entity {subscriber!r} has no subscription on topic {topic!r}",
        hint=f'add one: sealcast subscription add {topic} --as {subscriber} --filter "..."',
    )


def stay_key(stay: Stay) -> StayKey:
    return stay.broker, stay.first


def _identities(part: Part[P]) -> Iterator[_Identity]:
    return ((part.piece.frame(event).signed, part.piece.position(event).row) for event in part.events)
