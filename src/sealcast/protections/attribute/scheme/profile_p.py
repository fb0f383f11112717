"""Profile P, the paper's scheme on a curve with two groups, with its errors repaired.

    secret   alpha, phi, phi_r
    public   h = phi G   hr = phi_r G   y = alpha G   in G2;   g2 in G1, hashed, so that nobody knows its logarithm
    Y = e(g2, y)     W(s) = RFC 9380
    Pr1 = gamma g2 + t W(Pu)   Pr2 = t G   Pr3 = phi_r H3(Pu)   Pr4 = ((gamma + alpha) / phi) g2
    CT'_ij = H4(e(H3(Pu), hr)^b_i)

phi_r is ours. With phi, as printed, CT2 opens all tags of an event of one attribute.

What it gives away: e(CT_ij, G) = e(W(guess), CT_i) tells everybody whether an event has a label. Whoever can list the
values of an attribute reads it. Profile A closes this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from sealcast.primitives.pairing import G1, G2, ORDER, Pairing, Target, inverse
from sealcast.protections.attribute.scheme.equations import Equations, MasterEquations, OwnCredential, read_point
from sealcast.protections.attribute.scheme.naming import TAG_POINT, TAG_ROUTE1, TAG_W, hashed_target
from sealcast.protections.attribute.scheme.waters import MAX_CACHED_POINTS
from sealcast.wire.attribute_keys import ParameterBytes


def second_generator(pairing: Pairing) -> G1:
    """g2 of G1."""
    return pairing.hash1(b"g2", TAG_POINT)


class PaperEquations(Equations):
    """Profile P, the public side."""

    def __init__(self, pairing: Pairing, parameters: ParameterBytes) -> None:
        super().__init__(pairing)
        self._h, self._hr, self._y = (
            read_point(pairing.decode2, name, parameters.points[name]) for name in ("h", "hr", "y")
        )
        self._g2 = second_generator(pairing)
        self.label_point = lru_cache(MAX_CACHED_POINTS)(self._label_point)
        self._route_point = lru_cache(MAX_CACHED_POINTS)(self._hashed)

    def _label_point(self, credential: bytes) -> G1:
        return self.pairing.hash1(credential, TAG_W)

    def _key_paired(self, b: int) -> Target:
        return self.pairing.product([(self.pairing.times1(self._g2, b), self._y)])

    def _first(self, b: int) -> bytes:
        return self.pairing.encode2(self.pairing.times2(self.pairing.g2, b))

    def _second(self, b: int) -> bytes:
        return self.pairing.encode2(self.pairing.times2(self._h, b))

    def decapsulate(self, second: bytes, bond: bytes, own: Sequence[OwnCredential]) -> bytes:
        """Where several credentials share t (`MasterSecret.subscription_key`), their labels take one pairing."""
        pairing = self.pairing
        pairs = [(self.own1(bond), read_point(pairing.decode2, "CT2", second))]
        labels: dict[bytes, list[G1]] = {}
        for one in own:
            first = read_point(pairing.decode2, "CT_i", one.ct_first)
            labels.setdefault(one.second, []).append(read_point(pairing.decode1, "CT_ij", one.ct_label))
            pairs.append((pairing.minus1(self.own1(one.first)), first))
        pairs += [(pairing.sum1(points), self.own2(second)) for second, points in labels.items()]
        return pairing.target_bytes(pairing.product(pairs))

    def _hashed(self, credential: bytes) -> G1:
        return self.pairing.hash1(credential, TAG_ROUTE1)

    def _base_target(self, credential: bytes) -> Target:
        return self.pairing.product([(self._route_point(credential), self._hr)])

    def _paired_tags(self, b: int, credentials: Iterable[bytes]) -> list[bytes]:
        pairing, raised = self.pairing, self._raised(b)
        targets = (pairing.product([(self._route_point(credential), raised)]) for credential in credentials)
        return [hashed_target(pairing.target_bytes(target)) for target in targets]

    def _raised(self, b: int) -> G2:
        return self.pairing.times2(self._hr, b)

    def expected_tags(self, tokens: Iterable[bytes], ct_first: bytes) -> Iterator[bytes]:
        pairing, first = self.pairing, read_point(self.pairing.decode2, "CT_i", ct_first)
        targets = (pairing.product([(self.own1(token), first)]) for token in tokens)
        return (hashed_target(pairing.target_bytes(target)) for target in targets)


class PaperMaster(MasterEquations):
    """Profile P, the key server's side."""

    def __init__(self, pairing: Pairing, secrets: dict[str, int]) -> None:
        self._pairing = pairing
        self._secret = secrets
        self._g2 = second_generator(pairing)

    def points(self) -> tuple[dict[str, bytes], list[bytes]]:
        pairing = self._pairing
        names = {"h": "phi", "hr": "phi_r", "y": "alpha"}
        made = {name: pairing.times2(pairing.g2, self._secret[secret]) for name, secret in names.items()}
        return {name: pairing.encode2(point) for name, point in made.items()}, []

    def bond(self, gamma: int) -> bytes:
        exponent = (gamma + self._secret["alpha"]) * inverse(self._secret["phi"]) % ORDER
        return self._pairing.encode1(self._pairing.times1(self._g2, exponent))

    def credential(self, gamma: int, t: int, credential: bytes) -> tuple[bytes, bytes]:
        pairing = self._pairing
        hidden = pairing.times1(pairing.hash1(credential, TAG_W), t)
        first = pairing.plus1(pairing.times1(self._g2, gamma), hidden)
        return pairing.encode1(first), pairing.encode2(pairing.times2(pairing.g2, t))

    def paper_token(self, credential: bytes) -> bytes:
        point = self._pairing.hash1(credential, TAG_ROUTE1)
        return self._pairing.encode1(self._pairing.times1(point, self._secret["phi_r"]))
