"""What a thief is asked. One answers by trying stolen keys (tries.py), one by what is on record (presumes.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from sealcast.lab import thief
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.port import PartitionLog
from sealcast.trust.deployment import Realm


class Reads(NamedTuple):
    """What stolen keys give of one topic, out of everything that lies here."""

    #: Deliveries that were opened, of those that were found for their owner.
    opened: int = 0
    tried: int = 0
    #: Messages in frames: what publishers sealed for brokers.
    frames: int = 0
    #: Messages in logs of MQTT brokers, which wait there for clients that are away.
    queued: int = 0
    #: Of a broker of a layered topic: events whose labels its layer key still follows. Counted up to a bound.
    routed: int = 0


class Thief(Protocol):
    """Somebody with stolen keys."""

    @property
    def name(self) -> str:
        """Whose keys they are."""

    @property
    def tries(self) -> bool:
        """Whether the keys are here and are tried. If not, whatever they could open is taken for open."""

    def reads(self, topic: str) -> Reads:
        """What it reads of a topic."""

    def frames(self, topic: str) -> Iterator[tuple[str, int, thief.FramesRead]]:
        """What it reads of every frame log that lies here: whose log, partition, and how much there."""

    def publishes(self, topic: str) -> str:
        """What admission says to a frame of its own; see `matrix.AccessCell`."""


def in_logs(
    realm: Realm, topic: str, name: str, read: Callable[[PartitionLog], thief.FramesRead]
) -> Iterator[tuple[str, int, thief.FramesRead]]:
    """Every frame log of a topic that lies here: of brokers, or of the peer of that name."""
    state = realm.state()
    peers = state.topic(topic).protection.peers
    for holder in [name] if peers else state.brokers():
        if (topic, holder) in state.carried or realm.paths.topic(topic, holder).frames_root.is_dir():
            opened = realm.outbox if peers else realm.frames
            log: EmbeddedTopic = opened(topic, holder, read_only=True)
            with log:
                for partition in range(log.partitions):
                    yield holder, partition, read(log.partition(partition))
