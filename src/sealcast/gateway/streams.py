"""Following a ledger without asking again: one request, and everything that concerns the caller as it comes.

What is sent is prepared once for all who follow closely behind each other: a record, and each piece that it names. Who
does not take what is sent is waited for, so that nobody's backlog is kept in memory (`serving`, stall).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from sealcast.errors import Corrupt, FrameRejected, Misuse, NotFound
from sealcast.gateway import access
from sealcast.gateway.access import HOPS, REPLAYS
from sealcast.gateway.asked import ApiCall, StreamAnswer
from sealcast.gateway.feeds import LogFeed
from sealcast.gateway.limits import PAGE_BYTES
from sealcast.gateway.mail import RESEALS, kept_at, place_of
from sealcast.gateway.work import Workers
from sealcast.log.annals import MAX_NOTE_BYTES
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.journal import KeptJournal
from sealcast.log.port import Record
from sealcast.wire import cbor, hops
from sealcast.wire.limits import MAX_CBOR_ITEMS

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

#: Larger pieces are named and not sent: whoever wants one asks for it.
MAX_SENT_PIECE: Final = 4 << 20
_KEPT: Final = 16
_KEPT_BYTES: Final = 16 << 20


class SentPiece:
    """A piece as it is sent, and whom it concerns."""

    def __init__(self, ref: PieceRef, item: bytes, names: frozenset[str] | None) -> None:
        self._ref, self.item, self._names = ref, item, names

    def concerns(self, name: str, slot: int | None) -> bool:
        if self._names is not None:
            return name in self._names
        return slot is not None and self._ref.concerns(slot)


class SentRecord:
    """A record of a ledger as it is sent, and the pieces that come before it."""

    def __init__(self, record: Record, pieces: list[SentPiece]) -> None:
        self.offset, self.pieces = record.offset, pieces
        self.item = cbor.encode(["record", record.offset, record.time_us, record.data])
        #: What whoever gets the same pieces is sent.
        self._joined: dict[tuple[bool, ...], bytes] = {}

    def for_caller(self, name: str, slot: int | None, *, everything: bool) -> bytes:
        wanted = tuple(everything or piece.concerns(name, slot) for piece in self.pieces)
        found = self._joined.get(wanted)
        if found is None:
            chosen = [piece.item for piece, is_wanted in zip(self.pieces, wanted, strict=True) if is_wanted]
            found = b"".join([*chosen, self.item])
            if len(self._joined) < _KEPT:
                self._joined[wanted] = found
        return found


class FollowedLedger:
    """One ledger that is followed: its newest records, prepared."""

    def __init__(self, feed: LogFeed, journal: KeptJournal, *, by_name: bool) -> None:
        self.feed, self.journal, self._by_name = feed, journal, by_name
        self._kept: OrderedDict[int, SentRecord] = OrderedDict()
        self._turn = asyncio.Lock()

    async def record(self, offset: int, workers: Workers) -> SentRecord:
        """One record, which is there."""
        known = self._kept.get(offset)
        if known is None:
            async with self._turn:
                known = self._kept.get(offset) or await self._prepare(offset, workers)
        return known

    async def _prepare(self, offset: int, workers: Workers) -> SentRecord:
        page = await self.feed.page(offset, PAGE_BYTES, workers)
        record = page.records[0]
        made = await workers.run(lambda: SentRecord(record, [self._piece(ref) for ref in _refs(record.data)]))
        self._kept[offset] = made
        size = sum(len(piece.item) for each in self._kept.values() for piece in each.pieces)
        while len(self._kept) > 1 and (len(self._kept) > _KEPT or size > _KEPT_BYTES):
            size -= sum(len(piece.item) for piece in self._kept.popitem(last=False)[1].pieces)
        return made

    def _piece(self, ref: PieceRef) -> SentPiece:
        if ref.size > MAX_SENT_PIECE:
            return SentPiece(ref, b"", None)
        try:
            data = self.journal.pieces.read(ref.name, ref.digest)
            names = frozenset(hops.parse(data).recipients) if self._by_name else None
        except (NotFound, Corrupt, FrameRejected):
            # Another has taken its place, or it is damaged: the reader asks for what it misses, and is told.
            return SentPiece(ref, b"", None)
        return SentPiece(ref, cbor.encode(["piece", ref.name, data]), names)


def _refs(data: bytes) -> tuple[PieceRef, ...]:
    """The pieces that a ledger's record names; none where it is no such record: its reader finds that out, too."""
    try:
        outer = cbor.decode(data, max_bytes=MAX_NOTE_BYTES + (1 << 16), max_items=MAX_CBOR_ITEMS)
        return Entry.decode(outer[1])[0].pieces
    except (FrameRejected, Misuse, KeyError, TypeError, IndexError):
        return ()


async def follow(hub: Hub, asked: ApiCall) -> StreamAnswer:
    """Everything in a ledger from a record on that concerns the caller, for ever."""
    topic, broker, part = (asked.path[each] for each in ("topic", "broker", "part"))
    state = hub.newest.seen.state
    about = hub.topic_at(state, topic, broker)
    access.read_journal(state, asked.caller, topic, part)
    if part == REPLAYS:
        raise NotFound("replays are not followed")
    kept = kept_at(hub, state, topic, broker, part)
    journal = await hub.journal(kept, by_name=part == HOPS or about.protection.overlay)
    first = asked.number("from")
    if first > journal.feed.end:
        raise NotFound(f"the log ends at {journal.feed.end}, and record {first} was asked for")
    return StreamAnswer(_items(hub, asked, journal, hub.feeds.of(place_of(kept, RESEALS)), first))


async def _items(hub: Hub, asked: ApiCall, journal: FollowedLedger, reseals: LogFeed, at: int) -> AsyncIterator[bytes]:
    topic, part, feed = asked.path["topic"], asked.path["part"], journal.feed
    version, known, everything, slot, beat = -1, -1, asked.caller.is_broker, None, False
    while not asked.connection.leaving:
        # Whoever lost its place meanwhile is told nothing more. A certificate also ends by the clock.
        caller = hub.again(asked)
        if version != hub.newest.version:
            version, state = hub.newest.version, hub.newest.seen.state
            access.read_journal(state, caller, topic, part)
            if kept_at(hub, state, topic, asked.path["broker"], part).key != journal.journal.key:
                return  # it was moved: whoever follows asks again, and follows it there
            slot = state.slot_of(topic, asked.caller.name)
        if beat:
            await reseals.asked(hub.workers)
            yield cbor.encode(["beat", feed.end])
        if known != reseals.end:
            known = reseals.end
            yield cbor.encode(["reseals", known])
        if at < feed.ready:
            record = await journal.record(at, hub.workers)
            yield record.for_caller(asked.caller.name, slot, everything=everything)
            at += 1
            continue
        beat = not await feed.moves(at)
