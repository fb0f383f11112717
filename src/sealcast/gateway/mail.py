"""What readers get over a gateway: ledgers, notes on what was resealed, and whole pieces, each to whom it concerns.

A piece is the same bytes for everyone whom it concerns. Its reader verifies it by the digest in the ledger, whose
records the broker signed. A piece shows its readers more than their own deliveries: how many others there are, by slot
or by name, and sealed bytes that only those can open (docs/threat-model.md).

To know whom a piece concerns, the gateway reads the ledger as anyone may: it looks up the record that names the piece.
Names begin with the place in the log that a piece was made from, so the record is found by halving; late pieces and
those that took another's place are found in what was served lately, or by looking.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from sealcast.errors import FrameRejected, NotFound
from sealcast.gateway import access
from sealcast.gateway.access import HOPS, MAIL, REPLAYS
from sealcast.gateway.asked import ApiCall, BytesAnswer, CborAnswer
from sealcast.gateway.callers import Caller
from sealcast.gateway.feeds import CarriedPlace
from sealcast.gateway.problems import forbidden
from sealcast.log import files, suspended
from sealcast.log.closing import Closing
from sealcast.log.entry import PieceRef
from sealcast.log.journal import DirectoryJournal, JournalLog, JournalPart, KeptJournal
from sealcast.log.piece_reader import PieceReader, hop_reader, sealed_reader
from sealcast.log.pieces import Pieces, PieceStore
from sealcast.log.port import PartitionLog
from sealcast.log.replays import Replays
from sealcast.trust.layout import TopicPaths
from sealcast.trust.realm.state import RealmState
from sealcast.wire import hops
from sealcast.wire.limits import MAX_PIECE_BYTES

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

LEDGER: Final = "ledger"
RESEALS: Final = "reseals"
#: Pieces whose readers are remembered.
_REMEMBERED: Final = 16_384
#: Sent at a time: nobody's whole piece is in memory.
_PART_BYTES: Final = 1 << 18
_PLACE: Final = re.compile(r"([0-9]{4})-([0-9]{13})-")


def kept_at(hub: Hub, state: RealmState, topic: str, broker: str, part: str) -> KeptJournal:
    """A part of a topic at a broker: its ledger, and all that belongs to it."""
    at: JournalPart = "hops" if part == HOPS else "replays" if part == REPLAYS else ""
    return hub.realm.carriers.journal(state, topic, broker, at)


def place_of(journal: KeptJournal, which: JournalLog) -> Path | CarriedPlace:
    """Where one of its logs is."""
    if isinstance(journal, DirectoryJournal):
        return journal.root / which
    return CarriedPlace((journal.key, which), lambda: _there(journal.log(which)))


def _there(log: PartitionLog | None) -> PartitionLog:
    if log is None:
        raise NotFound("this log is not there")
    return log


def paths_of(hub: Hub, topic: str, broker: str, part: str) -> TopicPaths:
    """Where a part of a topic lies at a broker."""
    found = hub.realm.paths.topic(topic, broker)
    return found.hops if part == HOPS else TopicPaths(found.root / "replays") if part == REPLAYS else found


# --- records ------------------------------------------------------------------------------------------


async def records(hub: Hub, asked: ApiCall) -> CborAnswer:
    """Records of a ledger, or notes on what was resealed."""
    state, place = hub.newest.seen.state, _journal(hub, asked)
    access.read_journal(state, asked.caller, asked.path["topic"], asked.path["part"])
    feed, first = hub.feeds.of(place), asked.number("from")
    await feed.asked(hub.workers)
    if first >= feed.end:
        await asked.wait(feed.beyond(first))
        # What was its own when it began to wait may be nobody's by now.
        access.read_journal(hub.newest.seen.state, hub.again(asked), asked.path["topic"], asked.path["part"])
    page = await feed.page(first, asked.number("max_bytes"), hub.workers)
    return CborAnswer({"records": [list(record) for record in page.records], "start": page.start, "end": page.end})


async def at(hub: Hub, asked: ApiCall) -> CborAnswer:
    """The first record of a time or later."""
    state, place = hub.newest.seen.state, _journal(hub, asked)
    access.read_journal(state, asked.caller, asked.path["topic"], asked.path["part"])
    feed, time_us = hub.feeds.of(place), asked.number("time_us")
    return CborAnswer({"offset": await hub.workers.run(lambda: feed.offset_at(time_us))})


def _journal(hub: Hub, asked: ApiCall) -> Path | CarriedPlace:
    topic, broker, part = asked.path["topic"], asked.path["broker"], asked.path["part"]
    state = hub.newest.seen.state
    hub.topic_at(state, topic, broker)
    journal = kept_at(hub, state, topic, broker, part)
    return place_of(journal, LEDGER if asked.path["which"] == LEDGER else RESEALS)


# --- pieces -------------------------------------------------------------------------------------------


class Readers(Closing):
    """Whom the pieces of one ledger concern. For many threads."""

    def __init__(self, journal: KeptJournal, *, by_name: bool) -> None:
        self._reader: PieceReader[Any] = hop_reader(journal) if by_name else sealed_reader(journal)
        self._pieces, self._by_name = journal.pieces, by_name
        self._guard = threading.Lock()
        self._refs: OrderedDict[str, PieceRef] = OrderedDict()
        self._names: OrderedDict[str, frozenset[str]] = OrderedDict()

    def concerns(self, name: str, caller: Caller, slot: int | None) -> bool:
        """Whether the caller finds something in a piece; NotFound when the ledger names no such piece."""
        ref = self._ref(name)
        if caller.is_broker:
            return True
        if self._by_name:
            return caller.name in self._recipients(ref)
        return slot is not None and ref.concerns(slot)

    def close(self) -> None:
        self._reader.close()

    def _ref(self, name: str) -> PieceRef:
        with self._guard:
            known = self._refs.get(name)
            if known is None:
                known = self._look_up(name)
                self._refs[name] = known
                while len(self._refs) > _REMEMBERED:
                    self._refs.popitem(last=False)
            return known

    def _look_up(self, name: str) -> PieceRef:
        place = _PLACE.match(name)
        missing = NotFound("no ledger record names this piece")
        if place is None:
            raise missing
        partition, first = int(place[1]), int(place[2])
        try:
            index, _, own = self._reader.find(partition, first)
        except NotFound:
            raise missing from None
        if own is not None and own.name == name:
            return own
        for _, _, late in self._reader.late(partition, first, index):
            if late.name == name:
                return late
        # It may have lost its place to another meanwhile: whoever read the ledger before gets it still, while it lasts.
        for ref in self._reader.record(index).committed_pieces:
            if ref.name == name:
                return ref
        raise missing

    def _recipients(self, ref: PieceRef) -> frozenset[str]:
        with self._guard:
            known = self._names.get(ref.name)
        if known is None:
            try:
                known = frozenset(hops.parse(self._pieces.read(ref.name, ref.digest)).recipients)
            except FrameRejected:
                known = frozenset()
            with self._guard:
                self._names[ref.name] = known
                while len(self._names) > _REMEMBERED:
                    self._names.popitem(last=False)
        return known


async def piece(hub: Hub, asked: ApiCall) -> BytesAnswer:
    """A whole piece."""
    state, topic, broker = hub.newest.seen.state, asked.path["topic"], asked.path["broker"]
    part, name = asked.path["part"], asked.path["name"]
    hub.topic_at(state, topic, broker)
    pieces, may = kept_at(hub, state, topic, broker, part).pieces, _may(hub, state, asked)

    def opened() -> BinaryIO:
        if not may():
            raise forbidden("nothing in this piece is for the caller")
        return _opened(pieces, name)

    file = await hub.workers.run(opened)
    size = min(os.fstat(file.fileno()).st_size, MAX_PIECE_BYTES)
    return BytesAnswer(size, _parts(hub, file, size))


def _opened(pieces: PieceStore, name: str) -> BinaryIO:
    gone = NotFound("this piece is gone: another has taken its place, or it was never here")
    if not isinstance(pieces, Pieces):
        try:
            data = pieces.bytes_of(name)
        except NotFound:
            raise gone from None
        # In a file that nobody else sees: not in memory for as long as its reader takes.
        file = tempfile.TemporaryFile()  # noqa: SIM115
        file.write(data)
        file.flush()
        return file
    path = pieces.path(name)
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise gone from None
    except OSError as error:
        raise files.trouble(error, path, "reading") from error


def _may(hub: Hub, state: RealmState, asked: ApiCall) -> Callable[[], bool]:
    """Whether the caller may have a piece, to be asked by a thread."""
    topic, broker, part, name = (asked.path[each] for each in ("topic", "broker", "part", "name"))
    if part == REPLAYS:
        return lambda: _replayed_to(kept_at(hub, state, topic, broker, MAIL), name, asked.caller)
    if not asked.caller.is_broker and not access.reads(state, asked.caller, topic):
        raise forbidden(f"{asked.caller.name!r} is no reader of topic {topic!r}")
    slot = state.slot_of(topic, asked.caller.name) if part == MAIL else None
    kept, by_name = kept_at(hub, state, topic, broker, part), part == HOPS or state.topic(topic).protection.overlay
    readers = hub.readers(kept, by_name=by_name)
    return lambda: readers.concerns(name, asked.caller, slot)


def _replayed_to(topic: KeptJournal, name: str, caller: Caller) -> bool:
    replays = Replays(topic)
    try:
        return any(
            each.reader == caller.name and any(ref.name == name for ref in each.pieces) for each in replays.all()
        )
    finally:
        replays.close()


async def _parts(hub: Hub, file: BinaryIO, size: int) -> AsyncIterator[bytes]:
    with file:
        for start in range(0, size, _PART_BYTES):
            wanted = min(_PART_BYTES, size - start)
            yield await hub.workers.run(partial(os.pread, file.fileno(), wanted, start))


# --- notes --------------------------------------------------------------------------------------------


async def notes(hub: Hub, asked: ApiCall) -> CborAnswer:
    """Which of the caller's own subscriptions were suspended."""
    state, topic, broker = hub.newest.seen.state, asked.path["topic"], asked.path["broker"]
    hub.topic_at(state, topic, broker)
    own = {each.id for each in state.subscriptions_of(topic) if each.subscriber == asked.caller.name}
    found = await hub.workers.run(lambda: suspended.notes(hub.realm.paths.topic(topic, broker).root))
    return CborAnswer({"notes": {id: list(note) for id, note in found.items() if id in own}})
