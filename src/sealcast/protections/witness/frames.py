"""The ledger of a broker that takes frames in: replay and rates of every batch are decided again, and frames are
handed to admission as the batch's own were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from sealcast.broker.context import gate_at
from sealcast.broker.gate import Codes, Gate, bounds_of
from sealcast.broker.history import History, believe
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import received_of, rule_frames
from sealcast.errors import Bug, Corrupt, SealcastError
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.entry import Entry
from sealcast.log.ledger import Committed
from sealcast.log.offsets import AS_STAMPED, PinnedOffset
from sealcast.model.stages import Ruled
from sealcast.protections.journals import journal_signer
from sealcast.protections.port import broker_side
from sealcast.protections.witness import ends
from sealcast.protections.witness.ledger import LedgerAudit, P
from sealcast.protections.witness.report import CheckReport, Kind
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.heads import Head, Pin
from sealcast.trust.keys.broker import BrokerSecrets

#: Versions kept: batches follow each other, and most are pinned to the version of the one before.
MAX_VERSIONS: Final = 2


class FramesAudit(LedgerAudit[P]):
    """One broker's ledger over its frame log. What it admitted is worked out again where its secrets are here."""

    def __init__(
        self,
        report: CheckReport,
        realm: BrokerRealm,
        topic: str,
        broker: str,
        secrets: BrokerSecrets | None,
        parse: Callable[[bytes], P],
        name: str = "",
    ) -> None:
        state, paths = realm.state(), realm.paths.topic(topic, broker)
        about = state.topic(topic)
        self.secrets, self._key = secrets, None if secrets is None else secrets.journal_key(about.id)
        journal, by = realm.journal(topic, broker), journal_signer(state, about, broker)
        super().__init__(report, about, paths, journal, parse, self._key, by, name)
        self._realm, self._topic = realm, topic
        self._log = realm.frames(topic, broker, read_only=True) if paths.frames_root.is_dir() else None
        self._bounds = bounds_of(about)
        self._windows = Windows(self._bounds)
        self.gate = lru_cache(MAX_VERSIONS)(self._gate_at)
        #: Of the batch at hand: the first frame of each partition, and the codes of the frames from there on.
        self._ruled: dict[int, tuple[int, Codes]] = {}
        #: Frames that the batch at hand may have repeated are gone: a piece's own word on that has to be believed.
        self.blind = False
        self._time_us, self._arrival = 0, AS_STAMPED

    def available(self) -> Sequence[int]:
        return [] if self._log is None else [self._log.partition(p).end() for p in range(self._log.partitions)]

    def newest(self) -> int:
        return self._realm.registry.version()

    def close(self) -> None:
        super().close()
        if self._log is not None:
            self._log.close()

    def check_ends(self, end: int, reached: PinnedOffset) -> None:
        super().check_ends(end, reached)
        try:
            last = self._ledger.at(end - 1).entry if end else None
        except Corrupt:
            last = None  # said when it was that record's turn
        if last is not None and last.chain and last.version <= self.newest():
            seen = Pin(self._paths.ledger, "the ledger", may_go=False)
            try:
                self._realm.registry.hold_to(Head(last.version, last.chain), seen)
            except Corrupt as error:
                self.add(Kind.LEDGER, error.message)
        if self._key is not None:
            for text in ends.checkpoint(self._paths.checkpoint, reached, self._key):
                self.add(Kind.LEDGER, text)

    def _gate_at(self, version: int) -> Gate:
        state, secrets = self._realm.state(version), self.secrets
        if secrets is None:
            raise Bug("frames are opened with a broker's secrets, which are not here")
        topic = state.topic(self._topic)
        return gate_at(state, topic, secrets, unfit=broker_side(topic.protection).unfit)

    def resume(self, committed: Committed) -> None:
        """Goes to one record, as if all before it had been checked."""
        if self._log is not None:
            self._windows = self._history(self._log).windows(committed.index)
        self.begin(committed.entry, committed.entry.start)

    def _history(self, log: EmbeddedTopic) -> History:
        return History(self._ledger, self._pieces, log, self._bounds, self._parse)

    def begin(self, entry: Entry, reached: PinnedOffset) -> None:
        """Replay and rates of the whole batch, again. A batch that goes back is judged by itself; whether it delivered
        what others had delivered is for the order to say."""
        self._time_us, self._arrival, self._ruled = entry.end.time_us, entry.arrival, {}
        if self._log is None or self.secrets is None:
            return
        forward, log = entry.start.reaches(reached), self._log
        began = reached if forward else entry.start
        kept = {p: log.partition(p).start() for p in range(log.partitions)}
        spans = [(p, max(first, kept.get(p, end)), end) for p, first, end in began.ranges(entry.end)]
        self.blind = not self._history(log).knows(began.settled_us)
        try:
            codes = rule_frames(
                self._windows if forward else Windows(self._bounds),
                log,
                [span for span in spans if span[1] < span[2]],
                self.gate(entry.version),
                entry.arrival,
                entry.end.settled_us,
            )
        except SealcastError:
            return  # whoever needs these frames will meet the same, and say so
        self._ruled = {p: (first, codes[p]) for p, first, _ in spans if p in codes}

    def ruled(self, partition: int, first: int, end: int, piece: P | None) -> Ruled | None:
        """These frames of the batch at hand, as admission got them; None when they cannot be read any more."""
        if self._log is None:
            return None
        try:
            log = self._log.partition(partition)
            kept = max(first, min(log.start(), end))
            self.report.unchecked += kept - first
            records = list(log.read(kept, end)) if kept < end else []
        except SealcastError as error:
            self.add(Kind.LOG, error.message)
            return None
        if kept > first or not records:
            return None
        begun, codes = self._ruled.get(partition, (first, np.empty(0, np.uint8)))
        mine = codes[first - begun : end - begun]
        if mine.size != end - first:
            return None  # they cannot be read; said where that was found
        if self.blind and piece is not None:
            mine = believe(mine, first, piece)
        return Ruled(received_of(partition, records, self._arrival), mine)
