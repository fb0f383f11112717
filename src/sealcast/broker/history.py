"""The replay windows of a topic, worked out again from its ledger, its pieces and its log.

Which frames were accepted, the pieces say: every refusal is named in them. What those frames claimed, the frames say.
Only the newest are needed, as far back as windows reach (broker/replay.py); older ones may have been removed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import numpy as np

from sealcast.broker.columns import REJECTED
from sealcast.broker.gate import CHECK, WHOLE_FRAME, Codes
from sealcast.broker.replay import CLAIM, Bools, Claims, ReplayBounds, ReplayVerdict, Windows, identify
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import PieceStore
from sealcast.model.rejection import Reason, Rejection
from sealcast.wire import frame, sealed

#: What a piece's word is taken for when the frames before it are gone: any verdict of its kind will do.
_WORD: Final = {Reason.REPLAY: ReplayVerdict.DUPLICATE, Reason.BUDGET: ReplayVerdict.EVENTS}
#: A frame that a later check refused was taken by replay all the same: its numbers are spent.
_LATER: Final = CHECK[Reason.REPLAY]


class RefusingPiece(Protocol):
    """What is asked of a piece, of whatever kind: what was refused."""

    @property
    def rejected(self) -> tuple[Rejection, ...]: ...


class History:
    """What the ledger of one topic says of replay."""

    def __init__(
        self,
        ledger: LedgerReader,
        pieces: PieceStore,
        log: EmbeddedTopic,
        bounds: ReplayBounds,
        parse: Callable[[bytes], RefusingPiece] = sealed.parse,
    ) -> None:
        self._parse = parse
        self._ledger = ledger
        self._pieces = pieces
        self._log = log
        self._bounds = bounds

    @property
    def bounds(self) -> ReplayBounds:
        return self._bounds

    def entry(self, index: int) -> Entry:
        """A record of the ledger, as it was committed."""
        return self._ledger.committed(index).entry

    def windows(self, before: int, known: tuple[int, Windows] | None = None) -> Windows:
        """The windows after the ledger's first `before` records; worked out from those after fewer records, if some
        are known."""
        first, windows = (0, Windows(self._bounds)) if known is None else (known[0], known[1].copy())
        if first == before:
            return windows
        settled = self._ledger.at(before - 1).entry.end.settled_us
        oldest = windows.first_generation(settled) * self._bounds.period_us
        for index in range(max(first, self.first_record(oldest, before)), before):
            entry = self._ledger.at(index).entry
            taken = [part for ref in entry.own for part in self._accepted(ref, entry)]
            claims = np.concatenate([np.empty(0, CLAIM), *(claims for claims, _ in taken)])
            charged = np.concatenate([np.empty(0, np.bool_), *(charged for _, charged in taken)])
            windows.take(claims, charged)
        windows.forget(settled)
        return windows

    def knows(self, settled_us: int) -> bool:
        """Whether all frames are kept that a batch may repeat, one that starts where this time was settled."""
        for number in range(self._log.partitions):
            start, records = self._log.partition(number).start(), range(self._ledger.end())
            if start:
                # The record that took the last frame that is gone: what is gone came before that was planned.
                index = bisect_left(records, start, key=lambda i: self._ledger.at(i).entry.reached(number))
                gone_us = self._ledger.at(index).entry.end.time_us if index < len(records) else settled_us
                if settled_us < gone_us + 2 * self._bounds.period_us:
                    return False
        return True

    def first_record(self, time_us: int, before: int) -> int:
        """The first of the ledger's first `before` records that may have taken frames which came at that time or
        later."""
        return bisect_left(range(before), time_us, key=lambda i: self._ledger.at(i).entry.end.time_us)

    def first_frames(self, time_us: int) -> PinnedOffset | None:
        """Where those frames begin; None if there are none."""
        index = self.first_record(time_us, self._ledger.end())
        return self._ledger.at(index).entry.start if index < self._ledger.end() else None

    def _accepted(self, ref: PieceRef, entry: Entry) -> Iterator[tuple[Claims, Bools]]:
        """Claims of the piece's frames that replay took, and which of them were charged."""
        first = max(ref.first, self._log.partition(ref.partition).start())
        if first >= ref.end:
            return
        refused, arrival = dict[int, Reason](), entry.arrival
        if any(entry.counts.get(name) for name in REJECTED.values()):  # else there is nothing to look for
            piece = self._parse(self._pieces.read(ref.name, ref.digest))
            refused = {r.position.offset: r.reason for r in piece.rejected if r.position.row == WHOLE_FRAME}
        claims, charged = list[tuple[int, ...]](), list[bool]()
        for offset, time_us, data in self._log.partition(ref.partition).read(first, ref.end):
            reason = refused.get(offset)
            if reason is not None and CHECK[reason] <= _LATER:
                continue
            header = frame.parse(data).header
            who = identify(header.publisher, header.boot)
            numbers = header.sequence, header.count, len(data)
            claims.append((ref.partition, offset, arrival.at(time_us), *who, *numbers, 0))
            charged.append(reason is not Reason.BUDGET)
        yield np.array(claims, CLAIM), np.array(charged, np.bool_)


def believe(codes: Codes, first: int, piece: RefusingPiece) -> Codes:
    """Rulings on a piece's frames from `first` on, with the piece's own word on what was replayed or too much."""
    codes = codes.copy()
    for refused in piece.rejected:
        at = refused.position.offset - first
        whole = refused.position.row == WHOLE_FRAME and 0 <= at < codes.size
        if whole and refused.reason in _WORD and codes[at] == ReplayVerdict.FRESH:
            codes[at] = _WORD[refused.reason]
    return codes
