"""publish: Event -> message. Each event is sealed once, for all readers, before any broker sees it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from sealcast.errors import EventRejected
from sealcast.model.event import MAX_CONTENT_TYPE_LENGTH, MAX_PAYLOAD_BYTES
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.checked import CheckedBatch, CheckedEvent, Refusals
from sealcast.protections.enveloped import keys
from sealcast.protections.enveloped.envelope import CONTENT_TYPE, OVERHEAD, joined_envelopes, padded
from sealcast.trust.realm.topics import Topic
from sealcast.wire.frame import BOOT_BYTES
from sealcast.wire.records import RecordCodec, fresh_salts


class EventSealer(Unpicklable, ABC):
    """One publisher on one topic in one epoch. It draws a boot and numbers its events from 0; after a fork, the child
    draws its own."""

    def __init__(self, about: Topic, epoch: int, secret: Secret) -> None:
        """`secret` is its own part of the content key."""
        self.schema, self.epoch = about.schema, epoch
        self._codec = RecordCodec(about.schema)
        self._hidden, self._pad = about.protection.hidden_of(about.schema), about.protection.step
        self._secret, self._key_bits = secret, about.parameters.key_bits
        self._aad = keys.associated_data(about.protection.name, about.id, epoch)
        self._begin()

    def _begin(self) -> None:
        self._process, self._boot, self._number = os.getpid(), os.urandom(BOOT_BYTES), 0
        self._key = keys.boot_key(self._secret, self._boot, self._aad, self._key_bits)

    @property
    @abstractmethod
    def most_before(self) -> int:
        """The most bytes that may stand before an event's envelope."""

    @abstractmethod
    def before(self, batch: CheckedBatch) -> Sequence[bytes]:
        """What stands before each event's envelope, for brokers to go by."""

    def check(self, batch: CheckedBatch) -> Refusals:
        """Refuses events that would not fit into a message once they are sealed."""
        room = MAX_PAYLOAD_BYTES - OVERHEAD - self.most_before
        large = batch.over(room - self._codec.layout.fixed_bytes - MAX_CONTENT_TYPE_LENGTH - 1 - self._pad)
        return batch.refused(large, self._check_size)

    def _check_size(self, event: CheckedEvent) -> None:
        (record,) = self._codec.encode([event.values], [event.payload], event.content_type)
        size = len(padded(record, self._pad)) + OVERHEAD + self.most_before
        if size > MAX_PAYLOAD_BYTES:
            raise EventRejected(f"the event takes {size} bytes when it is sealed, {MAX_PAYLOAD_BYTES} are allowed")

    def messages(self, batch: CheckedBatch) -> list[bytes]:
        """What brokers get of events that passed `check`, in order."""
        if os.getpid() != self._process:
            self._begin()
        salts = fresh_salts(len(batch))
        records = batch.records(self._codec, salts)
        first, self._number = self._number, self._number + len(records)  # spent before anything is sealed under them
        numbers = np.arange(first, self._number, dtype=np.int64)
        sealed = self._key.seal_many(keys.nonces(numbers), [padded(record, self._pad) for record in records])
        envelopes = joined_envelopes(self._boot, numbers, self._key.commitment, self.before(batch), sealed)
        return batch.shown(self._codec, self._hidden, salts, envelopes, CONTENT_TYPE)
