"""The broker's algorithms that paper 002 and its repairs lead to, as they are written down: to hold `search` against.

    SM a multiplication, PA an addition, H a hash; N labels of subscriptions, M users, one trapdoor
    A0  sequential: re-encrypt and make the token anew for every label                    2N SM  3N PA   N H
    A1  labels are re-encrypted when they come                                             N SM  2N PA   N H
    A2  as the paper prints it: one trapdoor for each recipient, made with its key         M SM  N + M PA  N H
    A3  one trapdoor, made with the publisher's own key                                    1 SM  N + 1 PA  N H
    A4  A3, remembering the labels that a token matched (`search`)                         1 SM  1 PA, when seen before

All take points that were read before, and give the numbers of the labels that match. No broker runs these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sealcast.primitives import points
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Element, Exponent
from sealcast.protections.searchable import scheme
from sealcast.wire.searching import FIRST_POINT, SECOND_POINT


class Label(NamedTuple):
    """A sealed label, taken apart, with its subscriber and the broker's half of it."""

    holder: scheme.Holder
    half: Exponent
    first: Element
    second: Element
    check: bytes
    bound: bytes

    @classmethod
    def read(cls, holder: scheme.Holder, half: Exponent, label: bytes) -> Label:
        first, second = CURVE.decode(label[FIRST_POINT]), CURVE.decode(label[SECOND_POINT])
        return cls(holder, half, first, second, scheme.check_of(label), holder.bound)

    def encrypted(self) -> Element:
        """C."""
        return _combined(self.first, self.half, self.second)

    def matches(self, encrypted: Element, token: Element) -> bool:
        return scheme.matches(encrypted, token, self.check, self.bound)


class Trapdoor(NamedTuple):
    """A trapdoor, taken apart, with the broker's half of whose key it was made with."""

    half: Exponent
    first: Element
    second: Element

    @classmethod
    def read(cls, half: Exponent, trapdoor: bytes) -> Trapdoor:
        return cls(half, CURVE.decode(trapdoor[FIRST_POINT]), CURVE.decode(trapdoor[SECOND_POINT]))

    def token(self) -> Element:
        """T."""
        return _combined(self.first, self.half, self.second)


def a0(labels: Sequence[Label], trapdoor: Trapdoor) -> list[int]:
    return [number for number, label in enumerate(labels) if label.matches(label.encrypted(), trapdoor.token())]


def a1(labels: Sequence[Label], encrypted: Sequence[Element], trapdoor: Trapdoor) -> list[int]:
    return [
        number
        for number, (label, c) in enumerate(zip(labels, encrypted, strict=True))
        if label.matches(c, trapdoor.token())
    ]


def a2(labels: Sequence[Label], encrypted: Sequence[Element], trapdoors: Mapping[str, Trapdoor]) -> list[int]:
    tokens = {user: trapdoor.token() for user, trapdoor in trapdoors.items()}
    return [
        number
        for number, (label, c) in enumerate(zip(labels, encrypted, strict=True))
        if label.matches(c, tokens[label.holder.name])
    ]


def a3(labels: Sequence[Label], encrypted: Sequence[Element], trapdoor: Trapdoor) -> list[int]:
    checks, bounds = [label.check for label in labels], [label.bound for label in labels]
    return scheme.matching(encrypted, checks, bounds, trapdoor.token())


def _combined(first: Element, half: Exponent, second: Element) -> Element:
    """half * first + second, which is not infinity in anything that was made as it should be."""
    found = points.add(CURVE.power(first, half), second)
    assert found is not None
    return found
