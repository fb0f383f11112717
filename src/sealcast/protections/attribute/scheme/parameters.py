"""The public parameters of an attribute topic, made ready to compute with."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Final

from sealcast.errors import Rejected
from sealcast.primitives.pairing import G1, Pairing, best
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.attribute.scheme.equations import Equations, read_point
from sealcast.protections.attribute.scheme.naming import PUB, TAG_W, credential_string
from sealcast.protections.attribute.scheme.profile_a import AnonymousEquations
from sealcast.protections.attribute.scheme.profile_p import PaperEquations, second_generator
from sealcast.protections.attribute.scheme.waters import MAX_CACHED_POINTS
from sealcast.wire.attribute import AttributeReason, AttributeRejected, Profile
from sealcast.wire.attribute_keys import ParameterBytes

_EQUATIONS: Final[dict[Profile, type[AnonymousEquations] | type[PaperEquations]]] = {
    Profile.A: AnonymousEquations,
    Profile.P: PaperEquations,
}


class PublicParameters:
    """What everybody knows of a topic. All points are checked when it is made."""

    def __init__(self, parts: ParameterBytes, pairing: Pairing | None = None) -> None:
        self.parts = parts
        self.profile = parts.profile
        self.tags = parts.tags
        self.pairing = pairing if pairing is not None else best()
        self.equations: Equations = _EQUATIONS[parts.profile](self.pairing, parts)
        #: Of signatures: G to the key server's own exponent, and of connection requests.
        self.sign_point = read_point(self.pairing.decode2, "the point of signatures", parts.points["sign"])
        self.request_point = read_point(self.pairing.decode2, "the point of requests", parts.points["hc"])
        try:
            self.verify_key = VerifyKey(parts.verify_key)
        except Rejected as error:
            raise AttributeRejected(AttributeReason.POINT, error.message) from None
        self.publisher_point = lru_cache(MAX_CACHED_POINTS)(self._publisher_point)

    @classmethod
    def from_bytes(cls, data: bytes, pairing: Pairing | None = None) -> PublicParameters:
        """AttributeRejected for bytes that are none, and for points that are none."""
        return cls(ParameterBytes.parse(data), pairing)

    def to_bytes(self) -> bytes:
        return self.parts.to_bytes()

    @cached_property
    def g2(self) -> G1:
        """g2 of signatures."""
        return second_generator(self.pairing)

    def _publisher_point(self, epoch: int, attribute: str, label: bytes) -> G1:
        """W of a publisher's credential."""
        return self.pairing.hash1(credential_string(label, attribute, PUB, epoch), TAG_W)
