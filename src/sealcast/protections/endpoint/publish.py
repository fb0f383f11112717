"""publish: events go as they are, in frames sealed for the one broker that was chosen, which reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sealcast.protections.checked import CheckedBatch, Refusals
from sealcast.protections.port import Messages
from sealcast.protections.registered import broker_that_serves
from sealcast.trust.realm.state import RealmState
from sealcast.wire.records import RecordCodec, fresh_salts


class Direct:
    """Events as they are, to one broker."""

    def __init__(self, topic: str, broker: str) -> None:
        self._topic, self._broker = topic, broker
        self._codec: RecordCodec | None = None

    def take(self, state: RealmState, epoch: int) -> Sequence[str]:
        about, broker = state.topic(self._topic), broker_that_serves(state, self._topic, self._broker)
        if self._codec is None or self._codec.schema != about.schema:
            self._codec = RecordCodec(about.schema)
        return (broker,)

    def check(self, batch: CheckedBatch) -> Refusals:
        """Whatever the schema admits."""
        return {}

    def messages(self, batch: CheckedBatch) -> Iterator[Messages]:
        assert self._codec is not None
        yield len(batch), {self._broker: batch.records(self._codec, fresh_salts(len(batch)))}
