"""What a peer without keys can see of a spoiled event: points that are none.

Whoever opens an event decodes its points, and decoding checks them. A rendezvous opens nothing. It looks at as many
points as a subscriber would: CT2, and of each attribute CT_i and one CT_ij, chosen at random. To look at all of them
would cost it about what sealing cost the publisher. A publisher that spoils one point in n is found out by the n-th
event or so, and one that spoils what every subscriber needs, by the first.
"""

from __future__ import annotations

from collections.abc import Callable

from sealcast.protections.attribute.scheme.equations import read_point
from sealcast.protections.attribute.scheme.parameters import PublicParameters
from sealcast.wire.attribute import AttributeReason, AttributeRejected, EventHeader, Profile


def inspect(parameters: PublicParameters, header: EventHeader, choose: Callable[[int], int]) -> None:
    """AttributeRejected for an event of another profile than its topic, and for a point that is none. `choose` gives a
    number below another, which its publisher cannot foresee."""
    if header.profile is not parameters.profile or header.tags is not parameters.tags:
        raise AttributeRejected(AttributeReason.PROFILE, "an event is of another profile than its topic")
    pairing = parameters.pairing
    read: Callable[[bytes], object] = pairing.decode1 if header.profile is Profile.A else pairing.decode2
    read_point(read, "CT2", header.second)
    for attribute in header.attributes:
        read_point(read, "CT_i", attribute.first)
        read_point(pairing.decode1, "CT_ij", attribute.label(choose(attribute.positions)))
