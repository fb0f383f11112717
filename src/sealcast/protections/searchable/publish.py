"""publish: Event -> message. Brokers see trapdoors of the event's labels, and no attribute.

    message = the event's record without payload and attributes; in the payload's place: block | envelope

A publisher reuses its trapdoor of a label within an epoch: brokers compute the same T from every trapdoor of the label,
so that fresh ones would hide nothing. A topic may ask for fresh ones (`Searchable.fresh`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sealcast.errors import EventRejected
from sealcast.filters.labels import Labeller
from sealcast.filters.labels.naming import root
from sealcast.primitives.secrets import Secret
from sealcast.protections.checked import CheckedBatch, CheckedEvent, Refusals
from sealcast.protections.enveloped.publish import EventSealer
from sealcast.protections.searchable.blocks import most_trapdoors
from sealcast.protections.searchable.scheme import UserKeys
from sealcast.trust.realm.topics import Topic
from sealcast.wire.limits import MAX_TRAPDOORS
from sealcast.wire.searching import BLOCK_HEAD, TRAPDOOR_BYTES, packed_block

#: Labels whose trapdoors are kept: labels repeat far more than they differ.
MAX_TRAPDOORS_KEPT: Final = 65_536


class SearchableSealer(EventSealer):
    """One publisher on one topic in one epoch."""

    def __init__(self, about: Topic, epoch: int, secret: Secret, search: UserKeys, *, fresh: bool) -> None:
        super().__init__(about, epoch, secret)
        self._labeller = Labeller(about.schema)
        self._most = self._labeller.most()
        # Every event has them, and no filter asks for them; but one that every event matches asks for the first.
        self._roots = frozenset(root(attribute.name) for attribute in about.schema.attributes[1:])
        self._trapdoor = search.trapdoor if fresh else lru_cache(MAX_TRAPDOORS_KEPT)(search.trapdoor)

    def check(self, batch: CheckedBatch) -> Refusals:
        many = range(len(batch)) if self._most > MAX_TRAPDOORS else ()
        return {**super().check(batch), **batch.refused(many, self._check_labels)}

    def _check_labels(self, event: CheckedEvent) -> None:
        labels = len(set(self._labeller.labels(event.values)))
        if labels > MAX_TRAPDOORS:
            raise EventRejected(
                f"the event has {labels} labels, {MAX_TRAPDOORS} are allowed",
                hint="shorter texts have fewer labels; so do bounded numbers with a coarser step",
            )

    @property
    def most_before(self) -> int:
        return BLOCK_HEAD + TRAPDOOR_BYTES * most_trapdoors(self._labeller.schema)

    def before(self, batch: CheckedBatch) -> Sequence[bytes]:
        labels = self._labeller.batch(batch.columns)
        trapdoor, known = self._trapdoor, labels.labels
        wanted = [label not in self._roots for label in known]
        runs = zip(labels.offsets[:-1].tolist(), labels.offsets[1:].tolist(), strict=True)
        return [packed_block(trapdoor(known[i]) for i in labels.ids[a:b].tolist() if wanted[i]) for a, b in runs]
