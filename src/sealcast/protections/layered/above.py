"""What a broker of a layered topic takes records from: the ledgers above it, by now and in generations that are over.

    a root          takes what it admitted itself     topics/TOPIC (pieces, ledger)
    any other       takes what its parent handed on   the parent's topics/TOPIC/hops

On a carrier these are logs there, and `upstreams` is a note that the broker authenticates (`log.carried_overlay`).
The ledger above is a parent's, whose journal key this broker has not: it is read as a subscriber reads it, verified by
the parent's signatures.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import closing
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import zip_longest
from typing import Final, NamedTuple

from sealcast.errors import Corrupt
from sealcast.log.annals import JournalSigner
from sealcast.log.hop_notes import HopNotes, read_upstreams, write_upstreams
from sealcast.log.journal import Journal, JournalPart, KeptJournal
from sealcast.log.offsets import PinnedOffset
from sealcast.log.piece_reader import PieceReader, hop_reader
from sealcast.protections.journals import HOPS_PART, journal_signer
from sealcast.protections.layered.cutting import HopCuts
from sealcast.protections.layered.filters.kept import kept_at
from sealcast.protections.steps import MAX_OPEN, StepName, realm_of
from sealcast.transports.problems import GatewayUnreachable
from sealcast.trust.keys.layer_keys import overlay_of
from sealcast.trust.layout import TopicPaths
from sealcast.trust.realm.overlays import Overlay
from sealcast.wire.hops import HopPiece

HOPS_JOURNAL: Final[JournalPart] = "hops"
#: How long a broker above, on another machine, is asked how far it is.
PATIENCE_S: Final = 1.0
#: Of pieces above, kept parsed for each ledger: a whole tree may be in one process.
CACHE_BYTES: Final = 8 << 20


class _Above(NamedTuple):
    """A journal of which brokers here take records; equal if it is the same one."""

    name: StepName
    part: JournalPart
    key: Hashable
    where: tuple[int, ...]
    by: JournalSigner


@lru_cache(MAX_OPEN)
def _reader(above: _Above) -> PieceReader[HopPiece]:
    # Shared by the brokers below one: each piece is read and verified once for all of them.
    topic, broker = above.name.topic, above.name.broker
    journal = realm_of(above.name.realm, above.where).journal(topic, broker, above.part)
    return hop_reader(journal, cache_bytes=CACHE_BYTES, key=above.by)


class HopInput(HopCuts):
    """The part of a broker's hops that finds and reads what is above it."""

    def __init__(self, name: StepName) -> None:
        super().__init__(name)
        self._known: tuple[str, ...] = ()
        #: Itself, and who is above it now: whatever these have is for it to take.
        self._above: tuple[str | None, ...] = ()
        #: The generation whose overlay it has seen, and all before it.
        self._looked = 0
        #: Of brokers on other machines: what they hand on, and how far it went when they were last reached.
        self._elsewhere: dict[str, Journal | None] = {}
        self._readers: dict[tuple[str, JournalSigner], PieceReader[HopPiece]] = {}
        self._ends: dict[str, int] = {}
        #: Up to which record others' ledgers have nothing for it, by partition, where that was looked for.
        self._nothing: dict[int, int] = {}

    @property
    def paths(self) -> TopicPaths:
        return super().paths.hops

    @property
    def journal(self) -> KeptJournal:
        return self.realm.journal(self.name.topic, self.name.broker, "hops")

    # --- above ------------------------------------------------------------------------------------

    def upstreams(self) -> tuple[str, ...]:
        """Whose ledgers it takes its input from, in the order in which they came to stand above it: the place of each
        is the partition of its offset. Its own name is what it admits itself."""
        if not self._known:
            self._known = self._noted()
        return self._known

    def upstream(self, partition: int) -> PieceReader[HopPiece]:
        """One of them, also when another process has just noted it."""
        if partition >= len(self.upstreams()):
            self._known = self._noted()
        return self.reader(self._known[partition])

    def look_up(self, overlay: Overlay | None = None) -> tuple[str, ...]:
        """`upstreams`, with the one that it stands under now. For whoever runs it alone."""
        overlay = self.realm.state().overlay(self.name.topic) if overlay is None else overlay
        known, own = self.upstreams(), self.name.broker
        self._above = own, overlay.parents.get(own)
        if own not in overlay.parents:
            return known
        above = {overlay.parents[own] or own, *self._stood_below(overlay)}
        if own not in known and own not in above and self._admitted_some():
            above.add(own)  # it was a root once
        if not above.issubset(known):
            self._note_upstreams((*known, *sorted(above.difference(known))))
        return self._known

    def _admitted_some(self) -> bool:
        log = self.realm.journal(self.name.topic, self.name.broker).log("ledger")
        if log is None:
            return False
        with closing(log):
            return log.end() > 0

    def _note_upstreams(self, names: tuple[str, ...]) -> None:
        if self._notes is None:
            write_upstreams(self.paths.root, names)
        else:
            self._notes.note_upstreams(names)
        self._known = names

    def _stood_below(self, overlay: Overlay) -> list[str]:
        """Those above it in generations that ended since it last looked and are kept: it may have run in none of them,
        and what is on its way to it there is its own."""
        topic, state = self.name.topic, self.realm.state()
        first = max(self._looked, kept_at(state, self.about, self.realm.clock()).generation)
        ended = range(first, overlay.generation) if self._looked < overlay.generation else ()
        stood = [overlay_of(self.realm, state, topic, generation).parents for generation in ended]
        self._looked = max(self._looked, overlay.generation)
        return [parents[self.name.broker] or self.name.broker for parents in stood if self.name.broker in parents]

    @cached_property
    def _notes(self) -> HopNotes | None:
        there = self.realm.carriers.overlay(self.realm.state(), self.name.topic, self.name.broker)
        return None if there is None else there.notes(self.realm.broker(self.name.broker).journal_key(self.about.id))

    def _noted(self) -> tuple[str, ...]:
        return read_upstreams(self.paths.root) if self._notes is None else self._notes.upstreams()

    def reader(self, upstream: str) -> PieceReader[HopPiece]:
        """What one of them has."""
        own = upstream == self.name.broker
        by = journal_signer(self.realm.state(), self.about, upstream, b"" if own else HOPS_PART)
        journal = None if own else self._journal(upstream)
        if journal is None:
            part: JournalPart = "" if own else HOPS_JOURNAL
            key = self.realm.journal(self.name.topic, upstream, part).key
            return _reader(_Above(replace(self.name, broker=upstream), part, key, self.where, by))
        if (upstream, by) not in self._readers:
            self._readers[upstream, by] = hop_reader(journal, cache_bytes=CACHE_BYTES, key=by)
        return self._readers[upstream, by]

    def _journal(self, upstream: str) -> Journal | None:
        """Of a broker on another machine, what it hands on; None for one on this."""
        if upstream not in self._elsewhere:
            site = self.realm.site.of(self.name.broker)
            local = site.is_local(upstream)
            made = None if local else site.journal(self.name.topic, upstream, HOPS_JOURNAL, PATIENCE_S)
            self._elsewhere[upstream] = made
        return self._elsewhere[upstream]

    def available(self) -> tuple[int, ...]:
        """How many records each of them has; as many as it had, of one that cannot be reached."""
        done = self.committed().partitions
        known = done + (0,) * (len(self.upstreams()) - len(done))
        return tuple(map(self._end_of, self.upstreams(), known))

    def _end_of(self, upstream: str, done: int) -> int:
        try:
            self._ends[upstream] = self.reader(upstream).end()
        except GatewayUnreachable:
            return self._ends.get(upstream, done)
        return self._ends[upstream]

    def awaits(self, at: PinnedOffset, available: tuple[int, ...]) -> bool:
        """Says whether there is something to do. From brokers that stood above this one once, only what is addressed to
        it counts. Otherwise two brokers that changed places would wake each other for ever, each with an empty
        record."""
        for partition, (end, done) in enumerate(zip_longest(available, at.partitions, fillvalue=0)):
            if end > done and (self._known[partition] in self._above or self._addressed(partition, done, end)):
                return True
        return False

    def _addressed(self, partition: int, first: int, end: int) -> bool:
        """Whether records [first, end) there have something for this broker; each is looked at once."""
        for index in range(max(first, self._nothing.get(partition, 0)), end):
            if any(
                len(piece.rows_for(self.name.broker)) for piece in self.upstream(partition).pieces(index, index + 1)
            ):
                return True
            self._nothing[partition] = index + 1
        return False

    def sizes(self, partition: int, first: int, end: int, most: int | None = None) -> list[int]:
        ledger, found, left = self.upstream(partition).ledger, list[int](), most
        for index in range(first, end):
            if left is not None and left <= 0 and found:
                break
            found.append(sum(ref.size for ref in ledger.at(index).entry.pieces))
            left = None if left is None else left - found[-1]
        return found

    def taken_from(self, upstream: str) -> int:
        """How many records of a ledger above were taken."""
        names, done = self.upstreams() if upstream in self.upstreams() else self._noted(), self.committed().partitions
        return dict(zip(names, done, strict=False)).get(upstream, 0)

    def ends(self) -> tuple[int, ...]:
        self.look_up()
        return self.available()

    def shortened(self, partition: int, done: int, end: int) -> Corrupt:
        return Corrupt(
            f"{self.upstream(partition).ledger.shown} has {end} records, but broker {self.name.broker!r} took "
            f"{done}: records were removed, or an old copy was put back",
            hint="restore the newest copy",
        )
