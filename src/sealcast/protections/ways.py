"""What a topic's protection makes of events before they are sealed in frames, and which brokers get those.

Direct       the event itself, for the one broker that was chosen: `endpoint`, whose broker reads
Notifying    cores and entries, for every root broker of the overlay: `layered` (`protections.layered.notifying`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sealcast.errors import NotFound
from sealcast.model.schema import Value
from sealcast.trust.realm.state import RealmState
from sealcast.wire.records import RecordCodec


@dataclass(frozen=True, slots=True)
class Checked:
    """An event that its schema admits, parsed."""

    values: Mapping[str, Value]
    payload: bytes
    content_type: str


#: How many events, and the messages that each broker gets of them: one frame's worth.
Messages = tuple[int, Mapping[str, list[bytes]]]


class Way(Protocol):
    """How events of one publisher go."""

    def take(self, state: RealmState) -> Sequence[str]:
        """Goes by the newest registry from now on; the brokers that get frames, the first being the one that events
        are named by."""
        ...

    def check(self, event: Checked) -> None:
        """EventRejected if it cannot go this way, though its schema admits it."""
        ...

    def messages(self, batch: Sequence[Checked]) -> Iterator[Messages]:
        """A batch that would fit into a frame as it is, as one or more frames' messages."""
        ...


class Direct:
    """Events as they are, to one broker."""

    def __init__(self, topic: str, broker: str) -> None:
        self._topic, self._broker = topic, broker
        self._codec: RecordCodec | None = None

    def take(self, state: RealmState) -> Sequence[str]:
        serving, about = state.serving(self._topic), state.topic(self._topic)
        if self._broker not in serving:
            raise NotFound(
                f"broker {self._broker!r} does not serve topic {self._topic!r}",
                hint=f"those do: {', '.join(serving)}; or let it: sealcast topic serve {self._topic} {self._broker}",
            )
        if self._codec is None or self._codec.schema != about.schema:
            self._codec = RecordCodec(about.schema)
        return (self._broker,)

    def check(self, event: Checked) -> None:
        """Whatever the schema admits."""

    def messages(self, batch: Sequence[Checked]) -> Iterator[Messages]:
        assert self._codec is not None
        values, payloads, kinds = zip(*((e.values, e.payload, e.content_type) for e in batch), strict=True)
        yield len(batch), {self._broker: self._codec.encode(values, payloads, kinds)}
