"""The scheme of Dong, Russello and Dulay as paper 002 uses it (section 3), on secp256k1, with its error repaired.

    sigma(w) = HMAC-SHA512(derive(S, "sigma"), w) mod q
    tag(w)   = the first B bits of HMAC-SHA256(derive(S, "tag"), w)

    user i     seal label w    r random    c1 = (r + sigma) G    c2 = x_i1 c1             c3 = hash(i, r H)
    broker     re-encrypt      C = x_i2 c1 + c2 = (r + sigma) H
    user p     trapdoor of w   r random    t1 = (sigma - r) G    t2 = r H + x_p1 t1
    broker     token           T = x_p2 t1 + t2 = sigma H
    broker     match           hash(i, C - T) = c3              C = T never matches: r is not zero

    bound(i)   = SHA-256("sealcast/searchable/1 r" | place of user i: the topic's id, the epoch, its name)
    hash(i, P) = the first 16 bytes of SHA-256(bound(i) | P compressed)

Paper 002 makes a trapdoor with the recipient's key, one for each recipient, which would hand that key to publishers. T
does not depend on the user, so a publisher uses its own key: one trapdoor for everybody.

It also hashes r H alone. Then nothing says whose a label is: user j replaces c2 of another's by x_j1 c1, unopened, and
has a filter of its own that matches what the other's does. Here c3 names the subscriber, and r H, which j would need to
name itself, is as hard to find as Diffie and Hellman's problem.

Assumptions: the discrete logarithm problem and the computational Diffie-Hellman problem in the group, hash functions as
random oracles, and that no broker colludes with any user. A broker with the half of one user has x (`halves`), and a
user has S: together they open every label. T is the same for every event with the label, so that brokers see how often
each label comes, and which events share one.

Everything here works on bytes as they stand on the wire (`wire.searching`), so that a label is not taken apart twice.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sealcast.errors import Bug, Misuse
from sealcast.primitives import kdf, points
from sealcast.primitives.curve import CURVE, ORDER
from sealcast.primitives.groups import Element, Exponent
from sealcast.primitives.halves import UserPart
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.keys.topic_keys import place
from sealcast.wire.searching import (
    FIRST_POINT,
    LABEL_BYTES,
    MAX_TAG_BITS,
    SECOND_POINT,
    TAG_BYTES,
    SealedFilter,
    packed_block,
)

CHECK_BYTES: Final = 16
BOUND_BYTES: Final = 32
_HASH: Final = b"sealcast/searchable/1 r"
_CHECK: Final = slice(LABEL_BYTES - CHECK_BYTES, LABEL_BYTES)


class Holder(NamedTuple):
    """Whose keys: a user of a topic, in an epoch."""

    topic_id: bytes
    epoch: int
    name: str

    @property
    def bound(self) -> bytes:
        """What c3 of each of its labels is hashed with, so that the label is nobody else's."""
        return hashlib.sha256(_HASH + place(*self)).digest()


