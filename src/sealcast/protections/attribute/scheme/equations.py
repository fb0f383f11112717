"""What both profiles of the scheme have in common: who computes what, without saying in which group.

    b_i random for each attribute, b = the sum of b_i
    CT2 = b h      CT_i = b_i g      CT_ij = b_i W_ij      the event's key comes from Y^b
    Y^b = e(CT2, Pr4) / prod_i e(CT_i, Pr1_i) * prod_i e(CT_ij, Pr2_i)                               (the paper's eq. 1)

    Pr1 = z gamma + t w      Pr2 = t      Pr4 = z (gamma + alpha) / phi        (logarithms; gamma for each subscription)

Whoever lacks one of the Pr_i, or takes them from two subscriptions, is left with a factor of gamma b_i.

Only the key is encapsulated (KEM): the paper encrypts a random GT element instead, 576 bytes and a power more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import NamedTuple, TypeVar

from sealcast.primitives.pairing import G1, G2, ORDER, Pairing, PointRejected, Target, random_scalar
from sealcast.protections.attribute.scheme.naming import SUB, credential_string, hashed_target
from sealcast.protections.attribute.scheme.waters import MAX_CACHED_POINTS
from sealcast.wire.attribute import AttributeReason, AttributeRejected

#: For each attribute its labels by position; None where an event has none, which looks like any other.
Labels = Mapping[str, Sequence[bytes | None]]

_Read = TypeVar("_Read")


class Encapsulated(NamedTuple):
    """One attribute of a ciphertext: its points as they travel, and the secret exponent that tags may need."""

    name: str
    b: int
    first: bytes
    labels: bytes


class OwnCredential(NamedTuple):
    """One credential of a subscription and what of a ciphertext it opens: as bytes, still unchecked."""

    first: bytes
    second: bytes
    ct_first: bytes
    ct_label: bytes


class Equations(ABC):
    """One profile's public side."""

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        #: W: a label's point, by its string.
        self.label_point: Callable[[bytes], G1]
        self.base_target: Callable[[bytes], Target] = lru_cache(MAX_CACHED_POINTS)(self._base_target)
        #: Points of keys, which are read again for every event: checked once.
        self.own1: Callable[[bytes], G1] = lru_cache(MAX_CACHED_POINTS)(partial(read_point, pairing.decode1, "a key"))
        self.own2: Callable[[bytes], G2] = lru_cache(MAX_CACHED_POINTS)(partial(read_point, pairing.decode2, "a key"))

    # --- events -----------------------------------------------------------------------------------------------------

    def encapsulate(self, epoch: int, labels: Labels) -> tuple[bytes, list[Encapsulated], bytes]:
        """CT2, the attributes, and the bytes of Y^b."""
        made, total = [], 0
        for name, by_position in labels.items():
            b = random_scalar()
            total += b
            points = [self._sealed_label(epoch, name, label, b) for label in by_position]
            made.append(Encapsulated(name, b, self._first(b), b"".join(points)))
        total %= ORDER
        return self._second(total), made, self.pairing.target_bytes(self.key_target(total))

    def _sealed_label(self, epoch: int, name: str, label: bytes | None, b: int) -> bytes:
        pairing = self.pairing
        if label is None:
            return pairing.encode1(pairing.times1(pairing.g1, random_scalar()))
        point = self.label_point(credential_string(label, name, SUB, epoch))
        return pairing.encode1(pairing.times1(point, b))

    def key_target(self, b: int) -> Target:
        """Y^b."""
        if self.pairing.powers:
            return self.pairing.power(self.key_base, b)
        return self._key_paired(b)

    @cached_property
    def key_base(self) -> Target:
        """Y."""
        return self._key_paired(1)

    @abstractmethod
    def _key_paired(self, b: int) -> Target:
        """Y^b by multiplying a point before it is paired."""

    @abstractmethod
    def _first(self, b: int) -> bytes:
        """CT_i."""

    @abstractmethod
    def _second(self, b: int) -> bytes:
        """CT2."""

    # --- opening ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def decapsulate(self, second: bytes, bond: bytes, own: Sequence[OwnCredential]) -> bytes:
        """The bytes of Y^b, or other bytes if these credentials are not for this ciphertext. AttributeRejected for a
        point that is none, before anything is paired."""

    # --- the paper's tags -------------------------------------------------------------------------------------------

    def paper_tags(self, b: int, credentials: Iterable[bytes], cached: bool) -> list[bytes]:
        """CT'_ij of labels, by their strings. `cached`: pairings of labels seen before are remembered, and raised to b
        (where the library can)."""
        if cached and self.pairing.powers:
            powers = (self.pairing.power(self.base_target(credential), b) for credential in credentials)
            return [hashed_target(self.pairing.target_bytes(power)) for power in powers]
        return self._paired_tags(b, credentials)

    @abstractmethod
    def _base_target(self, credential: bytes) -> Target:
        """The pairing that a label's tags are powers of."""

    @abstractmethod
    def _paired_tags(self, b: int, credentials: Iterable[bytes]) -> list[bytes]:
        """CT'_ij with a pairing for each, as the paper has them."""

    @abstractmethod
    def expected_tags(self, tokens: Iterable[bytes], ct_first: bytes) -> Iterator[bytes]:
        """H4 of the pairing of Pr3 and CT_i: for each token, the tag that an event has if it has its label."""


class MasterEquations(ABC):
    """One profile's secret side, at the key server."""

    @abstractmethod
    def points(self) -> tuple[dict[str, bytes], list[bytes]]:
        """The public points by their names, and those of the Waters hash."""

    @abstractmethod
    def bond(self, gamma: int) -> bytes:
        """Pr4."""

    @abstractmethod
    def credential(self, gamma: int, t: int, credential: bytes) -> tuple[bytes, bytes]:
        """Pr1 and Pr2."""

    @abstractmethod
    def paper_token(self, credential: bytes) -> bytes:
        """Pr3."""


def read_point(read: Callable[[bytes], _Read], what: str, data: bytes) -> _Read:
    """A point from elsewhere, checked."""
    try:
        return read(data)
    except PointRejected as error:
        raise AttributeRejected(AttributeReason.POINT, f"{what}: {error.message}") from None
