"""The other order of paper 002: a filter that comes after the events, matched against those that are kept.

    tags of a batch's trapdoors  --pre-filter-->  does every slot of some conjunction have a label with such a tag?
        no     the filter is dismissed for this batch, before anyone computes with a point
        yes    the filter is re-encrypted, once in each epoch, and the batch is searched as any other (`search`)

The reader's half is the one of now: who has lost its right has none. Publishers' halves are those of the batch's time,
so that an event stays what it was when its publisher leaves.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.gate import Gate
from sealcast.model.stages import Admitted
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.past import AskedPast, Bools
from sealcast.protections.searchable.blocks import TrapdoorBlocks
from sealcast.protections.searchable.halves import BrokerHalves, searched
from sealcast.protections.searchable.search import Registered, SearchIndex
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.machine import RealmState
from sealcast.wire.searching import TAG_BYTES, SealedFilter

Tags = NDArray[np.uint32]
#: The one subscription of the index.
_THE_READERS: Final = 0


class SealedPast(Unpicklable):
    """One reader's sealed filters against what is kept."""

    def __init__(self, asked: AskedPast, state: RealmState, secrets: BrokerSecrets) -> None:
        self._asked, self._secrets = asked, secrets
        self._tag_bits = asked.topic.protection.tag_bits_shown
        self._now = BrokerHalves(state, asked.topic, secrets)
        self._index = SearchIndex(asked.topic.id, self._tag_bits)
        self._filters: dict[int, SealedFilter] = {}
        self._indexed: set[int] = set()

    def true(self, gate: Gate, admitted: Admitted) -> Bools:
        events = searched(admitted)
        epochs = np.array([each.epoch for each in events.senders], np.int64)
        then = BrokerHalves(gate.state, gate.topic, self._secrets)
        found = np.zeros(epochs.size, np.bool_)
        for epoch in np.unique(epochs).tolist():
            places = np.flatnonzero(epochs == epoch)
            blocks = [events.blocks[at] for at in places.tolist()]
            if self._may_match(epoch, blocks):
                self._take(epoch)
                publishers = [events.senders[at].publisher for at in places.tolist()]
                met, _ = self._index.search(publishers, [epoch] * len(blocks), blocks, then.of).pairs()
                found[places[met]] = True
        return found

    def _may_match(self, epoch: int, blocks: list[bytes]) -> bool:
        """False if the reader has no filter for the epoch, or one that no event of the batch can match by its tags."""
        text = self._asked.of(epoch)
        if text is None:
            return False
        if epoch not in self._filters:
            self._filters[epoch] = SealedFilter.from_text(text, self._tag_bits)
        return may_match(self._filters[epoch], published_tags(blocks, self._tag_bits))

    def _take(self, epoch: int) -> None:
        """Indexes the filter of an epoch. What a reader sent with bad points is its own fault, and it is told."""
        if epoch not in self._indexed:
            row = Registered(_THE_READERS, self._asked.reader, self._filters[epoch])
            for refusal in self._index.add([row], self._now.of).values():
                raise refusal
            self._indexed.add(epoch)


def published_tags(blocks: list[bytes], tag_bits: int) -> Tags:
    """The pub-filter: the tags of events that are kept. It is made for one look, so that nothing smaller than the set
    itself would save anything, and the set is never wrong."""
    return np.unique(TrapdoorBlocks.read(blocks, tag_bits).tags)


def may_match(asked: SealedFilter, tags: Tags) -> bool:
    """False only if every conjunction has a slot none of whose labels has a tag of any event."""
    wanted = np.array(sorted({_tag(label) for label in asked.labels}), np.uint32)
    there = set(wanted[np.isin(wanted, tags)].tolist())
    return any(all(any(_tag(label) in there for label in slot) for slot in slots) for slots in asked.conjunctions)


def _tag(label: bytes) -> int:
    return int.from_bytes(label[:TAG_BYTES], "big")
