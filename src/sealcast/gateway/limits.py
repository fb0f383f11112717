"""How much a gateway grants to others. Everything that a stranger or a caller could use up is here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sealcast.control.budgets import Allowance
from sealcast.errors import Misuse

#: Of a request's line and headers.
MAX_HEAD_BYTES: Final = 16 << 10
#: Of bodies: most are small; frames, posts and transactions are not.
SMALL_BODY: Final = 1 << 16
LARGE_BODY: Final = 34 << 20
#: Of CBOR in one body: a transaction of `MAX_CHANGES` has eight for each change and each signature.
MAX_BODY_ITEMS: Final = 1 << 16
MAX_FRAMES: Final = 4_096
MAX_POSTS: Final = 1_024
#: Changes of one transaction that comes from elsewhere.
MAX_CHANGES: Final = 4_096
#: A page of a log: what is given when nothing is said, and at the most. One record is always given.
PAGE_BYTES: Final = 1 << 20
MAX_PAGE_BYTES: Final = 16 << 20
#: How long a long-poll may wait.
MAX_WAIT_S: Final = 60


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """The bounds of one process. Tests make them small."""

    #: For the first byte of a connection, for the TLS handshake, for a request's head, and between bytes of its body.
    silence_s: float = 10.0
    handshake_s: float = 10.0
    head_s: float = 10.0
    body_s: float = 10.0
    #: A body comes at least this fast on average.
    body_bytes_per_s: int = 8 << 10
    #: Between requests of one connection; and how long the other end may take nothing of what is sent to it.
    idle_s: float = 120.0
    stall_s: float = 60.0
    #: For what is under way when the gateway is asked to stop.
    drain_s: float = 30.0

    #: Connections that have said nothing yet, and those in their handshake: from one address, and in all. When there
    #: are more, the oldest of them goes.
    silent_per_address: int = 512
    silent: int = 2_048
    handshakes: int = 256
    #: Connections of callers: from one address, and in all.
    per_address: int = 2_048
    connections: int = 8_192

    #: What one caller may ask, and one address that has proved nothing.
    caller: Allowance = field(default_factory=lambda: Allowance(per_second=500, burst=2_000))
    address: Allowance = field(default_factory=lambda: Allowance(per_second=500, burst=2_000))
    #: How long an address is refused whose attempts are bogus: a failed one may be an accident, and twenty are not.
    bogus: Allowance = field(
        default_factory=lambda: Allowance(per_second=1_000, burst=10_000, base_delay_us=1_000, max_delay_us=300_000_000)
    )
    #: Of one caller: requests that wait for something, and control topics.
    waiting: int = 64
    topics: int = 64
    #: Requests that write or read disks at the same time, and those that may wait for their turn.
    workers: int = 16
    queued: int = 4_096
    #: Frames of one partition that no pipeline has taken yet.
    max_waiting_frames: int = 100_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int | float) and value <= 0:
                raise Misuse(f"{name} is more than nothing, not {value!r}")


DEFAULT_LIMITS: Final = GatewayLimits()