class UserKeys(Unpicklable):
    """One user's keys of one topic and epoch: it seals the labels of filters and makes trapdoors of events."""

    __slots__ = ("_bound", "_half", "_public", "_sigma", "_tag", "epoch", "tag_bits")

    def __init__(self, part: UserPart, holder: Holder, tag_bits: int) -> None:
        if not 0 <= tag_bits <= MAX_TAG_BITS:
            raise Misuse(f"a tag has 0 to {MAX_TAG_BITS} bits, not {tag_bits}")
        self._half = part.half
        self._public = part.public
        self._sigma = kdf.derive(part.search, b"sigma")
        self._tag = kdf.derive(part.search, b"tag")
        self._bound = holder.bound
        self.epoch = holder.epoch
        self.tag_bits = tag_bits

    def sigma(self, label: bytes) -> Exponent:
        drawn = int.from_bytes(hmac.digest(self._sigma.reveal(), label, "sha512"), "big") % ORDER
        if not drawn:
            raise Bug("a label's exponent is zero")  # as likely as guessing a key
        return Exponent(drawn, ORDER)

    def tag(self, label: bytes) -> bytes:
        """The label's tag, as it stands on the wire."""
        first = int.from_bytes(hmac.digest(self._tag.reveal(), label, "sha256")[:TAG_BYTES], "big")
        return (first >> (MAX_TAG_BITS - self.tag_bits)).to_bytes(TAG_BYTES, "big")

    # --- subscribers ------------------------------------------------------------------------------------------------

    def seal_label(self, label: bytes) -> bytes:
        """A label of a filter. Sealed twice, it differs in everything but its tag."""
        sigma = self.sigma(label)
        while True:
            sealed = self._sealed(sigma, points.random_exponent())
            if sealed is not None:
                return self.tag(label) + sealed

    def _sealed(self, sigma: Exponent, r: Exponent) -> bytes | None:
        """c1, c2 and c3; None for the one r that would make c1 infinity."""
        both = (r.reveal() + sigma.reveal()) % ORDER
        if not both:
            return None
        first = Exponent(both, ORDER)
        # x_i1 ((r + sigma) G) as a multiple of G: the library is faster with the generator, and constant in time.
        hidden = CURVE.encode(CURVE.power(self._public, r))
        return points.base_wire(first) + points.base_wire(first * self._half) + check(self._bound, hidden)

    def seal_filter(self, conjunctions: Iterable[Iterable[Iterable[bytes]]]) -> SealedFilter:
        """A filter: conjunctions of slots of labels (`filters.labels`), each label sealed by itself."""
        return SealedFilter.of(
            self.epoch, ([[self.seal_label(label) for label in slot] for slot in slots] for slots in conjunctions)
        )

    # --- publishers -------------------------------------------------------------------------------------------------

    def trapdoor(self, label: bytes) -> bytes:
        """A trapdoor of an event's label. Made twice, it differs in everything but its tag; a broker computes the same
        T from both."""
        sigma = self.sigma(label)
        while True:
            made = self._trapdoor(sigma, points.random_exponent())
            if made is not None:
                return self.tag(label) + made

    def _trapdoor(self, sigma: Exponent, r: Exponent) -> bytes | None:
        """t1 and t2; None for an r that would make one of them infinity."""
        difference = (sigma.reveal() - r.reveal()) % ORDER
        if not difference:
            return None
        first = Exponent(difference, ORDER)
        second = points.add_base(CURVE.power(self._public, r), first * self._half)
        return None if second is None else points.base_wire(first) + CURVE.encode(second)

    def block(self, labels: Iterable[bytes]) -> bytes:
        """Fresh trapdoors of an event's labels."""
        return packed_block(map(self.trapdoor, labels))


# --- brokers ----------------------------------------------------------------------------------------------------------


def re_encrypt(labels: Sequence[bytes], half: Exponent) -> list[Element | None]:
    """C of each sealed label, with the broker's half of who sealed them. None is infinity, which matches nothing.
    Rejected, before anything is computed, if a point of any of them is not on the curve."""
    return points.multiply_add_many([(label[FIRST_POINT], label[SECOND_POINT]) for label in labels], half)


def token(trapdoor: bytes, half: Exponent, expected: Element | None = None) -> Element | None:
    """T of a trapdoor, with the broker's half of its publisher. None is infinity, which matches nothing. Rejected for
    what is no point of the curve. A right guess (`expected`) is confirmed sooner than T is computed."""
    if expected is not None:
        return points.multiply_add(trapdoor[FIRST_POINT], trapdoor[SECOND_POINT], half, expected)
    return points.multiply_add_many([(trapdoor[FIRST_POINT], trapdoor[SECOND_POINT])], half)[0]


def check_of(label: bytes) -> bytes:
    """c3 of a sealed label."""
    return label[_CHECK]


def matches(encrypted: Element, found: Element, given: bytes, bound: bytes) -> bool:
    """Whether C, with its c3 and `Holder.bound` of who registered it, and T are of one label."""
    (difference,) = points.differences((encrypted,), found)
    return bool(difference) and check(bound, difference) == given


def matching(
    encrypted: Sequence[Element], checks: Sequence[bytes], bounds: Sequence[bytes], found: Element
) -> list[int]:
    """The numbers of those C, each with its c3 and `Holder.bound` of who registered it, that are of T's label."""
    sha256, size = hashlib.sha256, CHECK_BYTES
    differences = points.differences(encrypted, found)
    return [
        number
        for number, (difference, given, bound) in enumerate(zip(differences, checks, bounds, strict=True))
        if difference and sha256(bound + difference).digest()[:size] == given
    ]


def check(bound: bytes, point: bytes) -> bytes:
    """c3 of r H, as it stands on the wire."""
    return hashlib.sha256(bound + point).digest()[:CHECK_BYTES]
