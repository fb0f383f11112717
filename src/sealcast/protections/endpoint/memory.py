"""What a worker remembers of who holds which key: soft state, true because it follows the ledger.

A planner's plan hands keys out; whether its piece was committed, only the ledger can say. So a plan waits, under a tag,
until the ledger names a piece for its frames: the very piece, and what it handed out is relied on from then on; another
one, made by another worker that ran the task again, and it is forgotten. Pieces of one batch never rely on each other:
they are committed together, but may be read in another order than they were made.

What other workers have committed, and what was committed before this one began, is learnt from their pieces: an event
that a key of its group's own was used for has brought that key to the group. So a key is handed out once, whoever makes
the next piece; and of what is lost with a process, most is still in the ledger. The rest is handed out again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from sealcast.errors import SealcastError
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.catalog import Setting, make
from sealcast.groupkeys.handed import MAX_TAG
from sealcast.groupkeys.interface import KeyPlan, Outline, Planner
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.groupkeys.naive import Naive
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import LedgerReader
from sealcast.log.pieces import PieceStore
from sealcast.wire import sealed
from sealcast.wire.sealed import PAIR, SealedPiece

#: Fewer subscribers are served one by one: a key for a group of them costs more to hand out than it saves.
FEW: Final = 16
#: Of the paper's algorithms: entries of a cache.
CACHE: Final = 10_000
#: Of ours: bytes a worker, at least, and a subscriber.
MEMORY_BYTES: Final = 1 << 20
MEMORY_BYTES_EACH: Final = 1 << 10
#: Ledger records looked at to catch up, and bytes of others' pieces; whatever waits from before is given up.
MAX_BEHIND: Final = 64
MAX_LEARNT_BYTES: Final = 64 << 20

Frames = tuple[int, int, int]


def planner_for(algorithm: str, subscribers: int) -> Planner:
    """A planner that remembers nothing yet, of a size that fits the topic."""
    if subscribers < FEW:
        return Naive()
    if algorithm == "mosaic":
        return Mosaic(subscribers, MEMORY_BYTES + MEMORY_BYTES_EACH * subscribers)
    return make(algorithm, Setting(subscribers, CACHE, policy="tinylfu"))


@dataclass(frozen=True, slots=True)
class _Waiting:
    tag: int
    digest: bytes


def _delivered(piece: SealedPiece) -> tuple[Outline, Words, Indices, Indices]:
    """What a piece has brought to its readers, as `Mosaic.learn` takes it."""
    boxes = piece.mailboxes
    direct = np.flatnonzero(np.asarray(piece.wrapped) == 0)
    key = np.asarray(piece.uses)[np.asarray(piece.use_start, np.int64)[direct]]
    of_group = np.asarray(piece.key_kind)[key] != PAIR
    groups = boxes.words()[np.unique(np.asarray(piece.group_of)[direct[of_group]])]
    outline = Outline(*(np.asarray(a, np.int64) for a in (piece.tile_size, piece.tile_run, piece.tile_join)))
    return outline, groups, np.asarray(piece.table_tile, np.int64), np.asarray(piece.table_slot, np.int64)


class KeyMemory:
    """One topic, epoch and incarnation in this process: the planner, and which of its plans wait for their pieces."""

    def __init__(
        self,
        ledger: LedgerReader,
        pieces: PieceStore,
        ours: Callable[[SealedPiece], bool],
        subscribers: int,
        algorithm: str,
        planners: Callable[[str, int], Planner] | None = None,
    ) -> None:
        """`ours` says of a piece whether it was sealed in that epoch and incarnation: others' keys are no use here."""
        self._ledger, self._pieces, self._ours = ledger, pieces, ours
        self._algorithm = algorithm
        self._planners = planners or planner_for
        self._planner = self._planners(algorithm, subscribers)
        self._made_for = subscribers
        self._tag = 0
        self._waiting: dict[Frames, _Waiting] = {}
        self._latest: int | None = None
        self._seen = 0
        self._catch_up()

    def grown_to(self, subscribers: int) -> None:
        """A planner is made anew when subscribers are many more than it was made for. (Ours grows by itself, too.)"""
        factor = 4 if isinstance(self._planner, Mosaic) else 2
        if subscribers >= max(FEW, factor * self._made_for):
            self._planner = self._planners(self._algorithm, subscribers)
            self._made_for = subscribers
            self._waiting.clear()

    def plan(self, groups: Words, group_of: Indices | None = None) -> KeyPlan:
        if isinstance(self._planner, Naive):  # it hands out nothing, so that nothing has to be settled
            return self._planner.plan(groups, group_of)
        self._catch_up()
        self._tag = self._tag % MAX_TAG + 1
        # A tag that comes around again: whatever waits under it has waited too long.
        self._give_up([frames for frames, w in self._waiting.items() if w.tag == self._tag])
        self._planner.settle(self._tag, False)
        self._latest = self._tag
        return self._planner.plan(groups, group_of, self._tag)

    def made(self, piece: SealedPiece, data: bytes) -> None:
        """The piece of the latest plan, encoded: what the ledger may name."""
        if self._latest is None:
            return
        frames = (piece.partition, piece.first_offset, piece.end_offset)
        self._give_up([frames] if frames in self._waiting else [])
        self._waiting[frames] = _Waiting(self._latest, hashlib.sha256(data).digest())
        self._latest = None

    # --- inside -------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """What became of the plans that wait."""
        others: list[PieceRef] = []
        try:
            end = self._ledger.end()
            if not self._seen <= end <= self._seen + MAX_BEHIND:
                self._give_up(list(self._waiting))
                self._seen = max(0, end - MAX_BEHIND)
            if end > self._seen:
                for committed in self._ledger.as_committed(self._seen, end):
                    others += self._settle(committed.entry)
                    self._seen = committed.index + 1
            self._learn(others)
        except SealcastError:
            # Whatever is wrong with the ledger, whoever commits to it will say; here, nothing more is relied on.
            self._give_up(list(self._waiting))

    def _settle(self, entry: Entry) -> list[PieceRef]:
        """What became of this worker's plans; the pieces that are others'."""
        others = []
        for ref in entry.pieces:
            waiting = self._waiting.pop((ref.partition, ref.first, ref.end), None)
            mine = waiting is not None and waiting.digest == ref.digest
            if waiting is not None:
                self._planner.settle(waiting.tag, mine)
            if not mine:
                others.append(ref)
        reached = entry.end.partitions
        self._give_up([f for f in self._waiting if f[0] < len(reached) and f[1] < reached[f[0]]])
        return others

    def _learn(self, refs: list[PieceRef]) -> None:
        if not isinstance(self._planner, Mosaic):
            return
        newest, room = list[PieceRef](), MAX_LEARNT_BYTES
        for ref in reversed(refs):
            room -= ref.size
            if room < 0:
                break
            newest.append(ref)
        for ref in reversed(newest):
            piece = sealed.parse(self._pieces.read(ref.name, ref.digest))
            if len(piece.tile_size) and self._ours(piece):
                self._planner.learn(*_delivered(piece))

    def _give_up(self, frames: list[Frames]) -> None:
        for each in frames:
            self._planner.settle(self._waiting.pop(each).tag, False)
