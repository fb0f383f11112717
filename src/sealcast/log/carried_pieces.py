"""Sealed pieces on a carrier: staged by tasks, named by the ledger, immutable (`pieces.PieceStore`).

    NAME.pieces    parts of pieces, as large as every carrier takes; many append, as tasks do
    NAME.places    which parts, at which positions, a piece is; small pieces themselves; and how far parts are about
                   to be dropped

    place = CBOR ["at", name, partition of NAME.pieces, positions, size]
    small = CBOR ["in", name, the piece]
    drop  = CBOR ["drop", partition of NAME.pieces, before which position]

Nothing here is believed. A piece is found by its name, and whoever reads it holds it to the digest that the ledger's
record names. A task that is run again stages the piece again: then there are two copies, and either will do.

**A small piece is where its place would be** (ADR 74). A single event, or a few, take one append instead of two, and
whoever waits has them before the ledger names them.

**A carrier drops the oldest only.** To remove a piece, those that stay and lie before it are staged again at the end,
and everything before is dropped. Retention removes the oldest pieces, so that little is copied. Meanwhile tasks stage
on, and a part that nobody placed yet must not be dropped unnoticed. So the drop is announced among the places first:
whoever places a piece after that, with a part before it, sees the announcement and stages the piece again; and what was
placed before that is seen by the one who drops. A small piece is placed when it is there: whoever drops places has seen
it, and places it again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from sealcast.errors import Corrupt, FrameRejected, Misuse, NotFound, Unavailable
from sealcast.log.carried import PART, CarriedLog, RecordHead
from sealcast.log.carriers import CarrierPartition
from sealcast.log.closing import Closing
from sealcast.log.pieces import StagedPiece, checked_name, described, verified
from sealcast.log.port import Record
from sealcast.primitives.secrets import Unpicklable
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_PIECE_BYTES

#: What Kafka and NATS take as one record, as they come, is 1 MiB.
PART_BYTES: Final = 768 << 10
MAX_PARTS: Final = -(-MAX_PIECE_BYTES // PART_BYTES)
#: Whoever waits gets all pieces up to this size, whether they concern it or not.
SMALL_BYTES: Final = 4 << 10
#: Small pieces that came and are kept for whoever is about to ask for them.
_KEPT_SMALL: Final = 256
#: A piece that no record names is left alone for so long: whoever staged it may be about to name it, elsewhere.
GRACE_US: Final = 3_600_000_000
#: How often a piece is staged again because others drop what is before it.
_TRIES: Final = 5
#: Places that are looked at first, from the end on; so many times more when that was not enough.
_FIRST_LOOK: Final = 1_024
_MORE: Final = 8
_MAX_PLACE_BYTES: Final = 64 << 10


class Place(NamedTuple):
    """Where a copy of a piece is."""

    name: str
    partition: int
    positions: tuple[int, ...]
    size: int

    def encode(self) -> bytes:
        return cbor.encode(["at", self.name, self.partition, list(self.positions), self.size])


class Small(NamedTuple):
    """A piece that is here and nowhere else."""

    name: str
    data: bytes

    def encode(self) -> bytes:
        return cbor.encode(["in", self.name, self.data])


class Drop(NamedTuple):
    """Parts before that position are about to be dropped."""

    partition: int
    before: int

    def encode(self) -> bytes:
        return cbor.encode(["drop", self.partition, self.before])


def read_note(data: bytes, partitions: int) -> Place | Small | Drop | None:
    """What a record among the places says; None if it is none that we write: it is of no use to anybody."""
    try:
        found = cbor.decode(data, max_bytes=_MAX_PLACE_BYTES, max_items=MAX_PARTS + 16)
    except FrameRejected:
        return None
    match found:
        case ["at", str(name), int(partition), [*positions], int(size)] if (
            0 <= partition < partitions
            and 0 < len(positions) <= MAX_PARTS
            and all(isinstance(each, int) and each >= 0 for each in positions)
            and 0 < size <= MAX_PIECE_BYTES
        ):
            return Place(name, partition, tuple(positions), size)
        case ["in", str(name), bytes(piece)] if 0 < len(piece) <= SMALL_BYTES:
            return Small(name, piece)
        case ["drop", int(partition), int(before)] if 0 <= partition < partitions and before >= 0:
            return Drop(partition, before)
    return None


class KnownPlace(NamedTuple):
    """A place, its number among the places, and when it was written. None is that of a small piece: the record with
    this number is the piece."""

    number: int
    time_us: int
    place: Place | None


class CarriedPieces(Closing, Unpicklable):
    """The pieces of a topic on a carrier. Threads may share it; a child process opens its own."""

    def __init__(self, parts: Sequence[CarrierPartition], places: CarriedLog) -> None:
        self._parts, self._places = tuple(parts), places
        self.shown = places.shown.rpartition("/")[0]
        self._guard = threading.RLock()
        #: All places from number `_from` to before `_seen`, by name of the piece.
        self._known: dict[str, list[KnownPlace]] = {}
        self._from = self._seen = -1
        #: Small pieces that came lately, by the numbers of their records.
        self._small: OrderedDict[int, bytes] = OrderedDict()
        #: What this placed last: whatever is announced from then on has a higher number.
        self._last_placed: int | None = None

    # --- staging ---------------------------------------------------------------------------------

    def stage(self, partition: int, first: int, end: int, data: bytes) -> StagedPiece:
        staged = described(partition, first, end, data)
        self._put(staged.name, partition % len(self._parts), data)
        return staged

    def _put(self, name: str, number: int, data: bytes) -> None:
        if len(data) <= SMALL_BYTES:
            (self._last_placed,) = self._places.append([Small(name, data).encode()])
            return
        for _ in range(_TRIES):
            began, now = self._placed_before(), time.time_ns() // 1000
            made = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
            heads = [RecordHead(PART, now, at).sealed(part) for at, part in enumerate(made)]
            positions = tuple(self._parts[number].append(list(zip(heads, made, strict=True))))
            (at,) = self._places.append([Place(name, number, positions, len(data)).encode()])
            self._last_placed = at
            if not self._is_dropped(began, at, number, min(positions)):
                return
        raise Unavailable(f"parts of pieces are dropped from {self.shown} as fast as they are staged", hint="try again")

    def _placed_before(self) -> int:
        """A number among the places that nothing which is placed from now on comes before."""
        return self._places.end() if self._last_placed is None else self._last_placed + 1

    def _is_dropped(self, began: int, placed: int, number: int, position: int) -> bool:
        """Whether a drop of this position was announced before the piece was placed, or may have been."""
        if began == placed:
            return False
        notes = (read_note(record.data, len(self._parts)) for record in self._places.read_seen(began, placed))
        try:
            return any(isinstance(n, Drop) and n.partition == number and n.before > position for n in notes)
        except NotFound:
            return True  # places are dropped after the parts that they lead to

    # --- reading ---------------------------------------------------------------------------------

    def read(self, name: str, digest: bytes) -> bytes:
        return verified(self.bytes_of(name), digest, f"{self.shown}: piece {name}")

    def bytes_of(self, name: str) -> bytes:
        found: bytes | None = None
        for known in self._copies(checked_name(name)):
            data = self._fetch(known)
            if data is not None and described_by(name, data):
                return data
            found = data if found is None else found
        if found is None:
            raise NotFound(f"{self.shown} has no piece {name}")
        return found  # not what was staged, as whoever reads it finds out and says

    def _copies(self, name: str) -> Iterator[KnownPlace]:
        """Copies of a piece, as far as they are known, then those that are found by looking further."""
        given = set[int]()
        for _ in self._looks():
            with self._guard:
                known = sorted(self._known.get(name, ()), reverse=True)
            for each in known:
                if each.number not in given:
                    given.add(each.number)
                    yield each

    def _looks(self) -> Iterator[None]:
        """Once for what is known, then after each look: at what is new, and further and further back."""
        yield
        self._catch_up()
        yield
        size = _FIRST_LOOK
        while self._look_back(size):
            yield
            size *= _MORE

    def _fetch(self, known: KnownPlace) -> bytes | None:
        """The bytes at a place; None if they are not all there."""
        return self._fetch_small(known.number) if known.place is None else self._fetch_parts(known.place)

    def _fetch_small(self, number: int) -> bytes | None:
        with self._guard:
            if (kept := self._small.get(number)) is not None:
                return kept
        try:
            (record,) = self._places.read_seen(number, number + 1)
        except (Corrupt, NotFound):
            return None
        note = read_note(record.data, len(self._parts))
        return note.data if isinstance(note, Small) else None

    def _fetch_parts(self, place: Place) -> bytes | None:
        partition, wanted = self._parts[place.partition], set(place.positions)
        got = dict[int, bytes]()
        try:  # what was dropped is not there
            for stored in partition.fetch(min(wanted), max(wanted) + 1):
                if stored.position in wanted:  # its bytes are held to the piece's own digest
                    got[stored.position] = stored.data
        except Corrupt:
            return None
        if len(got) < len(wanted) or sum(map(len, got.values())) != place.size:
            return None
        return b"".join(got[position] for position in place.positions)

    # --- what there is ---------------------------------------------------------------------------

    def unplaced(self) -> Iterator[bytes]:
        """Parts that are there and that no place leads to: left by tasks that died, or not dropped yet."""
        placed = {
            (each.place.partition, position)
            for known in self._kept().values()
            for each in known
            if each.place is not None
            for position in each.place.positions
        }
        for number, partition in enumerate(self._parts):
            first, end = partition.bounds()
            for stored in partition.fetch(first, end) if first < end else ():
                if (number, stored.position) not in placed:
                    yield stored.data

    def has(self, name: str) -> bool:
        return any(self._is_kept(known) for known in self._copies(checked_name(name)))

    def names(self) -> list[str]:
        return sorted(self._kept())

    def untouched_since(self, time_us: int) -> list[str]:
        """As `pieces.Pieces`, and older than `GRACE_US`."""
        until = min(time_us, time.time_ns() // 1000 - GRACE_US)
        return sorted(name for name, known in self._kept().items() if known[-1].time_us < until)

    def _is_kept(self, known: KnownPlace) -> bool:
        if known.place is None:
            return known.number >= self._places.start()
        return min(known.place.positions) >= self._parts[known.place.partition].bounds()[0]

    def _kept(self) -> dict[str, list[KnownPlace]]:
        """All pieces that are there, each with its copies, the newest last. Others are forgotten."""
        for _ in self._looks():
            pass
        firsts, start = [partition.bounds()[0] for partition in self._parts], self._places.start()

        def is_kept(each: KnownPlace) -> bool:
            if each.place is None:
                return each.number >= start
            return min(each.place.positions) >= firsts[each.place.partition]

        with self._guard:
            left = ((name, sorted(filter(is_kept, known))) for name, known in self._known.items())
            self._known = {name: known for name, known in left if known}
            return dict(self._known)

    def hear(self) -> None:
        """Learns the places that a carrier has sent here since the last call: for whoever waits for more, and so has
        them before the ledger names their pieces. Nobody is asked, but at the first call."""
        with self._guard:
            if self._seen < 0:
                self._catch_up()
            for record in self._places.heard(self._seen):
                self._note(record)
                self._seen = record.offset + 1

    def _catch_up(self) -> int:
        """Reads the places that are new; how many."""
        with self._guard:
            start, end = self._places.bounds()
            if self._seen < 0:
                # Whoever reads what was delivered lately finds it here, however much there was before.
                self._from = self._seen = max(start, end - _FIRST_LOOK)
            first, self._seen = max(self._seen, start), end
            self._learn(first, end)
            return end - first

    def _look_back(self, most: int) -> bool:
        """Reads places from before those that are known; False if there are none."""
        with self._guard:
            start = self._places.start()
            if self._from <= start:
                return False
            before, self._from = self._from, max(start, self._from - most)
            self._learn(self._from, before)
            return True

    def _learn(self, first: int, end: int) -> None:
        if first < end:
            for record in self._places.read_seen(first, end):
                self._note(record)

    def _note(self, record: Record) -> None:
        found = read_note(record.data, len(self._parts))
        if isinstance(found, Drop | None):
            return
        place = found if isinstance(found, Place) else None
        self._known.setdefault(found.name, []).append(KnownPlace(record.offset, record.time_us, place))
        if isinstance(found, Small):
            self._small[record.offset] = found.data
            while len(self._small) > _KEPT_SMALL:
                self._small.popitem(last=False)

    # --- removing --------------------------------------------------------------------------------

    def remove(self, names: Iterable[str]) -> None:
        gone = set(names)
        kept = self._kept()
        for number in range(len(self._parts)):
            places = (each.place for name in gone for each in kept.get(name, ()) if each.place is not None)
            victims = [max(place.positions) for place in places if place.partition == number]
            if victims:
                self._drop(number, 1 + max(victims), gone)
        if gone:
            self._drop_places(gone)

    def _drop(self, number: int, before: int, gone: set[str]) -> None:
        """Drops parts of one partition before a position; pieces that stay are staged again."""
        self._places.append([Drop(number, before).encode()])
        for name, known in self._kept().items():
            where = [each.place for each in known if each.place is not None]
            dropped = [place.partition == number and min(place.positions) < before for place in where]
            if name not in gone and len(where) == len(known) and all(dropped):
                self._put(name, number, self._must_fetch(name, known))
        self._parts[number].drop(before)

    def _drop_places(self, gone: set[str]) -> None:
        """Drops places up to the last small piece that goes, and from before the first that leads anywhere. Those that
        stay and lie before that are placed again."""
        before = 1 + max((each.number for name in gone for each in self._kept().get(name, ())), default=-1)
        for name, known in self._kept().items():
            if name not in gone and known[-1].number < before:
                newest = known[-1].place
                again = Small(name, self._must_fetch(name, known)) if newest is None else newest
                self._places.append([again.encode()])
        stay = (each.number for name, known in self._kept().items() if name not in gone for each in known)
        self._places.drop(max(before, min(stay, default=self._seen)))
        with self._guard:
            self._small.clear()

    def _must_fetch(self, name: str, known: Sequence[KnownPlace]) -> bytes:
        data = next((found for found in map(self._fetch, reversed(known)) if found is not None), None)
        if data is None:
            raise Corrupt(
                f"{self.shown}: piece {name} cannot be read: nothing was removed",
                hint="the carrier lost it: bring back the replica that has it",
            )
        return data

    def close(self) -> None:
        self._places.close()
        for partition in self._parts:
            partition.close()


def described_by(name: str, data: bytes) -> bool:
    """Whether a name is that of a piece of these bytes."""
    try:
        partition, first, end = (int(number) for number in checked_name(name).split("-")[:3])
        return described(partition, first, end, data).name == name
    except Misuse:
        return False
