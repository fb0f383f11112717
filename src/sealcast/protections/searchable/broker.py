"""The broker's side of `searchable`: one step, which matches ciphertexts and hands on what publishers sealed.

It has a half of every user's key and no content key. It learns which subscriptions an event matches, and no label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from sealcast.broker.columns import piece_row
from sealcast.broker.frames import HeldFrames, ReadableFrames
from sealcast.broker.gate import RETAINED, RETAINED_TOLD, Rulings
from sealcast.broker.tables import Indexing
from sealcast.errors import Bug, Rejected
from sealcast.log.entry import slot_bits
from sealcast.log.offsets import PinnedOffset
from sealcast.log.piece_reader import PieceReader, sealed_reader
from sealcast.model.subscription import Subscription
from sealcast.primitives import points
from sealcast.protections.enveloped.hand_on import HandingOn
from sealcast.protections.enveloped.seal_again import SealingAgain
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.past import AskedPast
from sealcast.protections.port import BrokerSide
from sealcast.protections.searchable.blocks import most_trapdoors
from sealcast.protections.searchable.late import LateFilters, PubFilters
from sealcast.protections.searchable.late_batch import LateBatch
from sealcast.protections.searchable.past import SealedPast
from sealcast.protections.searchable.retained import new_filters, retained
from sealcast.protections.searchable.table import SealedIndexes
from sealcast.protections.steps import Span
from sealcast.trust.realm.changes import EVERYTHING
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.wire import sealed
from sealcast.wire.sealed import SealedPiece
from sealcast.wire.searching import (
    TAG_BYTES,
    SealedRejected,
    block_size,
    parse_block,
)

#: Trapdoors whose points were looked at: publishers use theirs again.
MAX_GOOD: Final = 65_536
#: Of pieces that were delivered before, kept parsed.
EARLIER_BYTES: Final = 32 << 20
_NO_POINT: Final = "a trapdoor's point is not on the curve"


@lru_cache(MAX_GOOD)
def _good(trapdoor: bytes) -> bool:
    middle = TAG_BYTES + points.WIRE_BYTES
    try:
        points.check((trapdoor[TAG_BYTES:middle], trapdoor[middle:]))
    except Rejected:
        return False
    return True


def unfit(topic: Topic, payloads: Sequence[bytes]) -> Iterable[tuple[int, str]]:
    """Events without a block that could be searched. Reasons name rules, never values."""
    most = most_trapdoors(topic.schema)
    for number, payload in enumerate(payloads):
        try:
            size = block_size(payload)
            trapdoors = parse_block(payload[:size], topic.protection.tag_bits_shown)
        except SealedRejected as error:
            yield number, error.message
            continue
        if len(trapdoors) > most:
            yield number, f"an event of this topic has at most {most} trapdoors"
        elif not all(map(_good, trapdoors)):
            yield number, _NO_POINT


class SearchableStep(MatchingStep):
    """Admit, search, group, hand on, deliver; and the same for what is retained, with filters that are new."""

    def indexing(self) -> Indexing:
        return SealedIndexes(self.secrets, self.about)

    def sealing(self, state: RealmState, topic: Topic) -> HandingOn:
        return HandingOn(block_size)

    def past(self, state: RealmState, asked: AskedPast, template: str) -> SealedPast:
        if template != EVERYTHING:
            raise Bug(f"a right to read {asked.topic.name!r} is for some events, and its brokers cannot tell which")
        return SealedPast(asked, state, self.secrets)

    # --- filters that came later --------------------------------------------------------------------

    #: The versions that were asked about last, and what is new between them.
    _last_new: tuple[tuple[int, int], Mapping[str, Subscription]] | None = None

    @cached_property
    def _earlier(self) -> PieceReader[SealedPiece]:
        """What this step has delivered."""
        return sealed_reader(self.journal, cache_bytes=EARLIER_BYTES, key=self.journal_key)

    @cached_property
    def _pub_filters(self) -> PubFilters:
        return PubFilters()

    def _new(self, before: int, now: int) -> Mapping[str, Subscription]:
        """The filters that came between two versions and are owed what is retained."""
        end = self._earlier.end()
        if before >= now or self.about.protection.retention is None or not end:
            return {}
        if not any(self._earlier.record(end - 1).entry.end.partitions):
            return {}
        if self._last_new is None or self._last_new[0] != (before, now):
            states = self.realm.state(before), self.realm.state(now)
            found = new_filters(self.realm, self.name.topic, self.name.broker, *states)
            self._last_new = (before, now), found
        return self._last_new[1]

    def awaits(self, at: PinnedOffset, available: tuple[int, ...]) -> bool:
        return super().awaits(at, available) or bool(self._new(at.version, self.version()))

    def beside(self, start: PinnedOffset, end: PinnedOffset) -> list[tuple[Span, Sequence[int]]]:
        """What is retained, if filters are new. Of a batch that takes no frames, the newest piece is told of in any
        case."""
        if not self._new(start.version, end.version):
            return []
        log = self._earlier
        kept = retained(log.record, log.end(), self.about.protection.retention, end.time_us)
        spans = {(piece.ref.partition, piece.ref.first): piece.ref for piece in kept}
        told = None
        if not start.ranges(end):
            newest = next(ref for n in reversed(range(log.end())) for ref in reversed(log.record(n).entry.own))
            told = newest.partition, newest.first
            spans[told] = newest
        found = list[tuple[Span, Sequence[int]]]()
        for place, ref in spans.items():
            since = max(ref.first, self.frames.partition(ref.partition).start())
            weight = sum(self.sizes(ref.partition, since, ref.end)) if since < ref.end else 0
            code = RETAINED_TOLD if place == told else RETAINED
            found.append((Span(self.name, ref.partition, ref.first, ref.end, end, code), [weight]))
        return found

    def make(self, pinned: Mapping[str, int], rulings: Rulings, frames: HeldFrames) -> Iterator[pa.RecordBatch]:
        late = np.isin(rulings["code"], (RETAINED, RETAINED_TOLD))
        if not late.all():
            yield from super().make(pinned, rulings[~late], frames)
        if late.any():
            yield from self._make_late(pinned, rulings[late], frames.log)

    def _make_late(
        self, pinned: Mapping[str, int], rulings: Rulings, frames: ReadableFrames
    ) -> Iterator[pa.RecordBatch]:
        batch, made = self._late_batch(pinned["version"], pinned["time"], frames), 0
        for piece in batch.make((partition, first) for partition, first, _ in rulings.tolist()):
            made += 1
            yield self._late_row(piece, pinned)
        told = [ruling[:2] for ruling in rulings.tolist() if ruling[2] == RETAINED_TOLD]
        for ref in (self._earlier.find(*place)[2] for place in told if not made):
            if ref is not None:
                yield self._late_row(batch.nothing(ref), pinned)

    def _late_row(self, piece: SealedPiece, pinned: Mapping[str, int]) -> pa.RecordBatch:
        slots = slot_bits(piece.slots.tolist())
        return piece_row(self.name.broker, piece, sealed.encode(piece), pinned, slots, late=True)

    def _late_batch(self, version: int, time_us: int, frames: ReadableFrames) -> LateBatch:
        """The late part of a batch that follows what is in the ledger."""
        log, gate = self._earlier, self.gate(version)
        state, topic, end = gate.state, gate.topic, log.end()
        new = self._new(log.record(end - 1).entry.version, version)
        return LateBatch(
            LateFilters(state, topic, new, self.secrets, time_us),
            retained(log.record, end, topic.protection.retention, time_us),
            topic=topic,
            version=version,
            sealing=SealingAgain(state, topic, self.secrets, self.sealing(state, topic)),
            secrets=self.secrets,
            gate=self.gate,
            frames=frames,
            reader=log,
            end=end,
            known=self._pub_filters,
        )


BROKER: Final = BrokerSide((SearchableStep,), joining="sealcast topic serve {topic} {broker}", unfit=unfit)
