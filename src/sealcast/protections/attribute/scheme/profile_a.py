"""Profile A, anonymous: what travels with an event is in G1, what subscribers hold is in G2.

    secret   alpha, phi, phi_r, z, y_0 .. y_256      w(s) = y_0 + the sum of y_k over the bits of H1(s)
    public   h = phi g   hr = phi_r g   u_k = y_k g   y = alpha z g;     Y = e(g, G)^(alpha z) = e(y, G)
    Pr1 = (z gamma + t w) G    Pr2 = t G    Pr3 = phi_r H3(Pu)    Pr4 = (z (gamma + alpha) / phi) G
    CT'_ij = H4(e(hr, H3(Pu))^b_i)

Why a guess cannot be tested: e(CT_ij, G) = e(W(guess), CT_i) needs CT_i, or W(guess), in G2. CT_i is in G1, and the u_k
have no image in G2 but in the key server's memory (the idea of Ducas, CT-RSA 2010). This is argued, not proved: it
rests on DDH in G1.

Why `y` may be public: no element of G2 has b in its logarithm, so that y pairs with nothing to alpha z b; and in any
equation between pairings, terms with y have no b, so that they say nothing about a ciphertext. Its image in G2 would
open every event, and nobody ever computes it but as a part of Pr4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from sealcast.primitives.pairing import G2, ORDER, Pairing, Target, inverse
from sealcast.protections.attribute.scheme import waters
from sealcast.protections.attribute.scheme.equations import Equations, MasterEquations, OwnCredential, read_point
from sealcast.protections.attribute.scheme.naming import TAG_ROUTE2, hashed_target
from sealcast.wire.attribute_keys import ParameterBytes


class AnonymousEquations(Equations):
    """Profile A, the public side."""

    def __init__(self, pairing: Pairing, parameters: ParameterBytes) -> None:
        super().__init__(pairing)
        self._h, self._hr, self._y = (
            read_point(pairing.decode1, name, parameters.points[name]) for name in ("h", "hr", "y")
        )
        points = [read_point(pairing.decode1, "a point of the Waters hash", point) for point in parameters.waters]
        self.label_point = waters.WatersHash(pairing, points).point
        self._route_point = lru_cache(waters.MAX_CACHED_POINTS)(self._hashed)

    def _key_paired(self, b: int) -> Target:
        return self.pairing.product([(self.pairing.times1(self._y, b), self.pairing.g2)])

    def _first(self, b: int) -> bytes:
        return self.pairing.encode1(self.pairing.times1(self.pairing.g1, b))

    def _second(self, b: int) -> bytes:
        return self.pairing.encode1(self.pairing.times1(self._h, b))

    def decapsulate(self, second: bytes, bond: bytes, own: Sequence[OwnCredential]) -> bytes:
        pairing = self.pairing
        pairs = [(read_point(pairing.decode1, "CT2", second), self.own2(bond))]
        for one in own:
            first = read_point(pairing.decode1, "CT_i", one.ct_first)
            label = read_point(pairing.decode1, "CT_ij", one.ct_label)
            pairs.append((pairing.minus1(first), self.own2(one.first)))
            pairs.append((label, self.own2(one.second)))
        return pairing.target_bytes(pairing.product(pairs))

    def _hashed(self, credential: bytes) -> G2:
        return self.pairing.hash2(credential, TAG_ROUTE2)

    def _base_target(self, credential: bytes) -> Target:
        return self.pairing.product([(self._hr, self._route_point(credential))])

    def _paired_tags(self, b: int, credentials: Iterable[bytes]) -> list[bytes]:
        pairing, raised = self.pairing, self.pairing.times1(self._hr, b)
        targets = (pairing.product([(raised, self._route_point(credential))]) for credential in credentials)
        return [hashed_target(pairing.target_bytes(target)) for target in targets]

    def expected_tags(self, tokens: Iterable[bytes], ct_first: bytes) -> Iterator[bytes]:
        pairing, first = self.pairing, read_point(self.pairing.decode1, "CT_i", ct_first)
        targets = (pairing.product([(first, self.own2(token))]) for token in tokens)
        return (hashed_target(pairing.target_bytes(target)) for target in targets)


class AnonymousMaster(MasterEquations):
    """Profile A, the key server's side."""

    def __init__(self, pairing: Pairing, secrets: dict[str, int], bits: Sequence[int]) -> None:
        self._pairing = pairing
        self._secret = secrets
        self._bits = bits

    def points(self) -> tuple[dict[str, bytes], list[bytes]]:
        def public(exponent: int) -> bytes:
            return self._pairing.encode1(self._pairing.times1(self._pairing.g1, exponent))

        y = self._secret["alpha"] * self._secret["z"] % ORDER
        named = {"h": public(self._secret["phi"]), "hr": public(self._secret["phi_r"]), "y": public(y)}
        return named, [public(bit) for bit in self._bits]

    def bond(self, gamma: int) -> bytes:
        exponent = self._secret["z"] * (gamma + self._secret["alpha"]) * inverse(self._secret["phi"])
        return self._in_g2(exponent)

    def credential(self, gamma: int, t: int, credential: bytes) -> tuple[bytes, bytes]:
        w = waters.exponent(self._bits, credential)
        return self._in_g2(self._secret["z"] * gamma + t * w), self._in_g2(t)

    def paper_token(self, credential: bytes) -> bytes:
        point = self._pairing.hash2(credential, TAG_ROUTE2)
        return self._pairing.encode2(self._pairing.times2(point, self._secret["phi_r"]))

    def _in_g2(self, exponent: int) -> bytes:
        return self._pairing.encode2(self._pairing.times2(self._pairing.g2, exponent % ORDER))
