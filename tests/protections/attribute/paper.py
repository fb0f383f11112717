"""Forms of paper 003 that we do not use, as it prints them, so that attacks on them can be shown to work.

Written with the two groups of profile P: what the paper has in one group is in G1 or G2, as `profile_p` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sealcast.primitives.pairing import G1, G2, ORDER, Pairing, inverse, random_scalar
from sealcast.protections.attribute.scheme.naming import TAG_M, TAG_ROUTE1, TAG_W, hashed_target
from sealcast.protections.attribute.scheme.profile_p import second_generator


@dataclass
class PaperSignature:
    """CTsign of one attribute, and CT_i, which the paper signs with."""

    credential: bytes
    first: G1
    second: G2
    third: G2


@dataclass
class PaperEvent:
    """An event of the paper: CT2, and of each attribute CT_i and CT'_ij in the order of containment."""

    second: G2
    firsts: list[G2]
    tags: list[list[bytes]]
    exponents: list[int]


class Paper:
    """The paper's key server, publishers and verification."""

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self.alpha, self.phi = random_scalar(), random_scalar()
        self.g1 = pairing.times2(pairing.g2, self.alpha)
        self.g2 = second_generator(pairing)
        self.h = pairing.times2(pairing.g2, self.phi)

    def w(self, credential: bytes) -> G1:
        return self.pairing.hash1(credential, TAG_W)

    def m(self, message: bytes) -> G1:
        return self.pairing.hash1(message, TAG_M)

    def h3(self, credential: bytes) -> G1:
        return self.pairing.hash1(credential, TAG_ROUTE1)

    def publisher_key(self, credential: bytes) -> tuple[G1, G2]:
        t = random_scalar()
        master = self.pairing.times1(self.g2, self.alpha)
        first = self.pairing.plus1(master, self.pairing.times1(self.w(credential), t))
        return first, self.pairing.times2(self.pairing.g2, t)

    def encrypt(self, attributes: Sequence[Sequence[bytes]]) -> PaperEvent:
        """Section 5.3, steps 1 to 3, of credentials by attribute; tags are made with h, as the paper prints it."""
        pairing = self.pairing
        exponents = [random_scalar() for _ in attributes]
        second = pairing.times2(self.h, sum(exponents) % ORDER)
        tags = [
            [
                hashed_target(pairing.target_bytes(pairing.product([(self.h3(one), pairing.times2(self.h, b))])))
                for one in credentials
            ]
            for credentials, b in zip(attributes, exponents, strict=True)
        ]
        return PaperEvent(second, [pairing.times2(pairing.g2, b) for b in exponents], tags, exponents)

    def token(self, credential: bytes) -> G1:
        """Pr3."""
        return self.pairing.times1(self.h3(credential), self.phi)

    def sign(self, message: bytes, key: tuple[G1, G2], credential: bytes, b: int) -> PaperSignature:
        first = self.pairing.plus1(key[0], self.pairing.times1(self.m(message), b))
        return PaperSignature(credential, first, key[1], self.pairing.times2(self.pairing.g2, b))

    def verify(self, message: bytes, signed: Sequence[PaperSignature], repaired: bool) -> bool:
        """Section 5.4: VTL = VTR1 VTR2 VTR3. `repaired`: VTR2 is the product of pairings, not the pairing of products;
        the equations are still multiplied as they are."""
        pairing = self.pairing
        points, seconds = [self.w(one.credential) for one in signed], [one.second for one in signed]
        second = list(zip(points, seconds, strict=True))
        if not repaired:
            second = [(pairing.sum1(points), pairing.sum2(seconds))]
        return pairing.balanced(
            [
                (pairing.minus1(pairing.sum1([one.first for one in signed])), pairing.g2),
                (pairing.times1(self.g2, len(signed)), self.g1),
                *second,
                (self.m(message), pairing.sum2([one.third for one in signed])),
            ]
        )


def solved(rows: Sequence[Sequence[int]], wanted: Sequence[int]) -> list[int] | None:
    """Coefficients modulo q with which these rows add up to what is wanted; None if there are none."""
    size = len(rows)
    # Columns of the matrix are the rows, with what is wanted behind them: Gauss, and what is left must be zero.
    matrix = [[row[k] for row in rows] + [wanted[k]] for k in range(len(wanted))]
    pivots: list[int] = []
    for column in range(size):
        found = next((r for r in range(len(pivots), len(matrix)) if matrix[r][column]), None)
        if found is None:
            continue
        at = len(pivots)
        matrix[at], matrix[found] = matrix[found], matrix[at]
        scale = inverse(matrix[at][column])
        matrix[at] = [value * scale % ORDER for value in matrix[at]]
        pivot = matrix[at]
        for r, other in enumerate(matrix):
            factor = other[column]
            if r != at and factor:
                matrix[r] = [(a - factor * b) % ORDER for a, b in zip(other, pivot, strict=True)]
        pivots.append(column)
    if any(row[size] for row in matrix[len(pivots) :]):
        return None
    coefficients = [0] * size
    for at, column in enumerate(pivots):
        coefficients[column] = matrix[at][size]
    return coefficients
