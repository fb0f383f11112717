"""What cryptography costs a simulated peer: seconds for each operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CryptoCosts:
    """Seconds of one core. Those that grow with the attributes of an event have a part for each."""

    #: A connection request: the key server's signature, then one pairing and the trials of all slots.
    open_request: float
    #: The publisher's signature on a frame, as every relay checks it.
    check_event: float
    #: One tag test on one attribute.
    tag_test: float
    #: Opening and verifying an event: once, and for each attribute.
    open_event: float
    open_attribute: float
    #: Sealing and signing one: once, and for each attribute.
    seal_event: float
    seal_attribute: float

    def opening(self, attributes: int) -> float:
        return self.open_event + attributes * self.open_attribute

    def sealing(self, attributes: int) -> float:
        return self.seal_event + attributes * self.seal_attribute


#: The same protocol, and nothing to compute.
NO_SECURITY: Final = CryptoCosts(0, 0, 0, 0, 0, 0, 0)
#: Keyed tags and the default profile with the fast library, from a table that was measured once (L = 8; two points of
#: each row, d = 1 and d = 16, give the two parts).
TABLE: Final = CryptoCosts(
    open_request=0.000_111 + 0.000_61 + 9 * 0.000_002,
    check_event=0.000_111,
    tag_test=0.000_002,
    open_event=(1.95 + 2.4 - 1.38 - 0.853) / 1000,
    open_attribute=(1.38 + 0.853) / 1000,
    seal_event=(1.2 + 0.8 - 0.853 - 0.427) / 1000,
    seal_attribute=(0.853 + 0.427) / 1000,
)
