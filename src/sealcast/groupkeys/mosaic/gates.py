"""Where keys of parts are worth making: each node of the tree learns whether what passes through it comes again.

Making a key for a part costs next to nothing on the wire, but fills the memories of the broker and of the part's
members. A node whose keys have saved too little for what was made of them closes its gate; while it is closed, it
listens to a sample of the parts that pass, and opens again when they start to repeat: a larger one where parts are few
and save much, so that what is heard at the bottom of the tree does not drown what is heard at its top. On random groups
all gates close and planning costs no look-ups at all.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import Indices
from sealcast.groupkeys.mosaic.memory import U64, Memory

#: A gate stays open while each key made has saved this much on average, in encryptions.
LEAST_GAIN: Final = 0.25
#: What a gate is credited with at the start, a tile below it: it has to see this much fail before it closes.
CREDIT: Final = 4.0
#: After so many keys, the past counts half.
FADE: Final = 4_096.0
#: One part in so many is listened to at the top; one in twice as many of half the tiles, and so on.
SAMPLE: Final = 16
#: Of the memory's bytes, to listen with.
SHARE: Final = 1 / 16


class Gates:
    """One a node."""

    def __init__(self, tiles_below: Indices, budget_bytes: int) -> None:
        self.budget = budget_bytes
        self._made = np.zeros(tiles_below.size)
        self._gain = CREDIT * tiles_below
        self._heard = Memory(budget_bytes)
        share = tiles_below.max(initial=1) / np.maximum(1, tiles_below)
        self._sample = SAMPLE * np.exp2(np.round(np.log2(share))).astype(np.uint64)
        self.is_open: NDArray[np.bool_] = np.ones(tiles_below.size, np.bool_)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self._made, self._gain, self._heard, self._sample, self.is_open))

    def gained(self, node: Indices, savings: Indices) -> None:
        np.add.at(self._gain, node, savings)

    def made(self, node: Indices) -> None:
        np.add.at(self._made, node, 1.0)

    def listen(self, node: Indices, head: U64, tail: U64, savings: Indices) -> None:
        """Parts that pass a closed gate: would their keys have been used again? `savings` is what they could save."""
        sample = np.flatnonzero(head % self._sample[node] == 0)
        if not sample.size:
            return
        _, first = np.unique(head[sample], return_index=True)
        sample = sample[first]
        held, _ = self._heard.ask(head[sample], tail[sample])
        self.gained(node[sample[held]], savings[sample[held]])
        fresh = sample[~held]
        self.made(node[fresh])
        self._heard.tell(head[fresh], tail[fresh], np.ones(fresh.size, np.int64))

    def settle(self) -> None:
        """After a batch: open or close."""
        old = self._made > FADE
        self._made[old] /= 2
        self._gain[old] /= 2
        self.is_open = self._gain >= LEAST_GAIN * self._made
