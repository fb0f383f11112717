"""The key server's side: a master secret for each topic, and every key that comes out of it.

All exponents are derived from one secret of 32 bytes, so that a key server is replicated by copying these. What is
fresh (gamma, t) is drawn for every key: two replicas never give out the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from sealcast.errors import Misuse
from sealcast.primitives import kdf
from sealcast.primitives.pairing import ORDER, Pairing, best, random_scalar
from sealcast.primitives.secrets import KEY_BYTES, Secret, Unpicklable
from sealcast.primitives.sign import SigningKey
from sealcast.protections.attribute.scheme import requests
from sealcast.protections.attribute.scheme.equations import MasterEquations
from sealcast.protections.attribute.scheme.naming import PUB, SUB, TAG_W, Label, credential_string, label_key
from sealcast.protections.attribute.scheme.parameters import PublicParameters
from sealcast.protections.attribute.scheme.profile_a import AnonymousMaster
from sealcast.protections.attribute.scheme.profile_p import PaperMaster, second_generator
from sealcast.protections.attribute.scheme.tags import RoutingToken
from sealcast.protections.attribute.scheme.waters import BITS
from sealcast.wire.attribute import AttributeReason, AttributeRejected, Profile, TagKind
from sealcast.wire.attribute_keys import (
    ConnectionRequest,
    ParameterBytes,
    PublisherCredential,
    PublisherKey,
    SubscriptionCredential,
    SubscriptionKey,
)

_MAGIC: Final = b"AM1"
_SIZE: Final = len(_MAGIC) + 2 + KEY_BYTES
_DOMAIN: Final = b"attribute/1"
_NAMES: Final = ("alpha", "phi", "phi_r", "z")


class PlacedLabel(NamedTuple):
    """A label, and which of an attribute's ciphertexts is made for it: the label's depth in its tree."""

    position: int
    label: Label


class MasterSecret(Unpicklable):
    """The secret of one topic's key server."""

    def __init__(self, profile: Profile, tags: TagKind, seed: Secret, pairing: Pairing | None = None) -> None:
        if seed.size != KEY_BYTES:
            raise Misuse(f"a master secret has {KEY_BYTES} bytes, not {seed.size}")
        self.profile = profile
        self.tags = tags
        self._seed = seed
        self._pairing = pairing if pairing is not None else best()
        self._signer = SigningKey(kdf.derive(seed, _DOMAIN, b"requests"))

    @cached_property
    def _equations(self) -> MasterEquations:
        secrets = {name: self._exponent(name.encode()) for name in _NAMES}
        if self.profile is Profile.P:
            return PaperMaster(self._pairing, secrets)
        bits = [self._exponent(b"y", k.to_bytes(2, "big")) for k in range(BITS + 1)]
        return AnonymousMaster(self._pairing, secrets, bits)

    def to_bytes(self) -> bytes:
        """Secret: for the key server's own store."""
        return _MAGIC + f"{self.profile}{self.tags}".encode() + self._seed.reveal()

    @classmethod
    def from_bytes(cls, data: bytes, pairing: Pairing | None = None) -> MasterSecret:
        if len(data) != _SIZE or not data.startswith(_MAGIC):
            raise AttributeRejected(AttributeReason.MAGIC, "this is no master secret of an attribute topic")
        try:
            profile, tags = Profile(chr(data[3])), TagKind(chr(data[4]))
        except ValueError:
            raise AttributeRejected(
                AttributeReason.PROFILE, "a master secret of a profile that does not exist"
            ) from None
        return cls(profile, tags, Secret(data[5:]), pairing)

    @cached_property
    def _public(self) -> PublicParameters:
        points, waters = self._equations.points()
        pairing = self._pairing
        points["sign"] = pairing.encode2(pairing.times2(pairing.g2, self._exponent(b"alpha_s")))
        points["hc"] = pairing.encode2(pairing.times2(pairing.g2, self._exponent(b"phi_c")))
        parts = ParameterBytes(self.profile, self.tags, bytes(self._signer.verify_key), points, tuple(waters))
        return PublicParameters(parts, pairing)

    def public(self) -> PublicParameters:
        return self._public

    # --- keys -------------------------------------------------------------------------------------------------------

    def publisher_key(self, epoch: int, labels: Mapping[str, Iterable[Label]]) -> PublisherKey:
        """The key of a publisher that may publish values below these labels, in this epoch."""
        pairing = self._pairing
        master = pairing.times1(second_generator(pairing), self._exponent(b"alpha_s"))
        made = []
        for attribute, several in labels.items():
            for label in several:
                t = random_scalar()
                point = pairing.hash1(credential_string(label, attribute, PUB, epoch), TAG_W)
                first = pairing.encode1(pairing.plus1(master, pairing.times1(point, t)))
                second = pairing.encode2(pairing.times2(pairing.g2, t))
                made.append(PublisherCredential(attribute, label, first, second))
        routing = self._routing(epoch).reveal() if self.tags is TagKind.KEYED else None
        return PublisherKey(epoch, routing, tuple(made))

    def subscription_key(
        self, epoch: int, labels: Mapping[str, Iterable[PlacedLabel]], shared: bool = False
    ) -> SubscriptionKey:
        """The keys of one subscription, bound together by one gamma: it opens events that have a label of every
        attribute. An attribute that it does not constrain takes the root label.

        `shared`: one t for all labels, so that opening takes d + 2 pairings instead of 2 d + 1. In profile P only: it
        is argued for hashing onto the curve, and nobody has argued it for the hash of Waters.
        """
        if not labels or not all(labels.values()):
            raise Misuse("a subscription has a label of every attribute; the root's, where it asks nothing")
        if shared and self.profile is not Profile.P:
            raise Misuse("one exponent for all labels of a subscription is safe in profile P only")
        gamma, common = random_scalar(), random_scalar()
        made = []
        for attribute, several in labels.items():
            for position, label in several:
                credential = credential_string(label, attribute, SUB, epoch)
                first, second = self._equations.credential(gamma, common if shared else random_scalar(), credential)
                made.append(
                    SubscriptionCredential(attribute, position, label, first, second, self._token(epoch, credential))
                )
        return SubscriptionKey(epoch, self._equations.bond(gamma), tuple(made))

    def tokens(self, epoch: int, labels: Mapping[str, Iterable[Label]]) -> list[RoutingToken]:
        """What lets a parent tell events with these labels from others, and nothing more."""
        return [
            RoutingToken(epoch, attribute, self._token(epoch, credential_string(label, attribute, SUB, epoch)))
            for attribute, several in labels.items()
            for label in several
        ]

    def _token(self, epoch: int, credential: bytes) -> bytes:
        if self.tags is TagKind.KEYED:
            return label_key(self._routing(epoch).reveal(), credential)
        return self._equations.paper_token(credential)

    # --- connections ------------------------------------------------------------------------------------------------

    def connection_key(self, epoch: int, attribute: str, label: Label) -> requests.ConnectionKey:
        """Opens the connection requests of labels below this one."""
        return requests.make_key(self._pairing, self._exponent(b"phi_c"), epoch, attribute, label)

    def connection_request(
        self, epoch: int, attribute: str, path: Sequence[Label], slots: int, origin: str = ""
    ) -> tuple[ConnectionRequest, Secret]:
        """A request of `origin`, who holds the last label of `path`, which begins at the root, padded to so many slots;
        and the connection key that it hides, for the one who asks."""
        return requests.make_request(self._public, self._signer, epoch, attribute, path, slots, origin)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _routing(self, epoch: int) -> Secret:
        return kdf.derive(self._seed, _DOMAIN, b"route", epoch.to_bytes(8, "big"))

    def _exponent(self, *name: bytes) -> int:
        drawn = kdf.derive(self._seed, _DOMAIN, b"exponent", *name, length=64)
        return 1 + int.from_bytes(drawn.reveal(), "big") % (ORDER - 1)


def setup(profile: Profile = Profile.A, tags: TagKind = TagKind.KEYED, pairing: Pairing | None = None) -> MasterSecret:
    """A new topic's master secret."""
    return MasterSecret(profile, tags, Secret.random(), pairing)
