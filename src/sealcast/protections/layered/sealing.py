"""Events -> what each root broker of a `layered` topic gets: cores, and entries that only brokers on the way can use.

    values, payload, kind --record--> message --encrypt_notification--> core [event id, body]      once, for all
                                                                        entries, of each root      its targets' alone

What the body seals is the whole record, attributes and payload alike: an event's attributes are as secret as the rest.
Labels are made for a batch at once, each distinct one is encrypted once for a target, and the work of one event beyond
that is its payload key: one power a target.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sealcast.errors import EventRejected
from sealcast.filters.labels import Labeller
from sealcast.model.schema import Schema
from sealcast.primitives.groups import CachedHashes
from sealcast.protections.checked import CheckedBatch, CheckedEvent, Refusals
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.publish import TreePublisher
from sealcast.protections.layered.tree import Path, TreeId
from sealcast.wire.limits import MAX_MESSAGE_BYTES, MAX_TOKENS
from sealcast.wire.notifications import EVENT_BYTES, Core, encode_core, encode_entries
from sealcast.wire.records import RecordCodec, fresh_salts

#: What a core and an entry have beside what they carry: heads, lengths, id, commitment and tag, generously.
OVERHEAD: Final = 256
ENTRY_OVERHEAD: Final = 16


@dataclass(frozen=True, slots=True)
class SealedForRoots:
    """One event as it goes to the roots."""

    core: bytes
    #: By root broker.
    entries: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """The size of both messages, at the root where they are largest."""
        return len(self.core) + max(map(len, self.entries.values()))


def messages(events: Sequence[SealedForRoots], root: str) -> list[bytes]:
    """The messages of a frame for one root, two an event: 2i is its core, 2i + 1 its entries for this root."""
    return [message for event in events for message in (event.core, event.entries[root])]


class NotificationSealer:
    """One publisher in one of its trees."""

    def __init__(
        self,
        schema: Schema,
        topic_id: bytes,
        tree: TreeId,
        layers: Layers,
        targets: Iterable[Path],
        *,
        padded: bool = False,
    ) -> None:
        """Padded, every event has as many labels as the schema allows."""
        self.tree = tree
        self._codec = RecordCodec(schema)
        self._labeller = Labeller(schema)
        self._pad_to = self._labeller.most() if padded else 0
        self._domain = tree.domain(topic_id)
        self._targets: tuple[Path, ...] = ()
        self._widest = 0
        self._wire = layers.group.wire_bytes
        hashes = CachedHashes(layers.group, self._domain)
        self._publisher = TreePublisher(layers, hashes, (), self._domain)
        self.retarget(targets)

    @property
    def targets(self) -> tuple[Path, ...]:
        return self._targets

    def retarget(self, targets: Iterable[Path]) -> None:
        """Brokers or subscribers came or went without a new tree."""
        self._targets = tuple(sorted(targets))
        self._publisher.retarget(self._targets)
        roots = [target[0] for target in self._targets]
        self._widest = max((roots.count(root) for root in set(roots)), default=0)

    def check(self, batch: CheckedBatch) -> Refusals:
        """Refuses events of which more would become than the wire carries."""
        large = batch.over(MAX_MESSAGE_BYTES - 2 * OVERHEAD)
        many = () if self._fits(self._labeller.most()) else range(len(batch))
        # The size of an event is said before the number of its labels.
        return {**batch.refused(many, self._check_labels), **batch.refused(large, self._check_size)}

    def _check_size(self, event: CheckedEvent) -> None:
        (message,) = self._codec.encode([event.values], [event.payload])
        if len(message) + OVERHEAD > MAX_MESSAGE_BYTES:
            raise EventRejected(f"the event takes {len(message)} bytes, too many to be sealed as a whole")

    def _check_labels(self, event: CheckedEvent) -> None:
        labels = self._pad_to or len(set(self._labeller.labels(event.values)))
        if not self._fits(labels):
            raise EventRejected(
                f"the event has {labels} labels for each of {self._widest} places below one root broker: more than one "
                "message carries",
                hint="shorter texts have fewer labels; so do bounded numbers with a coarser step",
            )

    def _fits(self, labels: int) -> bool:
        size = OVERHEAD + self._widest * (labels * self._wire + self._wire + ENTRY_OVERHEAD)
        return labels <= MAX_TOKENS and size <= MAX_MESSAGE_BYTES

    def seal(self, batch: CheckedBatch) -> Iterator[SealedForRoots]:
        """Events that passed `check`, in order; as many at a time as fit into memory twice."""
        records = batch.records(self._codec, fresh_salts(len(batch)))
        labels = self._labeller.batch(batch.columns)
        self._publisher.prepare(labels.labels)
        for row, record in enumerate(records):
            yield self._seal(labels.of(row), record)

    def _seal(self, labels: Sequence[bytes], record: bytes) -> SealedForRoots:
        event = os.urandom(EVENT_BYTES)
        made = self._publisher.encrypt_notification(labels, record, event, pad_to=self._pad_to)
        body = next(iter(made.values())).body
        core = encode_core(Core(event, self.tree.generation, body))
        return SealedForRoots(core, {root: encode_entries(each.entries) for root, each in made.items()})
