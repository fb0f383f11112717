"""How much a peer grants to others: connections, bytes, seconds. Everything that a stranger could use up is here."""

from __future__ import annotations

from dataclasses import dataclass

from sealcast.errors import Misuse


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """The bounds of one process. Tests make them small."""

    #: For a connection's TCP and TLS handshakes, and for the first frame after them.
    handshake_s: float = 5.0
    hello_s: float = 5.0
    #: For the rest of a frame whose first byte has come.
    frame_s: float = 30.0
    #: How often a link is asked for a sign of life, and how long it may give none.
    heartbeat_s: float = 5.0
    silence_s: float = 15.0
    #: How long the other end may take no byte at all of what is sent to it.
    stall_s: float = 60.0
    #: For a good end of a connection, after which it is cut.
    goodbye_s: float = 1.0

    #: Connections that have proved nothing yet: from one address, and in all.
    unproven_per_address: int = 64
    unproven: int = 256
    #: Links, proved ones included: from one address, and in all.
    per_address: int = 512
    links: int = 2_048

    #: What waits for one peer.
    queue_bytes: int = 8 << 20
    queue_messages: int = 4_096

    #: Between attempts to reach a peer: from the first of these to the second, doubled each time, with jitter.
    retry_s: float = 0.1
    retry_most_s: float = 10.0
    #: How long an attempt goes on for a peer that nobody asked to keep.
    give_up_s: float = 20.0

    #: How long a peer that was cut off for what it sent stays out: the first time, and at the most.
    penalty_s: float = 1.0
    penalty_most_s: float = 300.0
    #: Peers whose penalties are remembered.
    penalties: int = 4_096

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise Misuse(f"{name} is more than nothing, not {getattr(self, name)!r}")
        if self.silence_s <= self.heartbeat_s:
            raise Misuse("a link must be asked for a sign of life before it is given up for its silence")


DEFAULT_LIMITS = LinkLimits()
