"""From boxes that were found to subscriptions: whom each box speaks for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sealcast.filters.bits import Words, bit_of, runs
from sealcast.filters.index.blocks import Blocks
from sealcast.filters.index.boxes import Ids
from sealcast.filters.index.postings import Postings


@dataclass(frozen=True, slots=True)
class Fan:
    """The subscriptions that a box speaks for: `subscriptions[starts[b]:starts[b + 1]]`."""

    starts: Ids
    subscriptions: Ids

    def spread(self, boxes: Ids, events: Ids) -> tuple[Ids, Ids]:
        """(subscription, event) pairs of (box, event) pairs."""
        starts = self.starts.take(boxes)
        counts = self.starts.take(boxes + 1) - starts
        return self.subscriptions.take(runs(starts, counts)), np.repeat(events, counts)


@dataclass(frozen=True, slots=True)
class Targets:
    """Where every box speaks for one subscription: that subscription, its word and its bit, by entry of a structure."""

    subscriptions: Ids
    words: Ids
    bits: Words


@dataclass(frozen=True, slots=True)
class IndexPart:
    """A structure that finds boxes. `plain`: a box found is a match, and no other box speaks for its subscriptions."""

    finder: Blocks | Postings
    plain: bool
    targets: Targets | None

    @classmethod
    def of(cls, finder: Blocks | Postings, plain: bool, fan: Fan) -> IndexPart:
        starts = fan.starts.take(finder.boxes)
        if not plain or (fan.starts.take(finder.boxes + 1) - starts != 1).any():
            return cls(finder, plain, None)
        subscriptions = fan.subscriptions.take(starts)
        return cls(finder, plain, Targets(subscriptions, subscriptions >> 6, bit_of(subscriptions)))

    def set(self, entries: Ids, starts: Ids, fan: Fan, out: Words) -> None:
        """The bits of these matches, in rows that start there. Adding is setting: no pair comes twice, and `add` is
        five times as fast as `or`."""
        if self.targets is not None:
            words, bits = self.targets.words.take(entries), self.targets.bits.take(entries)
        else:
            subscriptions, starts = fan.spread(self.finder.boxes.take(entries), starts)
            words, bits = subscriptions >> 6, bit_of(subscriptions)
        words += starts
        np.add.at(out.reshape(-1), words, bits)

    def set_one(self, entries: Ids, fan: Fan, out: Words) -> None:
        """`set` for one event, whose row is all there is."""
        if self.targets is None:
            self.set(entries, np.zeros(entries.size, np.int64), fan, out)
        else:
            np.add.at(out[0], self.targets.words.take(entries), self.targets.bits.take(entries))

    def matches(self, entries: Ids, events: Ids, fan: Fan) -> tuple[Ids, Ids]:
        """(subscription, event) pairs."""
        if self.targets is not None:
            return self.targets.subscriptions.take(entries), events
        return fan.spread(self.finder.boxes.take(entries), events)
