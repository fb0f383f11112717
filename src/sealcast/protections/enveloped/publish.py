"""publish: Event -> message. Each event is sealed once, for all readers, before any broker sees it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from sealcast.errors import EventRejected
from sealcast.model.event import MAX_PAYLOAD_BYTES
from sealcast.model.schema import Value
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.enveloped import keys
from sealcast.protections.enveloped.envelope import OVERHEAD, Envelope, padded, shown
from sealcast.trust.realm.topics import Topic
from sealcast.wire.frame import BOOT_BYTES
from sealcast.wire.records import RecordCodec


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

    @abstractmethod
    def most_before(self, values: Mapping[str, Value]) -> int:
        """The most bytes that may stand before an event's envelope."""

    @abstractmethod
    def before(self, records: Sequence[bytes]) -> Sequence[bytes]:
        """What stands before each event's envelope, for brokers to go by."""

    def check(self, values: Mapping[str, Value], payload: bytes, content_type: str) -> None:
        """EventRejected for an event that would not fit into a message once it is sealed."""
        texts = sum(4 * len(value) for value in values.values() if isinstance(value, str))
        more = OVERHEAD + self.most_before(values)
        if len(payload) + texts + more + self._codec.layout.fixed_bytes + 256 + self._pad <= MAX_PAYLOAD_BYTES:
            return
        (record,) = self._codec.encode([values], [payload], content_type)
        size = len(padded(record, self._pad)) + more
        if size > MAX_PAYLOAD_BYTES:
            raise EventRejected(f"the event takes {size} bytes when it is sealed, {MAX_PAYLOAD_BYTES} are allowed")

    def messages(
        self, values: Sequence[Mapping[str, Value]], payloads: Sequence[bytes], kinds: Sequence[str]
    ) -> list[bytes]:
        """What brokers get of events that passed `check`, in order."""
        if os.getpid() != self._process:
            self._begin()
        records = self._codec.encode(values, payloads, kinds)
        first, self._number = self._number, self._number + len(records)  # spent before anything is sealed under them
        nonces = b"".join(map(keys.nonce, range(first, self._number)))
        sealed = self._key.seal_many(nonces, [padded(record, self._pad) for record in records])
        boot, commitment = self._boot, self._key.commitment
        envelopes = (
            Envelope(boot, number, commitment, ciphertext).to_bytes() for number, ciphertext in enumerate(sealed, first)
        )
        return [
            shown(self._codec, each, self._hidden, record, before + envelope)
            for each, record, before, envelope in zip(values, records, self.before(records), envelopes, strict=True)
        ]
