"""Commutative encryption: E_k(x) = x^k in a group of prime order, where D_k is E of the inverse exponent.

Two groups stand behind one interface (`curve`, `modular`). Both have prime order q, so that

    every exponent in [1, q - 1] has an inverse, and E_j(E_k(x)) = E_k(E_j(x));
    no element but the identity has a small order, and no test like Legendre's symbol tells encrypted labels apart;
    labels are hashed into the group, so that E(a) E(b) is the encryption of nothing that anyone would look for.

An `Element` is bytes: equal elements have equal bytes, so that tables and caches are dictionaries. Whoever receives
bytes from elsewhere calls `decode`, which refuses what is no member, and the identity; everything else in here takes
elements, which only `decode`, `hash` and `power` make.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NewType, Protocol

from sealcast.errors import Misuse, Rejected
from sealcast.model.memo import Memo
from sealcast.primitives import kdf
from sealcast.primitives.secrets import Secret, Unpicklable

#: A member of the group, not the identity, in the form that powers are fastest on.
Element = NewType("Element", bytes)

#: Hashed labels kept per group and process: a label's element is public, and takes as long to make as a power.
MAX_CACHED_HASHES: Final = 65_536
#: Bits by which a hash is longer than the order it is reduced by: what is left of a bias.
SLACK_BITS: Final = 128


class Group(Protocol):
    """A group of prime order."""

    @property
    def name(self) -> str: ...

    @property
    def order(self) -> int: ...

    @property
    def wire_bytes(self) -> int:
        """The size of an element on the wire."""
        ...

    def hash(self, data: bytes) -> Element:
        """An element of which nobody knows the logarithm. Not for secrets: it takes a time that depends on them."""
        ...

    def hash_many(self, data: Sequence[bytes]) -> list[Element]:
        """`hash` of each, for less."""
        ...

    def random(self) -> Element:
        """An element that nobody can guess, each as likely as any other up to what nobody can measure."""
        ...

    def power(self, element: Element, exponent: Exponent) -> Element: ...

    def power_many(self, elements: Sequence[Element], exponent: Exponent) -> list[Element]:
        """`power` of each, with one exponent."""
        ...

    def decode(self, data: bytes) -> Element:
        """The element that stands on the wire, or Rejected: no member of the group, or its identity."""
        ...

    def encode(self, element: Element) -> bytes: ...


class Exponent(Unpicklable):
    """A secret exponent in [1, q - 1]. Exponents are multiplied and inverted, never shown."""

    __slots__ = ("_order", "_value", "packed")

    def __init__(self, value: int, order: int) -> None:
        if not 0 < value < order:
            raise Misuse("an exponent lies between zero and the order of its group")
        self._value = value
        self._order = order
        #: As libraries take it: big-endian, as long as the order.
        self.packed = value.to_bytes((order.bit_length() + 7) // 8, "big")

    @classmethod
    def derive(cls, secret: Secret, order: int, *context: bytes) -> Exponent:
        """The exponent that `context` names under `secret`; its bias is below 2**-128."""
        size = (order.bit_length() + SLACK_BITS + 7) // 8
        drawn = int.from_bytes(kdf.derive(secret, b"exponent", *context, length=size).reveal(), "big")
        return cls(drawn % (order - 1) + 1, order)

    @property
    def inverse(self) -> Exponent:
        return Exponent(pow(self._value, -1, self._order), self._order)

    def __mul__(self, other: Exponent) -> Exponent:
        if self._order != other._order:
            raise Misuse("exponents of two groups have no product")
        return Exponent(self._value * other._value % self._order, self._order)

    def __truediv__(self, other: Exponent) -> Exponent:
        return self * other.inverse

    def reveal(self) -> int:
        """The number: for the group's own arithmetic."""
        return self._value


def refused(group: str, why: str) -> Rejected:
    return Rejected(f"an element for {group} {why}", hint="whoever sent it is broken, or lies: drop what it came in")


class CachedHashes:
    """A group's hash, remembered for the labels that were hashed lately. Labels repeat far more than they differ."""

    def __init__(self, group: Group, domain: bytes, size: int = MAX_CACHED_HASHES) -> None:
        self.group = group
        # The domain is a topic and an epoch: equal labels of two of them have elements without any relation.
        self._prefix = len(domain).to_bytes(4, "big") + domain
        self._known = Memo[bytes, Element](size)

    def __call__(self, label: bytes) -> Element:
        return self.many((label,))[0]

    def many(self, labels: Sequence[bytes]) -> list[Element]:
        """Of each; those that are new are hashed together."""
        return self._known.many(labels, self._hashed)

    def _hashed(self, labels: Sequence[bytes]) -> list[Element]:
        if len(labels) == 1:
            return [self.group.hash(self._prefix + labels[0])]
        return self.group.hash_many([self._prefix + label for label in labels])
